"""Replicas of a plan as arrays for the event loop: step times, prompts, KV transfers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.pipeline import decode, decode_stages, prefill_of_lengths
from e2llm_opt.cost.roofline import bytes_read, spilled_bytes_read
from e2llm_opt.cost.transfer import kv_routes
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause
from e2llm_opt.simulate.arrays import (
    DECODE,
    GROUP,
    LINK,
    MIXED,
    PREFILL,
    QUEUE,
    REPLICA,
    REQUEST,
    ROUTE,
    SHORTEST_WAIT,
    SLOT,
    STAGE,
    WINDOW,
    Run,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.inventory.network import Resource
    from e2llm_opt.simulate.arrays import Floats, Ints, Rows
    from e2llm_opt.workload.trace import Trace

ROLE_CODES = {Role.PREFILL: PREFILL, Role.DECODE: DECODE, Role.MIXED: MIXED}
_NO_WINDOW = 2**62
_NO_RATE = 1e-12


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


class Tables(NamedTuple):
    """Times that rows of several arrays need together."""

    micro: Ints
    tpot: Floats
    rate: Floats
    """Requests a second with all slots full [R]."""


def build_run(
    costs: Costs,
    actors: Sequence[Actor],
    arrivals: Trace,
    route_rates: Mapping[tuple[int, int], float] | None = None,
    law: tuple[int, bool] = (SHORTEST_WAIT, False),
) -> tuple[Run, list[Resource]]:
    """Return a run of *actors* that has not begun, and the links that KV caches cross.

    Parameters
    ----------
    costs
        Of the problem.
    actors
        The replicas.
    arrivals
        What will arrive.
    route_rates
        Planned requests a second from PREFILL to DECODE actors, for the routing ``plan``.
    law
        Routing, and whether rounds take as long as at the mean context.
    """
    prompts, rows = np.unique(arrivals.prompt_tokens, return_inverse=True)
    chunks, prefills = _prefilling(costs, actors, prompts)
    windows, window_of = _windows(costs)
    rounds = _rounds(costs, actors)
    stages, groups, tables = _stages(costs, actors, rounds.micro, window_of)
    routes, parts, resources = _transfers(costs, actors, (windows, window_of))
    for pair, rate in (route_rates or {}).items():
        routes["share"][pair] = max(rate, _NO_RATE)
    layerwise = costs.problem.runtime.layerwise_kv
    queues = np.zeros((len(actors), 3), QUEUE)
    queues["head"] = -1
    return Run(
        replicas=_replicas(actors, rounds),
        requests=_requests(arrivals, rows),
        slots=np.zeros(rounds.tpot.shape, SLOT),
        queues=queues,
        stages=stages,
        links=np.zeros(max(len(resources), 1), LINK),
        next_at=np.full(2 * len(actors), np.inf),
        windows=windows,
        groups=groups,
        micro=rounds.micro,
        tpot=rounds.tpot,
        **tables,
        chunks=chunks,
        **prefills,
        routes=routes,
        part_link=parts[0],
        part_s=parts[1],
        hidden=1 - 1 / costs.problem.model.num_layers if layerwise else 0.0,
        is_mean=law[1],
        routing=law[0],
    ), resources


def _replicas(actors: Sequence[Actor], rounds: Tables) -> Rows:
    found = np.zeros(len(actors), REPLICA)
    last = np.cumsum([len(actor.cut) for actor in actors])
    found["role"] = [ROLE_CODES[actor.role] for actor in actors]
    found["slots"] = [0 if actor.role is Role.PREFILL else actor.slots for actor in actors]
    found["kv_tokens"] = [actor.slots * actor.max_context_tokens for actor in actors]
    found["stage"] = last - [len(actor.cut) for actor in actors]
    found["next_stage"] = last
    found["share"] = [max(actor.rate_per_s, _NO_RATE) for actor in actors]
    found["rate"] = rounds.rate
    return found


def _requests(arrivals: Trace, rows: Ints) -> Rows:
    found = np.zeros(arrivals.num_requests, REQUEST)
    found["prompt"] = rows
    found["prompt_tokens"] = arrivals.prompt_tokens
    found["output_tokens"] = arrivals.output_tokens
    found["entry"] = found["decoder"] = found["behind"] = -1
    found["arrival"] = arrivals.arrival_s
    for name in ("wait_prefill", "wait_decode", "first_token", "join", "finish"):
        found[name] = np.nan
    return found


def _windows(costs: Costs) -> tuple[Rows, Ints]:
    """Return the different windows [W], and which one each layer has [L]."""
    whole = np.where(np.isfinite(costs.tables.window), costs.tables.window, _NO_WINDOW)
    tokens, window_of = np.unique(whole.astype(np.int64), return_inverse=True)
    found = np.zeros(len(tokens), WINDOW)
    found["tokens"] = tokens
    return found, window_of.astype(np.int64)


def _rounds(costs: Costs, actors: Sequence[Actor]) -> Tables:
    width = max((a.slots for a in actors if a.role is not Role.PREFILL), default=1)
    micro = np.ones((len(actors), width), np.int64)
    tpot, rate = np.full((len(actors), width), np.inf), np.ones(len(actors))
    for r, actor in enumerate(actors):
        if actor.role is not Role.PREFILL:
            rounds = decode(costs, actor.cut, actor.slots, actor.spilled)
            micro[r, : actor.slots] = rounds.micro_batches
            tpot[r, : actor.slots] = rounds.tpot_s
            rate[r] = _rate(costs, actor, float(rounds.tpot_s[-1]))
    return Tables(micro, tpot, rate)


def _stages(
    costs: Costs, actors: Sequence[Actor], micro: Ints, window_of: Ints
) -> tuple[Rows, Rows, dict[str, Floats]]:
    """Return stages, the groups of their layers, and what both take for n + 1 requests."""
    fixed: list[Floats] = []
    back: list[Floats] = []
    lines: list[_Line] = []
    first: list[int] = []
    for r, actor in enumerate(actors):
        width = 1 if actor.role is Role.PREFILL else actor.slots
        batch = -(-np.arange(1, width + 1) // micro[r, :width])
        hops = np.array([decode_stages(costs, actor.cut, int(b))[1] for b in batch])
        for j in range(len(actor.cut)):
            first.append(len(lines))
            own, around = _stage(costs, actor, j, batch, window_of)
            lines += own
            fixed.append(around + (hops[:, j] if j < len(actor.cut) - 1 else 0.0))
        back.append(hops[:, -1])
    stages, groups = np.zeros(len(first), STAGE), np.zeros(len(lines), GROUP)
    stages["group"], stages["next_group"] = first, [*first[1:], len(lines)]
    groups["window"] = [line.window for line in lines]
    groups["read"] = [line.read_context for line in lines]
    groups["work"] = [line.work_context for line in lines]
    most = micro.shape[1]
    return (
        stages,
        groups,
        {
            "fixed": np.array([_padded(times, most) for times in fixed]),
            "hop_back": np.array([_padded(times, most) for times in back]),
            "read": np.array([_padded(line.read, most) for line in lines]),
            "work": np.array([_padded(line.work, most) for line in lines]),
        },
    )


def _padded(values: Floats, width: int) -> Floats:
    return np.pad(values, (0, width - len(values)), constant_values=np.inf)


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


class _Line(NamedTuple):
    """Layers that are alike: what n + 1 requests take, and a token of their context."""

    read: Floats
    work: Floats
    read_context: float
    work_context: float
    window: int


def _stage(
    costs: Costs, actor: Actor, j: int, batch: Ints, window_of: Ints
) -> tuple[list[_Line], Floats]:
    """Lines of the layers that are alike on stage j, and what it takes beside them and its hop."""
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
            _Line(
                read=count * here / speed,
                work=(count * float(tables.flops[layer]) / compute) * batch.astype(np.float64),
                read_context=count * float(tables.kv[layer]) / speed,
                work_context=count * float(tables.attention[layer]) / compute,
                window=int(window_of[layer]),
            )
        )
    if costs.holds_head(position_of(actor.cut, j)):
        around = around + np.array([costs.head(int(b))[d] for b in batch])
    return lines, around


def _prefilling(
    costs: Costs, actors: Sequence[Actor], prompts: Ints
) -> tuple[Ints, dict[str, Floats]]:
    """Return the chunks of prompts of these lengths, and the times they take."""
    shape = len(actors), len(prompts)
    latency, pause = np.zeros(shape), np.zeros(shape)
    chunk_s: list[Floats] = []
    chunks = np.ones(len(prompts), np.int64)
    runtime = costs.problem.runtime
    is_short = runtime.mixed_pause is MixedPause.OCCUPANCY
    for r, actor in enumerate(actors):
        found = prefill_of_lengths(costs, actor.cut, prompts.astype(np.float64), actor.spilled)
        chunks = found.chunks.astype(np.int64)
        own = ((found.stage_s + found.hop_s) / found.chunks[:, None]).T
        if not runtime.is_pipelined:
            own = np.vstack((own.sum(axis=0), np.zeros((len(own) - 1, len(prompts)))))
        chunk_s += list(own)
        latency[r] = found.latency_s
        uses_occupancy = actor.role is Role.PREFILL or is_short
        pause[r] = found.occupancy_s if uses_occupancy else found.latency_s
    # one stage: both are equal, and rounding must not decide what comes first
    pause = np.where(np.isclose(pause, latency, rtol=1e-12, atol=0.0), latency, pause)
    return chunks, {"chunk_s": np.array(chunk_s), "latency": latency, "pause": pause}


def _transfers(
    costs: Costs, actors: Sequence[Actor], windows: tuple[Rows, Ints]
) -> tuple[Rows, tuple[Ints, Floats], list[Resource]]:
    """Return routes, how long a token of KV cache keeps each link on them busy, and the links."""
    routes = np.zeros((len(actors), len(actors)), ROUTE)
    routes["latency"], routes["share"] = np.inf, 1.0
    rows: dict[Resource, int] = {}
    part_link: list[int] = []
    part_s: list[Floats] = []
    for a, source in enumerate(actors):
        for b, target in enumerate(actors):
            if source.role is not Role.PREFILL or target.role is not Role.DECODE:
                continue
            route = kv_routes(costs, source.cut, target.cut)
            if route is None:
                continue
            busy: dict[int, Floats] = {}
            for layers, link, speed in route.parts:
                own = busy.setdefault(rows.setdefault(link, len(rows)), np.zeros(len(windows[0])))
                for layer in layers:
                    own[windows[1][layer]] += float(costs.tables.kv[layer]) / speed
            at = len(part_link)
            routes[a, b] = (at, at + len(busy), route.latency_s, route.last_share, 1.0, 0.0)
            part_link += busy
            part_s += busy.values()
    per_token = np.array(part_s).reshape(len(part_s), len(windows[0]))
    return routes, (np.array(part_link, np.int64), per_token), list(rows)
