"""Whether there is any plan at all: the planner against plain enumeration from the formulas."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from hypothesis import given

import e2llm_opt
from e2llm_opt.plan.plan import Plan
from tests.oracles import World, groupings, ways
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.problem import Problem
    from tests.oracles import Cut

ROLES = ("PREFILL", "DECODE", "MIXED")


def is_feasible(problem: Problem) -> bool:
    """Whether some grouping in some roles obeys memory, links, speed limits and constraints."""
    world, constraints = World(problem), problem.constraints
    rows = range(len(problem.devices))
    possible: dict[tuple[int, ...], set[str]] = {}
    for groups in groupings(rows):
        if not groups or constraints.replicas not in {None, len(groups)}:
            continue
        if constraints.use_all_devices and sum(map(len, groups)) < len(rows):
            continue
        if not obeys_pins(problem, groups):
            continue
        for group in groups:
            if group not in possible:
                possible[group] = {role for role in ROLES if can_play(world, group, role)}
        for roles in product(*(sorted(possible[group]) for group in groups)):
            if is_allowed(problem, groups, roles):
                return True
    return False


def obeys_pins(problem: Problem, groups: list[tuple[int, ...]]) -> bool:
    """Whether each pin's devices share a replica of their own; fixed layers need a replica."""
    home = {problem.devices[d].name: i for i, group in enumerate(groups) for d in group}
    pins = [{home.get(name) for name in pin} for pin in problem.constraints.pins.values()]
    used = set(problem.constraints.fixed_layers) <= set(home)
    homes = [next(iter(pin)) for pin in pins]
    return used and all(len(p) == 1 for p in pins) and None not in homes and is_unique(homes)


def is_unique(values: list[int | None]) -> bool:
    return len(set(values)) == len(values)


def obeys_layers(world: World, cut: Cut) -> bool:
    fixed = world.problem.constraints.fixed_layers
    devices = world.problem.devices
    return all(fixed.get(devices[d].name, stop - start) == stop - start for d, start, stop in cut)


def can_play(world: World, group: Sequence[int], role: str) -> bool:
    """Whether some cut gives every device of *group* layers and lets it play *role*."""
    return any(
        is_legal(world, cut, role)
        for cut in world.cuts(group)
        if len(cut) == len(group) and obeys_layers(world, cut)
    )


def is_legal(world: World, cut: Cut, role: str) -> bool:
    workload = world.problem.workload
    prompt, output = workload.prompt.mean, workload.output.mean
    if role == "PREFILL":
        return world.fits(cut, 1) and math.isfinite(world.prefill(cut, prompt, 1)[0])
    counts = range(1, world.problem.runtime.max_slots + 1)
    for n in counts if workload.slots is None else (workload.slots,):
        if not world.fits(cut, n):
            return False
        pause = world.pause(cut, prompt, n) if role == "MIXED" else 0.0
        effective = world.rounds(cut, n, n) + n * pause / output
        if math.isfinite(effective) and effective <= workload.slowest_tpot_s:
            return True
    return False


def is_allowed(problem: Problem, groups: list[tuple[int, ...]], roles: tuple[str, ...]) -> bool:
    wanted, has_split = problem.constraints.roles, set(roles) != {"MIXED"}
    if has_split and (not problem.runtime.has_disaggregation or wanted == "mixed"):
        return False
    if wanted == "disaggregated" and "MIXED" in roles:
        return False
    sources = [g for g, role in zip(groups, roles, strict=True) if role == "PREFILL"]
    targets = [g for g, role in zip(groups, roles, strict=True) if role == "DECODE"]
    if bool(sources) != bool(targets):
        return False
    inventory = problem.inventory
    return all(
        ways(inventory, d, e)
        for source, target in product(sources, targets)
        for d, e in product(source, target)
    )


def without_floors(problem: Problem) -> Problem:
    free = replace(problem.workload, min_tokens_per_s=0.0, slo_tpot_s=None)
    return replace(problem, workload=free)


@given(problems(max_devices=4, max_layers=5, is_constrained=True))
def test_a_plan_is_found_exactly_where_one_exists(problem: Problem) -> None:
    problem = without_floors(problem)
    assert isinstance(e2llm_opt.plan(problem), Plan) == is_feasible(problem)


@given(problems(min_devices=2, max_devices=4, max_layers=5, is_constrained=True, is_tight=True))
def test_where_memory_is_tight_a_plan_is_found_exactly_where_one_exists(problem: Problem) -> None:
    problem = without_floors(problem)
    assert isinstance(e2llm_opt.plan(problem), Plan) == is_feasible(problem)


@given(problems(max_devices=3, max_layers=5, is_tight=True))
def test_where_streams_must_be_fast_a_plan_is_found_exactly_where_one_exists(
    problem: Problem,
) -> None:
    assert isinstance(e2llm_opt.plan(problem), Plan) == is_feasible(problem)
