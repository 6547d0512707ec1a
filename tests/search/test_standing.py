"""Replicas that stay where they are: as good as planned, and no roles are better than the best."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given

from e2llm_opt.check.check import check
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.plan import Plan
from e2llm_opt.planners import planner_named
from e2llm_opt.problem import Problem, Role
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.roles import wanted_roles
from e2llm_opt.search.search import Search
from e2llm_opt.search.standing import Standing, cuts_of
from e2llm_opt.solve import Asked, document, plan
from tests.search.test_roles import cluster
from tests.strategies import problems

NO_FINALS = Finals(arrivals=())


@given(problem=problems())
def test_a_plan_as_it_stands_is_worth_what_it_says(problem: Problem) -> None:
    found = plan(problem, finals=NO_FINALS)
    if not isinstance(found, Plan):
        return
    search = Search(costs_of(problem))
    standing = Standing(search.evaluator, cuts_of(costs_of(problem), found))
    same = standing.outcome([Role(replica.role) for replica in found.replicas])
    best = standing.best()
    assert best is not None
    planned = [(r.slots, tuple(s.spilled_layers for s in r.stages)) for r in found.replicas]
    if same is not None and planned == [(c.slots, c.spilled) for c in same.replicas]:
        assert same.traffic.capacity_per_s == pytest.approx(found.predicted.capacity_per_s)
        assert search.evaluator.key(best) <= search.evaluator.key(same)


@given(problem=problems())
def test_no_roles_are_better_than_the_best(problem: Problem) -> None:
    found = plan(problem, finals=NO_FINALS)
    if not isinstance(found, Plan):
        return
    search = Search(costs_of(problem))
    judge = search.evaluator
    standing = Standing(judge, cuts_of(costs_of(problem), found))
    best = standing.best()
    assert best is not None
    assert {replica.cut for replica in best.replicas} <= set(cuts_of(costs_of(problem), found))
    every = map(standing.outcome, product(wanted_roles(problem), repeat=len(found.replicas)))
    assert judge.key(best) == min(judge.key(outcome) for outcome in every if outcome is not None)


def test_many_replicas_find_roles_as_good_as_a_search_does() -> None:
    problem = cluster(24, 6.0, seed=3)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    run = planner_named("e2llm-opt")(costs_of(problem))
    best = Standing(run.evaluator, cuts_of(run.costs, found)).best()
    assert best is not None
    assert best.traffic.capacity_per_s >= 0.98 * found.predicted.capacity_per_s
    assert not check(document(run, best, Asked()), problem).violations


def test_a_lost_device_takes_its_replica_with_it() -> None:
    problem = cluster(6, 0.5, seed=1)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    lost = found.replicas[0].stages[0].device
    rest = replace(problem, constraints=Constraints(exclude=(lost,)))
    cuts = cuts_of(costs_of(rest), found)
    assert cuts[0] == ()
    assert all(cuts[1:])
    best = Standing(Search(costs_of(rest)).evaluator, cuts).best()
    assert best is not None
    assert len(best.replicas) == len(found.replicas) - 1
