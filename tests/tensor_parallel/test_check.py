"""What the checker finds wrong with stages of several devices, and what a plan by hand means."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import e2llm_opt
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.link import Link
from e2llm_opt.plan.plan import Plan
from tests.tensor_parallel.test_errors import FACTS, server

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem


def stage(start: int, stop: int, *names: str) -> dict[str, Any]:
    shared = {"tensor_parallel": list(names)} if len(names) > 1 else {}
    return {"device": names[0], **shared, "layers": [start, stop]}


def by_hand(*stages: dict[str, Any]) -> dict[str, Any]:
    return {"replicas": [{"role": "MIXED", "stages": list(stages)}]}


def found(problem: Problem, *stages: dict[str, Any]) -> list[str]:
    return [one.what for one in e2llm_opt.check(by_hand(*stages), problem).violations]


PAIR = stage(0, 8, "gpu-1", "gpu-2")


def test_a_plan_by_hand_may_share_a_stage_in_any_order_of_devices() -> None:
    problem = server(4)
    report = e2llm_opt.check(by_hand(stage(0, 8, "gpu-4", "gpu-2")), problem)
    assert report.valid
    (own,) = report.replicas[0].stages
    assert own.tensor_parallel == ("gpu-4", "gpu-2")
    alone = e2llm_opt.check(by_hand(stage(0, 8, "gpu-1")), problem).replicas[0].stages[0]
    tables = own.memory_bytes.weights * 2 - alone.memory_bytes.weights
    assert abs(tables) <= 2, "each has half of the weights"
    assert own.memory_bytes.capacity == alone.memory_bytes.capacity
    assert own.memory_bytes.overhead == alone.memory_bytes.overhead


@pytest.mark.parametrize(
    ("problem", "stages", "what"),
    [
        (server(4, "llama.cpp"), [PAIR], "llama.cpp cannot run one stage on several devices"),
        (server(4, "vllm", "off"), [PAIR], "asks for one device a stage"),
        (server(4, "generic"), [PAIR], "asks for one device a stage"),
        (server(4, "vllm", 4), [PAIR], "constraints.tensor_parallel"),
        (server(4, "vllm", 2), [stage(0, 8, "gpu-1")], "constraints.tensor_parallel"),
        (server(4), [stage(0, 8, "gpu-1", "gpu-2", "gpu-3")], "devices of one stage"),
        (server(4), [stage(0, 8, "gpu-1", "odd")], "unlike devices in one stage: memory_bytes"),
        (
            server(4),
            [stage(0, 4, "gpu-1", "gpu-2"), stage(4, 8, "gpu-3")],
            "stages with unlike numbers of devices",
        ),
        (
            server(4),
            [stage(0, 4, "gpu-1", "gpu-2"), stage(4, 8, "gpu-2", "gpu-3")],
            "device holds several stages",
        ),
        (
            server(8, facts=replace(FACTS, num_attention_heads=12, num_key_value_heads=4)),
            [stage(0, 8, *(f"gpu-{i}" for i in range(1, 9)))],
            "attention heads that the devices of a stage cannot share",
        ),
        (
            server(4, facts=replace(FACTS, num_attention_heads=24, num_key_value_heads=6)),
            [stage(0, 8, *(f"gpu-{i}" for i in range(1, 5)))],
            "KV heads that the devices of a stage cannot share",
        ),
        (
            server(4, "exo"),
            [stage(0, 4, "gpu-1", "gpu-2"), stage(4, 8, "gpu-3", "gpu-4")],
            "exo shares layers over all devices of a replica or none",
        ),
        (
            server(4, pin={"chat": ("gpu-1",)}),
            [PAIR],
            "unlike devices in one stage: constraints.pin",
        ),
    ],
)
def test_every_wrong_stage_is_named(
    problem: Problem, stages: list[dict[str, Any]], what: str
) -> None:
    assert any(what in one for one in found(problem, *stages)), found(problem, *stages)


def test_devices_of_different_hosts_share_no_stage() -> None:
    problem = server(4)
    devices = [
        replace(own, host="other") if own.name == "gpu-2" else own
        for own in problem.inventory.devices
    ]
    link = Link(
        ends=("box", "other"), forward_bytes_per_s=1e9, backward_bytes_per_s=1e9, latency_s=0.0
    )
    inventory = replace(problem.inventory, devices=tuple(devices), links=(link,))
    moved = replace(problem, inventory=inventory)
    assert any("on different hosts" in one for one in found(moved, PAIR))


def test_devices_with_a_link_of_their_own_are_unlike_others() -> None:
    problem = server(4)
    link = Link(
        ends=("gpu-1", "gpu-3"), forward_bytes_per_s=1e9, backward_bytes_per_s=1e9, latency_s=0.0
    )
    linked = replace(problem, inventory=replace(problem.inventory, links=(link,)))
    assert any("a link of its own" in one for one in found(linked, PAIR))
    plan = e2llm_opt.plan(linked)
    assert isinstance(plan, Plan)
    shared = [set(s.tensor_parallel) for r in plan.replicas for s in r.stages]
    assert not any(own & {"gpu-1", "gpu-3"} for own in shared)


def test_spilled_layers_and_shared_stages_do_not_mix() -> None:
    spilling = {**PAIR, "spilled_layers": [1]}
    assert any("spilled layers" in one for one in found(server(4), spilling))


def test_numbers_of_a_shared_stage_are_recomputed() -> None:
    problem = server(4, "vllm", 4)
    plan = e2llm_opt.plan(problem)
    assert isinstance(plan, Plan)
    one = plan.replicas[0].stages[0]
    for wrong in (
        replace(one, decode_time_s=one.decode_time_s / 1.01),
        replace(one, prefill_time_s=one.prefill_time_s * 1.01),
        replace(one, memory_bytes=replace(one.memory_bytes, kv_cache=0)),
        replace(one, tensor_parallel=one.tensor_parallel[:2]),
    ):
        replica = replace(plan.replicas[0], stages=(wrong,))
        report = e2llm_opt.check(replace(plan, replicas=(replica,)), problem)
        assert not report.valid


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("gpu-1", "tensor_parallel"),
        ([1, 2], "tensor_parallel"),
        (["gpu-2", "gpu-1"], "begins with"),
    ],
)
def test_a_list_of_devices_that_is_none_is_refused(value: Any, words: str) -> None:
    plan = by_hand({"device": "gpu-1", "tensor_parallel": value, "layers": [0, 8]})
    with pytest.raises(InputError, match=words):
        e2llm_opt.check(plan, server(4))


def test_a_plan_by_hand_is_completed_with_its_devices() -> None:
    problem = server(4)
    answer = e2llm_opt.export(by_hand(PAIR), "vllm", problem=problem)
    assert answer.not_expressible is None
    assert answer.commands[0].env["CUDA_VISIBLE_DEVICES"] == "0,1"
