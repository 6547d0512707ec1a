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
from e2llm_opt.search.rank_by_simulation import (
    Finals,
    actors_of_outcome,
    rank_by_simulation,
)
from e2llm_opt.search.stop import Stop
from e2llm_opt.simulate.simulate import Simulator, simulate
from e2llm_opt.solve import NUM_DRAWN
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
    found = rank_by_simulation(evaluator(problem), reversed(outcomes), Finals(arrivals=(arrivals,)))
    unit_s = evaluator(problem).ranking.wait_unit_s
    waits = [round(one.figures.waiting_time_s / unit_s) for one in found]
    assert waits == sorted(waits)
    simulator = Simulator(costs_of(problem), arrivals)
    for one in found:
        run = simulator.run(actors_of_outcome(costs_of(problem), one.outcome))
        assert one.figures.latency_s == pytest.approx(run.latency_s.mean())
        assert one.figures.tpot_s == pytest.approx(run.tpot_s.mean())


def test_the_objective_decides(problem: Problem, outcomes: list[Outcome], arrivals: Trace) -> None:
    by_cost = replace(problem, objective=Objective.COST)
    found = rank_by_simulation(evaluator(by_cost), outcomes, Finals(arrivals=(arrivals,)))
    powers = [
        sum(by_cost.devices[d].power_w or 0 for c in one.outcome.replicas for d, _, _ in c.cut)
        for one in found
        if one.outcome.is_stable
    ]
    assert powers == sorted(powers)


def test_equal_candidates_are_simulated_once_and_order_does_not_matter(
    problem: Problem, outcomes: list[Outcome], arrivals: Trace
) -> None:
    finals = Finals(arrivals=(arrivals,))
    once = rank_by_simulation(evaluator(problem), outcomes, finals)
    twice = rank_by_simulation(evaluator(problem), [*outcomes[::-1], *outcomes], finals)
    assert [one.key for one in once] == [one.key for one in twice]
    assert len(twice) == len(outcomes)


def test_several_traces_count_request_by_request(
    problem: Problem, outcomes: list[Outcome], arrivals: Trace
) -> None:
    traces = arrivals.first(100), draw_arrivals(problem.workload, 200, seed=1)
    found = rank_by_simulation(evaluator(problem), outcomes[:2], Finals(arrivals=traces))
    for one in found:
        actors = actors_of_outcome(costs_of(problem), one.outcome)
        means = [Simulator(costs_of(problem), t).run(actors).waiting_time_s.mean() for t in traces]
        assert one.figures.waiting_time_s == pytest.approx((means[0] + 2 * means[1]) / 3)


def test_an_overloaded_plan_is_ranked_by_its_simulated_wait(
    problem: Problem, outcomes: list[Outcome]
) -> None:
    busy = replace(problem, workload=replace(problem.workload, rate_per_s=1e4))
    late = [replace(o, waiting_time_s=float("inf")) for o in outcomes]
    flood = draw_arrivals(busy.workload, 60)
    found = rank_by_simulation(evaluator(busy), late, Finals(arrivals=(flood,)))
    unit_s = evaluator(busy).ranking.wait_unit_s
    waits = [round(one.figures.waiting_time_s / unit_s) for one in found]
    assert waits == sorted(waits)
    assert waits[0] < waits[-1] < float("inf")


def test_no_rival_waits_less_than_the_first(
    problem: Problem, outcomes: list[Outcome], arrivals: Trace
) -> None:
    finals = Finals(arrivals=(arrivals,))
    for rival in outcomes:
        found = rank_by_simulation(evaluator(problem), outcomes, finals, rivals=[rival])
        assert len(found) == len(outcomes)
        of_rival = next(one for one in found if one.outcome.replicas == rival.replicas)
        first = found[0].figures
        assert first.waiting_time_s <= of_rival.figures.waiting_time_s + 1e-3
        assert found[0].key <= of_rival.key


@pytest.mark.needs_jit
def test_a_plan_ranked_by_simulation_waits_no_longer_than_any_other_planners(
    problem: Problem, arrivals: Trace
) -> None:
    best = e2llm_opt.plan(problem, stop=STOP, finals=Finals(arrivals=(arrivals,)))
    again = e2llm_opt.plan(problem, stop=STOP, finals=Finals(arrivals=(arrivals,)))
    assert isinstance(best, Plan)
    assert isinstance(again, Plan)
    assert best.replicas == again.replicas
    assert "on the same 300 requests" in best.explain[-1]
    assert e2llm_opt.check(best, problem).valid
    mine = simulate(best, problem, arrivals).waiting_time_s.mean()
    for name in PLANNERS:
        other = e2llm_opt.plan(problem, planner=name, stop=STOP)
        if isinstance(other, Plan):
            # waits are compared in milliseconds
            assert mine <= simulate(other, problem, arrivals).waiting_time_s.mean() + 1e-3, name


@pytest.mark.needs_jit
def test_where_requests_wait_the_best_are_simulated_unasked(problem: Problem) -> None:
    idle = e2llm_opt.plan(problem, stop=STOP, finals=Finals(arrivals=()))
    assert isinstance(idle, Plan)
    rate = 0.9 * idle.predicted.capacity_per_s
    busy = replace(problem, workload=replace(problem.workload, rate_per_s=rate))
    found = e2llm_opt.plan(busy, stop=STOP)
    assert isinstance(found, Plan)
    assert found.predicted.stable
    assert f"on the same {NUM_DRAWN} requests" in found.explain[-1]
    by_formulas = e2llm_opt.plan(busy, stop=STOP, finals=Finals(arrivals=()))
    assert isinstance(by_formulas, Plan)
    assert "Simulated" not in by_formulas.explain[-1]


def test_where_nothing_waits_nothing_is_simulated(problem: Problem) -> None:
    for rate_per_s in (0.0, 0.01):
        idle = replace(problem, workload=replace(problem.workload, rate_per_s=rate_per_s))
        found = e2llm_opt.plan(idle, stop=STOP)
        assert isinstance(found, Plan)
        assert "Simulated" not in found.explain[-1]
