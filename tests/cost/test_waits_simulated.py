"""Predicted waits against simulated ones, on plans of each kind: as far off as docs admit."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import Lengths, Plan, Problem, plan
from e2llm_opt.simulate.simulate import simulate
from e2llm_opt.workload.arrivals import draw_arrivals
from tests.cost.test_lengths import TESTBED

if TYPE_CHECKING:
    from e2llm_opt.constraints import Roles


def planned(roles: Roles, load: float) -> tuple[Plan, Problem]:
    """Return our plan in these roles for the testbed at a share of its capacity."""
    asked = Problem.load(TESTBED)
    workload = replace(
        asked.workload,
        prompt=Lengths(mean=576),
        output=Lengths(mean=588),
        context_tokens=0,
        rate_per_s=0.3,
    )
    ruled = replace(asked, workload=workload, constraints=replace(asked.constraints, roles=roles))
    first = plan(ruled)
    assert isinstance(first, Plan)
    rate = load * first.predicted.capacity_per_s
    problem = replace(ruled, workload=replace(workload, rate_per_s=rate))
    found = plan(problem)
    assert isinstance(found, Plan)
    return found, problem


@pytest.mark.slow
@pytest.mark.parametrize(("roles", "relative"), [("disaggregated", 0.15), ("mixed", 0.30)])
@pytest.mark.parametrize("load", [0.4, 0.75])
def test_a_plan_waits_as_long_as_it_says(roles: Roles, relative: float, load: float) -> None:
    found, problem = planned(roles, load)
    waits = []
    for seed in range(4):
        arrivals = draw_arrivals(problem.workload, 40_000, seed=seed)
        run = simulate(found, problem, arrivals, warmup=2_000)
        waits.append(float(run.waiting_time_s[run.counted].mean()))
    simulated = statistics.mean(waits)
    assert found.predicted.waiting_time_s is not None
    off = abs(found.predicted.waiting_time_s - simulated)
    assert off <= relative * simulated or (roles == "mixed" and off <= 0.4)
