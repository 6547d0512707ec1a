"""Prefill and decode time of every layer on every device (DESIGN section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from e2llm_opt.cost.tables import Tables

    Floats = NDArray[np.float64]


def bytes_read(tables: Tables, tokens: float | Floats) -> Floats:
    """Return A_i(n), the weight bytes read to push *tokens* tokens through each layer [L].

    Dense part + the experts that the tokens touch in expectation: E (1 - (1 - k/E)^n).
    """
    return tables.dense + tables.routed * _touched(tables, tokens)


def spilled_bytes_read(tables: Tables, tokens: float | Floats) -> Floats:
    """Return the part of A_i(n) that lies in host RAM where a layer is spilled [L] [bytes]."""
    return tables.spill_dense + tables.spill_routed * _touched(tables, tokens)


def _touched(tables: Tables, tokens: float | Floats) -> Floats:
    """Share of the routed bytes that *tokens* tokens read [L]."""
    touched: Floats = -np.expm1(tokens * np.log1p(-np.minimum(tables.fraction, 1.0 - 1e-15)))
    return touched


def kv_bytes(tables: Tables, tokens: float) -> Floats:
    """Return κ_i(c), the KV cache of one request of *tokens* tokens in each layer [L] [bytes]."""
    return tables.kv * np.minimum(tokens, tables.window)


def flops(tables: Tables, context: float | Floats) -> Floats:
    """Return F_i(c), the FLOPs of one token at *context* tokens in each layer [L]."""
    return tables.flops + tables.attention * np.minimum(context, tables.window)


def prefill_time(tables: Tables, tokens: float | Floats, chunk: int, depth: float = 0.0) -> Floats:
    """Return the time of a prompt of *tokens* tokens in each layer on each unit [..., R, L] [s].

    max(p · F_i(d + p/2) / (η_p F_d), sum over chunks of A_i(chunk) / (η_d B_d)) + o_d, behind
    *depth* tokens d that are in the KV cache already; and the all-reduces of each chunk.
    """
    length = np.asarray(tokens, dtype=np.float64)[..., None]
    read = _over_chunks(tables, bytes_read, length, chunk)[..., None, :]
    time = _layer_time(tables, read, length * flops(tables, depth + length / 2))
    return time + _reduce_time(tables, length, np.maximum(np.ceil(length / chunk), 1.0))


def decode_time(tables: Tables, batch: int, context: float) -> Floats:
    """Return the time of one decode step of *batch* requests in each layer and unit [R, L] [s].

    max((A_i(n) + n κ_i(c)) / (η_d B_d), n F_i(c) / (η_p F_d)) + o_d, and its all-reduces.
    """
    read = bytes_read(tables, batch) + _kv_read(tables, batch, context)
    time = _layer_time(tables, read, batch * flops(tables, context))
    return time + _reduce_time(tables, np.array([float(batch)]), 1.0)


def prefill_penalty(tables: Tables, tokens: float | Floats, chunk: int) -> Floats:
    """Return what a prompt takes longer in a spilled layer [..., D, L] [s].

    Once a chunk, its weights cross the bus: sum over chunks of A^s_i(chunk) / bus.
    """
    length = np.asarray(tokens, dtype=np.float64)[..., None]
    moved = _over_chunks(tables, spilled_bytes_read, length, chunk)
    return moved[..., None, :] / tables.bus[:, None]


def decode_penalty(tables: Tables, batch: int, context: float) -> Floats:
    """Return what a decode step takes longer in a spilled layer [D, L] [s].

    Its spilled part is read from host RAM, after the rest from the device's memory:
    max((A_i - A^s_i + n κ_i) / (η_d B_d), n F_i / (η_p F_d)) + A^s_i / B_host + o_d. Negative
    where host RAM is the faster one.
    """
    spilled = spilled_bytes_read(tables, batch)
    read = bytes_read(tables, batch) - spilled + _kv_read(tables, batch, context)
    here = _layer_time(tables, read, batch * flops(tables, context))
    here = here + _reduce_time(tables, np.array([float(batch)]), 1.0)
    there = spilled[None, :] / tables.host_bandwidth[:, None]
    return here + there - decode_time(tables, batch, context)


def _kv_read(tables: Tables, batch: int, context: float) -> Floats:
    """Return what *batch* requests read of their KV caches, every copy counted [R, L] [bytes]."""
    return (batch * kv_bytes(tables, context)) * tables.kv_copies[:, None]


def _reduce_time(tables: Tables, tokens: Floats, times: Floats | float) -> Floats:
    """Return the all-reduces of a layer for *tokens* in so many steps [..., R, 1] [s]."""
    found: Floats = tokens * tables.reduce_token + times * tables.reduce_start
    return found[..., None]


def _layer_time(tables: Tables, num_bytes: Floats, work: Floats) -> Floats:
    """Return the time of reading [..., R or 1, L] or computing, and the fixed cost [..., R, L]."""
    reading = num_bytes / tables.bandwidth[:, None]
    computing = work[..., None, :] / tables.compute[:, None]
    time: Floats = np.maximum(reading, computing) + tables.layer_overhead[:, None]
    return time


def _over_chunks(
    tables: Tables, read: Callable[[Tables, Floats], Floats], length: Floats, chunk: int
) -> Floats:
    """Return what is read for full chunks and for the last, shorter one [..., L] [bytes]."""
    num_full = np.floor(length / chunk)
    rest = length - num_full * chunk
    full = num_full * read(tables, np.asarray(float(chunk)))
    found: Floats = full + np.where(rest > 0, read(tables, rest), 0.0)
    return found


def head_time(tables: Tables, batch: int, head_bytes: float, head_flops: float) -> Floats:
    """Return the time of the output head for *batch* tokens on each unit [R] [s].

    Each device has a part of the vocabulary, and the logits are gathered.
    """
    time = np.maximum(head_bytes / tables.bandwidth, batch * head_flops / tables.compute)
    found: Floats = time + (batch * tables.gather_token + tables.gather_start)
    return found
