"""No plan: the reason, the missing bytes, and changes that do help.

A layer weighs 1 GB and keeps 10 kB of KV cache a token; engine, embedding and head weigh (almost)
nothing, so that each sum can be done in one's head.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from e2llm_opt.constraints import Constraints
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.loading.load import problem_from_mapping
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Problem
from e2llm_opt.runtime import runtime
from e2llm_opt.solve import plan
from e2llm_opt.workload.workload import Lengths, Workload
from tests.suggestions import applied

GB = 1e9
KV_BYTES = 10_000.0
CONTEXT = 1024
FREE = runtime("generic", overhead_bytes=0.0)
CROWDED = runtime("generic", overhead_bytes=0.25 * GB)


def device(name: str, memory_gb: float) -> Device:
    return Device(
        name=name,
        memory_bytes=memory_gb * GB,
        memory_bandwidth_bytes_per_s=100e9,
        fp16_flop_per_s=10e12,
    )


def linked(*devices: Device) -> Inventory:
    """Join the devices by a switch."""
    return Inventory(
        devices=devices,
        links=tuple(
            Link(
                ends=(own.name, "lan"),
                forward_bytes_per_s=1e9,
                backward_bytes_per_s=1e9,
                latency_s=1e-4,
            )
            for own in devices
        ),
    )


def problem(
    inventory: Inventory,
    num_layers: int,
    *,
    constraints: Constraints | None = None,
    engine: Any = FREE,
    starts: tuple[int, ...] | None = None,
    **workload: Any,
) -> Problem:
    return Problem(
        inventory=inventory,
        facts=ModelFacts(
            name="round",
            num_hidden_layers=num_layers,
            hidden_size=1024,
            vocab_size=32000,
            num_attention_heads=8,
            layer_weight_bytes=GB,
            kv_bytes_per_token=KV_BYTES,
            embedding_bytes=1.0,
            head_bytes=1.0,
            allowed_stage_starts=starts,
        ),
        runtime=engine,
        workload=Workload(
            prompt=Lengths(mean=100.0),
            output=Lengths(mean=50.0),
            **{"context_tokens": CONTEXT, **workload},
        ),
        constraints=constraints or Constraints(),
    )


def two(first_gb: float, second_gb: float) -> Inventory:
    return linked(device("a", first_gb), device("b", second_gb))


def apart(first_gb: float, second_gb: float) -> Inventory:
    return Inventory(devices=(device("a", first_gb), device("b", second_gb)))


def catalogue_problem(weights: str, **more: Any) -> Problem:
    """A model of the catalogue, so that other weight formats are known."""
    workload = {"prompt_tokens": 100, "output_tokens": 50, "context_tokens": 1024}
    return problem_from_mapping(
        {
            "devices": [{"name": "laptop", "type": "rtx-3060-laptop"}],
            "model": "llama-3.1-8b",
            "weights": weights,
            "workload": workload,
            **more,
        }
    )


PROBLEMS = {
    "weights exceed all memory": problem(two(3, 3), 8),
    "the KV cache exceeds all memory": problem(two(4, 4), 6, context_tokens=60_000),
    "no whole layers add up": problem(linked(*(device(x, 1.9) for x in "abc")), 5),
    "the parts are not linked": problem(apart(4, 4), 6),
    "slots exceed memory": problem(two(3, 3), 4, slots=64),
    "slots exceed memory, engine buffers": problem(two(3.2, 3.2), 4, slots=64, engine=CROWDED),
    "too slow": problem(two(6, 6), 4, min_tokens_per_s=100),
    "too slow for the SLO": problem(two(6, 6), 4, slo_tpot_s=0.01),
    "too slow with so many slots": problem(two(60, 60), 4, slots=64, min_tokens_per_s=16.5),
    "more replicas than devices": problem(two(6, 6), 4, constraints=Constraints(replicas=3)),
    "more replicas than memory": problem(two(3, 3), 4, constraints=Constraints(replicas=2)),
    "a device that holds no layer must be used": problem(
        two(6, 0.5), 4, constraints=Constraints(use_all_devices=True)
    ),
    "a device without a link must be used": problem(
        apart(6, 2), 4, constraints=Constraints(use_all_devices=True)
    ),
    "two roles, one replica": problem(two(3, 3), 4, constraints=Constraints(roles="disaggregated")),
    "two roles, one device": problem(
        Inventory(devices=(device("a", 6),)),
        4,
        constraints=Constraints(roles="disaggregated"),
    ),
    "no way for the KV cache": problem(
        apart(6, 6), 4, constraints=Constraints(roles="disaggregated")
    ),
    "no legal cut": problem(two(3, 3), 4, starts=(0,)),
    "only unbalanced cuts": problem(two(3.1, 3.1), 5, starts=(0, 1)),
    "the large device is excluded": problem(
        linked(device("a", 9), device("b", 3)), 4, constraints=Constraints(exclude=("a",))
    ),
    "smaller weights would fit": catalogue_problem("q8_0"),
    "smaller weights would fit, vllm": catalogue_problem(
        "f16", model="llama-3.2-3b", runtime={"name": "vllm", "overhead_gib": 0.3}
    ),
}
MEMORY = [
    *("weights exceed all memory", "the KV cache exceeds all memory", "no whole layers add up"),
    *("the parts are not linked", "slots exceed memory", "slots exceed memory, engine buffers"),
    *("the large device is excluded", "smaller weights would fit"),
    "smaller weights would fit, vllm",
]


@cache
def answer(name: str) -> Infeasible:
    found = plan(PROBLEMS[name])
    assert isinstance(found, Infeasible), found.summary()
    return found


def changes(name: str) -> dict[str, str]:
    """Return what is suggested, by key."""
    return dict(suggestion.change.split(": ", 1) for suggestion in answer(name).suggestions)


@pytest.mark.parametrize("name", PROBLEMS)
def test_there_is_no_plan_and_a_reason(name: str) -> None:
    assert answer(name).reason
    assert "unknown" not in answer(name).reason


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_suggestion_makes_it_feasible(name: str) -> None:
    for suggestion in answer(name).suggestions:
        assert suggestion.makes == "feasible"
        assert isinstance(plan(applied(PROBLEMS[name], suggestion.change)), Plan)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_suggested_context_is_the_largest_multiple_of_256(name: str) -> None:
    tokens = int(changes(name).get("context_tokens", 0))
    assert tokens % 256 == 0
    if tokens:
        assert tokens < PROBLEMS[name].workload.context_tokens
        more = applied(PROBLEMS[name], f"context_tokens: {tokens + 256}")
        assert isinstance(plan(more), Infeasible)


@pytest.mark.parametrize("name", PROBLEMS)
def test_suggested_slots_are_the_most(name: str) -> None:
    slots = int(changes(name).get("slots", 0))
    if slots:
        more = applied(PROBLEMS[name], f"slots: {slots + 1}")
        assert isinstance(plan(more), Infeasible)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_suggested_speed_is_close_to_the_limit(name: str) -> None:
    speed = float(changes(name).get("min_tokens_per_s", 0))
    if speed:
        more = applied(PROBLEMS[name], f"min_tokens_per_s: {speed * 1.1}")
        assert isinstance(plan(more), Infeasible)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_total_is_weights_and_kv_cache_and_buffers_everywhere(name: str) -> None:
    asked = PROBLEMS[name]
    model, workload = asked.model, asked.workload
    used = [d for d in asked.devices if d.name not in asked.constraints.exclude]
    kv = (workload.slots or 1) * workload.context_tokens * sum(model.layer_kv_bytes_per_token)
    logits = 512 * model.vocab_size * 4 if asked.runtime.logits_buffer else 0
    total = model.weight_bytes + kv + len(used) * asked.runtime.overhead_bytes + logits
    assert answer(name).kv_cache_bytes == pytest.approx(kv, abs=1)
    assert answer(name).total_bytes == pytest.approx(total, abs=2)


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_device_that_may_be_used_is_listed_with_what_it_has(name: str) -> None:
    asked = PROBLEMS[name]
    used = [d for d in asked.devices if d.name not in asked.constraints.exclude]
    assert {need.device: need.have_bytes for need in answer(name).devices} == {
        device.name: round(device.usable_bytes) for device in used
    }


@pytest.mark.parametrize("name", PROBLEMS)
def test_memory_is_named_as_the_reason_where_it_is_and_only_there(name: str) -> None:
    assert ("not enough memory" in answer(name).reason) == (name in MEMORY)
    assert (answer(name).shortfall_bytes > 0) == (name in MEMORY)


@pytest.mark.parametrize("name", MEMORY)
def test_what_is_missing_is_the_total_less_the_usable_memory(name: str) -> None:
    found = answer(name)
    usable = sum(need.have_bytes for need in found.devices)
    if found.total_bytes > usable:
        assert found.shortfall_bytes == pytest.approx(found.total_bytes - usable, abs=2)
        assert "usable are" in found.reason


@pytest.mark.parametrize("name", MEMORY)
def test_some_device_needs_more_than_it_has(name: str) -> None:
    assert any(need.need_bytes > need.have_bytes for need in answer(name).devices)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_document_has_every_field(name: str) -> None:
    document = json.loads(answer(name).to_json())
    assert set(document) == {
        *("schema", "reason", "kv_cache_bytes", "total_bytes", "devices", "shortfall_bytes"),
        "suggestions",
    }
    assert document["schema"] == "e2llm-opt/infeasible/v1"
    for need in document["devices"]:
        assert set(need) == {"device", "need_bytes", "have_bytes"}
    for suggestion in document["suggestions"]:
        assert set(suggestion) == {"change", "makes"}


def test_where_the_sum_fits_the_least_excess_on_one_device_is_missing() -> None:
    """Five layers on three devices of 1.9 GB: one must hold two, and lacks 0.1 GB and the KV."""
    found = answer("no whole layers add up")
    lacks = 2 * (GB + CONTEXT * KV_BYTES) - 1.9 * GB
    assert found.shortfall_bytes == pytest.approx(lacks, abs=3)
    assert "no connected devices hold whole layers that add up" in found.reason


def test_unlinked_devices_lack_what_the_larger_one_lacks() -> None:
    found = answer("the parts are not linked")
    lacks = 6 * (GB + CONTEXT * KV_BYTES) - 4 * GB
    assert found.shortfall_bytes == pytest.approx(lacks, abs=3)
    assert "connected" in found.reason
    assert "no link joins" in found.reason
    joined = answer("no whole layers add up")
    assert "no link joins" not in joined.reason


def test_the_reason_counts_slots_times_context() -> None:
    assert "KV cache of 64 slots x 1024 tokens context" in answer("slots exceed memory").reason
    assert "1 slot x 60000 tokens" in answer("the KV cache exceeds all memory").reason


@pytest.mark.parametrize("name", ["slots exceed memory", "slots exceed memory, engine buffers"])
def test_both_fewer_slots_and_a_smaller_context_are_suggested(name: str) -> None:
    assert {"slots", "context_tokens"} <= set(changes(name))


def test_a_speed_that_cannot_be_reached_is_named_with_the_speed() -> None:
    assert answer("too slow").reason.startswith("too slow")
    assert "100 tokens/s" in answer("too slow").reason
    assert "100 tokens/s" in answer("too slow for the SLO").reason
    assert "with 64 slots" in answer("too slow with so many slots").reason
    for name in ("too slow", "too slow with so many slots"):
        assert "min_tokens_per_s" in changes(name)
    assert "slo.tpot_s" in changes("too slow for the SLO")


def test_both_limits_on_speed_are_lowered_where_both_are_too_high() -> None:
    asked = problem(two(6, 6), 4, slo_tpot_s=0.01, min_tokens_per_s=100)
    found = plan(asked)
    assert isinstance(found, Infeasible)
    change = next(s.change for s in found.suggestions if s.change.startswith("min_tokens_per_s"))
    assert ", slo.tpot_s: " in change
    assert isinstance(plan(applied(asked, change)), Plan)


def test_the_slots_that_leave_each_stream_fast_enough_are_suggested() -> None:
    assert "slots" in changes("too slow with so many slots")


@pytest.mark.parametrize(
    ("name", "constraint"),
    [
        ("more replicas than devices", "replicas"),
        ("more replicas than memory", "replicas"),
        ("a device that holds no layer must be used", "use_all_devices"),
        ("a device without a link must be used", "use_all_devices"),
        ("two roles, one replica", "roles"),
        ("two roles, one device", "roles"),
        ("no way for the KV cache", "roles"),
    ],
)
def test_a_constraint_that_cannot_be_met_is_named_and_its_end_suggested(
    name: str, constraint: str
) -> None:
    assert f"{constraint}: " in answer(name).reason
    assert f"constraints.{constraint}" in changes(name)


@pytest.mark.parametrize("name", ["no legal cut", "only unbalanced cuts"])
def test_no_legal_cut_is_said_and_no_memory_is_missing(name: str) -> None:
    assert answer(name).reason.startswith("no legal cut")
    assert "allowed_stage_starts" in answer(name).reason


def test_an_excluded_device_is_not_counted() -> None:
    (only,) = answer("the large device is excluded").devices
    assert only.device == "b"


@pytest.mark.parametrize(
    ("name", "ladder"),
    [
        ("smaller weights would fit", ["q6_k", "q5_k_m", "q4_k_m"]),
        ("smaller weights would fit, vllm", ["fp8", "awq"]),
    ],
)
def test_the_best_smaller_weights_of_the_engine_that_fit_are_suggested(
    name: str, ladder: list[str]
) -> None:
    asked, found = PROBLEMS[name], changes(name)["weights"]
    larger = ladder[: ladder.index(found)]
    assert all(isinstance(plan(replace(asked, weights=other)), Infeasible) for other in larger)
