"""Run every benchmark and write docs/benchmarks.md: no figure there is typed by hand."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import ga_quality, processes, queueing_error, simulator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
SPEED = ROOT / "build" / "speed.json"
_TARGETS_MS = {
    "bottleneck, 8 distinct devices": 1.0,
    "bottleneck, 10 distinct devices": 10.0,
    "bottleneck, 12 distinct devices": 60.0,
    "bottleneck, 20 in 4 classes devices": 20.0,
}
_PAGE = """\
# Benchmarks

Written by `make bench`; do not edit. Measured on {date} at commit {commit}.

Machine: {machine}. Load when it began: {load}.{quick}

Targets are for medians. On a machine that does other things at the same time, the fastest run says
more about the program.

## Whole processes

{processes}

The first run compiles the kernels; numba keeps them beside the package, or in `NUMBA_CACHE_DIR`.

## Steps

In a process that has compiled everything. `plain` is the same program in plain Python
(`benchmarks/plain.py`), run once on the same arrays, with the same answer; the ratio is that of the
fastest runs. A partition finds order and cut for one decode step over 32 layers.

{speed}

## The genetic algorithm against enumeration

The testbed has seven devices, so that all groupings can be enumerated. The genetic algorithm
(`--method ga`) starts from {num_seeds} seeds; {num_optimal} of them reach the optimum.

{quality}

## The simulator

`python benchmarks/simulator.py`: Poisson arrivals at 80 % of the capacity, a process a row.

{simulator}

## Waiting times: predicted against simulated

A plan's waiting time comes from formulas ([Cost model](cost-model.md#queueing)); the
[simulator](simulator.md) plays the plan out. Poisson arrivals at shares of the plan's capacity,
mean over all requests, {requests} a run, and at least {min_runs} and at most {max_runs} runs with
unlike seeds, until the standard error is {precision:.0%} of the mean (`noise` is what is left, the
median of a row). The {num_plans} plans are those of our planner and of others for several
inventories, engines and lengths, and the four that the E2LLM paper prints. `bias` is the median of
the relative errors, `median` that of their absolute values. `python -m benchmarks.queueing_error`
prints every plan that misses.

The figure is {disaggregated:.0%} for P/D plans, and {mixed:.0%} or {mixed_s:g} s where there are
MIXED replicas, up to {judged:.0%} utilisation. {num_missed} of {num_cells} cells miss it. In
{num_unstable} more cells the simulation has no steady state: the plan's slots are so short of
memory that its stated capacity, which is that of mean requests, is never reached.

{waits}

The plans that miss the figure by most, each at its worst load (`P1/2`: a PREFILL replica of two
stages; `M14/3`: a MIXED one with 14 slots and three stages):

{missed}
"""


_QUICK = (
    " A quick run: each process once, and waits of a part of the plans; `make bench` measures all."
)


def main() -> None:
    """Measure, write the page, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="fewer runs and plans; the page says so"
    )
    is_quick = parser.parse_args().quick
    load = f"{os.getloadavg()[0]:.1f} processes"
    text = _PAGE.format(
        load=load,
        date=datetime.now(UTC).date().isoformat(),
        commit=_output("git", "describe", "--always", "--dirty") or "unknown",
        machine=_machine(),
        speed=_speed_table(),
        quick=_QUICK if is_quick else "",
        processes=processes.table(processes.measured(most_runs=1 if is_quick else None)),
        simulator=simulator.table(simulator.measured(), simulator.against_the_plain_model()),
        **_quality(),
        **_waits(is_quick=is_quick),
    )
    PAGE.write_text(text, encoding="utf-8")
    print(text)


def _quality() -> dict[str, Any]:
    runs = ga_quality.measured()
    return {
        "quality": ga_quality.table(runs),
        "num_optimal": ga_quality.num_optimal(runs),
        "num_seeds": ga_quality.NUM_SEEDS,
    }


def _waits(*, is_quick: bool) -> dict[str, Any]:
    cells = list(queueing_error.measured(quick=is_quick))
    return {
        "waits": queueing_error.table(cells),
        "missed": queueing_error.missed_table(cells),
        "requests": queueing_error.REQUESTS,
        "min_runs": queueing_error.MIN_RUNS,
        "max_runs": queueing_error.MAX_RUNS,
        "precision": queueing_error.PRECISION,
        "disaggregated": queueing_error.DISAGGREGATED,
        "mixed": queueing_error.MIXED,
        "mixed_s": queueing_error.MIXED_S,
        "judged": queueing_error.JUDGED_UP_TO,
        **queueing_error.totals(cells),
    }


def _speed_table() -> str:
    SPEED.parent.mkdir(exist_ok=True)
    arguments = ["-q", "benchmarks", "--benchmark-only", f"--benchmark-json={SPEED}"]
    subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, check=True)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for entry in json.loads(SPEED.read_text(encoding="utf-8"))["benchmarks"]:
        who = "plain" if "plain" in entry["name"] else "ours"
        found.setdefault(entry["group"], {})[who] = entry["stats"]
    lines = [
        "| step | median [ms] | target [ms] | fastest [ms] | plain [ms] | plain / ours |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    return "\n".join(lines + [_row(group, stats) for group, stats in found.items()])


def _row(group: str, stats: dict[str, dict[str, float]]) -> str:
    ours = stats["ours"]
    target = f"{_TARGETS_MS[group]:g}" if group in _TARGETS_MS else ""
    plain, ratio = "", ""
    if "plain" in stats:
        fastest = stats["plain"]["min"]
        plain, ratio = f"{1e3 * fastest:.3g}", f"{fastest / ours['min']:.0f}"
    return (
        f"| {group} | {1e3 * ours['median']:.3g} | {target} | {1e3 * ours['min']:.3g} "
        f"| {plain} | {ratio} |"
    )


def _machine() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("numba", "numpy", "pymoo"))
    return (
        f"{_processor()}, {os.cpu_count()} cores, {platform.system()}, "
        f"Python {platform.python_version()}, {versions}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text(encoding="utf-8").splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


if __name__ == "__main__":
    main()
