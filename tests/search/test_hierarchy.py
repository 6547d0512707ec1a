"""Very many devices: sites packed one by one, under a bound that leaves distances out."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

import e2llm_opt
from benchmarks import optimality_set
from e2llm_opt.cost.costs import Costs
from e2llm_opt.inventory.link import Link
from e2llm_opt.inventory.sites import sites_of, without_distances
from e2llm_opt.plan.plan import Plan, Proof
from e2llm_opt.problem import Objective, Problem, Role
from e2llm_opt.search import evaluate, search
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from tests.strategies import problems

anything = problems(max_devices=5)
LIMIT = Stop(time_limit_s=30.0)


def two_sites(num: int = 12, classes: int = 3) -> Problem:
    """Return the first half of some devices at one place, and the others at another."""
    problem = optimality_set.instance(f"classes-{num}-in-{classes}-0")
    links = tuple(
        replace(link, ends=(link.ends[0], "east" if i < num // 2 else "west"))
        for i, link in enumerate(problem.inventory.links)
    )
    trunk = Link(
        ends=("east", "west"),
        forward_bytes_per_s=1.25e6,
        backward_bytes_per_s=1.25e6,
        latency_s=2e-2,
    )
    return replace(problem, inventory=replace(problem.inventory, links=(*links, trunk)))


def planned(problem: Problem) -> Plan:
    found = e2llm_opt.plan(problem, stop=LIMIT)
    assert isinstance(found, Plan)
    assert e2llm_opt.check(found, problem).violations == ()
    return found


@given(anything)
def test_no_hop_is_longer_and_no_card_slower_without_distances(problem: Problem) -> None:
    costs = Costs(problem)
    bare = without_distances(problem.inventory, costs.network)
    other = Costs(replace(problem, inventory=bare))
    rows = np.arange(len(problem.devices))
    for num_bytes in (1.0, 1e5, 1e8):
        near = other.hop(num_bytes, rows[:, None], rows, 0)
        far = costs.hop(num_bytes, rows[:, None], rows, 0)
        assert (near <= far * (1 + 1e-12)).all()
    for end, speed in costs.network.cards.items():
        assert other.network.cards[end] == pytest.approx(speed)


def test_devices_are_where_their_switch_is() -> None:
    problem = two_sites()
    costs = Costs(problem)
    assert sites_of(problem.inventory, costs.network) == (0,) * 6 + (1,) * 6


@pytest.mark.parametrize("objective", [Objective.THROUGHPUT, Objective.WAITING_TIME])
def test_sites_are_packed_without_crossing_between_them(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = replace(two_sites(), objective=objective)
    monkeypatch.setattr(search, "MANY_DEVICES", 4)
    found = planned(problem)
    place = dict(
        zip(
            [device.name for device in problem.devices],
            sites_of(problem.inventory, Costs(problem).network),
            strict=True,
        )
    )
    for replica in found.replicas:
        assert len({place[stage.device] for stage in replica.stages}) == 1
    assert found.bound.proof in {Proof.BOUNDED, Proof.OPTIMAL}
    assert found.bound.capacity_per_s is not None
    assert found.predicted.capacity_per_s <= found.bound.capacity_per_s * (1 + 1e-6)


def test_the_bound_holds_for_the_best_plan_of_the_whole_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = two_sites()
    whole = planned(problem)
    monkeypatch.setattr(search, "MANY_DEVICES", 4)
    packed = planned(problem)
    assert whole.bound.capacity_per_s is not None
    assert packed.bound.capacity_per_s is not None
    assert whole.predicted.capacity_per_s <= packed.bound.capacity_per_s * (1 + 1e-6)
    assert packed.predicted.capacity_per_s <= whole.bound.capacity_per_s * (1 + 1e-6)
    assert packed.predicted.capacity_per_s >= 0.9 * whole.predicted.capacity_per_s


def test_only_the_nearest_of_very_many_pairs_exchange_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Fewer routes, the same requests; the plan still holds."""
    problem = optimality_set.instance("classes-12-in-4-0")
    every = planned(problem)
    monkeypatch.setattr(evaluate, "MANY_PAIRS", 0)
    near = planned(problem)
    num = {role: sum(r.role == role for r in near.replicas) for role in Role}
    assert num[Role.PREFILL] > 1
    assert num[Role.DECODE] > 1
    assert len(near.routes) < num[Role.PREFILL] * num[Role.DECODE]
    for plan in (every, near):
        ends = {r.id: r.arrival_rate_per_s for r in plan.replicas if r.role == "PREFILL"}
        for name, rate in ends.items():
            carried = sum(route.rate_per_s for route in plan.routes if route.prefill == name)
            assert carried == pytest.approx(rate, rel=1e-6, abs=1e-9)
    assert near.predicted.capacity_per_s == pytest.approx(every.predicted.capacity_per_s, rel=0.02)


@settings(max_examples=10)
@given(problems(min_devices=2, max_devices=5, is_linked=True))
def test_transfers_kept_by_class_are_those_of_the_devices(problem: Problem) -> None:
    one = Search(Costs(problem))
    replicas = [
        replica
        for d in one.devices
        for replica in [one.candidates.at_cut(((d, 0, problem.model.num_layers),), Role.PREFILL)]
        if replica is not None
    ]
    transfer = np.full((len(replicas), len(replicas)), np.inf)
    sources, targets = list(range(0, len(replicas), 2)), list(range(1, len(replicas), 2))
    for first, second in ((sources, targets), (targets, sources)):  # no device is in both
        one.evaluator._expose(tuple(replicas), (first, second), transfer)
        for i, j in product(first, second):
            expected = one.evaluator._transfer(replicas[i], replicas[j]).exposed_s
            assert transfer[i, j] == expected
