"""The serving engine: its fixed costs, and what it can and cannot do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias, cast

from e2llm_opt.catalogue.catalogue import runtime_row
from e2llm_opt.units import GIB, MS, US

TensorParallel: TypeAlias = Literal["no", "asked", "stages", "replica"]
"""Whether several devices may serve one stage: never; only where asked for; all stages of a replica
on equally many; or one stage on all devices of a replica."""


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
    returns_tokens
        Whether the next round waits for the hop from the last stage back to the first. False only
        to compare with planners whose models leave that hop out.
    tensor_parallel
        Whether several devices of a host may serve one stage.
    collective_start_s, collective_step_s
        Latency of an all-reduce or gather between them: once, and for each of its steps [s].
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
    returns_tokens: bool = True
    tensor_parallel: TensorParallel = "no"
    collective_start_s: float = 0.0
    collective_step_s: float = 0.0


def runtime(name: str, **overrides: Any) -> Runtime:  # noqa: ANN401 - one type a field
    """Return the engine called *name* with its defaults from the catalogue.

    Parameters
    ----------
    name
        ``generic``, ``llama.cpp``, ``vllm`` …, whatever the case and punctuation.
    **overrides
        Fields of :class:`Runtime` that differ. Two drag others along unless those are given too:
        the hop inside a host costs no more than *hop_overhead_s*, and *mixed_pause* follows
        *is_pipelined* (an engine that overlaps pauses decode for the occupancy only).

    Raises
    ------
    UnknownNameError
        When there is no such engine.
    """
    if "hop_overhead_s" in overrides:
        bus_default_s = runtime_row(name).bus_hop_overhead_ms * MS
        overrides.setdefault("bus_hop_overhead_s", min(bus_default_s, overrides["hop_overhead_s"]))
    if "is_pipelined" in overrides:
        overlaps = overrides["is_pipelined"]
        overrides.setdefault(
            "mixed_pause", MixedPause.OCCUPANCY if overlaps else MixedPause.LATENCY
        )
    if "mixed_pause" in overrides:
        overrides["mixed_pause"] = MixedPause(overrides["mixed_pause"])
    return replace(_catalogue_runtime(name), **overrides)


def _catalogue_runtime(name: str) -> Runtime:
    row = runtime_row(name)
    return Runtime(
        name=row.key,
        overhead_bytes=row.overhead_gib * GIB,
        hop_overhead_s=row.hop_overhead_ms * MS,
        bus_hop_overhead_s=row.bus_hop_overhead_ms * MS,
        is_pipelined=row.pipelined,
        max_slots=row.max_slots,
        prefill_chunk_tokens=row.prefill_chunk_tokens,
        activation_bytes=row.activation_bytes,
        topology=cast("Literal['ring', 'star']", row.topology),
        mixed_pause=MixedPause(row.mixed_pause),
        layerwise_kv=row.layerwise_kv,
        head=cast("Literal['first', 'last']", row.head),
        embedding=cast("Literal['first', 'host']", row.embedding),
        kv_layout=cast("Literal['expanded', 'latent']", row.kv_layout),
        has_disaggregation=row.disaggregation,
        logits_buffer=row.logits_buffer,
        sends_logits=row.sends_logits,
        tensor_parallel=cast("TensorParallel", row.tensor_parallel),
        collective_start_s=row.collective_start_us * US,
        collective_step_s=row.collective_step_us * US,
    )
