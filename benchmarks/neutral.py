"""Common ground with other planners: small problems that a neutral scorer values.

The two inventories in benchmarks/instances (edge4.json, edge8.json) and the scorer's rules are
those of a comparison of public schedulers: Llama 2 7B in FP16 on four and eight unlike devices,
512 prompt and 128 output tokens, every replica serves both phases with 8 slots, a roofline at 50 %
of compute and 70 % of bandwidth, a hop of half the round trip + bytes / bandwidth, 95 % of memory.
Nothing returns from the last stage to the first, and attention costs no FLOPs. A long simulated
annealing on that score reached the values of :data:`ANNEALING`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2llm_opt import (
    Constraints,
    Device,
    Inventory,
    Lengths,
    Link,
    ModelFacts,
    Problem,
    Workload,
    runtime,
)
from e2llm_opt.problem import Objective

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan

INSTANCES = Path(__file__).parent / "instances"
ANNEALING = {"edge4": 1.067, "edge8": 4.271}
"""Requests a second that a long annealing reached by the scorer, as printed."""
SLOTS = 8
_GIB = 2**30


def problem(name: str) -> Problem:
    """Return an inventory of the common ground as our problem, by its scorer's assumptions."""
    given = read(name)
    model, work = given["model"], given["workload"]
    # The scorer reads the cache of a whole request in each step, and has no FLOPs for attention.
    mean = work["prompt"] + work["output"] // 2
    return Problem(
        inventory=Inventory(
            devices=tuple(_device(device) for device in given["devices"]),
            links=tuple(
                Link(
                    ends=(link["a"], link["b"]),
                    forward_bytes_per_s=link["mbps"] * 1e6 / 8,
                    backward_bytes_per_s=link["mbps"] * 1e6 / 8,
                    latency_s=link["rtt_ms"] / 2e3,
                )
                for link in given["links"]
            ),
        ),
        facts=ModelFacts(
            name=given["model_name"],
            num_hidden_layers=model["layers"],
            hidden_size=model["hidden"],
            intermediate_size=model["ffn"],
            num_attention_heads=model["heads"],
            num_key_value_heads=model["kv_heads"],
            head_dim=model["head_dim"],
            vocab_size=model["vocab"],
            layer_flops_per_token=2.0 * _parameters(model),
            layer_attention_flops=0.0,
            kv_bytes_per_token=_cache(given) / mean,
        ),
        runtime=runtime(
            "generic",
            overhead_bytes=0.0,
            hop_overhead_s=0.0,
            max_slots=SLOTS,
            mixed_pause="occupancy",
            returns_tokens=False,
        ),
        workload=Workload(
            prompt=Lengths(mean=work["prompt"], cv=0.0),
            output=Lengths(mean=work["output"], cv=0.0),
            context_tokens=mean,
            rate_per_s=work["rate"],
            slots=SLOTS,
        ),
        weights="f16",
        objective=Objective.THROUGHPUT,
        constraints=Constraints(roles="mixed"),
    )


def read(name: str) -> dict[str, Any]:
    """Return an inventory as it was given."""
    found: dict[str, Any] = json.loads((INSTANCES / f"{name}.json").read_text(encoding="utf-8"))
    return found


def score(name: str, plan: Plan) -> float:
    """Return the requests a second that the neutral scorer gives *plan*; no memory rule broken."""
    given = read(name)
    total = 0.0
    for replica in plan.replicas:
        stages = [(s.device, s.layers[1] - s.layers[0]) for s in replica.stages]
        total += capacity(given, stages)
    return total


def _parameters(model: dict[str, Any]) -> int:
    hidden, kv = model["hidden"], model["kv_heads"] * model["head_dim"]
    return int(2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * model["ffn"])


def _cache(given: dict[str, Any]) -> float:
    """Return the KV cache of a whole request in all layers together [bytes]."""
    model, work = given["model"], given["workload"]
    per_token = 2 * model["kv_heads"] * model["head_dim"] * model["bytes_kv"]
    return float(per_token * (work["prompt"] + work["output"]))


def _device(device: dict[str, Any]) -> Device:
    memory = device["mem_gb"] * _GIB
    return Device(
        name=device["id"],
        memory_bytes=memory,
        reserved_bytes=0.05 * memory,
        memory_bandwidth_bytes_per_s=device["membw_gbs"] * 1e9,
        fp16_flop_per_s=device["tflops_fp16"] * 1e12,
        prefill_efficiency=0.5,
        decode_efficiency=0.7,
        layer_overhead_s=0.0,
    )


def capacity(given: dict[str, Any], stages: list[tuple[str, int]]) -> float:
    """Return what the scorer gives one replica: device and number of layers of each stage [1/s].

    1 / (slowest prefill stage + output · round / slots); 0 where a device has too little memory.
    """
    model, work = given["model"], given["workload"]
    devices = {device["id"]: device for device in given["devices"]}
    links = {frozenset((link["a"], link["b"])): link for link in given["links"]}
    weights = _parameters(model) * model["bytes_w"]
    cache = _cache(given)
    table = model["vocab"] * model["hidden"]
    last = len(stages) - 1

    def hop(j: int, tokens: float) -> float:
        if j == last:
            return 0.0
        link = links[frozenset((stages[j][0], stages[j + 1][0]))]
        seconds = model["hidden"] * 2 * tokens / (link["mbps"] * 1e6 / 8)
        return float(link["rtt_ms"] / 2e3 + seconds)

    def speeds(j: int) -> tuple[float, float]:
        device = devices[stages[j][0]]
        return device["tflops_fp16"] * 5e11, device["membw_gbs"] * 7e8

    prefill, rounds = 0.0, []
    for j, (name, num) in enumerate(stages):
        compute, bandwidth = speeds(j)
        tables = ((j == 0) + (j == last)) * table * model["bytes_w"]
        need = num * (weights + cache * SLOTS) + tables
        if need > devices[name]["mem_gb"] * _GIB * 0.95 * (1 + 1e-12):
            return 0.0
        reading = max(
            num * 2 * _parameters(model) * work["prompt"] / compute, num * weights / bandwidth
        )
        head = 2 * table / compute if j == last else 0.0
        prefill = max(prefill, reading + head + hop(j, work["prompt"]))
    for micro in range(1, min(len(stages), SLOTS) + 1):
        batch, times = SLOTS / micro, []
        for j, (_, num) in enumerate(stages):
            compute, bandwidth = speeds(j)
            step = max(
                num * 2 * _parameters(model) * batch / compute,
                num * (weights + cache * batch) / bandwidth,
            )
            if j == last:
                step += max(2 * table * batch / compute, table * model["bytes_w"] / bandwidth)
            times.append(step + hop(j, batch))
        rounds.append(max(math.fsum(times), micro * max(times)))
    return 1.0 / float(prefill + work["output"] * min(rounds) / SLOTS)
