"""A world small enough for a pocket calculator: bytes by the hundred, times in whole tenths.

One layer weighs 1000 B and costs 10 FLOP a token; a device reads 500 B/s and computes 50 FLOP/s,
with 0.5 s a layer on top. A prompt has 16 tokens (two chunks of 8), an answer 8.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from e2llm_opt.constraints import Constraints
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.model.model import Model
from e2llm_opt.problem import Problem
from e2llm_opt.runtime import MixedPause, Runtime
from e2llm_opt.workload.workload import Lengths, Workload

FACTS = ModelFacts(
    name="small",
    num_hidden_layers=4,
    hidden_size=10,
    vocab_size=100,
    layer_weight_bytes=1000.0,
    layer_spillable_bytes=0.0,
    kv_bytes_per_token=2.0,
    layer_flops_per_token=10.0,
    embedding_bytes=500.0,
    head_bytes=400.0,
)
MODEL = Model(
    name="small",
    hidden_size=10,
    vocab_size=100,
    layer_dense_bytes=(1000.0,) * 4,
    layer_routed_bytes=(0.0,) * 4,
    layer_routed_fraction=(1.0,) * 4,
    layer_spillable_bytes=(0.0,) * 4,
    layer_flops_per_token=(10.0,) * 4,
    layer_attention_flops=(0.0,) * 4,
    layer_kv_bytes_per_token=(2.0,) * 4,
    layer_window_tokens=(math.inf,) * 4,
    embedding_bytes=500.0,
    head_bytes=400.0,
    head_flops_per_token=40.0,
)
RUNTIME = Runtime(
    name="small",
    overhead_bytes=100.0,
    hop_overhead_s=0.25,
    bus_hop_overhead_s=0.125,
    is_pipelined=True,
    max_slots=4,
    prefill_chunk_tokens=8,
    activation_bytes=2.0,
    topology="ring",
    mixed_pause=MixedPause.LATENCY,
    layerwise_kv=False,
    head="last",
    embedding="first",
    kv_layout="expanded",
    has_disaggregation=True,
)
WORKLOAD = Workload(prompt=Lengths(mean=16.0), output=Lengths(mean=8.0), context_tokens=32)


def device(name: str, **changes: Any) -> Device:
    """Return a device with 10,000 B of memory, 500 B/s and 50 FLOP/s in effect."""
    numbers: dict[str, Any] = {
        "memory_bytes": 10_000.0,
        "memory_bandwidth_bytes_per_s": 1000.0,
        "decode_efficiency": 0.5,
        "fp16_flop_per_s": 100.0,
        "prefill_efficiency": 0.5,
        "layer_overhead_s": 0.5,
        "host_bus_bytes_per_s": 400.0,
    }
    return Device(name=name, **{**numbers, **changes})


def link(first: str, second: str, speed: float = 100.0, **changes: Any) -> Link:
    """Return a link of *speed* bytes/s both ways and 25 ms."""
    numbers: dict[str, Any] = {
        "forward_bytes_per_s": speed,
        "backward_bytes_per_s": speed,
        "latency_s": 0.025,
    }
    return Link(ends=(first, second), **{**numbers, **changes})


def star(*names: str) -> Inventory:
    """Return alike devices around one switch: 100 B/s and 50 ms from each to each."""
    return Inventory(
        devices=tuple(device(name) for name in names),
        links=tuple(link(name, "lan") for name in names) if len(names) > 1 else (),
    )


def problem(
    inventory: Inventory,
    *,
    model: Model = MODEL,
    runtime: Runtime = RUNTIME,
    workload: Workload = WORKLOAD,
    constraints: Constraints | None = None,
) -> Problem:
    """Return a problem about exactly this model, whatever its facts would be."""
    whole = Problem(
        inventory=inventory,
        facts=FACTS,
        runtime=runtime,
        workload=workload,
        constraints=constraints or Constraints(),
    )
    object.__setattr__(whole, "model", model)
    return whole


def stage(name: str, start: int, stop: int, **more: Any) -> dict[str, Any]:
    """Return a stage as a person would write it."""
    return {"device": name, "layers": [start, stop], **more}


def replica(role: str, *stages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a replica as a person would write it."""
    return {"role": role, "stages": list(stages), **more}


def pair(role: str = "MIXED", **more: Any) -> dict[str, Any]:
    """Return a plan of one replica: layers 0 and 1 on a, 2 and 3 on b."""
    return {"replicas": [replica(role, stage("a", 0, 2), stage("b", 2, 4), **more)]}


def split() -> dict[str, Any]:
    """Return a plan of one PREFILL replica on a and b, one DECODE replica on c and d."""
    return {
        "replicas": [
            replica("PREFILL", stage("a", 0, 2), stage("b", 2, 4), id="p"),
            replica("DECODE", stage("c", 0, 3), stage("d", 3, 4), id="d", slots=2),
        ]
    }


def runtime(**changes: Any) -> Runtime:
    """Return the small engine with some rules changed."""
    return replace(RUNTIME, **changes)
