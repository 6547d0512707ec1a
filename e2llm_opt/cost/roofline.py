"""Prefill and decode time of every layer on every device (DESIGN section 5)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.tables import Tables

    Floats = NDArray[np.float64]


def bytes_read(tables: Tables, tokens: float) -> Floats:
    """Return A_i(n), the weight bytes read to push *tokens* tokens through each layer [L].

    Dense part + the experts that the tokens touch in expectation: E (1 - (1 - k/E)^n).
    """
    touched = -np.expm1(tokens * np.log1p(-np.minimum(tables.fraction, 1.0 - 1e-15)))
    return tables.dense + tables.routed * touched


def kv_bytes(tables: Tables, tokens: float) -> Floats:
    """Return κ_i(c), the KV cache of one request of *tokens* tokens in each layer [L] [bytes]."""
    return tables.kv * np.minimum(tokens, tables.window)


def flops(tables: Tables, context: float) -> Floats:
    """Return F_i(c), the FLOPs of one token at *context* tokens in each layer [L]."""
    return tables.flops + tables.attention * np.minimum(context, tables.window)


def prefill_time(tables: Tables, tokens: float, chunk: int) -> Floats:
    """Return the time of a prompt of *tokens* tokens in each layer on each device [D, L] [s].

    max(p · F_i(p/2) / (η_p F_d), sum over chunks of A_i(chunk) / (η_d B_d)) + o_d.
    """
    num_full = math.floor(tokens / chunk)
    read = num_full * bytes_read(tables, chunk)
    if tokens > num_full * chunk:
        read = read + bytes_read(tables, tokens - num_full * chunk)
    work = tokens * flops(tables, tokens / 2)
    computing = work[None, :] / tables.compute[:, None]
    reading = read[None, :] / tables.bandwidth[:, None]
    return np.maximum(computing, reading) + tables.layer_overhead[:, None]


def decode_time(tables: Tables, batch: int, context: float) -> Floats:
    """Return the time of one decode step of *batch* requests in each layer and device [D, L] [s].

    max((A_i(n) + n κ_i(c)) / (η_d B_d), n F_i(c) / (η_p F_d)) + o_d.
    """
    read = bytes_read(tables, batch) + batch * kv_bytes(tables, context)
    work = batch * flops(tables, context)
    reading = read[None, :] / tables.bandwidth[:, None]
    computing = work[None, :] / tables.compute[:, None]
    return np.maximum(reading, computing) + tables.layer_overhead[:, None]


def head_time(tables: Tables, batch: int, head_bytes: float, head_flops: float) -> Floats:
    """Return the time of the output head for *batch* tokens on each device [D] [s]."""
    return np.maximum(head_bytes / tables.bandwidth, batch * head_flops / tables.compute)
