"""``survive``: every plan against all groupings, roles and losses, tried one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from e2llm_opt.check.check import check
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import Costs, costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import Plan
from e2llm_opt.planners import planner_named
from e2llm_opt.problem import Objective, Problem, Role
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.ranking import FRAGILE
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import Asked, document, plan
from tests.search.test_brute_force import EXHAUSTIVE, outcomes
from tests.search.test_roles import cluster
from tests.strategies import problems

if TYPE_CHECKING:
    from e2llm_opt.search.candidate import Candidate

NO_FINALS = Finals(arrivals=())


def surviving(problem: Problem, num: int) -> Problem:
    return replace(problem, constraints=replace(problem.constraints, survive=num))


def bare(problem: Problem) -> Search:
    """Return a search of *problem* that knows nothing of losses."""
    return Search(Costs(surviving(problem, 0)))


def survives(
    search: Search, replicas: tuple[Candidate, ...], num: int, *, is_strict: bool = True
) -> bool:
    """Whether what is left of *replicas* is stable whichever *num* devices are lost.

    Also with lengths that vary, if *is_strict*.
    """
    judge = search.evaluator
    devices = [d for replica in replicas for d, _, _ in replica.cut]
    workload = judge.costs.problem.workload
    for lost in combinations(devices, min(num, len(devices))):
        rest = [c for c in replicas if not {d for d, _, _ in c.cut} & set(lost)]
        roles = {c.role for c in rest}
        if Role.PREFILL not in roles:
            rest = [c for c in rest if c.role is not Role.DECODE]
        if Role.DECODE not in roles:
            rest = [c for c in rest if c.role is not Role.PREFILL]
        if not rest:
            return False
        left = judge.outcome(rest)
        if left.traffic.capacity_per_s <= 0 or not left.is_stable:
            return False
        if is_strict and judge.ranking.has_hard_level and judge.key(left)[0] > 0:
            return False
        steady = dict.fromkeys(Role, 0.0)
        for replica in rest:
            steady[replica.role] += long_run(replica, workload.output.mean)
        most = min(steady[Role.PREFILL], steady[Role.DECODE]) + steady[Role.MIXED]
        if is_strict and workload.rate_per_s >= most:
            return False
    return True


def long_run(replica: Candidate, output: float) -> float:
    """Requests a second that one replica serves in the long run: DESIGN section 5, step by step."""
    busy, rate = replica.spread.busy_s, replica.service_rate(output)
    if replica.role is Role.PREFILL:
        return min(rate, 1 / busy)
    if replica.role is Role.DECODE:
        times = [output * tpot for tpot in replica.tpot_s]
    else:
        alone = replica.prefill_latency_s - replica.pause_s
        times = [
            n * busy + max(alone, 0.0) + output * tpot
            for n, tpot in enumerate(replica.tpot_s, start=1)
        ]
    total, before = 0.0, 0.0
    for n, (time, share) in enumerate(zip(times, replica.usable, strict=True), start=1):
        total += (n / time - before) * share
        before = n / time
    return min(rate, total)


@settings(max_examples=25)
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


@settings(max_examples=12)
@given(problem=problems(min_devices=2, max_devices=4), num=st.sampled_from((1, 1, 2)))
def test_the_checker_agrees_which_plans_survive(problem: Problem, num: int) -> None:
    assume(len(problem.devices) > num)
    asked = surviving(problem, num)
    for given_problem in (asked, problem):
        run = planner_named("e2llm-opt")(costs_of(given_problem))
        run.run(Stop(), 0)
        for outcome in run.ranked(1):
            found = document(run, outcome, Asked())
            what = [violation.what for violation in check(found, asked).violations]
            assert all(one.startswith("constraints.survive: does not survive") for one in what)
            assert given_problem is problem or what == []
            is_right = survives(bare(problem), outcome.replicas, num, is_strict=False)
            assert (what == []) is is_right


def test_with_no_rate_it_is_enough_that_something_serves() -> None:
    problem = surviving(cluster(3, 0.0, seed=1), 1)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    assert len(found.replicas) >= 2
    two = surviving(problem, 2)
    found = plan(two, finals=NO_FINALS)
    assert isinstance(found, Plan)
    assert {replica.role for replica in found.replicas} == {"MIXED"}


@pytest.mark.parametrize("objective", list(Objective))
def test_a_rate_near_the_capacity_asks_for_a_spare_replica(objective: Objective) -> None:
    """Four alike devices, 0.7 of their capacity: three serve it, and each can be lost."""
    problem = alike(4)
    whole = plan(problem, finals=NO_FINALS)
    assert isinstance(whole, Plan)
    rate = 0.7 * whole.predicted.capacity_per_s
    workload = replace(problem.workload, rate_per_s=rate)
    problem = replace(problem, workload=workload, objective=objective)
    found = plan(surviving(problem, 1), finals=NO_FINALS)
    assert isinstance(found, Plan)
    assert len(found.replicas) == 4
    assert check(found, surviving(problem, 1)).violations == ()


def test_a_rate_that_no_plan_survives_is_said_with_one_that_a_plan_does() -> None:
    problem = alike(3)
    asked = surviving(replace(problem, workload=replace(problem.workload, rate_per_s=12.0)), 1)
    found = plan(asked, finals=NO_FINALS)
    assert isinstance(found, Infeasible)
    assert "after the loss of any one device (constraints.survive: 1)" in found.reason
    changes = [suggestion.change for suggestion in found.suggestions]
    assert "constraints.survive: leave it out" in changes
    rate = next(float(c.split()[1]) for c in changes if c.startswith("rate_per_s"))
    slower = replace(asked, workload=replace(asked.workload, rate_per_s=rate))
    assert isinstance(plan(slower, finals=NO_FINALS), Plan)


def alike(num: int) -> Problem:
    problem = cluster(num, 0.1, seed=1)
    machines = [replace(problem.devices[0], name=f"d{i}", host=f"d{i}") for i in range(num)]
    links = tuple(replace(problem.inventory.links[0], ends=(f"d{i}", "lan")) for i in range(num))
    inventory = replace(problem.inventory, devices=tuple(machines), links=links)
    return replace(problem, inventory=inventory)


@pytest.mark.slow
def test_a_genetic_search_is_led_to_plans_that_survive() -> None:
    """Twelve devices at a rate that only plans made for it survive."""
    problem = cluster(12, 18.0, seed=4)
    for objective in (Objective.COST, Objective.WAITING_TIME):
        asked = surviving(replace(problem, objective=objective), 1)
        found = plan(asked, finals=NO_FINALS, stop=Stop(max_evaluations=300))
        assert isinstance(found, Plan), objective
        assert check(found, asked).violations == ()
        price = [other for other in found.alternatives if other.name == "without survive: 1"]
        assert [one.why_not.partition(" of ")[0] for one in price] == [
            "does not survive the loss"
        ] or "costs nothing" in found.explain[-1]


@settings(max_examples=15)
@given(problem=problems(min_devices=2, max_devices=3, max_layers=4, is_linked=True))
def test_more_bandwidth_keeps_a_surviving_plan_surviving(problem: Problem) -> None:
    search = Search(costs_of(surviving(problem, 1)))
    search.run(Stop(), 0)
    best = search.best(Scope.ANY)
    if best is None:
        return
    links = tuple(
        replace(
            link,
            forward_bytes_per_s=10 * link.forward_bytes_per_s,
            backward_bytes_per_s=10 * link.backward_bytes_per_s,
        )
        for link in problem.inventory.links
    )
    inventory = replace(problem.inventory, links=links)
    wider = Search(Costs(surviving(replace(problem, inventory=inventory), 1)))
    replicas = [wider.candidates.at_cut(c.cut, c.role, c.slots) for c in best.replicas]
    assert all(replicas)
    outcome = wider.evaluator.outcome([c for c in replicas if c is not None])
    assert wider.evaluator.key(outcome)[0] < FRAGILE


@pytest.mark.parametrize(
    ("constraints", "wrong"),
    [
        (Constraints(survive=1, replicas=1), "needs 2 replicas or more, but replicas is 1"),
        (Constraints(survive=1, replicas=3, roles="disaggregated"), "needs 4 replicas or more"),
        (Constraints(survive=1, exclude=("d01", "d02")), "there can be 1 at most"),
        (Constraints(survive=2, pin={"x": ("d01", "d02")}), "there can be 2 at most"),
        (Constraints(survive=3), "must be 0 to 2"),
        (Constraints(survive=-1), "must be 0 to 2"),
    ],
)
def test_what_cannot_survive_is_refused_at_once(constraints: Constraints, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        replace(cluster(3, 0.1, seed=1), constraints=constraints)
