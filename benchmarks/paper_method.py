"""Our search beside the E2LLM paper's own method on its testbed, for both of its workloads."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks import inventories
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import planner_named
from e2llm_opt.search.stop import Stop
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem

PAPER = "e2llm-paper"
SHARES = (0.6, 0.9)
"""Arrival rates, as shares of the capacity that the paper's method reaches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One search of one workload at one rate."""

    workload: str
    rate_per_s: float
    planner: str
    capacity_per_s: float
    waiting_s: float
    latency_s: float
    roles: str
    elapsed_s: float


def problems() -> dict[str, Problem]:
    """Return the testbed with the paper's two data sets, by the paper's names for them."""
    problem = inventories.testbed()
    custom = Workload(
        prompt=Lengths(mean=2284),
        output=Lengths(mean=1004),
        min_tokens_per_s=problem.workload.min_tokens_per_s,
    )
    return {"extended": problem, "custom extended": replace(problem, workload=custom)}


def search(problem: Problem, name: str, rate_per_s: float, planner: str) -> Run:
    """Search once; nothing is remembered but the cost tables."""
    problem = replace(problem, workload=replace(problem.workload, rate_per_s=rate_per_s))
    costs = costs_of(problem)
    began = time.perf_counter()
    run = planner_named(planner)(costs)
    run.run(Stop(), 0)
    best = next(iter(run.ranked(1)), None)
    elapsed = time.perf_counter() - began
    if best is None:
        raise SystemExit(f"{name}: {planner} finds no plan")
    roles = sorted(str(replica.role) for replica in best.replicas)
    return Run(
        workload=name,
        rate_per_s=rate_per_s,
        planner=planner,
        capacity_per_s=best.traffic.capacity_per_s,
        waiting_s=best.waiting_time_s,
        latency_s=best.latency_s,
        roles=", ".join(f"{roles.count(role)} {role}" for role in dict.fromkeys(roles)),
        elapsed_s=elapsed,
    )


def measured() -> list[Run]:
    """Return both planners at both loads of both workloads; the first run only compiles."""
    found = []
    for name, problem in problems().items():
        capacity = search(problem, name, 1e3, PAPER).capacity_per_s
        search(problem, name, 1e3, OURS)
        for share in SHARES:
            found += [search(problem, name, share * capacity, who) for who in (OURS, PAPER)]
    return found


def table(runs: list[Run]) -> str:
    """Return the runs as a Markdown table."""
    names = ("workload", "arrivals [1/s]", "planner", "capacity [1/s]", "wait [s]", "latency [s]")
    lines = [
        f"| {' | '.join(names)} | roles | time [s] |",
        "|---|---:|---|---:|---:|---:|---|---:|",
    ]
    lines += [
        f"| {run.workload} | {run.rate_per_s:.3f} | {run.planner} | {run.capacity_per_s:.3f} "
        f"| {run.waiting_s:.3g} | {run.latency_s:.4g} | {run.roles} | {run.elapsed_s:.2f} |"
        for run in runs
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    print(table(measured()))


if __name__ == "__main__":
    main()
