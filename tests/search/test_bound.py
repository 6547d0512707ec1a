"""Bounds: exact columns against every cut, the best capacity against every packing of them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

import e2llm_opt
from e2llm_opt.cost.costs import Costs
from e2llm_opt.plan.plan import Plan, Proof
from e2llm_opt.planners import PLANNERS
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.columns import CLOSE, EXACT, Columns
from e2llm_opt.search.roles import engine_roles
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from tests.oracles import groupings
from tests.search.cuts import best_rate, rates_of
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.problem import Problem

EXAMPLE = Path(__file__).parents[2] / "examples" / "two-macs.yaml"
small = problems(max_devices=3, max_layers=5, is_linked=True)
few = problems(max_devices=4, max_layers=4)


@settings(max_examples=8)
@given(small)
def test_no_replica_exceeds_what_the_relaxation_says_and_refined_ones_are_the_best(
    problem: Problem,
) -> None:
    """Every order, every cut, all slots and micro-batches of all devices together."""
    search = Search(Costs(problem))
    search.exact.bind(Stop())
    bound = search.exact.bound
    assert bound is not None
    group = tuple(sorted(search.evaluator.costs.classes.class_of[d] for d in search.devices))
    devices = search.candidates.concrete(group)
    for role in engine_roles(problem):
        best = best_rate(search.candidates.figures, devices, role)
        relaxation, counts = bound.relaxation, bound.relaxation.counts(group)[None]
        phase = relaxation.rates if role is Role.MIXED else relaxation.rates_of_phase
        without = best_rate(search.candidates.figures, devices, role, has_cards=False)
        assert best <= without <= phase(role, counts)[0] * (1 + 1e-9)
        assert best <= relaxation.rates(role, counts)[0] * (1 + 1e-9)
        bound.refiner.refine(group, role)
        columns = search.candidates.columns
        assert best <= columns.upper(group, role) * (1 + 1e-9)
        if columns.is_exact(group, role):
            assert columns.rate(group, role) == pytest.approx(best, rel=2 * EXACT)


def capacities(search: Search) -> Iterator[float]:
    """Yield the capacity, links left out, of every grouping in every role with the best cuts."""
    roles = engine_roles(search.evaluator.costs.problem)
    known: dict[tuple[int, ...], dict[Role, float]] = {}
    for grouping in groupings(search.devices):
        groups = [tuple(sorted(group)) for group in grouping]
        for group in groups:
            if group not in known:
                known[group] = rates_of(search, group)
        for chosen in product(roles, repeat=len(groups)):
            total = dict.fromkeys(Role, 0.0)
            for group, role in zip(groups, chosen, strict=True):
                total[role] += known[group][role]
            yield min(total[Role.PREFILL], total[Role.DECODE]) + total[Role.MIXED]


@settings(max_examples=15)
@given(few)
def test_the_bound_is_the_best_capacity_of_all_groupings_roles_and_cuts(problem: Problem) -> None:
    problem = replace(problem, objective=Objective.THROUGHPUT)
    search = Search(Costs(problem))
    search.run(Stop(method="exact"), 0)
    best = max(capacities(search), default=0.0)
    assert search.exact.limit is not None
    assert search.exact.limit >= best * (1 - 1e-9)
    assert search.exact.limit <= best * (1 + CLOSE) or not search.exact.is_closed


@settings(max_examples=4)
@given(problems(max_devices=4, max_layers=5, is_linked=True, is_constrained=True))
def test_no_plan_has_more_than_the_bound(problem: Problem) -> None:
    nobody_exceeds_the_bound(problem, ("e2llm-opt", "all-mixed", "parallax"))


@pytest.mark.slow
@settings(max_examples=12)
@given(problems(max_devices=5, max_layers=5, is_linked=True, is_constrained=True))
def test_no_plan_of_any_planner_has_more_than_the_bound(problem: Problem) -> None:
    nobody_exceeds_the_bound(problem, PLANNERS)


def nobody_exceeds_the_bound(problem: Problem, planners: Sequence[str]) -> None:
    limits, capacity = [], 0.0
    for planner in planners:
        found = e2llm_opt.plan(problem, planner=planner, stop=Stop(max_evaluations=60))
        if not isinstance(found, Plan):
            continue
        assert found.bound.capacity_per_s is not None
        assert found.bound.gap is not None
        assert 0.0 <= found.bound.gap <= 1.0
        limits.append(found.bound.capacity_per_s)
        capacity = max(capacity, found.predicted.capacity_per_s)
        assert e2llm_opt.check(found, problem).violations == ()
    assert all(limit >= capacity * (1 - 1e-6) for limit in limits)


@settings(max_examples=10)
@given(few)
def test_a_proof_of_the_optimum_is_not_refuted_by_the_search_for_another_objective(
    problem: Problem,
) -> None:
    """Nothing that any objective or method finds has more capacity than a proven optimum."""
    best = e2llm_opt.plan(replace(problem, objective=Objective.THROUGHPUT))
    if not isinstance(best, Plan) or best.bound.proof is not Proof.OPTIMAL:
        return
    for objective in (Objective.WAITING_TIME, Objective.LATENCY):
        other = e2llm_opt.plan(
            replace(problem, objective=objective), stop=Stop(method="exhaustive")
        )
        assert isinstance(other, Plan)
        assert other.predicted.capacity_per_s <= best.predicted.capacity_per_s * (1 + CLOSE)


def test_stores_of_columns_can_be_sent_and_merged() -> None:
    problem = e2llm_opt.Problem.load(EXAMPLE, objective="throughput")
    search = Search(Costs(problem))
    search.run(Stop(method="exact"), 0)
    columns = search.candidates.columns
    copy: Columns = pickle.loads(pickle.dumps(columns))  # noqa: S301 - our own bytes
    other = Columns()
    other.merge(copy)
    assert len(other) == len(columns) > 0
    for group in columns:
        for role in Role:
            assert other.rate(group, role) == columns.rate(group, role)
            assert other.upper(group, role) == columns.upper(group, role)
            assert other.is_exact(group, role) == columns.is_exact(group, role)
