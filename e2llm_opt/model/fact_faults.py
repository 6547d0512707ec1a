"""What is missing from a model's facts, or cannot be: every fault, each naming its key."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault
from e2llm_opt.model.shape import (
    LAYER_TYPES,
    head_dim,
    is_latent,
    is_moe_layer,
    num_kv_heads,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.model.facts import ModelFacts, PerLayer

MAX_LAYERS = 4096
"""More layers than this are taken for a mistake."""
MAX_FACT = 10**9
"""No width, count or window of a model is larger."""
MAX_BYTES = 1e18
"""No part of a model is larger [bytes, FLOP]."""
OVERRIDES = (
    "layer_weight_bytes",
    "layer_active_weight_bytes",
    "layer_routed_bytes",
    "layer_spillable_bytes",
    "kv_bytes_per_token",
    "kv_values_per_token",
    "layer_flops_per_token",
    "layer_attention_flops",
)
"""Facts given once for all layers, or one value a layer."""
_NEEDED = ("num_hidden_layers", "hidden_size", "vocab_size")
_LATENT = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_STATED_BY_A_FILE = (
    *("layer_weight_bytes", "layer_routed_bytes", "layer_flops_per_token"),
    *("embedding_bytes", "head_bytes"),
)
"""What depends on the weight format, and so must be given where ``weights`` is."""


def fact_faults(facts: ModelFacts) -> tuple[Fault, ...]:
    """Return everything that is wrong with *facts*; empty when a model can be built."""
    wrong = tuple(_range_faults(facts))
    if wrong:
        return wrong
    missing = tuple(
        _fault(key, "missing", f"model '{facts.name}' needs it") for key in _missing_keys(facts)
    )
    return (*missing, *_contradictions(facts))


def has_weight_shape(facts: ModelFacts) -> bool:
    """Whether the facts give the parameters of every layer."""
    return next(_missing_for_weights(facts), None) is None


def _fault(key: str, wrong: str, right: str = "") -> Fault:
    return Fault(path=f"model.{key}", wrong=wrong, right=right)


def _range_faults(facts: ModelFacts) -> Iterator[Fault]:
    for key in _NEEDED:
        if getattr(facts, key) == 0:
            yield _fault(key, "missing", "every model has some")
    for field in fields(facts):
        value = getattr(facts, field.name)
        if field.type == "int" and not 0 <= value <= MAX_FACT:
            yield _fault(field.name, f"must be between 0 and {MAX_FACT:,}, got {value}")
    if facts.num_hidden_layers > MAX_LAYERS:
        yield _fault("num_hidden_layers", f"must be at most {MAX_LAYERS}")
    if facts.moe_layer_step == 0:
        yield _fault("moe_layer_step", "must be positive, got 0")
    for key in ("embedding_bytes", "head_bytes"):
        value = getattr(facts, key)
        if value is not None and not _is_size(value):
            yield _fault(key, f"must be zero or more and finite, got {value}")
    for key in OVERRIDES:
        yield from _override_faults(facts, key)


def _override_faults(facts: ModelFacts, key: str) -> Iterator[Fault]:
    given: PerLayer | None = getattr(facts, key)
    if given is None:
        return
    values = given if isinstance(given, tuple) else (given,)
    if isinstance(given, tuple) and len(given) != facts.num_hidden_layers:
        yield _fault(
            key,
            f"has {len(given)} values for {facts.num_hidden_layers} layers",
            "give one number, or one a layer",
        )
    if not all(_is_size(value) for value in values):
        yield _fault(key, "must be zero or more and finite")
    elif key == "layer_weight_bytes" and min(values, default=1) == 0:
        yield _fault(key, "must be positive, got 0")


def _is_size(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= MAX_BYTES


def _missing_keys(facts: ModelFacts) -> dict[str, None]:
    keys: dict[str, None] = {}
    if facts.layer_weight_bytes is None:
        keys |= dict.fromkeys(_missing_for_weights(facts))
    if facts.kv_bytes_per_token is None and facts.kv_values_per_token is None:
        keys |= dict.fromkeys(_missing_for_kv(facts))
    if "sliding_attention" in (facts.layer_types or ()) and not facts.sliding_window:
        keys["sliding_window"] = None
    return keys


def _missing_for_weights(facts: ModelFacts) -> Iterator[str]:
    if not facts.num_attention_heads:
        yield "num_attention_heads"
    if is_latent(facts):
        yield from (key for key in _LATENT if not getattr(facts, key))
    has_experts = [is_moe_layer(facts, layer) for layer in range(facts.num_hidden_layers)]
    if any(has_experts):
        for key in ("num_experts_per_tok", "moe_intermediate_size"):
            if not getattr(facts, key):
                yield key
    if not all(has_experts) and not facts.intermediate_size:
        yield "intermediate_size"


def _missing_for_kv(facts: ModelFacts) -> Iterator[str]:
    if is_latent(facts):
        needed = ("num_attention_heads", *_LATENT)
        yield from (key for key in needed if not getattr(facts, key))
    elif not (num_kv_heads(facts) and head_dim(facts)):
        yield "num_attention_heads"


def _contradictions(facts: ModelFacts) -> Iterator[Fault]:
    num_layers = facts.num_hidden_layers
    if facts.num_experts and facts.num_experts_per_tok > facts.num_experts:
        yield _fault(
            "num_experts_per_tok",
            f"{facts.num_experts_per_tok} of {facts.num_experts} experts cannot be chosen",
        )
    if facts.layer_types is not None:
        if len(facts.layer_types) != num_layers:
            wrong = f"has {len(facts.layer_types)} entries for {num_layers} layers"
            yield _fault("layer_types", wrong)
        for unknown in sorted(set(facts.layer_types) - set(LAYER_TYPES)):
            yield _fault(
                "layer_types", f"unknown layer type '{unknown}'", f"one of {', '.join(LAYER_TYPES)}"
            )
    for start in facts.allowed_stage_starts or ():
        if not 0 <= start < num_layers:
            yield _fault(
                "allowed_stage_starts", f"layer {start} does not exist", f"0 to {num_layers - 1}"
            )
    if facts.kv_bytes_per_token is not None and facts.kv_values_per_token is not None:
        yield _fault("kv_values_per_token", "stands beside kv_bytes_per_token", "give one of them")
    for key in _STATED_BY_A_FILE if facts.weights else ():
        if getattr(facts, key) is None:
            yield _fault(key, "missing", f"weights '{facts.weights}' are those of one file")
    yield from _routed_faults(facts)
    yield from _unlike_sizes(facts)


def _routed_faults(facts: ModelFacts) -> Iterator[Fault]:
    routed = facts.layer_routed_bytes
    if routed is None:
        return
    if facts.layer_weight_bytes is None:
        yield _fault("layer_weight_bytes", "missing", "layer_routed_bytes are a part of them")
    if facts.layer_active_weight_bytes is not None:
        wrong = "stands beside layer_active_weight_bytes"
        yield _fault("layer_routed_bytes", wrong, "give one of them")
    if max(per_layer(routed, facts.num_hidden_layers)) > 0:
        for key in ("num_experts", "num_experts_per_tok"):
            if not getattr(facts, key):
                yield _fault(key, "missing", "a token reads a share of layer_routed_bytes")


def _unlike_sizes(facts: ModelFacts) -> Iterator[Fault]:
    weights = facts.layer_weight_bytes
    if weights is None:
        return
    for key in ("layer_active_weight_bytes", "layer_routed_bytes", "layer_spillable_bytes"):
        part = getattr(facts, key)
        if part is None:
            continue
        pairs = zip(
            per_layer(part, facts.num_hidden_layers),
            per_layer(weights, facts.num_hidden_layers),
            strict=True,
        )
        for layer, (some, whole) in enumerate(pairs):
            if some > whole:
                yield _fault(key, f"layer {layer} has {some:g} of {whole:g} bytes", "at most all")
                break


def per_layer(value: PerLayer, num_layers: int) -> tuple[float, ...]:
    """Return *value* as one number a layer."""
    return value if isinstance(value, tuple) else (value,) * num_layers
