"""The problems that are measured: devices and models made up, every number written here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from e2llm_opt import (
    Device,
    Inventory,
    Lengths,
    Link,
    ModelFacts,
    Problem,
    Workload,
    runtime,
)

EXAMPLES = Path(__file__).parents[1] / "examples"
NUM_LAYERS = 32
_GIB = 2**30


def distinct(num_devices: int) -> Problem:
    """Return a problem of devices no two of which are alike, and layers that all are."""
    return _problem(tuple(_device(f"d{i}", i) for i in range(num_devices)))


def in_classes(num_devices: int, num_classes: int) -> Problem:
    """Return a problem of devices in a few classes of interchangeable ones."""
    return _problem(tuple(_device(f"d{i}", i % num_classes) for i in range(num_devices)))


def unlike(num_devices: int) -> Problem:
    """Return distinct devices, links of unlike speed, and layers that are unlike, too."""
    problem = distinct(num_devices)
    weight_bytes = tuple((200 + 60 * (i % 5)) * 2**20 for i in range(NUM_LAYERS))
    links = tuple(
        replace(link, forward_bytes_per_s=speed, backward_bytes_per_s=speed, latency_s=1e-4 * i)
        for i, link in enumerate(problem.inventory.links, start=1)
        for speed in [2.5e7 * i]
    )
    return replace(
        problem,
        inventory=replace(problem.inventory, links=links),
        facts=replace(problem.facts, layer_weight_bytes=weight_bytes),
    )


def testbed() -> Problem:
    """Return the paper's testbed, the example that every plan is measured on."""
    return Problem.load(EXAMPLES / "e2llm-testbed.yaml")


def _device(name: str, kind: int) -> Device:
    """Return a device of one kind: memory, bandwidth and compute grow at unlike pace."""
    return Device(
        name=name,
        memory_bytes=(4 + 1.5 * (kind % 5)) * _GIB,
        memory_bandwidth_bytes_per_s=(60 + 37 * kind) * 1e9,
        fp16_flop_per_s=(3 + 2.5 * (kind * 5 % 12)) * 1e12,
    )


def _problem(devices: tuple[Device, ...]) -> Problem:
    links = tuple(
        Link(
            ends=(device.name, "lan"),
            forward_bytes_per_s=1.175e8,
            backward_bytes_per_s=1.175e8,
            latency_s=1e-4,
        )
        for device in devices
    )
    facts = ModelFacts(
        name="bench",
        num_hidden_layers=NUM_LAYERS,
        hidden_size=4096,
        vocab_size=128_256,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14_336,
    )
    return Problem(
        inventory=Inventory(devices=devices, links=links),
        facts=facts,
        runtime=runtime("generic"),
        workload=Workload(prompt=Lengths(mean=512), output=Lengths(mean=256), rate_per_s=0.5),
        weights="q4_k_m",
    )
