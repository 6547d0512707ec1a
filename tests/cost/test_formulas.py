"""The cost model against the same formulas in plain Python, for random problems and cuts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.cost import pipeline
from e2llm_opt.cost.costs import Costs
from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.transfer import kv_transfer
from e2llm_opt.inventory.link import Link
from tests.oracles import World, kv_exposed_s, ways
from tests.search.test_roles import cluster
from tests.strategies import problems

if TYPE_CHECKING:
    from random import Random

    from e2llm_opt.problem import Problem
    from tests.oracles import Cut

anything = problems(max_devices=5) | problems(max_devices=4, is_tight=True, has_host_ram=True)
linked = problems(min_devices=2, max_devices=6, is_linked=True)
chances = st.randoms(use_true_random=False)


def some_cut(problem: Problem, random: Random, rows: list[int] | None = None) -> Cut:
    """Return layers cut anywhere over devices in any order; memory is not asked."""
    rows = rows or list(range(len(problem.devices)))
    num_layers = problem.model.num_layers
    num = random.randint(1, min(len(rows), num_layers))
    bounds = [0, *sorted(random.sample(range(1, num_layers), num - 1)), num_layers]
    order = random.sample(rows, num)
    return tuple((d, bounds[j], bounds[j + 1]) for j, d in enumerate(order))


def spilled(world: World, cut: Cut, slots: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(world.spilled(cut, j, slots))) for j in range(len(cut)))


@given(problems(max_devices=3, is_tight=True, has_host_ram=True), st.integers(0, 6), chances)
def test_as_few_layers_spill_as_memory_needs(problem: Problem, slots: int, random: Random) -> None:
    cut, world, costs = some_cut(problem, random), World(problem), Costs(problem)
    if world.fits(cut, slots):
        assert costs.spilled(cut, slots) == spilled(world, cut, slots)


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-9)


@given(anything, st.sampled_from((1.0, 64.0, 511.5, 512.0, 700.0, 3000.0)))
def test_layer_times_of_prefill(problem: Problem, tokens: float) -> None:
    found = np.diff(Costs(problem).prefill_prefix(tokens), axis=1)
    world = World(problem)
    for d in range(len(problem.devices)):
        for layer in range(problem.model.num_layers):
            assert found[d, layer] == pytest.approx(world.prefill_layer(d, layer, tokens), rel=1e-8)


@given(anything, st.integers(1, 64))
def test_layer_and_head_times_of_a_decode_step(problem: Problem, batch: int) -> None:
    costs, world = Costs(problem), World(problem)
    found = np.diff(costs.decode_prefix(batch), axis=1)
    for d in range(len(problem.devices)):
        assert costs.head(batch)[d] == close(world.head(d, batch))
        for layer in range(problem.model.num_layers):
            assert found[d, layer] == pytest.approx(
                world.decode_layer(d, layer, batch, is_spilled=False), rel=1e-8
            )


@given(anything, st.integers(0, 6), chances)
def test_bytes_on_every_stage(problem: Problem, slots: int, random: Random) -> None:
    costs, world = Costs(problem), World(problem)
    cut = some_cut(problem, random)
    memory, room = costs.memory_prefix(slots), costs.room()
    for j, (d, start, stop) in enumerate(cut):
        free = room[d, position_of(cut, j)] - (memory[stop] - memory[start])
        have = problem.devices[d].usable_bytes
        assert have - free == pytest.approx(world.whole_stage_bytes(cut, j, slots), rel=1e-9, abs=1)


@given(anything, st.sampled_from((1.0, 1e4, 1e8)), st.integers(0, 4))
def test_hops_take_the_way_that_is_best_for_their_bytes(
    problem: Problem, num_bytes: float, centre: int
) -> None:
    centre %= len(problem.devices)
    costs, world = Costs(problem), World(problem)
    rows = np.arange(len(problem.devices))
    found = costs.hop(num_bytes, rows[:, None], rows, centre)
    for d in range(len(problem.devices)):
        for e in range(len(problem.devices)):
            if d == e:
                continue
            expected = world.hop(d, e, num_bytes, centre)
            assert found[d, e] == close(expected)
            curve = costs.hop_curve(d, e, np.array([num_bytes]), centre)
            assert curve[0] == close(expected)


@given(anything, st.sampled_from((64.0, 700.0, 3000.0)), chances)
def test_prefill_of_a_pipeline(problem: Problem, tokens: float, random: Random) -> None:
    cut, world = some_cut(problem, random), World(problem)
    slots = problem.runtime.max_slots
    costs = Costs(problem)
    found = pipeline.prefill(costs, cut, tokens, spilled(world, cut, slots))
    latency, occupancy = world.prefill(cut, tokens, slots)
    stages = world.prefill_stages(cut, tokens, slots)
    assert found.latency_s == close(latency)
    assert found.occupancy_s == close(occupancy)
    assert found.stage_s == pytest.approx([stage for stage, _ in stages])
    assert found.hop_s == pytest.approx([hop for _, hop in stages])


@given(anything, chances)
def test_decode_rounds_of_a_pipeline(problem: Problem, random: Random) -> None:
    cut, world = some_cut(problem, random), World(problem)
    slots = problem.runtime.max_slots
    costs = Costs(problem)
    away = spilled(world, cut, slots)
    found = pipeline.decode(costs, cut, slots, away)
    for n in range(1, slots + 1):
        assert found.tpot_s[n - 1] == close(world.rounds(cut, n, slots))
        m = int(found.micro_batches[n - 1])
        stage, hop = pipeline.decode_stages(costs, cut, -(-n // m), away)
        expected = world.decode_stages(cut, -(-n // m), slots)
        assert stage == pytest.approx([s for s, _ in expected])
        assert hop == pytest.approx([h for _, h in expected])
        total = float((stage + hop).sum())
        assert max(total, m * pipeline.bottleneck(stage, hop)) == close(found.tpot_s[n - 1])


def test_a_hop_back_that_carries_nothing_still_needs_a_way() -> None:
    """As ``check`` has it, whatever the engine sends."""
    link = Link(
        ends=("d00", "d01"), forward_bytes_per_s=1e8, backward_bytes_per_s=1e8, latency_s=1e-4
    )
    few = cluster(3, 0.1, 1)
    silent = replace(few.runtime, returns_tokens=False)
    problem = replace(few, inventory=replace(few.inventory, links=(link,)), runtime=silent)
    cuts = ((0, 0, 4), (1, 4, 8)), ((0, 0, 4), (2, 4, 8))
    for cut, back_s in zip(cuts, (0.0, math.inf), strict=True):
        _, hop = pipeline.decode_stages(Costs(problem), cut, 1)
        assert hop[-1] == World(problem).decode_stages(cut, 1, 1)[-1][1] == back_s


@given(linked, chances)
def test_a_kv_cache_moves_from_holder_to_holder(problem: Problem, random: Random) -> None:
    names = {device.name: device.host for device in problem.devices}
    if any(
        names.get(a, a) == names.get(b, b) for a, b in (k.ends for k in problem.inventory.links)
    ):
        return  # private links are left to the examples
    rows = random.sample(range(len(problem.devices)), len(problem.devices))
    half = random.randint(1, len(rows) - 1)
    source = some_cut(problem, random, rows[:half])
    target = some_cut(problem, random, rows[half:])
    world = World(problem)
    latency, _ = world.prefill(source, problem.workload.prompt.mean, 0)
    found = kv_transfer(Costs(problem), source, target, latency)
    expected = kv_exposed_s(world, source, target, latency)
    prompt = problem.workload.prompt.mean
    assert found.num_bytes == close(
        sum(world.kv(layer, prompt) for layer in range(problem.model.num_layers))
    )
    assert found.exposed_s == close(expected)


@given(problems(min_devices=2, max_devices=5), chances)
def test_where_some_layer_has_no_way_the_kv_cache_never_arrives(
    problem: Problem, random: Random
) -> None:
    rows = list(range(len(problem.devices)))
    source = some_cut(problem, random, rows[:1])
    target = some_cut(problem, random, rows[1:])
    exposed = kv_transfer(Costs(problem), source, target, 1.0).exposed_s
    assert math.isfinite(exposed) == all(ways(problem.inventory, 0, d) for d, _, _ in target)
