"""What configurations of model families leave unsaid: defaults and patterns of attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from e2llm_opt.model.fact_reader import FactReader

NOT_GATED: Final = frozenset(
    (
        *("gpt2", "gpt_neo", "gpt_neox", "gptj", "gpt_bigcode", "opt", "bloom", "falcon", "mpt"),
        *("phi", "phi-msft", "starcoder2", "nemotron", "persimmon", "codegen"),
    )
)
"""Families whose FFN has two matrices."""
ATTENTION_BIAS: Final = frozenset(("qwen", "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl"))
"""Families with biases on q, k and v that their configuration does not mention."""
TIED: Final = ("gemma", "gpt2", "cohere", "bloom", "opt", "falcon", "gpt_bigcode")
"""Beginnings of families whose embedding and head are one table unless they say otherwise."""
GATED_ATTENTION: Final = ("qwen3_next", "qwen3_5")
"""Beginnings of families whose queries carry an output gate."""
_GEMMA_3: Final[dict[str, Any]] = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262208,
    "sliding_window_pattern": 6,
}
FAMILY_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "sliding_window_pattern": 2},
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "gpt_oss": {"sliding_window_pattern": 2},
    "cohere2": {"sliding_window_pattern": 4},
    "llama4": {"no_rope_layer_interval": 4},
    "llama4_text": {"no_rope_layer_interval": 4},
    "qwen3_next": {"full_attention_interval": 4},
}
"""Values that the family's own code fills in where ``config.json`` is silent."""
_WINDOW_OFF_UNLESS_ASKED: Final = "qwen"
_SPELLINGS: Final = {
    "chunked_attention": "sliding_attention",
    "sliding": "sliding_attention",
    "local": "sliding_attention",
    "local_attention": "sliding_attention",
    "global": "full_attention",
    "full": "full_attention",
    "attention": "full_attention",
    "linear": "linear_attention",
    "L": "sliding_attention",
    "G": "full_attention",
}


def layer_types_of(
    reader: FactReader,
    family: str,
    num_layers: int,
    has_window: bool,  # noqa: FBT001 - a fact, not a switch
) -> tuple[str, ...] | None:
    """Return the kind of attention of each layer; None when all are full attention.

    Chunked attention (Llama 4) counts as a window of one chunk.
    """
    listed = reader.given("layer_types")
    if listed is not None:
        if isinstance(listed, list | tuple) and all(isinstance(item, str) for item in listed):
            return tuple(_SPELLINGS.get(str(item), str(item)) for item in listed)
        reader.fault("layer_types", "must be a list with one name a layer")
        return None
    interval = reader.whole("full_attention_interval")
    if interval:
        return _every(interval, num_layers, "linear_attention")
    if not has_window or not _uses_window(reader, family):
        return None
    return _windowed(reader, num_layers)


def _uses_window(reader: FactReader, family: str) -> bool:
    asked = reader.flag("use_sliding_window")
    return not family.startswith(_WINDOW_OFF_UNLESS_ASKED) if asked is None else asked


def _windowed(reader: FactReader, num_layers: int) -> tuple[str, ...]:
    pattern = reader.given("sliding_window_pattern") or reader.given("_sliding_window_pattern")
    if isinstance(pattern, str) and set(pattern) <= {"L", "G"}:
        return tuple(_SPELLINGS[pattern[layer % len(pattern)]] for layer in range(num_layers))
    interval = (
        reader.whole("sliding_window_pattern")
        or reader.whole("_sliding_window_pattern")
        or reader.whole("no_rope_layer_interval")
    )
    if interval:
        return _every(interval, num_layers, "sliding_attention")
    first_windowed = reader.whole("max_window_layers") or 0
    return tuple(
        "sliding_attention" if layer >= first_windowed else "full_attention"
        for layer in range(num_layers)
    )


def _every(interval: int, num_layers: int, others: str) -> tuple[str, ...]:
    """Return full attention in the last layer of every *interval*, *others* elsewhere."""
    return tuple(
        others if (layer + 1) % interval else "full_attention" for layer in range(num_layers)
    )
