"""Replicas of a plan as arrays for the event loop: step times, prompts, KV transfers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.pipeline import decode, decode_stages, prefill_of_lengths
from e2llm_opt.cost.roofline import bytes_read, spilled_bytes_read
from e2llm_opt.cost.transfer import kv_routes
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause
from e2llm_opt.simulate.arrays import System
from e2llm_opt.simulate.kernel import DECODE, MIXED, PREFILL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.inventory.network import Resource

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

ROLE_CODES = {Role.PREFILL: PREFILL, Role.DECODE: DECODE, Role.MIXED: MIXED}
_NO_WINDOW = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """One replica as it runs.

    Parameters
    ----------
    role, cut, slots, spilled
        As planned.
    max_context_tokens
        Longest request that a slot holds [tokens].
    rate_per_s
        Planned requests a second, for the routing ``plan``.
    """

    role: Role
    cut: Cut
    slots: int
    spilled: Spilled
    max_context_tokens: int
    rate_per_s: float = 1.0


def build_system(
    costs: Costs,
    actors: Sequence[Actor],
    prompts: Ints,
    route_rates: Mapping[tuple[int, int], float] | None = None,
) -> tuple[System, list[Resource]]:
    """Return the arrays of *actors* for prompts of these lengths, and the links they use.

    Parameters
    ----------
    costs
        Of the problem.
    actors
        The replicas.
    prompts
        Different lengths, ascending [U] [tokens].
    route_rates
        Planned requests a second from PREFILL to DECODE actors, for the routing ``plan``.
    """
    windows, window_of = _windows(costs)
    decoding = _decoding(costs, actors, window_of)
    prefilling = _prefilling(costs, actors, prompts)
    kv, resources = _transfers(costs, actors, (windows, window_of))
    num = len(actors)
    route_share = np.ones((num, num))
    for pair, rate in (route_rates or {}).items():
        route_share[pair] = max(rate, 1e-12)
    layerwise = costs.problem.runtime.layerwise_kv
    return System(
        role=np.array([ROLE_CODES[actor.role] for actor in actors], dtype=np.int64),
        slots=np.array([0 if a.role is Role.PREFILL else a.slots for a in actors], np.int64),
        kv_tokens=np.array([a.slots * a.max_context_tokens for a in actors], np.int64),
        window=windows,
        is_pipelined=costs.problem.runtime.is_pipelined,
        kv_hidden=1 - 1 / costs.problem.model.num_layers if layerwise else 0.0,
        share=np.array([max(actor.rate_per_s, 1e-12) for actor in actors]),
        route_share=route_share,
        **decoding,
        **prefilling,
        **kv,
    ), resources


def _windows(costs: Costs) -> tuple[Ints, Ints]:
    """Return the different windows [W] [tokens], and which one each layer has [L]."""
    whole = np.where(np.isfinite(costs.tables.window), costs.tables.window, _NO_WINDOW)
    windows, window_of = np.unique(whole.astype(np.int64), return_inverse=True)
    return windows, window_of.astype(np.int64)


def _decoding(costs: Costs, actors: Sequence[Actor], window_of: Ints) -> dict[str, np.ndarray]:
    """Return everything about decoding rounds."""
    width = max((a.slots for a in actors if a.role is not Role.PREFILL), default=1)
    num = len(actors)
    micro, tpot = np.ones((num, width), np.int64), np.full((num, width), np.inf)
    rate = np.ones(num)
    stages, groups = [0], [0]
    fixed: list[Floats] = []
    back: list[Floats] = []
    lines: list[tuple[Floats, float, Floats, float, int]] = []
    for r, actor in enumerate(actors):
        if actor.role is not Role.PREFILL:
            rounds = decode(costs, actor.cut, actor.slots, actor.spilled)
            micro[r, : actor.slots] = rounds.micro_batches
            tpot[r, : actor.slots] = rounds.tpot_s
            rate[r] = _rate(costs, actor, float(rounds.tpot_s[-1]))
        batch = -(-np.arange(1, width + 1) // micro[r])
        for j in range(len(actor.cut)):
            own, around, hop = _stage(costs, actor, j, batch, window_of)
            lines += own
            fixed.append(around)
            back.append(hop)
            groups.append(len(lines))
        stages.append(len(fixed))
    return {
        "stages": np.array(stages, np.int64),
        "micro": micro,
        "tpot": tpot,
        "rate": rate,
        "groups": np.array(groups, np.int64),
        "fixed": np.array(fixed),
        "hop_back": np.array(back),
        "read": np.array([line[0] for line in lines]),
        "read_context": np.array([line[1] for line in lines]),
        "work": np.array([line[2] for line in lines]),
        "work_context": np.array([line[3] for line in lines]),
        "window_of": np.array([line[4] for line in lines], np.int64),
    }


def _rate(costs: Costs, actor: Actor, round_s: float) -> float:
    """Return the requests a second of a replica with all slots full."""
    pause = 0.0
    if actor.role is Role.MIXED:
        latency, occupancy = _mean_prefill(costs, actor)
        is_short = costs.problem.runtime.mixed_pause is MixedPause.OCCUPANCY
        pause = occupancy if is_short else latency
    return actor.slots / (actor.slots * pause + costs.output_tokens * round_s)


def _mean_prefill(costs: Costs, actor: Actor) -> tuple[float, float]:
    found = prefill_of_lengths(costs, actor.cut, np.array([costs.prompt_tokens]), actor.spilled)
    return float(found.latency_s[0]), float(found.occupancy_s[0])


def _stage(
    costs: Costs, actor: Actor, j: int, batch: Ints, window_of: Ints
) -> tuple[list[tuple[Floats, float, Floats, float, int]], Floats, Floats]:
    """Lines of the layers that are alike on stage j, and what it takes beside them."""
    tables = costs.tables
    d, start, stop = actor.cut[j]
    spilled = set(actor.spilled[j]) if actor.spilled else set()
    kinds: dict[tuple[object, ...], list[int]] = {}
    for layer in range(start, stop):
        kind = (
            *(tables.dense[layer], tables.routed[layer], tables.fraction[layer]),
            *(tables.flops[layer], tables.attention[layer], tables.kv[layer], window_of[layer]),
            *(layer in spilled, tables.spill_dense[layer], tables.spill_routed[layer]),
        )
        kinds.setdefault(kind, []).append(layer)
    read = np.stack([bytes_read(tables, int(b)) for b in batch])
    away = np.stack([spilled_bytes_read(tables, int(b)) for b in batch])
    speed, compute = float(tables.bandwidth[d]), float(tables.compute[d])
    lines = []
    around = np.full(len(batch), (stop - start) * float(tables.layer_overhead[d]))
    for layers in kinds.values():
        layer, count = layers[0], len(layers)
        here = read[:, layer]
        if layer in spilled:
            here = here - away[:, layer]
            around = around + count * away[:, layer] / float(tables.host_bandwidth[d])
        lines.append(
            (
                count * here / speed,
                count * float(tables.kv[layer]) / speed,
                count * batch * float(tables.flops[layer]) / compute,
                count * float(tables.attention[layer]) / compute,
                int(window_of[layer]),
            )
        )
    hops = np.array([decode_stages(costs, actor.cut, int(b))[1][j] for b in batch])
    if costs.holds_head(position_of(actor.cut, j)):
        around = around + np.array([costs.head(int(b))[d] for b in batch])
    is_last = j == len(actor.cut) - 1
    return lines, around + hops, hops if is_last else np.zeros(len(batch))


def _prefilling(costs: Costs, actors: Sequence[Actor], prompts: Ints) -> dict[str, np.ndarray]:
    """Return everything about prompts of these lengths."""
    num = len(actors)
    latency, pause = np.zeros((num, len(prompts))), np.zeros((num, len(prompts)))
    chunk_s: list[Floats] = []
    chunks = np.ones(len(prompts), np.int64)
    is_short = costs.problem.runtime.mixed_pause is MixedPause.OCCUPANCY
    for r, actor in enumerate(actors):
        found = prefill_of_lengths(costs, actor.cut, prompts.astype(np.float64), actor.spilled)
        chunks = found.chunks.astype(np.int64)
        chunk_s += list(((found.stage_s + found.hop_s) / found.chunks[:, None]).T)
        latency[r] = found.latency_s
        uses_occupancy = actor.role is Role.PREFILL or is_short
        pause[r] = found.occupancy_s if uses_occupancy else found.latency_s
    return {
        "chunks": chunks,
        "chunk_s": np.array(chunk_s),
        "latency": latency,
        "pause": pause,
    }


def _transfers(
    costs: Costs, actors: Sequence[Actor], windows: tuple[Ints, Ints]
) -> tuple[dict[str, np.ndarray], list[Resource]]:
    """Return latency of each route, and how long a token of KV cache keeps each link busy."""
    num = len(actors)
    routes = {
        (a, b): kv_routes(costs, source.cut, target.cut)
        for a, source in enumerate(actors)
        for b, target in enumerate(actors)
        if source.role is Role.PREFILL and target.role is Role.DECODE
    }
    resources = sorted(
        {x for route in routes.values() if route for _, x, _ in route.parts}, key=str
    )
    row = {x: i for i, x in enumerate(resources)}
    latency = np.full((num, num), np.inf)
    busy = np.zeros((num, num, max(len(resources), 1), len(windows[0])))
    last = np.zeros((num, num))
    kv = costs.tables.kv
    for pair, route in routes.items():
        if route is None:
            continue
        latency[pair] = route.latency_s
        last[pair] = route.last_share
        for layers, x, speed in route.parts:
            for layer in layers:
                busy[(*pair, row[x], windows[1][layer])] += float(kv[layer]) / speed
    return {"kv_latency": latency, "kv_busy": busy, "kv_last": last}, resources
