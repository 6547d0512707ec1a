"""Tensor parallelism: how many devices of a host may serve one stage together, and why not more.

Every device holds an equal share of each layer of the stage, cut along the attention heads, and all
add up their parts twice a layer (Megatron-LM, arXiv 1909.08053).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from e2llm_opt.constraints import DEGREES
from e2llm_opt.errors import Fault
from e2llm_opt.inventory.classes import classify

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from e2llm_opt.constraints import Constraints
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.runtime import Runtime

_PATH = "constraints.tensor_parallel"


def degrees_of(facts: ModelFacts, engine: Runtime, constraints: Constraints) -> tuple[int, ...]:
    """Return the numbers of devices that a stage may have, 1 first where it may have one."""
    asked = constraints.tensor_parallel
    if asked == "off" or engine.tensor_parallel == "no":
        return (1,)
    if asked != "auto":
        return (asked,)
    if engine.tensor_parallel == "asked":
        return (1,)
    return (1, *(t for t in DEGREES if not why_illegal(facts, engine, t)))


def why_illegal(facts: ModelFacts, engine: Runtime, degree: int) -> str:
    """Return why the heads of a model cannot be shared by *degree* devices; empty where they can.

    Notes
    -----
    vLLM and SGLang want the degree to divide the attention heads, and to divide the KV heads or be
    a multiple of them (each is then kept more than once); exo wants it to divide the hidden size
    and the KV heads (``placement.py``).
    """
    if not facts.num_attention_heads:
        return f"the facts of {facts.name} do not say num_attention_heads"
    heads = num_kv_heads(facts, engine)
    shared = {
        "attention heads": facts.num_attention_heads,
        "key heads of its linear attention": facts.linear_num_key_heads,
        "value heads of its linear attention": facts.linear_num_value_heads,
    }
    if engine.tensor_parallel == "replica":
        shared = {"hidden size": facts.hidden_size, "KV heads": heads}
    for what, number in shared.items():
        if number % degree:
            return f"{degree} does not divide the {what} of {facts.name}, {number}"
    if heads % degree and degree % heads:
        return f"{degree} neither divides the KV heads of {facts.name}, {heads}, nor is a multiple"
    return ""


def num_kv_heads(facts: ModelFacts, engine: Runtime) -> int:
    """Return the heads over which a KV cache is shared out: 1 for a latent one."""
    if facts.kv_lora_rank:
        return 1 if engine.kv_layout == "latent" else facts.num_attention_heads
    return facts.num_key_value_heads or facts.num_attention_heads


def kv_copies(facts: ModelFacts, engine: Runtime, degree: int) -> float:
    """Return how many times each byte of KV cache is kept by *degree* devices together."""
    return max(1.0, degree / num_kv_heads(facts, engine)) if degree > 1 else 1.0


def degree_faults(
    facts: ModelFacts, engine: Runtime, constraints: Constraints, inventory: Inventory
) -> Iterator[Fault]:
    """Yield what is wrong with a number of devices a stage that was asked for."""
    asked = constraints.tensor_parallel
    if asked in {"auto", "off"}:
        return
    if asked not in DEGREES:
        yield Fault(path=_PATH, wrong=f"must be auto, off, 2, 4 or 8, got {asked!r}")
        return
    if engine.tensor_parallel == "no":
        wrong = f"{engine.name} cannot run one stage on {asked} devices"
        yield Fault(path=_PATH, wrong=wrong, right="use off, or runtime: vllm or sglang")
        return
    illegal = why_illegal(facts, engine, int(asked))
    if illegal:
        legal = [t for t in DEGREES if not why_illegal(facts, engine, t)]
        yield Fault(path=_PATH, wrong=illegal, right=f"use {_words(legal)}")
    most, host = _most_identical(inventory, constraints.exclude)
    if most < int(asked):
        wrong = f"no host has {asked} identical devices"
        fitting = [t for t in DEGREES if t <= most]
        right = f"{host} has {most}: use {_words(fitting)}" if fitting else "use off"
        yield Fault(path=_PATH, wrong=wrong, right=right)


def _words(degrees: Iterable[int]) -> str:
    return " or ".join([*map(str, degrees), "off"])


def _most_identical(inventory: Inventory, excluded: Iterable[str]) -> tuple[int, str]:
    """Return the most identical devices that some host has, and the host."""
    class_of, left_out = classify(inventory).class_of, set(excluded)
    counts = Counter(
        (device.host, class_of[d])
        for d, device in enumerate(inventory.devices)
        if device.name not in left_out
    )
    return max(((count, host) for (host, _), count in counts.items()), default=(0, ""))
