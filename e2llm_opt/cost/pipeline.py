"""Stages to figures of a replica: prefill latency and occupancy, and decode rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import position_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs, PrefillCurve
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


_BLOCK = 512
"""Lengths computed at once, so that memory stays small."""


class Prefill(NamedTuple):
    """One prompt through a pipeline of S stages."""

    latency_s: float
    occupancy_s: float
    """Time after which the next prompt may enter [s]."""
    stage_s: Floats
    """Whole prompt on each stage, head included [S] [s]."""
    hop_s: Floats
    """Whole prompt over each outgoing hop; 0 for the last stage [S] [s]."""


class Decode(NamedTuple):
    """One round of decoding with 1 … N requests; row n - 1 is n requests."""

    tpot_s: Floats
    """Best round [N] [s]."""
    micro_batches: Ints
    """Micro-batches that give it [N]."""


class Prompts(NamedTuple):
    """Prompts of N lengths, each alone in a pipeline of S stages."""

    latency_s: Floats
    """[N] [s]"""
    occupancy_s: Floats
    """Time after which the next prompt may enter [N] [s]."""
    stage_s: Floats
    """Whole prompt on each stage, head included [N, S] [s]."""
    hop_s: Floats
    """Whole prompt over each outgoing hop; 0 for the last stage [N, S] [s]."""
    chunks: Floats
    """[N]"""


def prefill(costs: Costs, cut: Cut, tokens: float, spilled: Spilled = ()) -> Prefill:
    """Return the figures of a prompt of *tokens* tokens, with *spilled* layers in host RAM.

    With C chunks and s_j = one chunk on stage j with its hop: overlapping engines have latency
    Σ s_j + (C - 1) max s_j and occupancy C max s_j; others have C Σ s_j for both.
    """
    one = _prompts(costs, cut, costs.prefill_curve((tokens,)), spilled)
    return Prefill(float(one.latency_s[0]), float(one.occupancy_s[0]), one.stage_s[0], one.hop_s[0])


def prefill_times(
    costs: Costs, cut: Cut, lengths: tuple[float, ...], spilled: Spilled = ()
) -> tuple[Floats, Floats]:
    """Return latency and occupancy of prompts of few *lengths*, kept for the next cut [N] [s]."""
    found = _prompts(costs, cut, costs.prefill_curve(lengths), spilled)
    return found.latency_s, found.occupancy_s


def prefill_of_lengths(costs: Costs, cut: Cut, lengths: Floats, spilled: Spilled = ()) -> Prompts:
    """Return the figures of prompts of many *lengths* [N] [tokens], of which nothing is kept."""
    return prefills_of_lengths(costs, [(cut, spilled)], lengths)[0]


def prefills_of_lengths(
    costs: Costs, cuts: Sequence[tuple[Cut, Spilled]], lengths: Floats
) -> list[Prompts]:
    """Return the same for each of *cuts*, which share the time of a layer on each device."""
    found: list[list[Prompts]] = [[] for _ in cuts]
    for i in range(0, len(lengths), _BLOCK):
        curve = costs.new_prefill_curve(lengths[i : i + _BLOCK])
        for own, (cut, spilled) in zip(found, cuts, strict=True):
            own.append(_prompts(costs, cut, curve, spilled))
    return [Prompts(*(np.concatenate(p) for p in zip(*own, strict=True))) for own in found]


def _prompts(costs: Costs, cut: Cut, curve: PrefillCurve, spilled: Spilled) -> Prompts:
    stage = _stages(cut, curve.times, costs.head_extra(costs.head(1)))
    if any(spilled):
        stage += _spilled_time(curve.penalty, cut, spilled)
    hop = np.zeros(stage.shape)
    anchor = costs.anchor(cut[0][0], cut[-1][0])
    for j in range(len(cut) - 1):
        here, there = cut[j][0], cut[j + 1][0]
        hop[:, j] = curve.chunks * costs.hop_curve(here, there, curve.chunk_bytes, anchor)
    chunk_s = (stage + hop) / curve.chunks[:, None]
    if not costs.problem.runtime.is_pipelined:
        total = curve.chunks * chunk_s.sum(axis=1)
        return Prompts(total, total, stage, hop, curve.chunks)
    slowest = chunk_s.max(axis=1)
    is_cut = curve.chunks > 1  # 0 further chunks that take for ever take no time
    further = np.where(is_cut, (curve.chunks - 1) * np.where(is_cut, slowest, 0.0), 0.0)
    latency = chunk_s.sum(axis=1) + further
    return Prompts(latency, curve.chunks * slowest, stage, hop, curve.chunks)


def _stages(cut: Cut, times: Floats, extra: Floats) -> Floats:
    """Time of each stage [..., S] [s]: its layers, and what its position adds."""
    return np.stack(
        [
            times[..., d, stop] - times[..., d, start] + extra[d, position_of(cut, j)]
            for j, (d, start, stop) in enumerate(cut)
        ],
        axis=-1,
    )


def _spilled_time(penalty: Floats, cut: Cut, spilled: Spilled) -> Floats:
    """Return what spilled layers take longer a stage [..., S] [s]; *penalty* is [..., D, L]."""
    return np.stack(
        [
            penalty[..., d, list(layers)].sum(axis=-1)
            for (d, _, _), layers in zip(cut, spilled, strict=True)
        ],
        axis=-1,
    )


def decode_stages(
    costs: Costs, cut: Cut, batch: int, spilled: Spilled = ()
) -> tuple[Floats, Floats]:
    """Return stage and outgoing hop times of a micro-batch, the last hop leading back [S] [s]."""
    times = costs.decode_prefix(batch)
    extra = costs.head_extra(costs.head(batch))
    stage = _stages(cut, times, extra)
    if any(spilled):
        stage += _spilled_time(costs.decode_penalty(batch), cut, spilled)
    hop = np.zeros(len(cut))
    if len(cut) > 1:
        anchor = costs.anchor(cut[0][0], cut[-1][0])
        rows = np.array([d for d, _, _ in cut])
        hop[:-1] = costs.hop(costs.forward_bytes(batch), rows[:-1], rows[1:], anchor)
        hop[-1] = costs.hop(costs.return_bytes(batch), rows[-1], rows[0], anchor)
    return stage, hop


def bottleneck(stage: Floats, hop: Floats) -> float:
    """Return the slowest stage with its outgoing hop; the hop back does not occupy a stage [s]."""
    busy = stage + hop
    busy[-1] = stage[-1]
    return float(busy.max())


def most_micro_batches(costs: Costs, cut: Cut, slots: int) -> int:
    """Return the most micro-batches that may be in flight."""
    return min(len(cut), slots) if costs.problem.runtime.is_pipelined else 1


def decode(costs: Costs, cut: Cut, slots: int, spilled: Spilled = ()) -> Decode:
    """Return the rounds of 1 … *slots* requests, with *spilled* layers in host RAM.

    With m <= min(k, n) micro-batches of ceil(n/m) requests, one round takes
    max(Σ (stage + hop), m · max(stage + hop)); the fewest m that are best are used.
    """
    total, slowest = _sums(costs, cut, slots, spilled)
    n = np.arange(1, slots + 1)
    best = total[n - 1]
    micro = np.ones(slots, dtype=np.int64)
    for m in range(2, most_micro_batches(costs, cut, slots) + 1):
        batch = -(-n // m)
        round_s = np.maximum(total[batch - 1], m * slowest[batch - 1])
        round_s[: m - 1] = np.inf
        micro[round_s < best] = m
        best = np.minimum(round_s, best)
    return Decode(best, micro)


def _sums(costs: Costs, cut: Cut, slots: int, spilled: Spilled) -> tuple[Floats, Floats]:
    """Sum of stages and hops, and slowest stage with its hop, for batches 1 … slots [N] [s]."""
    times, heads = costs.decode_curves()
    anchor = costs.anchor(cut[0][0], cut[-1][0])
    batch = np.arange(1, slots + 1, dtype=np.float64)
    total, slowest = np.zeros(slots), np.zeros(slots)
    longer = np.zeros((slots, len(cut)))
    if any(spilled):
        penalty = np.stack([costs.decode_penalty(n) for n in range(1, slots + 1)])
        longer = _spilled_time(penalty, cut, spilled)
    for j, (d, start, stop) in enumerate(cut):
        stage = times[:slots, d, stop] - times[:slots, d, start] + longer[:, j]
        if costs.holds_head(position_of(cut, j)):
            stage = stage + heads[:slots, d]
        busy = stage
        if j < len(cut) - 1:
            hop = costs.hop_curve(d, cut[j + 1][0], costs.forward_bytes(1) * batch, anchor)
            busy = stage = stage + hop
        elif len(cut) > 1:
            stage = stage + costs.hop_curve(d, cut[0][0], costs.return_bytes(1) * batch, anchor)
        total += stage
        slowest = np.maximum(slowest, busy)
    return total, slowest
