"""What holds one replica back: its slowest stage, its slots, its hops; each found by computing."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.pipeline import bottleneck, decode, decode_stages, prefill
from e2llm_opt.cost.roofline import bytes_read, flops, kv_bytes
from e2llm_opt.problem import Objective, Role
from e2llm_opt.runtime import MixedPause
from e2llm_opt.search.assemble import hop_paths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidate import Candidate

    Floats = NDArray[np.float64]


class SlotLimit(StrEnum):
    """Why a replica has no more slots."""

    ASKED = "workload.slots"
    ENGINE = "max_slots"
    MEMORY = "memory"
    SPEED = "speed"
    RATE = "rate"
    """One more would not bring more requests a second."""
    CONTEXT = "context"
    """One more would shorten the longest request, which is the objective."""


class Slots(NamedTuple):
    """The limit of a replica's slots."""

    limit: SlotLimit
    lacking: tuple[tuple[int, float], ...]
    """Devices (rows) without room for one more slot, and how much they lack [bytes]."""
    would_pay: bool
    """One more slot would keep the speed limits and serve more requests a second."""


class Hops(NamedTuple):
    """The hops of one decode round with all slots full."""

    link_s: Floats
    """What latency and bandwidth take of each hop, the last one leading back [S] [s]."""
    engine_s: Floats
    """The engine's fixed cost of each hop [S] [s]."""
    round_s: float
    over_perfect_link_s: Floats
    """The round if the links of one hop took no time [S] [s]."""


def slots_of(costs: Costs, candidate: Candidate) -> Slots:
    """Return what keeps *candidate* from having one slot more."""
    workload, runtime = costs.problem.workload, costs.problem.runtime
    if workload.slots is not None:
        return Slots(SlotLimit.ASKED, (), would_pay=False)
    if candidate.slots >= runtime.max_slots:
        return Slots(SlotLimit.ENGINE, (), would_pay=False)
    n = candidate.slots + 1
    then = _stream_s(costs, candidate, n)
    is_fast = then <= workload.slowest_tpot_s
    has_gain = n / then > candidate.slots / _stream_s(costs, candidate, n - 1) * (1 + 1e-9)
    lacking = tuple(_lacking(costs, candidate, n))
    if lacking:
        return Slots(SlotLimit.MEMORY, lacking, is_fast and has_gain)
    if not is_fast:
        return Slots(SlotLimit.SPEED, (), would_pay=has_gain)
    if costs.problem.objective is Objective.MAX_CONTEXT and has_gain:
        return Slots(SlotLimit.CONTEXT, (), would_pay=False)
    return Slots(SlotLimit.RATE, (), would_pay=False)


def _stream_s(costs: Costs, candidate: Candidate, slots: int) -> float:
    """Time per output token with *slots* slots, pauses counted, whether they fit or not [s]."""
    cut = candidate.cut
    spilled = costs.spilled(cut, slots)
    time = float(decode(costs, cut, slots, spilled).tpot_s[-1])
    if candidate.role is not Role.MIXED:
        return time
    figures = prefill(costs, cut, costs.prompt_tokens, spilled)
    is_short = costs.problem.runtime.mixed_pause is MixedPause.OCCUPANCY
    pause = figures.occupancy_s if is_short else figures.latency_s
    return time + slots * pause / costs.output_tokens


def _lacking(costs: Costs, candidate: Candidate, slots: int) -> list[tuple[int, float]]:
    held, room = costs.held_prefix(slots), costs.room()
    found = []
    for j, (d, start, stop) in enumerate(candidate.cut):
        position = position_of(candidate.cut, j)
        free = room[d, position]
        if costs.tables.host_memory[d] > 0:
            free += costs.spill_rule.most((d, start, stop), position)
        needed = held[d, stop] - held[d, start]
        if needed > free:
            found.append((d, float(needed - free)))
    return found


def hops_of(costs: Costs, candidate: Candidate) -> Hops:
    """Return what the hops of a round of *candidate* consist of."""
    cut, m = candidate.cut, candidate.micro_batches
    batch = -(-candidate.slots // m)
    stage, hop = decode_stages(costs, cut, batch, candidate.spilled)
    link = np.zeros(len(cut))
    if len(cut) > 1:
        for j in range(len(cut)):
            is_last = j == len(cut) - 1
            num_bytes = costs.return_bytes(batch) if is_last else costs.forward_bytes(batch)
            paths = hop_paths(costs, cut, j, batch) if num_bytes > 0 else ()
            link[j] = sum(path.time(num_bytes) for path in paths)
    without = [
        _round(stage, np.where(np.arange(len(cut)) == j, hop - link, hop), m)
        for j in range(len(cut))
    ]
    return Hops(link, hop - link, _round(stage, hop, m), np.array(without))


def _round(stage: Floats, hop: Floats, micro_batches: int) -> float:
    return max(float((stage + hop).sum()), micro_batches * bottleneck(stage, hop))


def bound_of(costs: Costs, candidate: Candidate, j: int, *, is_prefill: bool) -> str:
    """Return what the layers of stage j spend most of their time on, as a phrase.

    Of a mean prompt, or of a decode step with all slots full.
    """
    d, start, stop = candidate.cut[j]
    if candidate.spilled[j]:
        return "weights in host RAM"
    tables, layers = costs.tables, slice(start, stop)
    if is_prefill:
        tokens, chunk = costs.prompt_tokens, costs.problem.runtime.prefill_chunk_tokens
        num_full, rest = divmod(tokens, chunk)
        read = num_full * bytes_read(tables, chunk) + (bytes_read(tables, rest) if rest else 0.0)
        steps = costs.num_chunks
        work = tokens * flops(tables, tokens / 2)
    else:
        batch = -(-candidate.slots // candidate.micro_batches)
        tokens, steps = batch, 1
        cache = batch * kv_bytes(tables, costs.mean_context) * tables.kv_copies[d]
        read = bytes_read(tables, batch) + cache
        work = batch * flops(tables, costs.mean_context)
    times = {
        "memory bandwidth": float(read[layers].sum() / tables.bandwidth[d]),
        "arithmetic (FLOP/s)": float(work[layers].sum() / tables.compute[d]),
        "the fixed cost of each layer": float((stop - start) * tables.layer_overhead[d]),
        "the all-reduces between its devices": float(
            (stop - start) * (tokens * tables.reduce_token[d] + steps * tables.reduce_start[d])
        ),
    }
    return max(times, key=lambda what: times[what])


def holds_alone(costs: Costs, d: int) -> bool:
    """Whether device d can hold the whole model and one request, host RAM included."""
    held = float(costs.memory_prefix(1)[-1])
    room = float(costs.room()[d, position_of(((d, 0, 1),), 0)])
    if costs.tables.host_memory[d] > 0:
        stage = (d, 0, costs.problem.model.num_layers)
        room += costs.spill_rule.most(stage, position_of((stage,), 0))
    return held <= room
