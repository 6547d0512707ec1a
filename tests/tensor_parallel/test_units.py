"""Rows of several devices against one of these devices, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt.cost.costs import Costs
from tests.tensor_parallel.servers import Shared, servers

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem

joint = servers((2, 4, 8))


@settings(max_examples=25)
@given(joint, st.integers(1, 6))
def test_times_of_a_row_are_those_of_each_of_its_devices(problem: Problem, batch: int) -> None:
    costs, world = Costs(problem), Shared(problem)
    tokens = problem.workload.prompt.mean
    prefill, decode = costs.prefill_prefix(tokens), costs.decode_prefix(batch)
    for row, members in enumerate(costs.units.members):
        one, d = world.with_devices(len(members)), members[0]
        for layer in range(problem.model.num_layers):
            first = prefill[row, layer + 1] - prefill[row, layer]
            assert first == pytest.approx(one.prefill_layer(d, layer, tokens), rel=1e-9)
            step = decode[row, layer + 1] - decode[row, layer]
            assert step == pytest.approx(one.decode_layer(d, layer, batch), rel=1e-9)
        assert costs.head(batch)[row] == pytest.approx(one.head(d, batch), rel=1e-12)


@settings(max_examples=25)
@given(joint, st.integers(1, 6), st.integers(0, 3))
def test_memory_of_a_row_is_that_of_each_of_its_devices(
    problem: Problem, slots: int, position: int
) -> None:
    costs, world = Costs(problem), Shared(problem)
    top, held = problem.model.num_layers, costs.held_prefix(slots)
    for row, members in enumerate(costs.units.members):
        fixed = costs.stage_fixed(row, position)
        free = costs.room()[row, position] - held[row, top]
        one = world.with_devices(len(members))
        expected = one.free_bytes(members[0], (0, top), slots, fixed.tables_bytes)
        expected -= fixed.overhead_bytes  # on every one of them
        assert free / len(members) == pytest.approx(expected, rel=1e-9, abs=1.0)


@given(joint)
def test_units_are_identical_devices_of_one_host_in_numbers_that_heads_allow(
    problem: Problem,
) -> None:
    units = Costs(problem).units
    heads, kept = problem.facts.num_attention_heads, problem.facts.num_key_value_heads
    for members in units.members[len(problem.devices) :]:
        own = [problem.devices[d] for d in members]
        assert len({device.host for device in own}) == 1
        assert len(members) in {2, 4, 8}
        assert heads % len(members) == 0
        assert kept % len(members) == 0 or len(members) % kept == 0
    hosts = {device.host for device in problem.devices}
    for host in hosts:
        rows = tuple(d for d, own in enumerate(problem.devices) if own.host == host)
        sizes = [len(units.members[fused[0]]) for fused in units.fusings(rows)]
        expected = [
            t
            for t in (1, 2, 4, 8)
            if len(rows) % t == 0 and heads % t == 0 and (kept % t == 0 or t % kept == 0)
        ]
        assert sizes == expected
        for fused in units.fusings(rows):
            assert sorted(d for row in fused for d in units.members[row]) == sorted(rows)


def test_moving_a_cut_keeps_its_units_or_finds_none() -> None:
    from tests.tensor_parallel.test_errors import server

    units = Costs(server(4)).units
    pair = units.known([0, 1])
    assert units.moved(((pair, 0, 8),), {0: 2, 1: 3}) == ((units.known([2, 3]), 0, 8),)
    assert units.moved(((pair, 0, 8),), {0: 1, 1: 3}) is None, "a gap between them"
    assert units.devices(((pair, 0, 4), (3, 4, 8))) == [0, 1, 3]
