"""Metadata and tensor sizes of a GGUF file → model facts with every byte as in the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.model.fact_faults import MAX_LAYERS, fact_faults
from e2llm_opt.model.fact_reader import FactReader
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.model.gguf_attention import Attention, attention_of, latent_of
from e2llm_opt.model.gguf_header import Unread
from e2llm_opt.model.gguf_tensors import LayerTensors, sorted_out

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from e2llm_opt.model.gguf_header import Value
    from e2llm_opt.model.gguf_tensors import ModelTensors, Tensor

ARCHITECTURE: Final = "general.architecture"
_NO_DECODER: Final = ("clip", "bert", "t5", "wavtokenizer")
"""What is in the names of architectures that are projectors or have encoders."""


def facts_of(
    metadata: Mapping[str, Value], tensors: Iterable[Tensor], *, name: str, weights: str
) -> ModelFacts:
    """Return the facts that the header of a GGUF file states.

    Layers for multi-token prediction (``nextn_predict_layers``, the last ones of the file) are
    neither served nor counted: engines load them only to draft tokens.

    Raises
    ------
    InputError
        With every fault, its path being the key of the metadata.
    """
    reader = FactReader(metadata)
    architecture = _architecture(reader)
    sizes = sorted_out(tensors)
    width = _needed(reader, f"{architecture}.embedding_length")
    num_layers = _num_layers(reader, architecture, sizes)
    _raise_if_any(reader)
    layers = [sizes.layers[layer] for layer in range(num_layers)]
    attention = attention_of(reader, architecture, num_layers, width)
    facts = {
        **_attention_facts(
            attention, layers, latent_of(reader, architecture, max(attention.heads), width)
        ),
        **_expert_facts(reader, architecture, layers),
        **_table_facts(reader, architecture, sizes, width),
        "max_position_embeddings": reader.whole(f"{architecture}.context_length") or 0,
    }
    if not max(attention.heads) and any(layer.has_keys for layer in layers):
        reader.fault(f"{architecture}.attention.head_count", "missing", "there is attention")
    _raise_if_any(reader)
    built = ModelFacts(
        name=name, num_hidden_layers=num_layers, hidden_size=width, weights=weights, **facts
    )
    wrong = fact_faults(built)
    if wrong:
        raise InputError(wrong)
    return built


def _raise_if_any(reader: FactReader) -> None:
    if reader.faults:
        raise InputError(reader.faults)


def _architecture(reader: FactReader) -> str:
    architecture = reader.given(ARCHITECTURE)
    if not isinstance(architecture, str) or not re.fullmatch(r"[\w.-]{1,64}", architecture):
        wrong = "missing" if architecture is None else "is no name"
        raise InputError([Fault(path=ARCHITECTURE, wrong=wrong, right="such as llama")])
    if any(word in architecture for word in _NO_DECODER):
        wrong = f"'{architecture}' is no decoder-only language model"
        right = "give the file of the language model, not of a projector or an encoder"
        raise InputError([Fault(path=ARCHITECTURE, wrong=wrong, right=right)])
    return architecture


def _needed(reader: FactReader, key: str) -> int:
    """Return a positive number, noting where there is none."""
    value = reader.whole(key)
    if not value and not reader.is_faulty(key):
        wrong = "missing" if value is None else "must be positive, got 0"
        reader.fault(key, wrong, "the file is damaged, or no language model")
    return value or 0


def _num_layers(reader: FactReader, architecture: str, sizes: ModelTensors) -> int:
    """Return the number of layers served; the tensors must agree with it."""
    key = f"{architecture}.block_count"
    num_blocks = _needed(reader, key)
    num_drafting = reader.whole(f"{architecture}.nextn_predict_layers") or 0
    num_layers = num_blocks - num_drafting
    if num_blocks > MAX_LAYERS:
        reader.fault(key, f"must be at most {MAX_LAYERS:,}, got {num_blocks:,}")
    elif num_blocks and num_layers <= 0:
        reader.fault(f"{architecture}.nextn_predict_layers", f"{num_drafting} of {num_blocks}")
    elif num_blocks:
        beyond = [layer for layer in sizes.layers if layer >= num_blocks]
        missing = [layer for layer in range(num_layers) if layer not in sizes.layers]
        if beyond:
            name = sizes.layers[max(beyond)].first_name
            reader.fault(key, f"is {num_blocks}, but there is a tensor {name}")
        elif missing:
            wrong = f"is {num_blocks}, but layer {missing[0]} has no tensors"
            reader.fault(key, wrong, "is this a part of the model only?")
    return num_layers


def _attention_facts(
    attention: Attention, layers: list[LayerTensors], latent: dict[str, int]
) -> dict[str, Any]:
    """Return heads, windows and, but for latent attention, the KV values of each layer.

    What latent attention keeps depends on the engine, so that its facts are left to speak.
    """
    # where no tensor has a name we know, every layer with KV heads is taken to keep a cache
    is_named = any(layer.has_cache for layer in layers)
    has_cache = [
        kv_heads > 0 and (layer.has_cache or not is_named)
        for layer, kv_heads in zip(layers, attention.kv_heads, strict=True)
    ]
    window = max(attention.window_tokens)
    kinds = tuple(
        "linear_attention"
        if not cached and not shares
        else "sliding_attention"
        if tokens
        else "full_attention"
        for cached, shares, tokens in zip(
            has_cache, attention.shares_cache, attention.window_tokens, strict=True
        )
    )
    facts: dict[str, Any] = {
        "num_attention_heads": max(attention.heads),
        "num_key_value_heads": max(attention.kv_heads),
        "sliding_window": window,
        "layer_types": None if set(kinds) == {"full_attention"} else kinds,
        **latent,
    }
    if latent:
        return facts
    widths = [k + v for k, v in zip(attention.key_values, attention.value_values, strict=True)]
    return {
        **facts,
        "head_dim": attention.key_values[0],
        "kv_values_per_token": tuple(
            float(kv_heads * width if cached and not shares else 0)
            for kv_heads, width, cached, shares in zip(
                attention.kv_heads, widths, has_cache, attention.shares_cache, strict=True
            )
        ),
        "layer_attention_flops": tuple(
            0.0 if kind == "linear_attention" else 2.0 * heads * width
            for kind, heads, width in zip(kinds, attention.heads, widths, strict=True)
        ),
    }


def _expert_facts(
    reader: FactReader, architecture: str, layers: list[LayerTensors]
) -> dict[str, Any]:
    """Return bytes and FLOPs of each layer, and of its experts the share that a token uses."""
    used = experts = 0
    counts = set().union(*(layer.expert_counts for layer in layers))
    if any(layer.routed_bytes for layer in layers):
        experts = _needed(reader, f"{architecture}.expert_count")
        used = _needed(reader, f"{architecture}.expert_used_count")
        if experts and counts - {experts}:
            other = max(counts - {experts})
            wrong = f"is {experts}, but there are tensors of {other} experts"
            reader.fault(f"{architecture}.expert_count", wrong)
        if used > experts > 0:
            wrong = f"{used} of {experts} experts cannot be chosen"
            reader.fault(f"{architecture}.expert_used_count", wrong)
    share = used / experts if experts else 0.0
    return {
        "num_experts": experts,
        "num_experts_per_tok": used,
        "layer_weight_bytes": tuple(
            float(layer.dense_bytes + layer.routed_bytes) for layer in layers
        ),
        "layer_routed_bytes": tuple(float(layer.routed_bytes) for layer in layers),
        "layer_spillable_bytes": tuple(float(layer.spillable_bytes) for layer in layers),
        "layer_flops_per_token": tuple(
            2.0 * (layer.dense_params + layer.routed_params * share) for layer in layers
        ),
    }


def _table_facts(
    reader: FactReader, architecture: str, sizes: ModelTensors, width: int
) -> dict[str, Any]:
    """Return vocabulary, embedding and head.

    Without an output projection the embedding serves as head as well. Where further tables are
    looked up, the two are counted apart all the same: a stage that holds both holds those too.
    """
    tokens = reader.given("tokenizer.ggml.tokens")
    vocab_size = reader.whole(f"{architecture}.vocab_size")
    if vocab_size is None:
        vocab_size = tokens.length if isinstance(tokens, Unread) else 0
    if not vocab_size and len(sizes.embedding_shape) > 1:
        vocab_size = sizes.embedding_shape[1]
    if not sizes.embedding_shape:
        reader.fault("token_embd.weight", "there is no such tensor", "every model has one")
    elif sizes.embedding_shape[0] != width:
        wrong = f"is {width}, but token_embd.weight has rows of {sizes.embedding_shape[0]}"
        reader.fault(f"{architecture}.embedding_length", wrong)
    elif not vocab_size:
        reader.fault(f"{architecture}.vocab_size", "missing", "give the whole file")
    table = 0 if sizes.has_output else sizes.embedding_bytes
    return {
        "vocab_size": vocab_size,
        "tie_word_embeddings": not sizes.has_output and not sizes.further_lookup_bytes,
        "embedding_bytes": float(sizes.embedding_bytes + sizes.further_lookup_bytes),
        "head_bytes": float(sizes.head_bytes + table),
    }
