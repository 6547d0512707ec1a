"""Worlds small enough for pencil and paper.

A layer has 1000 B, 40 MFLOP a token and no KV cache; there is no embedding and a head of 2 FLOP. A
device reads a layer in *read* seconds and computes a token's layer in *compute* seconds. Prompts
have 40 tokens in one chunk, answers 20; a token's activations are 2 B.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.runtime import runtime
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.plan.plan import Plan


def device(name: str, layers: float, read: float, compute: float) -> Device:
    """Return a device that holds so many layers; all efficiencies are 1."""
    return Device(
        name=name,
        memory_bytes=1000.0 * layers,
        memory_bandwidth_bytes_per_s=1000.0 / read,
        fp16_flop_per_s=40e6 / compute,
        decode_efficiency=1.0,
        prefill_efficiency=1.0,
        layer_overhead_s=0.0,
    )


def links(names: Sequence[str], latency_s: float = 0.0) -> tuple[Link, ...]:
    """Return links between every two that take no time but their latency."""
    return tuple(
        Link(ends=pair, forward_bytes_per_s=1e12, backward_bytes_per_s=1e12, latency_s=latency_s)
        for pair in combinations(names, 2)
    )


def world(
    devices: Sequence[Device],
    num_layers: int,
    between: Sequence[Link] | None = None,
    *,
    rate_per_s: float = 0.5,
    objective: Objective = Objective.THROUGHPUT,
    max_slots: int = 16,
) -> Problem:
    """Return a problem with these devices, linked instantly unless said otherwise."""
    names = [device.name for device in devices]
    return Problem(
        inventory=Inventory(
            devices=tuple(devices), links=links(names) if between is None else tuple(between)
        ),
        facts=ModelFacts(
            name="alike layers",
            num_hidden_layers=num_layers,
            hidden_size=1,
            vocab_size=1,
            layer_weight_bytes=1000.0,
            kv_bytes_per_token=0.0,
            layer_flops_per_token=40e6,
            embedding_bytes=0.0,
            head_bytes=0.0,
        ),
        runtime=runtime("generic", overhead_bytes=0.0, hop_overhead_s=0.0, max_slots=max_slots),
        workload=Workload(
            prompt=Lengths(mean=40.0, cv=0.0),
            output=Lengths(mean=20.0, cv=0.0),
            rate_per_s=rate_per_s,
        ),
        objective=objective,
    )


def shape(plan: Plan) -> list[tuple[str, dict[str, int]]]:
    """Return role, and layers of each device, of every replica."""
    return [
        (replica.role, {s.device: s.layers[1] - s.layers[0] for s in replica.stages})
        for replica in plan.replicas
    ]
