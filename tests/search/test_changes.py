"""Which changes are offered where there is no plan, in which order, and that each one helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import e2llm_opt
from e2llm_opt import Constraints, Device, Infeasible, Inventory, Link, MemoryKind, Plan, Problem
from e2llm_opt.model.hf_config import facts
from tests.suggestions import applied

GIB = 2**30


def card(name: str, gib: float, **fields: Any) -> Device:
    return Device(
        name=name,
        memory_bytes=gib * GIB,
        memory_bandwidth_bytes_per_s=300e9,
        fp16_flop_per_s=30e12,
        **fields,
    )


def problem(
    *devices: Device,
    model: str = "llama-3.1-8b",
    weights: str = "q4_k_m",
    engine: str = "llama.cpp",
    context_tokens: int = 2048,
    **constraints: Any,
) -> Problem:
    links = tuple(
        Link(
            ends=(own.name, "lan"),
            forward_bytes_per_s=117e6,
            backward_bytes_per_s=117e6,
            latency_s=1e-4,
        )
        for own in devices
    )
    return Problem(
        inventory=Inventory(devices=devices, links=links if len(devices) > 1 else ()),
        facts=facts(model),
        runtime=e2llm_opt.runtime(engine),
        workload=e2llm_opt.Workload(
            prompt=e2llm_opt.Lengths(mean=300),
            output=e2llm_opt.Lengths(mean=200),
            context_tokens=context_tokens,
        ),
        weights=weights,
        constraints=Constraints(**constraints),
    )


def changes(asked: Problem) -> list[str]:
    """Return what is suggested, each verified here once more."""
    found = e2llm_opt.plan(asked)
    assert isinstance(found, Infeasible)
    for suggestion in found.suggestions:
        assert isinstance(e2llm_opt.plan(applied(asked, suggestion.change)), Plan), suggestion
    return [suggestion.change for suggestion in found.suggestions]


def test_everything_that_helps_is_offered_the_cheapest_first() -> None:
    asked = problem(card("old", 5), card("spare", 8), context_tokens=8192, exclude=("spare",))
    found = changes(asked)
    keys = [change.partition(":")[0] for change in found]
    assert keys == ["context_tokens", "constraints.exclude", "devices old", "weights"]
    assert "constraints.exclude: []" in found


def test_host_ram_is_offered_in_whole_gib_and_no_more_than_needed() -> None:
    asked = problem(card("tower", 3), context_tokens=512)
    offered = next(change for change in changes(asked) if change.startswith("devices "))
    gib = int(offered.partition("host_memory_gib: ")[2].partition(",")[0])
    less = offered.replace(f"host_memory_gib: {gib}", f"host_memory_gib: {gib - 1}")
    assert isinstance(e2llm_opt.plan(applied(asked, less)), Infeasible)


def test_which_of_two_cards_is_offered_host_ram_depends_on_no_name_and_no_order() -> None:
    slow, fast = card("a", 3), replace(card("b", 3), memory_bandwidth_bytes_per_s=600e9)
    swapped = replace(fast, name="a", host="a"), replace(slow, name="b", host="b")
    offered = []
    for cards in ((slow, fast), (fast, slow), swapped):
        asked = problem(*cards, context_tokens=512)
        asked = replace(asked, inventory=Inventory(devices=cards, links=()))
        text = next(change for change in changes(asked) if change.startswith("devices "))
        name = text.removeprefix("devices ").partition(":")[0]
        speeds = {own.name: own.memory_bandwidth_bytes_per_s for own in cards}
        offered.append((speeds[name], text.partition(":")[2]))
    assert len(set(offered)) == 1


def test_all_cards_spill_where_one_alone_does_not_do() -> None:
    asked = problem(card("left", 1.3), card("right", 1.3), context_tokens=512)
    offered = [change for change in changes(asked) if change.startswith("devices ")]
    assert len(offered) == 1
    assert offered[0].startswith("devices left, right: ")


@pytest.mark.parametrize("kind", [MemoryKind.CPU, MemoryKind.UNIFIED])
def test_no_card_is_offered_the_ram_that_another_device_of_its_host_computes_in(
    kind: MemoryKind,
) -> None:
    """Such an inventory is refused, so that the suggestion ended the planner."""
    machine = card("cpu", 1, host="tower", memory_kind=kind, reserved_bytes=0.5 * GIB)
    asked = problem(card("gpu", 2, host="tower"), machine, card("far", 1.5), model="llama-3.1-70b")
    assert not [change for change in changes(asked) if "gpu" in change]


@pytest.mark.parametrize("kind", [MemoryKind.UNIFIED, MemoryKind.CPU])
def test_a_device_that_computes_in_ram_has_nowhere_to_spill(kind: MemoryKind) -> None:
    asked = problem(card("mac", 3, memory_kind=kind), context_tokens=512)
    assert not [change for change in changes(asked) if change.startswith("devices ")]


def test_the_excluded_devices_that_alone_would_do_are_named() -> None:
    asked = problem(
        *(card("tiny", 1), card("a", 8), card("b", 2), card("c", 9)), exclude=("a", "b", "c")
    )
    found = [change for change in changes(asked) if change.startswith("constraints.exclude")]
    assert found == ["constraints.exclude: [b, c]", "constraints.exclude: [a, b]"]


def test_all_excluded_devices_are_offered_where_none_does_alone() -> None:
    asked = problem(
        *(card("tiny", 1), card("a", 4), card("b", 4)), exclude=("a", "b"), context_tokens=512
    )
    assert "constraints.exclude: []" in changes(asked)


def test_an_engine_with_less_overhead_that_reads_the_same_weights_is_offered() -> None:
    asked = problem(card("card", 7.5), model="llama-3.2-3b", weights="f16", engine="vllm")
    assert "runtime: llama.cpp" in changes(asked)


def test_no_engine_is_offered_that_cannot_read_the_weights() -> None:
    asked = problem(card("card", 5.2), model="llama-3.1-8b", weights="awq", engine="vllm")
    offered = [change for change in changes(asked) if change.startswith("runtime: ")]
    assert set(offered) <= {"runtime: parallax", "runtime: petals"}


def test_constraints_that_stand_in_the_way_are_offered_by_name() -> None:
    asked = problem(card("a", 8), card("b", 1), pin={"chat": ["b"]}, layers={"b": 30})
    found = changes(asked)
    assert "constraints.layers: leave it out" in found
    answer = e2llm_opt.plan(asked)
    assert isinstance(answer, Infeasible)
    assert "pin: chat: b" in answer.reason or "layers: b: 30" in answer.reason
    free = replace(asked, constraints=Constraints(pin={"chat": ["b"]}))
    assert isinstance(e2llm_opt.plan(free), Plan)
