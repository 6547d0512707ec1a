"""How far from the best: our search alone, polished, exact, and every other planner.

``python benchmarks/optimality.py`` measures all instances, ``--quick`` a few of each size in less
than three minutes, ``--plot FILE`` draws gap over time, ``--write-docs`` writes docs/optimality.md.
Runs are added to ``--runs FILE`` as they end; ``--from-runs FILE`` shows those of files instead.
The best known capacity of each instance stands in benchmarks/instances/best_known.json and is only
ever raised.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

import e2llm_opt
from benchmarks import neutral, optimality_set
from e2llm_opt.plan.plan import OURS, Plan
from e2llm_opt.planners import PLANNERS
from e2llm_opt.search.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import Progress

_DOCS = Path(__file__).parents[1] / "docs"
BEST_KNOWN = Path(__file__).parent / "instances" / "best_known.json"
METHODS: dict[str, Stop] = {
    "exact": Stop(),
    "GA + polish": Stop(method="ga"),
    "GA alone": Stop(method="ga", max_refinements=0),
}
_QUICK_S, _GA_S, _PLANNER_S = 4.0, 5.0, 3.0
"""Most time of each genetic algorithm, with ``--quick`` and without, and of another planner [s]."""
_MANY_DEVICES = 64
"""Above so many, only our own method is asked: one grouping alone takes the others minutes."""
_QUICK_PLANNERS = ("all-mixed", "parallax", "memory-proportional")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One method on one instance."""

    instance: str
    method: str
    capacity: float
    bound: float | None
    proof: str
    seconds: float
    curve: tuple[tuple[float, float], ...]
    """Time [s] and gap to the bound known then, as the search told them."""

    @property
    def gap(self) -> float | None:
        """Gap to the method's own bound."""
        if self.bound is None:
            return None
        return (self.bound - self.capacity) / self.bound if self.bound else 0.0


def run(name: str, method: str, problem: Problem, options: dict[str, Any]) -> Run:
    """Plan once."""
    curve: list[tuple[float, float]] = []

    def note(progress: Progress) -> None:
        if progress.gap is not None:
            curve.append((progress.elapsed_s, progress.gap))

    began = time.perf_counter()
    found = e2llm_opt.plan(problem, progress=note, **options)
    seconds = time.perf_counter() - began
    if not isinstance(found, Plan):
        return Run(
            instance=name,
            method=method,
            capacity=0.0,
            bound=None,
            proof="no plan",
            seconds=seconds,
            curve=(),
        )
    return Run(
        instance=name,
        method=method,
        capacity=found.predicted.capacity_per_s,
        bound=found.bound.capacity_per_s,
        proof=str(found.bound.proof),
        seconds=seconds,
        curve=tuple(curve),
    )


def measured(names: Sequence[str], planners: Sequence[str], most_s: float) -> Iterator[Run]:
    """Yield every method and planner on every instance; *most_s* limits all but the exact one."""
    e2llm_opt.plan(optimality_set.instance("distinct-4-0"))  # compiles
    for name in names:
        problem = optimality_set.instance(name)
        whole_s = optimality_set.limit_s(name)
        is_large = len(problem.devices) > _MANY_DEVICES
        for method, stop in METHODS.items():
            if is_large and method != "exact":
                continue
            limit_s = whole_s if method == "exact" else min(most_s, whole_s)
            yield run(name, method, problem, {"stop": replace(stop, time_limit_s=limit_s)})
        if not is_large:
            stop = Stop(
                max_evaluations=400, max_refinements=0, time_limit_s=min(most_s, _PLANNER_S)
            )
            for planner in planners:
                yield run(name, planner, problem, {"planner": planner, "stop": stop})


def remembered(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Return the best known capacities with those of *runs* taken in, and write them."""
    known: dict[str, dict[str, Any]] = {}
    if BEST_KNOWN.exists():
        known = json.loads(BEST_KNOWN.read_text(encoding="utf-8"))
    for one in runs:
        old = known.get(one.instance, {"capacity_per_s": 0.0, "proof": "none"})
        is_better = one.capacity > old["capacity_per_s"] * (1 + 1e-6)
        is_proven = one.proof == "optimal" != old["proof"]
        if is_better or (is_proven and one.capacity >= old["capacity_per_s"] * (1 - 1e-6)):
            known[one.instance] = {
                "capacity_per_s": max(one.capacity, old["capacity_per_s"]),
                "proof": one.proof,
                "method": one.method,
            }
    text = json.dumps(known, indent=1, sort_keys=True) + "\n"
    BEST_KNOWN.write_text(text, encoding="utf-8")
    return known


def table(runs: Sequence[Run], known: dict[str, dict[str, Any]]) -> str:
    """Return one line a family and method: gaps to the best known, proofs, times."""
    lines = [
        "| instances | method | proven | median gap | worst gap | median time [s] | worst [s] |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    families = list(dict.fromkeys(_family(one.instance) for one in runs))
    for family in families:
        for method in dict.fromkeys(one.method for one in runs):
            own = [r for r in runs if _family(r.instance) == family and r.method == method]
            if not own:
                continue
            gaps = [1 - r.capacity / known[r.instance]["capacity_per_s"] for r in own]
            times = [r.seconds for r in own]
            proven = sum(r.proof == "optimal" for r in own)
            lines.append(
                f"| {family} | {method} | {proven} of {len(own)} "
                f"| {100 * statistics.median(gaps):.2f} % | {100 * max(gaps):.2f} % "
                f"| {statistics.median(times):.2f} | {max(times):.2f} |"
            )
    return "\n".join(lines)


def bounds(runs: Sequence[Run]) -> str:
    """Return what the exact method leaves open, instance by instance."""
    lines = [
        "| instance | capacity [1/s] | bound [1/s] | gap | time [s] |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {one.instance} | {one.capacity:.5g} | {one.bound:.5g} | {100 * (one.gap or 0):.2f} % "
        f"| {one.seconds:.2f} |"
        for one in runs
        if one.method == "exact" and one.bound is not None and one.proof != "optimal"
    ]
    return "\n".join(lines) if len(lines) > 2 else "Nothing is left open."


def figures(runs: Sequence[Run]) -> str:
    """Return what was promised of each size, and what was reached."""
    exact = [one for one in runs if one.method == "exact"]
    lines = ["| figure | reached |", "|---|---|"]

    def line(what: str, own: list[Run], reached: str) -> None:
        if own:
            lines.append(f"| {what} | {reached} |")

    few = [r for r in exact if r.instance.startswith("distinct")]
    proven = sum(r.proof == "optimal" for r in few)
    middle = statistics.median(r.seconds for r in few) if few else 0.0
    line(
        "at most 10 distinct devices: optimum proven everywhere, median time at most 2 s",
        few,
        f"proven on {proven} of {len(few)}, median {middle:.2f} s",
    )
    for least, most, goal in (
        (12, 40, "12 to 40 devices in classes: proven, or gap at most 0.5 %, within 10 s"),
        (64, 64, "64 devices: gap at most 2 % in 20 s"),
        (300, 300, "300 distinct devices: gap at most 5 % in 60 s"),
        (1000, 1000, "1,000 devices in 12 classes: gap at most 5 % in 60 s"),
    ):
        own = [r for r in exact if least <= _size(r.instance) <= most and "class" in r.instance]
        gaps = ", ".join(f"{100 * (r.gap or 0):.2f} % in {r.seconds:.1f} s" for r in own)
        if len(own) > 2:
            worst, slowest = max(r.gap or 0 for r in own), max(r.seconds for r in own)
            gaps = f"{len(own)} instances: gap at most {100 * worst:.2f} % in {slowest:.1f} s"
        line(goal, own, gaps)
    return "\n".join(lines)


def _read(file: str) -> list[Run]:
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [Run(**one | {"curve": tuple(map(tuple, one["curve"]))}) for one in found]


def _size(name: str) -> int:
    return int(name.split("-")[1]) if "-" in name else 0


def common_ground() -> str:
    """Return our plans by the neutral scorer, and what a long annealing on it reached."""
    lines = [
        "| instance | ours | annealing | ours / annealing | time [s] |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, reached in neutral.ANNEALING.items():
        began = time.perf_counter()
        plan = e2llm_opt.plan(neutral.problem(name))
        seconds = time.perf_counter() - began
        ours = neutral.score(name, plan) if isinstance(plan, Plan) else 0.0
        lines.append(f"| {name} | {ours:.4f} | {reached} | {ours / reached:.4f} | {seconds:.2f} |")
    return "\n".join(lines)


def plot(runs: Sequence[Run], file: str) -> None:
    """Draw the gap over time of each method, one line an instance."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - as above

    figure, axes = plt.subplots(figsize=(7, 4))
    for colour, method in zip(("C0", "C1"), ("exact", "GA + polish"), strict=True):
        label = method
        for one in runs:
            if one.method == method and one.curve:
                times, gaps = zip(*one.curve, strict=True)
                axes.step(
                    times,
                    [100 * g for g in gaps],
                    where="post",
                    color=colour,
                    alpha=0.5,
                    label=label,
                )
                label = "_"
    axes.set(xlabel="time [s]", ylabel="gap to the bound [%]", xscale="log")
    axes.legend()
    figure.savefig(file, bbox_inches="tight")


_PAGE = """# How far from the best

Every plan says how far from the best it can be (`bound`); [the algorithm](algorithm.md) says how.
This page holds our method against the best capacity known of {num} instances, and every other
[planner](planners.md) too. Written by `python benchmarks/optimality.py {options}`; one run on two
cores, which others may have shared.

The instances are made from seeds (`benchmarks/optimality_set.py`): devices of 6 to 24 GiB on a
switch, or on several sites with slower trunks, and a model in 4 bits that most devices hold alone
(8B), that takes two (14B), or more (32B). The best known values stand in
`benchmarks/instances/best_known.json`, and are only ever raised.

## How far, and how fast

*exact* is what `plan` does for throughput; *GA + polish* has a bound and polishes but evolves its
groupings; *GA alone* is a genetic algorithm and nothing else. Both get 5 s and other planners 3 s;
above 64 devices only *exact* is asked. Gaps are those to the best known capacity.

{table}

## What was promised

{figures}

## What the exact method leaves open

{bounds}

## By another scorer

Two small inventories of a comparison of public schedulers, and the scorer that comes with it
(`benchmarks/neutral.py`): a long simulated annealing on that very score against `plan`, which
does not know it.

{common}

## Gap over time

![gap over time](optimality.svg)
"""


def _family(name: str) -> str:
    return name.rpartition("-")[0] if "-" in name else "common ground"


def main() -> None:
    """Measure, remember what is better, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few instances of each size")
    parser.add_argument("--only", help="instances whose names begin so")
    parser.add_argument("--plot", help="draw gap over time to this file")
    parser.add_argument("--runs", help="add every run to this file")
    parser.add_argument("--from-runs", action="append", default=[], help="run nothing, show these")
    parser.add_argument("--write-docs", action="store_true", help="write docs/optimality.md anew")
    options = parser.parse_args()
    names = [*(optimality_set.quick_names() if options.quick else optimality_set.names())]
    if options.only:
        names = [name for name in names if name.startswith(options.only)]
    rivals = _QUICK_PLANNERS if options.quick else [name for name in PLANNERS if name != OURS]
    console = Console(stderr=True)
    runs = [one for file in options.from_runs for one in _read(file)]
    names = [] if options.from_runs else names
    for one in measured(names, rivals, _QUICK_S if options.quick else _GA_S):
        runs.append(one)
        if options.runs:
            with Path(options.runs).open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(one)) + "\n")
        console.print(f"{len(runs)} runs, {one.instance}, {one.method}          ", end="\r")
    text = _PAGE.format(
        options="--quick --write-docs" if options.quick else "--write-docs",
        num=len({one.instance for one in runs}),
        table=table(runs, remembered(runs)),
        figures=figures(runs),
        bounds=bounds(runs),
        common=common_ground(),
    )
    print(text[text.index("## How far") :])
    if options.write_docs:
        (_DOCS / "optimality.md").write_text(text, encoding="utf-8")
    plotted = options.plot or (_DOCS / "optimality.svg" if options.write_docs else None)
    if plotted:
        plot(runs, str(plotted))


if __name__ == "__main__":
    main()
