"""The final ranking: simulated on the same arrivals, by the objective, the same each time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import e2llm_opt
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.plan import Plan
from e2llm_opt.planners import PLANNERS, planner_named
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.search.rank_by_simulation import rank_by_simulation, simulate_outcome
from e2llm_opt.search.stop import Stop
from e2llm_opt.simulate.simulate import simulate
from e2llm_opt.workload.arrivals import draw_arrivals
from tests.simulate.small import ROOT

if TYPE_CHECKING:
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.workload.trace import Trace

STOP = Stop(max_evaluations=40)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem.load(
        ROOT / "examples" / "homelab.yaml", model="llama-3.2-3b", workload={"rate_per_s": 0.4}
    )


@pytest.fixture(scope="module")
def arrivals(problem: Problem) -> Trace:
    return draw_arrivals(problem.workload, 300)


@pytest.fixture(scope="module")
def outcomes(problem: Problem) -> list[Outcome]:
    search = planner_named("e2llm-opt")(costs_of(problem))
    search.run(STOP, 0)
    return search.ranked(6)


def evaluator(problem: Problem) -> Evaluator:
    found = planner_named("e2llm-opt")(costs_of(problem)).evaluator
    assert 1e-3 <= found.ranking.wait_unit_s < 0.1
    return found


def test_the_best_by_simulation_comes_first(
    problem: Problem, outcomes: list[Outcome], arrivals: Trace
) -> None:
    assert len(outcomes) > 2
    found = rank_by_simulation(evaluator(problem), reversed(outcomes), arrivals)
    unit_s = evaluator(problem).ranking.wait_unit_s
    waits = [round(one.figures.waiting_time_s / unit_s) for one in found if one.outcome.is_stable]
    assert waits == sorted(waits)
    for one in found:
        run = simulate_outcome(costs_of(problem), one.outcome, arrivals)
        if one.outcome.is_stable:
            assert one.figures.latency_s == pytest.approx(run.latency_s.mean())
            assert one.figures.tpot_s == pytest.approx(run.tpot_s.mean())


def test_the_objective_decides(problem: Problem, outcomes: list[Outcome], arrivals: Trace) -> None:
    by_cost = replace(problem, objective=Objective.COST)
    found = rank_by_simulation(evaluator(by_cost), outcomes, arrivals)
    powers = [
        sum(by_cost.devices[d].power_w or 0 for c in one.outcome.replicas for d, _, _ in c.cut)
        for one in found
        if one.outcome.is_stable
    ]
    assert powers == sorted(powers)


def test_equal_candidates_are_simulated_once_and_order_does_not_matter(
    problem: Problem, outcomes: list[Outcome], arrivals: Trace
) -> None:
    once = rank_by_simulation(evaluator(problem), outcomes, arrivals)
    twice = rank_by_simulation(evaluator(problem), [*outcomes[::-1], *outcomes], arrivals)
    assert [one.key for one in once] == [one.key for one in twice]
    assert len(twice) == len(outcomes)


def test_an_overloaded_plan_is_ranked_by_capacity(
    problem: Problem, outcomes: list[Outcome], arrivals: Trace
) -> None:
    busy = replace(problem, workload=replace(problem.workload, rate_per_s=1e4))
    late = [replace(o, waiting_time_s=float("inf")) for o in outcomes]
    found = rank_by_simulation(evaluator(busy), late, arrivals)
    capacities = [one.outcome.traffic.capacity_per_s for one in found]
    assert capacities == sorted(capacities, reverse=True)
    assert found[0].figures == found[0].outcome


@pytest.mark.needs_jit
def test_a_plan_ranked_by_simulation_waits_no_longer_than_any_other_planners(
    problem: Problem, arrivals: Trace
) -> None:
    best = e2llm_opt.plan(problem, stop=STOP, arrivals=arrivals)
    again = e2llm_opt.plan(problem, stop=STOP, arrivals=arrivals)
    assert isinstance(best, Plan)
    assert isinstance(again, Plan)
    assert best.replicas == again.replicas
    assert "simulated on 300 requests" in best.explain[-1]
    assert e2llm_opt.check(best, problem).valid
    # Waits that differ by less than the unit are equal: 1 % of the latency of one device alone.
    unit_s = evaluator(problem).ranking.wait_unit_s
    mine = simulate(best, problem, arrivals).waiting_time_s.mean()
    for name in PLANNERS:
        other = e2llm_opt.plan(problem, planner=name, stop=STOP)
        if isinstance(other, Plan) and other.predicted.stable:
            assert mine <= simulate(other, problem, arrivals).waiting_time_s.mean() + unit_s, name


def test_without_a_rate_the_formulas_decide(problem: Problem, arrivals: Trace) -> None:
    idle = replace(problem, workload=replace(problem.workload, rate_per_s=0.0))
    first = e2llm_opt.plan(idle, stop=STOP)
    second = e2llm_opt.plan(idle, stop=STOP, arrivals=arrivals)
    assert isinstance(first, Plan)
    assert isinstance(second, Plan)
    assert (first.replicas, first.explain) == (second.replicas, second.explain)
