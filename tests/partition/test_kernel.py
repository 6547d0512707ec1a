"""The compiled kernels against the same source run by Python; the heuristic against the exact."""

from __future__ import annotations

import math
from contextlib import ExitStack
from itertools import combinations
from typing import TYPE_CHECKING, Literal
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.partition import kernel
from e2llm_opt.partition.partition import best_cut, demand_of
from e2llm_opt.problem import Problem, Role
from e2llm_opt.runtime import runtime
from e2llm_opt.workload.workload import Lengths, Workload
from tests.oracles import World, slowest
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.cut import Cut

Goal = Literal["bottleneck", "sum"]
goals = st.sampled_from(("bottleneck", "sum"))
roles = st.sampled_from(Role)


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


def worlds(*, num_worlds: int, num_devices: int = 5, num_layers: int = 8) -> Iterator[Problem]:
    """Yield problems of all-distinct devices with all pairs linked, always the same ones."""
    rng = np.random.default_rng(7)
    for _ in range(num_worlds):
        machines = tuple(random_device(rng, f"d{d}") for d in range(num_devices))
        links = tuple(
            Link(
                ends=(one.name, other.name),
                forward_bytes_per_s=float(10 ** rng.uniform(7, 9)),
                backward_bytes_per_s=float(10 ** rng.uniform(7, 9)),
                latency_s=float(rng.uniform(1e-4, 2e-3)),
            )
            for one, other in combinations(machines, 2)
        )
        yield Problem(
            inventory=Inventory(devices=machines, links=links),
            facts=ModelFacts(
                name="random",
                num_hidden_layers=num_layers,
                hidden_size=4096,
                vocab_size=1000,
                layer_weight_bytes=tuple(rng.uniform(2e8, 6e8, num_layers).tolist()),
                kv_bytes_per_token=20e3,
                layer_flops_per_token=6e8,
            ),
            runtime=runtime("generic", overhead_bytes=1e8),
            workload=Workload(prompt=Lengths(mean=300.0), output=Lengths(mean=100.0)),
        )


def random_device(rng: np.random.Generator, name: str) -> Device:
    return Device(
        name=name,
        memory_bytes=float(rng.uniform(1e9, 2.5e9)),
        memory_bandwidth_bytes_per_s=float(10 ** rng.uniform(10.3, 11.7)),
        fp16_flop_per_s=float(10 ** rng.uniform(12, 13.5)),
    )
