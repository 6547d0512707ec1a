"""How much faster a sweep is on two worker processes than on one; here, and on a Dask cluster.

The same scenarios are planned anew by each number of workers, in one run; the ratio is of whole
sweeps, the start of the processes and everything that is not planning included.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.inventories import EXAMPLES
from e2llm_opt import sweep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LEAST_RATIO = 1.7
NUM_SCENARIOS = 100
_SWEEP = """\
inventories:
  - {{file: {examples}/homelab.yaml}}
  - {{name: homelab on vllm, file: {examples}/homelab.yaml, runtime: vllm}}
  - {{name: testbed, file: {examples}/e2llm-testbed.yaml, objective: throughput}}
  - {{name: fleet, file: {examples}/jetson-fleet.yaml, objective: throughput}}
rates_per_s: {rates}
"""
"""Scenarios of some tenths of a second each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One sweep: how many workers of which kind, how long it took, and what its processes used."""

    kind: str
    workers: int
    scenarios: int
    wall_s: float
    """From the start of the processes to the table [s]."""
    cpu_s: float
    """Of all processes but this one [s]."""

    @property
    def share_of_cores(self) -> float:
        """What the workers got of as many cores: little where other programs are running."""
        return self.cpu_s / (self.workers * self.wall_s)


def measured(num_scenarios: int = NUM_SCENARIOS, runs: int = 1, *, dask: bool) -> list[Measured]:
    """Return the sweeps, two workers before one and then one before two, so that neither is first.

    Parameters
    ----------
    num_scenarios
        How many are planned, about.
    runs
        Of each kind and number.
    dask
        Whether a Dask cluster of this machine is measured, too.
    """
    found = []
    for run in range(runs):
        for workers in (2, 1) if run % 2 == 0 else (1, 2):
            found.append(_swept("processes", workers, num_scenarios))
            if dask:
                found.append(_swept("Dask", workers, num_scenarios))
    return found


def _swept(kind: str, workers: int, num_scenarios: int) -> Measured:
    rates = [round(0.02 + 0.001 * i, 3) for i in range(max(1, num_scenarios // 4))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sweep.yaml"
        path.write_text(_SWEEP.format(examples=EXAMPLES, rates=rates), encoding="utf-8")
        began, used = time.perf_counter(), _used_by_children()
        if kind == "Dask":
            with _cluster(workers) as address:
                rows = sweep(path, Path(folder) / "results.csv", dask=address)
                wall_s = time.perf_counter() - began
        else:
            rows = sweep(path, Path(folder) / "results.csv", workers=workers)
            wall_s = time.perf_counter() - began
    assert {row.status for row in rows} == {"planned"}
    return Measured(
        kind=kind,
        workers=workers,
        scenarios=len(rows),
        wall_s=wall_s,
        cpu_s=_used_by_children() - used,
    )


def _used_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _cluster(workers: int) -> Iterator[str]:
    from distributed import LocalCluster  # noqa: PLC0415 - only where it is asked for

    with LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


def ratio(found: Sequence[Measured], kind: str) -> float:
    """Return the fastest sweep on one worker by the fastest on two."""
    one, two = (
        min(one.wall_s for one in found if one.kind == kind and one.workers == workers)
        for workers in (1, 2)
    )
    return one / two


def table(found: Sequence[Measured]) -> str:
    """Return the sweeps as a Markdown table."""
    lines = [
        "| workers | scenarios | whole sweep [s] | CPU time [s] | share of cores |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.workers} {one.kind} | {one.scenarios} | {one.wall_s:.1f} | {one.cpu_s:.1f} "
        f"| {one.share_of_cores:.0%} |"
        for one in found
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure and print; 1 where the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=NUM_SCENARIOS)
    parser.add_argument("--runs", type=int, default=1, help="of which the fastest counts")
    parser.add_argument("--dask", action="store_true", help="a Dask cluster of this machine, too")
    options = parser.parse_args()
    found = measured(options.scenarios, options.runs, dask=options.dask)
    print(table(found))
    kinds = sorted({one.kind for one in found})
    ratios = {kind: ratio(found, kind) for kind in kinds}
    for kind, value in ratios.items():
        print(f"\n{kind}: two workers are {value:.2f} times as fast as one (target {LEAST_RATIO})")
    return int(ratios["processes"] < LEAST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
