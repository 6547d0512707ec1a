"""The compiled kernels against the same source run by Python; the heuristic against the exact."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Literal
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.partition import collapse, kernel
from e2llm_opt.partition.partition import best_cut, demand_of
from e2llm_opt.problem import Problem, Role
from tests.oracles import World, slowest
from tests.strategies import problems
from tests.worlds import worlds

if TYPE_CHECKING:
    from e2llm_opt.cost.cut import Cut

Goal = Literal["bottleneck", "sum"]
goals = st.sampled_from(("bottleneck", "sum"))
roles = st.sampled_from(Role)
ROLES = list(Role)


def plain_kernels() -> ExitStack:
    """Return a context in which every kernel of the module is its Python source."""
    stack = ExitStack()
    for name, function in list(vars(kernel).items()):
        if hasattr(function, "py_func"):
            stack.enter_context(mock.patch.object(kernel, name, function.py_func))
    return stack


def cut_of(problem: Problem, role: Role, goal: Goal, **limits: int) -> Cut | None:
    costs = costs_of(problem)
    rows = tuple(range(len(problem.devices)))
    return best_cut(costs, rows, demand_of(costs, role, 2, 1), goal, **limits)


@pytest.mark.skipif(not hasattr(kernel.cover, "py_func"), reason="nothing is compiled")
@given(problems(max_devices=4, max_layers=6, is_tight=True), roles, goals)
def test_compiled_kernels_do_what_their_source_says(
    problem: Problem, role: Role, goal: Goal
) -> None:
    compiled = cut_of(problem, role, goal)
    with plain_kernels():
        assert not hasattr(kernel.least_sum, "py_func")
        assert cut_of(problem, role, goal) == compiled


@given(problems(max_devices=5, is_tight=True), roles, goals)
def test_the_heuristic_order_gives_a_valid_cut_that_is_never_better_than_the_exact_one(
    problem: Problem, role: Role, goal: Goal
) -> None:
    exact, quick = cut_of(problem, role, goal), cut_of(problem, role, goal, max_states=1)
    if quick is None:
        return
    assert exact is not None
    world = World(problem)
    assert world.fits(quick, 2)
    assert quick in set(world.cuts(range(len(problem.devices))))
    assert value(world, quick, role, goal) >= value(world, exact, role, goal) * (1 - 1e-9)


def value(world: World, cut: Cut, role: Role, goal: Goal) -> float:
    times = world.times(cut, role, 2, 1)
    return sum(map(sum, times)) if goal == "sum" else slowest(times)


@pytest.mark.parametrize("goal", ["bottleneck", "sum"])
def test_the_heuristic_order_is_close_to_the_best_one(goal: Goal) -> None:
    """Over fixed random worlds: half of them within 25 %, nine in ten within a factor of two."""
    ratios = []
    for problem in worlds(num_worlds=60):
        world = World(problem)
        exact, quick = (
            cut_of(problem, Role.DECODE, goal),
            cut_of(problem, Role.DECODE, goal, max_states=1),
        )
        if exact is not None:
            best = value(world, exact, Role.DECODE, goal)
            ratios.append(value(world, quick, Role.DECODE, goal) / best if quick else math.inf)
    assert len(ratios) > 40
    assert float(np.quantile(ratios, 0.5)) <= 1.25
    assert float(np.quantile(ratios, 0.9)) <= 2.0


@pytest.mark.parametrize("goal", ["bottleneck", "sum"])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("head", ["first", "last"])
@pytest.mark.parametrize("topology", ["ring", "star"])
def test_a_heuristic_order_is_cut_in_every_topology(
    topology: Literal["ring", "star"], head: Literal["first", "last"], role: Role, goal: Goal
) -> None:
    found = 0
    for problem in worlds(num_worlds=3, num_devices=4, num_layers=6):
        engine = replace(problem.runtime, topology=topology, head=head)
        turned = replace(problem, runtime=engine)
        world = World(turned)
        exact, quick = cut_of(turned, role, goal), cut_of(turned, role, goal, max_states=1)
        assert exact is not None
        if quick is not None:
            found += 1
            assert world.fits(quick, 2)
            assert quick in set(world.cuts(range(4)))
            assert value(world, quick, role, goal) >= value(world, exact, role, goal) * (1 - 1e-9)
    assert found > 0


@pytest.mark.parametrize(
    ("first", "last"), [(-1, -1), (-1, 1), (-1, 4), (2, -1), (2, 4), (4, 2), (0, 3), (3, 3)]
)
def test_the_heuristic_order_goes_to_the_nearest_device_from_the_last_stage_on(
    first: int, last: int
) -> None:
    for problem in worlds(num_worlds=20):
        world, costs = World(problem), costs_of(problem)
        layers = range(problem.model.num_layers)
        speed = [
            sum(world.decode_layer(d, i, 1, is_spilled=False) for i in layers) for d in range(5)
        ]
        middle = [d for d in range(5) if d not in (first, last)]
        here = last if last >= 0 else min(middle, key=speed.__getitem__)
        order = [here]
        waiting = [d for d in middle if d != here]
        while waiting:
            sent = world.forward_bytes(1)
            here = min(waiting, key=lambda d: (world.hop(d, order[-1], sent, -1), speed[d]))
            order.append(here)
            waiting.remove(here)
        order += [first] if first >= 0 and first != last else []
        groups = [(0, 1), (2,), (3, 4)]
        found = collapse._pipeline_order(costs, groups, (first, last), -1)
        assert found == [(d,) for d in order]


@pytest.mark.parametrize(("alike", "num_states"), [(1, 16), (2, 12), (3, 8), (4, 5)])
def test_an_order_is_chosen_where_there_are_more_multisets_than_allowed(
    alike: int, num_states: int
) -> None:
    (problem,) = worlds(num_worlds=1, num_devices=4)
    one = problem.devices[0]
    machines = [replace(one, name=d.name, host=d.host) for d in problem.devices[:alike]]
    link = problem.inventory.links[0]
    links = tuple(
        replace(link, ends=other.ends, backward_bytes_per_s=link.forward_bytes_per_s)
        for other in problem.inventory.links
    )
    inventory = Inventory(devices=(*machines, *problem.devices[alike:]), links=links)
    costs = costs_of(replace(problem, inventory=inventory))
    for most, is_ordered in ((num_states, False), (num_states - 1, True)):
        (shape,) = collapse.shapes(costs, (0, 1, 2, 3), "none", most)
        assert shape.is_ordered == is_ordered


def test_of_equally_near_devices_the_faster_one_is_next() -> None:
    (problem,) = worlds(num_worlds=1)
    links = tuple(
        replace(link, forward_bytes_per_s=1e8, backward_bytes_per_s=1e8, latency_s=1e-3)
        for link in problem.inventory.links
    )
    problem = replace(problem, inventory=replace(problem.inventory, links=links))
    costs = costs_of(problem)
    speed = costs.decode_prefix(1)[:, -1]
    found = collapse._pipeline_order(costs, [(0, 1, 2, 3, 4)], (-1, -1), -1)
    assert found == [(int(d),) for d in np.argsort(speed)]


@pytest.mark.parametrize(("flops", "last"), [(1e8, 1), (1e9, 0)])
def test_the_device_that_is_faster_over_all_layers_is_last(flops: float, last: int) -> None:
    """One is slower at the first layers, which compute, and faster at the last, which reads."""
    (problem,) = worlds(num_worlds=1, num_devices=2)
    reads, computes = (
        replace(problem.devices[0], memory_bandwidth_bytes_per_s=1e12, fp16_flop_per_s=1e12),
        replace(problem.devices[1], memory_bandwidth_bytes_per_s=1e11, fp16_flop_per_s=1e13),
    )
    facts = replace(
        problem.facts,
        layer_weight_bytes=(1e6,) * 7 + (5e8,),
        layer_flops_per_token=(flops,) * 7 + (1e6,),
    )
    inventory = replace(problem.inventory, devices=(computes, reads))
    costs = costs_of(replace(problem, inventory=inventory, facts=facts))
    assert costs.decode_prefix(1)[0, 7] < costs.decode_prefix(1)[1, 7]
    found = collapse._pipeline_order(costs, [(0,), (1,)], (-1, -1), -1)
    assert found == [(last,), (1 - last,)]


def test_more_devices_than_are_exact_are_cut_at_once() -> None:
    """14 distinct devices have 16384 subsets: more than MAX_STATES."""
    (problem,) = worlds(num_worlds=1, num_devices=14, num_layers=30)
    world = World(problem)
    for goal in ("bottleneck", "sum"):
        cut = cut_of(problem, Role.DECODE, goal)
        assert cut is not None
        assert world.fits(cut, 2)
        assert [start for _, start, _ in cut] == [0, *(stop for _, _, stop in cut)][:-1]
        assert len({d for d, _, _ in cut}) == len(cut)
