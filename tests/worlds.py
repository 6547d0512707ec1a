"""Problems of all-distinct devices with all pairs linked, always the same ones."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.problem import Problem
from e2llm_opt.runtime import runtime
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator


def worlds(*, num_worlds: int, num_devices: int = 5, num_layers: int = 8) -> Iterator[Problem]:
    """Yield problems of all-distinct devices with all pairs linked, always the same ones."""
    rng = np.random.default_rng(7)
    for _ in range(num_worlds):
        machines = tuple(random_device(rng, f"d{d}") for d in range(num_devices))
        links = tuple(
            Link(
                ends=(one.name, other.name),
                forward_bytes_per_s=float(10 ** rng.uniform(7, 9)),
                backward_bytes_per_s=float(10 ** rng.uniform(7, 9)),
                latency_s=float(rng.uniform(1e-4, 2e-3)),
            )
            for one, other in combinations(machines, 2)
        )
        yield Problem(
            inventory=Inventory(devices=machines, links=links),
            facts=ModelFacts(
                name="random",
                num_hidden_layers=num_layers,
                hidden_size=4096,
                vocab_size=1000,
                layer_weight_bytes=tuple(rng.uniform(2e8, 6e8, num_layers).tolist()),
                kv_bytes_per_token=20e3,
                layer_flops_per_token=6e8,
            ),
            runtime=runtime("generic", overhead_bytes=1e8),
            workload=Workload(prompt=Lengths(mean=300.0), output=Lengths(mean=100.0)),
        )


def random_device(rng: np.random.Generator, name: str) -> Device:
    return Device(
        name=name,
        memory_bytes=float(rng.uniform(1e9, 2.5e9)),
        memory_bandwidth_bytes_per_s=float(10 ** rng.uniform(10.3, 11.7)),
        fp16_flop_per_s=float(10 ** rng.uniform(12, 13.5)),
    )
