"""Facts and formats → the model in bytes and FLOPs of each layer (DESIGN sections 4.2 and 5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.model.fact_faults import fact_faults, has_weight_shape, per_layer
from e2llm_opt.model.model import Model
from e2llm_opt.model.shape import (
    attention_flops,
    kv_values_per_token,
    layer_shape,
    window_tokens,
)
from e2llm_opt.model.weights import kv_cache_bytes_per_value, weight_format

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.model.facts import ModelFacts, PerLayer
    from e2llm_opt.model.weights import WeightFormat


_ANY = "f16"
"""Format to ask for where the facts state all bytes and none is looked up."""


def build_model(
    facts: ModelFacts,
    *,
    weights: str,
    kv_cache: str = "f16",
    kv_layout: Literal["expanded", "latent"] = "expanded",
) -> Model:
    """Return the model that *facts* describe, with its weights and KV cache in given formats.

    Parameters
    ----------
    facts
        Architecture and overrides; overrides win.
    weights, kv_cache
        Formats, whatever the case and punctuation (``Q4_K_M``, ``f16`` …). Facts of a file that
        states its bytes (``facts.weights``) have no other weights.
    kv_layout
        What an engine keeps of multi-head latent attention: the latent, or keys and values.

    Raises
    ------
    InputError
        With every fault: missing or contradictory facts (``model.<key>``), formats that are
        unknown or not those of the file (``weights``, ``kv_cache``).

    Notes
    -----
    FLOPs of the projections are two an active parameter. Byte figures are whole bytes.
    """
    _refuse_faults(facts, weights, kv_cache)
    form = weight_format(_ANY if facts.weights else weights)
    is_shaped = has_weight_shape(facts)
    indices = range(facts.num_hidden_layers)
    layers = [_layer(facts, layer, form, is_shaped=is_shaped) for layer in indices]
    embedding_bytes, head_bytes = _tables(facts, form)
    return Model(
        name=facts.name,
        hidden_size=facts.hidden_size,
        vocab_size=facts.vocab_size,
        layer_dense_bytes=tuple(layer.dense_bytes for layer in layers),
        layer_routed_bytes=tuple(layer.routed_bytes for layer in layers),
        layer_routed_fraction=tuple(layer.routed_fraction for layer in layers),
        layer_spillable_bytes=tuple(layer.spillable_bytes for layer in layers),
        layer_flops_per_token=tuple(layer.flops_per_token for layer in layers),
        layer_attention_flops=_attention_flops(facts),
        layer_kv_bytes_per_token=_kv_bytes(facts, kv_cache, kv_layout),
        layer_window_tokens=tuple(window_tokens(facts, layer) for layer in indices),
        embedding_bytes=embedding_bytes,
        head_bytes=head_bytes,
        head_flops_per_token=2.0 * facts.hidden_size * facts.vocab_size,
        is_tied=facts.tie_word_embeddings,
        allowed_stage_starts=_stage_starts(facts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    dense_bytes: float
    routed_bytes: float
    routed_fraction: float
    spillable_bytes: float
    flops_per_token: float

    @property
    def active_bytes(self) -> float:
        return self.dense_bytes + self.routed_bytes * self.routed_fraction

    @property
    def weight_bytes(self) -> float:
        return self.dense_bytes + self.routed_bytes


def _refuse_faults(facts: ModelFacts, weights: str, kv_cache: str) -> None:
    faults = [
        *_weights_faults(facts, weights),
        *_format_faults(kv_cache_bytes_per_value, kv_cache, "kv_cache"),
        *fact_faults(facts),
    ]
    if faults:
        raise InputError(faults)


def _weights_faults(facts: ModelFacts, weights: str) -> tuple[Fault, ...]:
    if not facts.weights:
        return _format_faults(weight_format, weights, "weights")
    if is_format_of(facts, weights):
        return ()
    wrong = f"the file of the model decides, and it is {facts.weights}, not {weights}"
    return (Fault(path="weights", wrong=wrong, right=f"leave it out, or give {facts.weights}"),)


def is_format_of(facts: ModelFacts, weights: str) -> bool:
    """Whether *weights* is the format of the file that the *facts* are of.

    ``gguf`` stands for whatever a file is in.
    """
    if weights.lower() in {facts.weights, "gguf"}:
        return True
    try:
        return weight_format(weights).name == facts.weights
    except UnknownNameError:
        return False


def _format_faults(known: Callable[[str], object], name: str, path: str) -> tuple[Fault, ...]:
    try:
        known(name)
    except UnknownNameError as error:
        return tuple(replace(fault, path=path) for fault in error.faults)
    return ()


def _layer(facts: ModelFacts, layer: int, form: WeightFormat, *, is_shaped: bool) -> _Layer:
    num_layers = facts.num_hidden_layers
    weight = _override(facts.layer_weight_bytes, layer, num_layers)
    routed = _override(facts.layer_routed_bytes, layer, num_layers)
    if routed is not None:
        flops = 2.0 * layer_shape(facts, layer).active_matrix_params if is_shaped else None
        return _rounded(_stated_layer(facts, weight or 0.0, routed, form, flops), facts, layer)
    if is_shaped:
        built = _shaped_layer(facts, layer, form)
        if weight is not None:
            built = _scaled(built, weight / built.weight_bytes)
    else:
        # fact_faults has made sure that there is an override where there is no shape
        built = _Layer(
            dense_bytes=weight or 0.0,
            routed_bytes=0.0,
            routed_fraction=0.0,
            spillable_bytes=0.0,
            flops_per_token=0.0,
        )
    active = _override(facts.layer_active_weight_bytes, layer, num_layers)
    if active is not None:
        total = built.weight_bytes
        fraction = min(1.0, active / total)
        built = replace(built, dense_bytes=0.0, routed_bytes=total, routed_fraction=fraction)
    if not is_shaped:
        built = replace(built, flops_per_token=2.0 * built.active_bytes / form.ffn)
    return _rounded(built, facts, layer)


def _stated_layer(
    facts: ModelFacts, weight: float, routed: float, form: WeightFormat, flops: float | None
) -> _Layer:
    """Return a layer of which the facts state the bytes, routed experts apart."""
    fraction = facts.num_experts_per_tok / facts.num_experts if routed else 0.0
    active = weight - routed + routed * fraction
    return _Layer(
        dense_bytes=weight - routed,
        routed_bytes=routed,
        routed_fraction=fraction,
        spillable_bytes=routed,
        flops_per_token=2.0 * active / form.ffn if flops is None else flops,
    )


def _shaped_layer(facts: ModelFacts, layer: int, form: WeightFormat) -> _Layer:
    shape = layer_shape(facts, layer)
    ffn, experts = shape.ffn * form.ffn, shape.experts * form.experts
    return _Layer(
        dense_bytes=shape.attention * form.attention + ffn + shape.small * form.small,
        routed_bytes=experts,
        routed_fraction=shape.routed_fraction,
        spillable_bytes=ffn + experts,
        flops_per_token=2.0 * shape.active_matrix_params,
    )


def _scaled(layer: _Layer, factor: float) -> _Layer:
    return replace(
        layer,
        dense_bytes=layer.dense_bytes * factor,
        routed_bytes=layer.routed_bytes * factor,
        spillable_bytes=layer.spillable_bytes * factor,
    )


def _rounded(layer: _Layer, facts: ModelFacts, index: int) -> _Layer:
    num_layers = facts.num_hidden_layers
    dense, routed = float(round(layer.dense_bytes)), float(round(layer.routed_bytes))
    spillable = _override(facts.layer_spillable_bytes, index, num_layers)
    flops = _override(facts.layer_flops_per_token, index, num_layers)
    return _Layer(
        dense_bytes=dense,
        routed_bytes=routed,
        routed_fraction=layer.routed_fraction,
        spillable_bytes=min(
            float(round(layer.spillable_bytes if spillable is None else spillable)), dense + routed
        ),
        flops_per_token=layer.flops_per_token if flops is None else float(flops),
    )


def _override(value: PerLayer | None, layer: int, num_layers: int) -> float | None:
    return None if value is None else per_layer(value, num_layers)[layer]


def _attention_flops(facts: ModelFacts) -> tuple[float, ...]:
    num_layers = facts.num_hidden_layers
    if facts.layer_attention_flops is not None:
        return tuple(float(flops) for flops in per_layer(facts.layer_attention_flops, num_layers))
    return tuple(attention_flops(facts, layer) for layer in range(num_layers))


def _kv_bytes(
    facts: ModelFacts, kv_cache: str, kv_layout: Literal["expanded", "latent"]
) -> tuple[float, ...]:
    num_layers = facts.num_hidden_layers
    if facts.kv_bytes_per_token is not None:
        given = per_layer(facts.kv_bytes_per_token, num_layers)
        return tuple(float(round(value)) for value in given)
    value_bytes = kv_cache_bytes_per_value(kv_cache)
    if facts.kv_values_per_token is not None:
        values = per_layer(facts.kv_values_per_token, num_layers)
        return tuple(float(round(number * value_bytes)) for number in values)
    return tuple(
        float(round(kv_values_per_token(facts, layer, kv_layout) * value_bytes))
        for layer in range(num_layers)
    )


def _tables(facts: ModelFacts, form: WeightFormat) -> tuple[float, float]:
    """Return the bytes of embedding and head; a tied table is stored once, as good as a head."""
    params = facts.vocab_size * facts.hidden_size
    embedding, head = facts.embedding_bytes, facts.head_bytes
    if facts.tie_word_embeddings:
        given = head if head is not None else embedding
        table = params * form.head if given is None else given
        embedding = table if embedding is None else embedding
        head = table if head is None else head
    if embedding is None:
        embedding = params * form.embedding
    if head is None:
        head = params * form.head
    return float(round(embedding)), float(round(head))


def _stage_starts(facts: ModelFacts) -> tuple[int, ...] | None:
    if facts.allowed_stage_starts is None:
        return None
    return tuple(sorted({0, *facts.allowed_stage_starts}))
