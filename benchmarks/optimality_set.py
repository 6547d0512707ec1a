"""The instances on which optimality is measured: named, made from a seed, realistic in size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks import neutral
from e2llm_opt import Device, Inventory, Lengths, Link, ModelFacts, Problem, Workload, runtime
from e2llm_opt.problem import Objective

if TYPE_CHECKING:
    from collections.abc import Iterator

_GIB = 2**30
_MEMORY = (6.0, 8.0, 10.0, 12.0, 16.0, 24.0)
NUM_SEEDS = 9
DISTINCT = range(4, 11)
CLASSES = ((12, 3), (12, 4), (16, 4), (20, 4), (24, 5), (30, 5), (36, 6), (40, 6))
LARGE = ((64, 8), (64, 64))
_SHAPES = {
    "llama-3.1-8b": (32, 4096, 128_256, 32, 8, 14_336),
    "qwen3-14b": (40, 5120, 151_936, 40, 8, 17_408),
    "qwen2.5-32b": (64, 5120, 152_064, 40, 8, 27_648),
}
"""Layers, hidden size, vocabulary, heads, KV heads and FFN of the models, by seed."""
_GIB_NEEDED = {"llama-3.1-8b": 6.0, "qwen3-14b": 12.0, "qwen2.5-32b": 26.0}
"""In 4 bits, with some slots: a model that all devices do not hold gives way to a smaller one."""
HUGE = ((300, 300), (1000, 12))
_ONE_SITE, _DEVICES_PER_SITE = 100, 50


def names() -> Iterator[str]:
    """Yield the name of every instance of the table, the smallest first."""
    yield from neutral.ANNEALING
    for num in DISTINCT:
        for seed in range(NUM_SEEDS):
            yield f"distinct-{num}-{seed}"
    for num, classes in CLASSES:
        for seed in range(len(_SHAPES)):
            yield f"classes-{num}-in-{classes}-{seed}"
    for num, classes in (*LARGE, *HUGE):
        yield f"classes-{num}-in-{classes}-0"


def quick_names() -> tuple[str, ...]:
    """Return a few of each size."""
    return (
        *neutral.ANNEALING,
        *(f"distinct-{num}-{num % len(_SHAPES)}" for num in DISTINCT),
        *("classes-12-in-3-2", "classes-20-in-4-1", "classes-40-in-6-0"),
    )


def limit_s(name: str) -> float:
    """Return the time a method gets for the instance called *name* [s]."""
    if name in neutral.ANNEALING:
        return 10.0
    family, num, *_ = name.split("-")
    if family == "distinct":
        return 30.0
    return 10.0 if int(num) <= 40 else 20.0 if int(num) <= 64 else 60.0


def instance(name: str) -> Problem:
    """Return the problem called *name*."""
    if name in neutral.ANNEALING:
        return neutral.problem(name)
    family, *numbers = name.replace("-in-", "-").split("-")
    if family == "distinct":
        num, seed = map(int, numbers)
        return _problem(num, num, seed)
    num, classes, seed = map(int, numbers)
    return _problem(num, classes, seed)


def _problem(num: int, classes: int, seed: int) -> Problem:
    """Return *num* devices of some classes on a switch a site, and a model in 4 bits.

    The model goes by the seed: one that most devices hold alone, or that takes two, or more.
    """
    rng = np.random.default_rng((num, classes, seed))
    kinds = [_kind(rng) for _ in range(classes)]
    of = [d % classes for d in range(num)]
    devices = tuple(_device(f"d{d}", *kinds[k][:3]) for d, k in enumerate(of))
    sites = num // _DEVICES_PER_SITE if num > _ONE_SITE and classes < num else 1
    at = [f"lan{d * sites // num}" if sites > 1 else "lan" for d in range(num)]
    links = [
        Link(
            ends=(f"d{d}", at[d]),
            forward_bytes_per_s=kinds[k][3],
            backward_bytes_per_s=kinds[k][3],
            latency_s=1e-4,
        )
        for d, k in enumerate(of)
    ]
    if sites > 1:
        links += [_trunk(lan, rng) for lan in dict.fromkeys(at)]
    return Problem(
        inventory=Inventory(devices=devices, links=tuple(links)),
        facts=_facts(sum(own.memory_bytes for own in devices), seed),
        runtime=runtime("generic", max_slots=16),
        workload=Workload(
            prompt=Lengths(mean=512), output=Lengths(mean=256), rate_per_s=0.25 * num
        ),
        weights="q4_k_m",
        objective=Objective.THROUGHPUT,
    )


def _facts(memory_bytes: float, seed: int) -> ModelFacts:
    """Return the seed's model, or the largest that *memory_bytes* hold."""
    fits = [name for name, need in _GIB_NEEDED.items() if need * _GIB <= memory_bytes]
    name = fits[min(seed % len(_SHAPES), len(fits) - 1)]
    layers, hidden, vocabulary, heads, kv_heads, ffn = _SHAPES[name]
    return ModelFacts(
        name=name,
        num_hidden_layers=layers,
        hidden_size=hidden,
        vocab_size=vocabulary,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=128,
        intermediate_size=ffn,
    )


def _trunk(lan: str, rng: np.random.Generator) -> Link:
    """Return a site's link to all others: slower than its own network, and some milliseconds."""
    speed = float(rng.choice([1.25e7, 3e7, 1.175e8]))
    return Link(
        ends=(lan, "wan"),
        forward_bytes_per_s=speed,
        backward_bytes_per_s=speed,
        latency_s=float(rng.choice([2e-3, 5e-3, 1e-2])),
    )


def _kind(rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Return memory [GiB], bandwidth [bytes/s], compute [FLOP/s], link [bytes/s] of a class."""
    memory = float(rng.choice(_MEMORY))
    bandwidth = float(np.round(np.exp(rng.uniform(np.log(50), np.log(800))))) * 1e9
    compute = float(np.round(np.exp(rng.uniform(np.log(3), np.log(80))), 1)) * 1e12
    return memory, bandwidth, compute, float(rng.choice([1.175e8, 2.9e8]))


def _device(name: str, memory: float, bandwidth: float, compute: float) -> Device:
    return Device(
        name=name,
        memory_bytes=memory * _GIB,
        memory_bandwidth_bytes_per_s=bandwidth,
        fp16_flop_per_s=compute,
    )
