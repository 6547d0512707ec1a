"""``survive``: every plan against all groupings, roles and losses, tried one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from e2llm_opt.check.check import check
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import Costs
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Objective, Problem, Role
from e2llm_opt.search.ranking import FRAGILE
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan
from tests.search.test_brute_force import EXHAUSTIVE, outcomes
from tests.search.test_roles import cluster
from tests.strategies import problems

NO_FINALS = Finals(arrivals=())


def surviving(problem: Problem, num: int) -> Problem:
    return replace(problem, constraints=replace(problem.constraints, survive=num))


def bare(problem: Problem) -> Search:
    """Return a search of *problem* that knows nothing of losses."""
    return Search(Costs(surviving(problem, 0)))


def survives(search: Search, replicas: tuple, num: int) -> bool:  # type: ignore[type-arg]
    """Whether what is left of *replicas* is stable whichever *num* devices are lost."""
    devices = [d for replica in replicas for d, _, _ in replica.cut]
    rate = search.evaluator.costs.problem.workload.rate_per_s
    for lost in combinations(devices, min(num, len(devices))):
        rest = [c for c in replicas if not {d for d, _, _ in c.cut} & set(lost)]
        roles = {c.role for c in rest}
        if Role.PREFILL not in roles:
            rest = [c for c in rest if c.role is not Role.DECODE]
        if Role.DECODE not in roles:
            rest = [c for c in rest if c.role is not Role.PREFILL]
        if not rest:
            return False
        left = search.evaluator.outcome(rest)
        if search.evaluator.ranking.has_hard_level and search.evaluator.key(left)[0] > 0:
            return False
        if not 0 < left.traffic.capacity_per_s or not left.is_stable:
            return False
        assert rate < left.traffic.capacity_per_s
    return True


@settings(max_examples=40)
@given(problem=problems(min_devices=2, max_devices=4, max_layers=4), num=st.sampled_from((1, 1, 2)))
def test_no_plan_that_survives_beats_the_one_found(problem: Problem, num: int) -> None:
    assume(len(problem.devices) > num)
    search = Search(Costs(surviving(problem, num)))
    search.run(EXHAUSTIVE, 0)
    best, oracle = search.best(Scope.ANY), bare(problem)
    every = [
        (oracle.evaluator.key(outcome), is_uniform)
        for outcome, is_uniform in outcomes(oracle)
        if survives(oracle, outcome.replicas, num)
    ]
    if best is None:
        assert not every
        return
    assert survives(oracle, best.replicas, num)
    key = oracle.evaluator.key(best)
    uniform = [other for other, is_uniform in every if is_uniform]
    # Latencies that differ by less than a thousandth are equal, fewer devices then win.
    assert all(key[:3] <= other[:3] for other in uniform)
    assert key in [other for other, _ in every]
