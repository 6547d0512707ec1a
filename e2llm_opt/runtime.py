"""The serving engine: its fixed costs, and what it can and cannot do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class MixedPause(StrEnum):
    """How long decode stops in a MIXED replica while a prompt is prefilled."""

    LATENCY = "latency"
    OCCUPANCY = "occupancy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A serving engine's overheads and rules; defaults stand in ``catalogue/runtimes.csv``.

    Parameters
    ----------
    overhead_bytes
        Buffers on every device used [bytes].
    logits_buffer
        Whether chunk · vocab · 4 bytes come on top where the head is (vllm, sglang).
    hop_overhead_s, bus_hop_overhead_s
        Fixed cost a hop over a network, and inside one host [s].
    is_pipelined
        Whether several micro-batches are in flight at once.
    max_slots
        Most requests that one replica decodes at once.
    prefill_chunk_tokens
        Tokens of a prompt pushed through the pipeline at a time.
    activation_bytes
        Bytes of one activation value on the wire.
    topology
        ``ring``: a stage sends to the next; ``star``: through the head process, on the host of
        the stage that holds the head.
    mixed_pause
        How long decode stops for a prefill in a MIXED replica.
    layerwise_kv
        KV is sent while later layers are still computed.
    head
        Stage that holds the output head.
    embedding
        ``first``: in the first stage's memory; ``host``: with the head's process, in host RAM
        where that device is discrete.
    kv_layout
        Whether multi-head latent attention keeps its latent or the expanded keys and values.
    has_disaggregation
        Whether a KV cache can move from one replica to another.
    sends_logits
        Whether the last stage sends its logits back to the first.
    """

    name: str
    overhead_bytes: float
    hop_overhead_s: float
    bus_hop_overhead_s: float
    is_pipelined: bool
    max_slots: int
    prefill_chunk_tokens: int
    activation_bytes: float
    topology: Literal["ring", "star"]
    mixed_pause: MixedPause
    layerwise_kv: bool
    head: Literal["first", "last"]
    embedding: Literal["first", "host"]
    kv_layout: Literal["expanded", "latent"]
    has_disaggregation: bool
    logits_buffer: bool = False
    sends_logits: bool = False
