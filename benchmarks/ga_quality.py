"""How often the genetic algorithm finds what enumeration proves to be the best: ten seeds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import inventories
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.ranking import Key

NUM_SEEDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One search: what sorts plans (the smaller, the better), what it found, and how long."""

    name: str
    key: Key
    waiting_s: float
    latency_s: float
    evaluations: int
    elapsed_s: float


def search(problem: Problem, name: str, stop: Stop, seed: int = 0) -> Run:
    """Search once, nothing remembered but the cost tables."""
    began = time.perf_counter()
    run = Search(costs_of(problem))
    run.run(stop, seed)
    best = run.best(Scope.ANY)
    if best is None:
        raise SystemExit(f"{name}: no plan for the testbed")
    return Run(
        name=name,
        key=run.evaluator.key(best),
        waiting_s=best.waiting_time_s,
        latency_s=best.latency_s,
        evaluations=run.evaluator.num_evaluations,
        elapsed_s=time.perf_counter() - began,
    )


def measured() -> list[Run]:
    """Return the exhaustive search of the testbed, then the genetic algorithm with each seed."""
    problem = inventories.testbed()
    search(problem, "compiles", Stop(max_evaluations=1, method="ga"))
    return [
        search(problem, "exhaustive", Stop(method="exhaustive")),
        *(
            search(problem, f"GA, seed {seed}", Stop(method="ga"), seed)
            for seed in range(NUM_SEEDS)
        ),
    ]


def num_optimal(runs: list[Run]) -> int:
    """Return how many of the runs behind the first reach its key."""
    return sum(run.key <= runs[0].key for run in runs[1:])


def table(runs: list[Run]) -> str:
    """Return the runs as a Markdown table."""
    lines = [
        "| search | optimal | waiting [ms] | latency [s] | sets of replicas | time [s] |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {run.name} | {'yes' if run.key <= runs[0].key else 'no'} | {1e3 * run.waiting_s:.3g} "
        f"| {run.latency_s:.5g} | {run.evaluations} | {run.elapsed_s:.2f} |"
        for run in runs
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    runs = measured()
    print(table(runs))
    print(f"\noptimal: {num_optimal(runs)} of {NUM_SEEDS} seeds")


if __name__ == "__main__":
    main()
