"""Metadata of a GGUF file → heads, windows and KV values of each layer.

Some windows stand in no file: llama.cpp's own code knows them by the architecture's name, and so
does this module (github.com/ggml-org/llama.cpp, src/models, ``set_swa_pattern``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from e2llm_opt.model.fact_reader import FactReader

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class _Windows:
    """How an architecture's layers are windowed where the file does not say.

    Parameters
    ----------
    period
        One layer of so many looks at everything: the last, or the first (*is_full_first*).
    default, fixed
        Window where the file gives none; whatever the file gives [tokens].
    only_layers
        Models of another number of layers have no windows.
    """

    period: int
    is_full_first: bool = False
    default: int = 0
    fixed: int = 0
    only_layers: int = 0


_WINDOWS: Final = {
    "afmoe": _Windows(period=4),
    "cohere2": _Windows(period=4),
    "exaone-moe": _Windows(period=4, default=128),
    "exaone4": _Windows(period=4, default=4096, only_layers=64),
    "gemma2": _Windows(period=2, default=4096),
    "gemma3": _Windows(period=6),
    "gemma3n": _Windows(period=5),
    "gpt-oss": _Windows(period=2),
    "llama4": _Windows(period=4, default=8192, fixed=8192),  # chunks count as windows
    "olmo2": _Windows(period=4),
    "plamo3": _Windows(period=8),
    "smallthinker": _Windows(period=4, is_full_first=True, fixed=4096),
}
"""Architecture: its windows. Others have windows only where the file also gives a pattern: what
llama, qwen2 or phi3 files state as ``sliding_window``, llama.cpp does not use."""
_LAYERS_WITH_CACHE: Final = {"gemma3n": 20}
"""Architecture: only so many layers at the start keep keys and values of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Attention as the metadata state it; a tuple has one entry a layer.

    Parameters
    ----------
    heads, kv_heads
        Query heads and KV heads; 0 in layers without attention.
    key_values, value_values
        Width of a head's key and value [values].
    window_tokens
        Window; 0 for all of the context [tokens].
    shares_cache
        Whether a layer uses the keys and values of an earlier one.
    """

    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    key_values: tuple[int, ...]
    value_values: tuple[int, ...]
    window_tokens: tuple[int, ...]
    shares_cache: tuple[bool, ...]


def attention_of(reader: FactReader, architecture: str, num_layers: int, width: int) -> Attention:
    """Read the attention of the first *num_layers* layers, noting faults in *reader*.

    Parameters
    ----------
    reader
        Of the file's metadata.
    architecture
        Prefix of its keys.
    num_layers
        Layers that are served.
    width
        Width of an activation [values].
    """
    prefix = f"{architecture}.attention"
    heads = _each_layer(reader, f"{prefix}.head_count", num_layers) or (0,) * num_layers
    kv_heads = _each_layer(reader, f"{prefix}.head_count_kv", num_layers) or heads
    windows = _windows(reader, architecture, num_layers)
    usual = width // next((number for number in heads if number), width + 1)
    widths = {}
    for part in ("key", "value"):
        full = _given(reader.whole(f"{prefix}.{part}_length"), usual)
        windowed = _given(reader.whole(f"{prefix}.{part}_length_swa"), full)
        widths[part] = tuple(windowed if window else full for window in windows)
    num_sharing = reader.whole(f"{prefix}.shared_kv_layers") or 0
    if num_sharing >= num_layers:
        wrong = f"{num_sharing} of {num_layers} layers"
        reader.fault(f"{prefix}.shared_kv_layers", wrong, "the first layers have caches to share")
    first_sharing = min(num_layers - num_sharing, _LAYERS_WITH_CACHE.get(architecture, num_layers))
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        key_values=widths["key"],
        value_values=widths["value"],
        window_tokens=windows,
        shares_cache=tuple(layer >= first_sharing for layer in range(num_layers)),
    )


def latent_of(reader: FactReader, architecture: str, heads: int, width: int) -> dict[str, int]:
    """Return the facts of multi-head latent attention; empty where there is none."""
    prefix = f"{architecture}.attention"
    rank = reader.whole(f"{prefix}.kv_lora_rank")
    if not rank:
        return {}
    usual = width // heads if heads else 0
    # Converters since 2025 write what the cache holds as key_length, and the heads' own as _mla.
    key = _given(reader.whole(f"{prefix}.key_length_mla", f"{prefix}.key_length"), usual)
    value = _given(reader.whole(f"{prefix}.value_length_mla", f"{prefix}.value_length"), usual)
    rope_key = f"{architecture}.rope.dimension_count"
    rope = reader.whole(rope_key)
    if rope is None and not reader.is_faulty(rope_key):
        reader.fault(rope_key, "missing", "latent attention needs it")
    elif rope is not None and rope >= key:
        reader.fault(rope_key, f"is {rope} of a key's {key} values", "some are not rotated")
    return {
        "kv_lora_rank": rank,
        "q_lora_rank": reader.whole(f"{prefix}.q_lora_rank") or 0,
        "qk_rope_head_dim": rope or 0,
        "qk_nope_head_dim": max(0, key - (rope or 0)),
        "v_head_dim": value,
    }


def _windows(reader: FactReader, architecture: str, num_layers: int) -> tuple[int, ...]:
    key = f"{architecture}.attention.sliding_window"
    known = _WINDOWS.get(architecture)
    window = reader.whole(key)
    if known is not None:
        if known.only_layers not in (0, num_layers):
            known = None
        elif window is None:
            window = known.default
        elif window and known.fixed:
            window = known.fixed
    has_window = _pattern(reader, f"{key}_pattern", known, num_layers)
    return tuple((window or 0) if windowed else 0 for windowed in has_window)


def _pattern(
    reader: FactReader, key: str, known: _Windows | None, num_layers: int
) -> Sequence[bool]:
    """Return which layers have a window: as the file says, else as llama.cpp does."""
    given = reader.given(key)
    if isinstance(given, list) and given and all(item in (0, 1) for item in given):
        return [bool(given[layer % len(given)]) for layer in range(num_layers)]
    period = None if given is None else reader.whole(key)
    is_full_first = known is not None and known.is_full_first
    if period is None:
        if known is None:
            return [False] * num_layers
        period = known.period
    if period == 0:
        return [True] * num_layers
    full = 0 if is_full_first else period - 1
    return [layer % period != full for layer in range(num_layers)]


def _each_layer(reader: FactReader, key: str, num_layers: int) -> tuple[int, ...] | None:
    """Return *key*, one number or one a layer, as one a layer; None when there is none."""
    given: Any = reader.given(key)
    if not isinstance(given, list):
        value = reader.whole(key)
        return None if value is None else (value,) * num_layers
    if len(given) < num_layers:
        reader.fault(key, f"has {len(given)} entries for {num_layers} layers")
        return None
    items = FactReader({f"{key}[{layer}]": given[layer] for layer in range(num_layers)})
    values = tuple(items.whole(f"{key}[{layer}]") for layer in range(num_layers))
    reader.faults.extend(items.faults[:1])
    return tuple(value or 0 for value in values)


def _given(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value
