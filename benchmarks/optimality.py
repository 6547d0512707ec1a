"""How far from the best: our search alone, polished, exact, and every other planner.

``python -m benchmarks.optimality`` measures all instances, ``--quick`` a few of each size in less
than three minutes, ``--plot FILE`` draws gap over time. The best known capacity of each instance
stands in benchmarks/instances/best_known.json and is only ever raised.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import e2llm_opt
from benchmarks import neutral, optimality_set
from e2llm_opt.plan.plan import OURS, Plan
from e2llm_opt.planners import PLANNERS
from e2llm_opt.search.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import Progress

BEST_KNOWN = Path(__file__).parent / "instances" / "best_known.json"
METHODS: dict[str, Stop] = {
    "exact": Stop(),
    "GA + polish": Stop(method="ga"),
    "GA alone": Stop(method="ga", max_refinements=0),
}
_LIMIT_S, _QUICK_S = 20.0, 4.0
_PLANNER_STOP = Stop(max_evaluations=400, max_refinements=0, time_limit_s=10.0)
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


def measured(names: Sequence[str], planners: Sequence[str], methods: dict[str, Stop]) -> list[Run]:
    """Return every method and planner on every instance."""
    e2llm_opt.plan(optimality_set.instance("distinct-4-0"))  # compiles
    runs: list[Run] = []
    for name in names:
        problem = optimality_set.instance(name)
        runs += [run(name, method, problem, {"stop": stop}) for method, stop in methods.items()]
        runs += [
            run(name, planner, problem, {"planner": planner, "stop": _PLANNER_STOP})
            for planner in planners
        ]
    return runs


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


def _family(name: str) -> str:
    return name.rpartition("-")[0] if "-" in name else "common ground"


def main() -> None:
    """Measure, remember what is better, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few instances of each size")
    parser.add_argument("--only", help="instances whose names begin so")
    parser.add_argument("--plot", help="draw gap over time to this file")
    options = parser.parse_args()
    names = [*(optimality_set.quick_names() if options.quick else optimality_set.names())]
    if options.only:
        names = [name for name in names if name.startswith(options.only)]
    rivals = _QUICK_PLANNERS if options.quick else [name for name in PLANNERS if name != OURS]
    seconds = _QUICK_S if options.quick else _LIMIT_S
    methods = {name: replace(stop, time_limit_s=seconds) for name, stop in METHODS.items()}
    runs = measured(names, rivals, methods)
    print(table(runs, remembered(runs)))
    print(f"\nLeft open by the exact method:\n\n{bounds(runs)}")
    print(f"\nBy the neutral scorer:\n\n{common_ground()}")
    if options.plot:
        plot(runs, options.plot)


if __name__ == "__main__":
    main()
