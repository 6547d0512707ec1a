"""Weight formats: bytes a parameter, by the class of tensor it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from e2llm_opt.catalogue.catalogue import kv_cache_format_row, weight_format_row

BITS_PER_BYTE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """Bytes a parameter of each class of tensor [bytes].

    Mixed formats (``q4_k_m`` keeps some tensors in better quality) are averaged over the layers.
    k-quants of matrices whose rows are no multiple of 256 fall back to larger blocks in a real
    file (Qwen2.5-0.5B, GLM-4.5-Air: 10 to 20 % more), which only the file itself can tell.

    Parameters
    ----------
    name
        Key in ``catalogue/weight_formats.csv``.
    attention, ffn, experts, embedding, head
        Weight matrices; *experts* are routed experts, shared ones belong to *ffn*.
    small
        Norms, biases and MoE routers, which are hardly ever quantised.
    """

    name: str
    attention: float
    ffn: float
    experts: float
    embedding: float
    head: float
    small: float


def weight_format(name: str) -> WeightFormat:
    """Return the weight format called *name*, whatever its case and punctuation.

    Raises
    ------
    UnknownNameError
        When there is none.
    """
    row = weight_format_row(name)
    return WeightFormat(
        name=row.key,
        attention=row.attention_bits / BITS_PER_BYTE,
        ffn=row.ffn_bits / BITS_PER_BYTE,
        experts=row.experts_bits / BITS_PER_BYTE,
        embedding=row.embedding_bits / BITS_PER_BYTE,
        head=row.head_bits / BITS_PER_BYTE,
        small=row.small_bits / BITS_PER_BYTE,
    )


def kv_cache_bytes_per_value(name: str) -> float:
    """Return the size of one value of a KV cache kept in the format *name* [bytes].

    Raises
    ------
    UnknownNameError
        When there is no such format, or no engine keeps its KV cache in it.
    """
    bits = kv_cache_format_row(name).kv_cache_bits
    return (bits or 0.0) / BITS_PER_BYTE
