"""Hugging Face's ``config.json``, a mapping of facts or a catalogue entry → model facts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from e2llm_opt.catalogue.catalogue import model_entry
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.model.fact_faults import MAX_LAYERS, OVERRIDES
from e2llm_opt.model.fact_reader import FactReader
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.model.families import (
    ATTENTION_BIAS,
    FAMILY_DEFAULTS,
    GATED_ATTENTION,
    NOT_GATED,
    TIED,
    layer_types_of,
)
from e2llm_opt.text_file import read_text

ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "num_hidden_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "vocab_size": ("vocab_size", "padded_vocab_size"),
    "num_attention_heads": ("num_attention_heads", "n_head", "n_heads"),
    "num_key_value_heads": ("num_key_value_heads", "multi_query_group_num", "num_kv_heads"),
    "head_dim": ("head_dim", "kv_channels"),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size", "n_inner"),
    "num_experts": (
        *("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
        *("num_routed_experts", "ffn_num_experts"),
    ),
    "num_experts_per_tok": (
        *("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
        *("num_selected_experts", "top_k_experts", "experts_per_token"),
    ),
    "moe_intermediate_size": ("moe_intermediate_size", "expert_intermediate_size"),
    "num_shared_experts": ("num_shared_experts", "n_shared_experts", "moe_num_shared_experts"),
    "num_dense_layers": ("num_dense_layers", "first_k_dense_replace", "moe_layer_start_index"),
    "moe_layer_step": ("moe_layer_step", "interleave_moe_layer_step", "decoder_sparse_step"),
    "kv_lora_rank": ("kv_lora_rank",),
    "q_lora_rank": ("q_lora_rank",),
    "qk_rope_head_dim": ("qk_rope_head_dim",),
    "qk_nope_head_dim": ("qk_nope_head_dim",),
    "v_head_dim": ("v_head_dim",),
    "max_position_embeddings": (
        *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length"),
    ),
    "sliding_window": ("sliding_window", "sliding_window_size", "attention_chunk_size"),
    "linear_num_key_heads": ("linear_num_key_heads",),
    "linear_num_value_heads": ("linear_num_value_heads",),
    "linear_key_head_dim": ("linear_key_head_dim",),
    "linear_value_head_dim": ("linear_value_head_dim",),
}
"""Whole-number facts → the names under which configurations give them, the first one wins."""
FLAGS: Final[dict[str, tuple[str, ...]]] = {
    "tie_word_embeddings": ("tie_word_embeddings",),
    "is_gated": ("is_gated",),
    "has_attention_bias": ("has_attention_bias", "attention_bias", "qkv_bias"),
    "has_attention_gate": ("has_attention_gate", "attn_output_gate"),
}
"""Yes-or-no facts → their names."""
PATTERN_KEYS: Final = (
    *("layer_types", "sliding_window_pattern", "_sliding_window_pattern", "use_sliding_window"),
    *("max_window_layers", "full_attention_interval", "no_rope_layers"),
    *("no_rope_layer_interval",),
)
TABLE_KEYS: Final = ("embedding_bytes", "head_bytes", "allowed_stage_starts")
OTHER_KEYS: Final = (
    *("name", "model_type", "text_config", "intermediate_size_mlp"),
    *("shared_expert_intermediate_size", "mlp_only_layers", "moe_layer_freq"),
)
FACT_KEYS: Final = frozenset(
    (
        *(key for keys in (*ALIASES.values(), *FLAGS.values()) for key in keys),
        *(*PATTERN_KEYS, *TABLE_KEYS, *OTHER_KEYS, *OVERRIDES),
    )
)
"""Every key that means something in a mapping of facts."""
NESTED: Final = ("text_config", "llm_config", "language_config")
"""Where a model that also sees or hears keeps the part that writes."""


def facts(name: str) -> ModelFacts:
    """Return the facts of the catalogue's model *name*.

    Raises
    ------
    UnknownNameError
        When the catalogue has no such model.
    """
    entry = model_entry(name)
    longest = {"max_position_embeddings": entry.max_context_tokens}
    return facts_from_config({**entry.facts, **longest}, name=entry.key)


def load_config(path: str | os.PathLike[str]) -> ModelFacts:
    """Read a ``config.json``.

    Raises
    ------
    InputError
        When the file cannot be read, is no JSON object, or misses a fact that is always needed.
    """
    file = os.fspath(path)
    text = read_text(path)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        fault = Fault(file=file, line=error.lineno, wrong=f"not JSON: {error.msg.lower()}")
        raise InputError([fault]) from None
    except (RecursionError, ValueError):
        raise InputError([Fault(file=file, wrong="not JSON that can be read")]) from None
    if not isinstance(config, dict):
        right = "a config.json is one object: {…}"
        raise InputError([Fault(file=file, wrong="not a model's configuration", right=right)])
    try:
        return facts_from_config(config, name=_name_of(config, file))
    except InputError as error:
        raise InputError(
            replace(fault, file=file, line=_line_of(fault.path, text)) for fault in error.faults
        ) from None


def facts_from_config(config: Mapping[str, Any], *, name: str) -> ModelFacts:
    """Return the facts that a configuration states, whatever its family calls them.

    Parameters
    ----------
    config
        A whole ``config.json``, a mapping of facts (DESIGN section 4.2), or a catalogue's facts.
        Keys without meaning (not in :data:`FACT_KEYS`) are passed over.
    name
        Name of the model.

    Raises
    ------
    InputError
        With every fault, its path being the key in *config*: a value of the wrong type, a layer
        pattern that is not understood, no layers, no width, no vocabulary.
    """
    flat = _flattened(config)
    family = str(flat.get("model_type", ""))
    flat = {**FAMILY_DEFAULTS.get(family, {}), **flat}
    reader = FactReader(flat)
    numbers = {fact: reader.whole(*keys) for fact, keys in ALIASES.items()}
    for key in ("num_hidden_layers", "hidden_size", "vocab_size"):
        if numbers[key] is None and not reader.is_faulty(*ALIASES[key]):
            reader.fault(key, "missing", f"model '{name}' needs it")
    num_layers = numbers["num_hidden_layers"] or 0
    if num_layers > MAX_LAYERS:
        reader.fault("num_hidden_layers", f"must be at most {MAX_LAYERS}, got {num_layers}")
        num_layers = 0
    flags = {fact: reader.flag(*keys) for fact, keys in FLAGS.items()}
    experts = _experts(reader, numbers)
    layer_types = layer_types_of(reader, family, num_layers, bool(numbers["sliding_window"]))
    overrides: dict[str, Any] = {key: reader.per_layer(key) for key in OVERRIDES}
    starts = reader.stage_starts("allowed_stage_starts", num_layers)
    embedding_bytes, head_bytes = reader.size("embedding_bytes"), reader.size("head_bytes")
    counts: dict[str, Any] = {fact: value or 0 for fact, value in (numbers | experts).items()}
    if reader.faults:
        raise InputError(reader.faults)
    return ModelFacts(
        name=name,
        **counts,
        tie_word_embeddings=_given(flags["tie_word_embeddings"], family.startswith(TIED)),
        is_gated=_given(flags["is_gated"], family not in NOT_GATED),
        has_attention_bias=_given(flags["has_attention_bias"], family in ATTENTION_BIAS),
        has_attention_gate=_given(flags["has_attention_gate"], family.startswith(GATED_ATTENTION)),
        layer_types=layer_types,
        allowed_stage_starts=starts,
        embedding_bytes=embedding_bytes,
        head_bytes=head_bytes,
        **overrides,
    )


def _line_of(path: str, text: str) -> int:
    """Return the line on which the key that *path* opens with stands first; 1 if nowhere."""
    key = re.split(r"[.\[]", path, maxsplit=1)[0]
    return text.count("\n", 0, max(0, text.find(f'"{key}"'))) + 1


def _name_of(config: Mapping[str, Any], file: str) -> str:
    stated = config.get("_name_or_path") or config.get("name")
    if isinstance(stated, str) and stated:
        return stated
    path = Path(file)
    return path.parent.name if path.stem == "config" and path.parent.name else path.stem


def _flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    flat = dict(config)
    for key in NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            flat |= inner
    return flat


def _given(value: bool | None, default: bool) -> bool:  # noqa: FBT001 - a value, not a switch
    return default if value is None else value


def _experts(reader: FactReader, numbers: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return the facts of experts that families state in their own ways."""
    step: dict[str, int | None] = {"moe_layer_step": numbers["moe_layer_step"] or 1}
    if not numbers["num_experts"]:
        return step
    dense_size, expert_size = numbers["intermediate_size"], numbers["moe_intermediate_size"]
    shared = numbers["num_shared_experts"]
    if expert_size is None:
        expert_size = dense_size
    mlp_size = reader.whole("intermediate_size_mlp")
    if (
        mlp_size is not None
    ):  # Llama 4: dense layers have a width of their own, one expert is shared
        dense_size = mlp_size
        shared = 1 if shared is None else shared
    shared_size = reader.whole("shared_expert_intermediate_size")
    if shared_size and expert_size:
        shared, rest = divmod(shared_size, expert_size)
        if rest:
            wrong = f"{shared_size} is no multiple of moe_intermediate_size {expert_size}"
            reader.fault("shared_expert_intermediate_size", wrong)
    return step | {
        "intermediate_size": dense_size,
        "moe_intermediate_size": expert_size,
        "num_shared_experts": shared,
        "num_dense_layers": _num_dense_layers(reader, numbers["num_dense_layers"]),
    }


def _num_dense_layers(reader: FactReader, stated: int | None) -> int | None:
    """Return how many layers at the start have no experts; other mixtures are refused."""
    remedy = "give layer_weight_bytes and layer_active_weight_bytes, one value a layer"
    dense = reader.given("mlp_only_layers")
    if isinstance(dense, list) and dense:
        if {str(layer) for layer in dense} == {str(layer) for layer in range(len(dense))}:
            return len(dense)
        reader.fault("mlp_only_layers", "only layers at the start can be dense", remedy)
    frequency = reader.given("moe_layer_freq")
    if isinstance(frequency, list):
        num_dense = frequency.index(1) if 1 in frequency else len(frequency)
        if all(value == 1 for value in frequency[num_dense:]):
            return num_dense
        reader.fault("moe_layer_freq", "only layers at the start can be dense", remedy)
    elif frequency is not None and frequency != 1:
        reader.fault("moe_layer_freq", f"must be 1, got {frequency}", remedy)
    return stated
