"""Replicas of a plan as arrays for the event loop: step times, prompts, KV transfers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.pipeline import decode, decode_stages, prefill_of_lengths, prefills_of_lengths
from e2llm_opt.cost.roofline import bytes_read, spilled_bytes_read
from e2llm_opt.cost.transfer import kv_routes
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause
from e2llm_opt.simulate.arrays import (
    BLOCK,
    DECODE,
    GROUP,
    LINK,
    MIXED,
    PREFILL,
    QUEUE,
    REPLICA,
    REQUEST,
    ROUTE,
    SHORTEST,
    SLOT,
    STAGE,
    WINDOW,
    Run,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.pipeline import Prompts
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.inventory.network import Resource
    from e2llm_opt.simulate.arrays import Floats, Ints, Rows
    from e2llm_opt.workload.trace import Trace

    Shared = list[tuple[Resource, float]]
    """Links that are busy at the same time, and for how much of the time of the first."""

ROLE_CODES = {Role.PREFILL: PREFILL, Role.DECODE: DECODE, Role.MIXED: MIXED}
_NO_WINDOW = 2**62
NO_RATE = 1e-12


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


class _Decoding(NamedTuple):
    """How one replica of S stages decodes 1 … N requests; N is 1 for PREFILL, which does not."""

    tpot: Floats
    """Round at the mean context [N] [s]."""
    micro: Ints
    """Micro-batches [N]."""
    hop_back: Floats
    """[N] [s]"""
    fixed: list[Floats]
    """Of each stage, what its requests take whatever their context, and its hop [S][N] [s]."""
    lines: list[list[_Line]]
    """Layers of each stage that are alike [S]."""


class _Line(NamedTuple):
    """Layers that are alike: what n + 1 requests take, and a token of their context."""

    read: Floats
    work: Floats
    read_context: float
    work_context: float
    window: int


class Systems:
    """Systems of one problem's replicas, before anything arrives; what they share is made once.

    Parameters
    ----------
    costs
        Of the problem.
    arrivals
        What will arrive.
    """

    def __init__(self, costs: Costs, arrivals: Trace) -> None:
        self._costs = costs
        self._arrivals = arrivals
        self._prompts, self._rows = np.unique(arrivals.prompt_tokens, return_inverse=True)
        self._windows, self._window_of = _windows(costs)
        self._prefills: dict[tuple[Cut, Spilled], Prompts] = {}
        self._decodes: dict[tuple[object, ...], _Decoding] = {}

    def build(
        self,
        actors: Sequence[Actor],
        route_rates: Mapping[tuple[int, int], float] | None = None,
        law: tuple[int, bool] = (SHORTEST, False),
    ) -> tuple[Run, list[Shared]]:
        """Return a run of *actors* that has not begun, and what its links stand for.

        Parameters
        ----------
        actors
            The replicas.
        route_rates
            Planned requests a second from PREFILL to DECODE actors, for the routing ``plan``.
        law
            Routing, and whether rounds take as long as at the mean context.
        """
        costs = self._costs
        stages, groups, tables = _stacked([self._decoding(actor) for actor in actors])
        routes, parts, shared = _transfers(costs, actors, (self._windows, self._window_of))
        for pair, rate in (route_rates or {}).items():
            routes["share"][pair] = max(rate, NO_RATE)
        layerwise = costs.problem.runtime.layerwise_kv
        queues = np.zeros((len(actors), 3), QUEUE)
        queues["head"] = -1
        blocks = -(-len(actors) // BLOCK)
        return Run(
            replicas=_replicas(costs, actors, tables["tpot"]),
            requests=_requests(self._arrivals, self._rows),
            order=np.arange(self._arrivals.num_requests),
            slots=np.zeros(tables["tpot"].shape, SLOT),
            queues=queues,
            stages=stages,
            links=np.zeros(max(len(shared), 1), LINK),
            next_at=np.full(2 * len(actors), np.inf),
            soonest=np.full(blocks * BLOCK, np.inf),
            block_soonest=np.full(blocks, np.inf),
            windows=self._windows.copy(),
            groups=groups,
            **tables,
            **self._prefilling(actors),
            routes=routes,
            part_link=parts[0],
            part_s=parts[1],
            hidden=1 - 1 / costs.problem.model.num_layers if layerwise else 0.0,
            is_mean=law[1],
            routing=law[0],
        ), shared

    def _decoding(self, actor: Actor) -> _Decoding:
        slots = 0 if actor.role is Role.PREFILL else actor.slots
        key = actor.cut, slots, actor.spilled
        if key not in self._decodes:
            self._decodes[key] = _decoding(self._costs, actor, slots, self._window_of)
        return self._decodes[key]

    def _prefilling(self, actors: Sequence[Actor]) -> dict[str, Any]:
        """Return the chunks of all prompts and what they take: fields of :class:`Run`."""
        shape = len(actors), len(self._prompts)
        latency, pause = np.zeros(shape), np.zeros(shape)
        chunk_s: list[Floats] = []
        chunks = np.ones(len(self._prompts), np.int64)
        runtime = self._costs.problem.runtime
        is_short = runtime.mixed_pause is MixedPause.OCCUPANCY
        new = list({(a.cut, a.spilled): None for a in actors}.keys() - self._prefills.keys())
        lengths = self._prompts.astype(np.float64)
        made = prefills_of_lengths(self._costs, new, lengths) if new else []
        self._prefills.update(zip(new, made, strict=True))
        for r, actor in enumerate(actors):
            found = self._prefills[actor.cut, actor.spilled]
            chunks = found.chunks.astype(np.int64)
            own = ((found.stage_s + found.hop_s) / found.chunks[:, None]).T
            if not runtime.is_pipelined:
                own = np.vstack((own.sum(axis=0), np.zeros((len(own) - 1, len(self._prompts)))))
            chunk_s += list(own)
            latency[r] = found.latency_s
            uses_occupancy = actor.role is Role.PREFILL or is_short
            pause[r] = found.occupancy_s if uses_occupancy else found.latency_s
        # one stage: both are equal, and rounding must not decide what comes first
        pause = np.where(np.isclose(pause, latency, rtol=1e-12, atol=0.0), latency, pause)
        return {
            "chunks": chunks,
            "chunk_s": np.ascontiguousarray(np.array(chunk_s).T),
            "latency": np.ascontiguousarray(latency.T),
            "pause": np.ascontiguousarray(pause.T),
        }


def _replicas(costs: Costs, actors: Sequence[Actor], tpot: Floats) -> Rows:
    found = np.zeros(len(actors), REPLICA)
    last = np.cumsum([len(actor.cut) for actor in actors])
    found["role"] = [ROLE_CODES[actor.role] for actor in actors]
    found["face"], found["opened"] = found["role"], -np.inf
    found["slots"] = [0 if actor.role is Role.PREFILL else actor.slots for actor in actors]
    found["kv_tokens"] = [actor.slots * actor.max_context_tokens for actor in actors]
    found["stage"] = last - [len(actor.cut) for actor in actors]
    found["next_stage"] = last
    found["next_round"] = tpot[:, 0]
    found["share"] = [max(actor.rate_per_s, NO_RATE) for actor in actors]
    found["rate"] = [
        1.0 if actor.role is Role.PREFILL else _rate(costs, actor, float(own[actor.slots - 1]))
        for actor, own in zip(actors, tpot, strict=True)
    ]
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


def _decoding(costs: Costs, actor: Actor, slots: int, window_of: Ints) -> _Decoding:
    tpot, micro = np.full(1, np.inf), np.ones(1, np.int64)
    if slots > 0:
        rounds = decode(costs, actor.cut, slots, actor.spilled)
        tpot, micro = rounds.tpot_s, rounds.micro_batches
    batch = -(-np.arange(1, len(micro) + 1) // micro)
    hops = np.array([decode_stages(costs, actor.cut, int(b))[1] for b in batch])
    fixed, lines = [], []
    for j in range(len(actor.cut)):
        own, around = _stage(costs, actor, j, batch, window_of)
        lines.append(own)
        fixed.append(around + (hops[:, j] if j < len(actor.cut) - 1 else 0.0))
    return _Decoding(tpot, micro, hops[:, -1], fixed, lines)


def _stacked(replicas: Sequence[_Decoding]) -> tuple[Rows, Rows, dict[str, Any]]:
    """Return the stages and groups of all replicas, and their tables: fields of :class:`Run`."""
    most = max(len(own.tpot) for own in replicas)
    by_stage = [lines for own in replicas for lines in own.lines]
    lines = [line for own in by_stage for line in own]
    stages, groups = np.zeros(len(by_stage), STAGE), np.zeros(len(lines), GROUP)
    last = np.cumsum([len(own) for own in by_stage])
    stages["group"], stages["next_group"] = last - [len(own) for own in by_stage], last
    groups["window"] = [line.window for line in lines]
    groups["read"] = [line.read_context for line in lines]
    groups["work"] = [line.work_context for line in lines]

    def table(rows: Iterable[Floats]) -> Floats:
        return np.array([_padded(row, most) for row in rows])

    micro = np.array([np.pad(own.micro, (0, most - len(own.micro))) for own in replicas])
    return (
        stages,
        groups,
        {
            "micro": np.maximum(micro, 1),
            "tpot": table(own.tpot for own in replicas),
            "fixed": table(times for own in replicas for times in own.fixed),
            "hop_back": table(own.hop_back for own in replicas),
            "read": table(line.read for line in lines),
            "work": table(line.work for line in lines),
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
    talking = tables.reduce_start[d] + batch * tables.reduce_token[d]
    around = (stop - start) * (tables.layer_overhead[d] + talking)
    for layer, *others in kinds.values():
        count, here = 1 + len(others), read[:, layer]
        if layer in spilled:
            here = here - away[:, layer]
            around = around + count * away[:, layer] / float(tables.host_bandwidth[d])
        lines.append(
            _Line(
                read=count * here / speed,
                work=(count * float(tables.flops[layer]) / compute) * batch.astype(np.float64),
                read_context=count * float(tables.kv[layer] * tables.kv_copies[d]) / speed,
                work_context=count * float(tables.attention[layer]) / compute,
                window=int(window_of[layer]),
            )
        )
    if costs.holds_head(position_of(actor.cut, j)):
        around = around + np.array([costs.head(int(b))[d] for b in batch])
    return lines, around


def _transfers(
    costs: Costs, actors: Sequence[Actor], windows: tuple[Rows, Ints]
) -> tuple[Rows, tuple[Ints, Floats], list[Shared]]:
    """Return routes, how long a token of KV cache keeps each link on them busy, and the links."""
    routes = np.zeros((len(actors), len(actors)), ROUTE)
    routes["latency"], routes["share"] = np.inf, 1.0
    busy: dict[Resource, dict[tuple[int, int], Floats]] = {}
    for a, source in enumerate(actors):
        for b, target in enumerate(actors):
            if source.role is not Role.PREFILL or target.role is not Role.DECODE:
                continue
            route = kv_routes(costs, source.cut, target.cut)
            if route is None:
                continue
            routes["latency"][a, b], routes["last"][a, b] = route.latency_s, route.last_share
            for layers, link, speed in route.parts:
                own = busy.setdefault(link, {}).setdefault((a, b), np.zeros(len(windows[0])))
                for layer in layers:
                    own[windows[1][layer]] += float(costs.tables.kv[layer]) / speed
    shared = _shared(busy)
    parts: dict[tuple[int, int], list[tuple[int, Floats]]] = {}
    for x, links in enumerate(shared):
        for pair, own in busy[links[0][0]].items():
            parts.setdefault(pair, []).append((x, own))
    at = 0
    for pair, found in parts.items():
        routes["part"][pair], routes["next_part"][pair] = at, at + len(found)
        at += len(found)
    every = [part for found in parts.values() for part in found]
    per_token = np.array([own for _, own in every]).reshape(at, len(windows[0]))
    return routes, (np.array([x for x, _ in every], np.int64), per_token), shared


def _shared(busy: Mapping[Resource, Mapping[tuple[int, int], Floats]]) -> list[Shared]:
    """Put links together that the same transfers cross, each a fixed share of the time.

    Only the slowest of them can ever be waited for: a host's link to a switch and its card, say.
    """
    found: dict[tuple[tuple[int, int], ...], list[Shared]] = {}
    for link in sorted(busy, key=lambda x: -sum(own.sum() for own in busy[x].values())):
        times = np.concatenate([*busy[link].values()])
        alike = found.setdefault(tuple(busy[link]), [])
        for links in alike:
            slowest = np.concatenate([*busy[links[0][0]].values()])
            share = float(times.sum() / slowest.sum()) if slowest.sum() > 0 else 1.0
            if np.allclose(times, share * slowest, rtol=1e-12, atol=0.0):
                links.append((link, share))
                break
        else:
            alike.append([(link, 1.0)])
    return [links for alike in found.values() for links in alike]
