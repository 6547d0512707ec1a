"""How busy replicas, devices and links were in a simulation, and how long their queues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.pipeline import decode, decode_stages, prefill_of_lengths
from e2llm_opt.cost.transfer import decode_loads, kv_routes, prefill_loads
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.inventory.network import Resource
    from e2llm_opt.simulate.simulate import Simulation
    from e2llm_opt.simulate.system import Actor

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaUse:
    """One replica; ``utilisation`` counts slots where it decodes.

    ``mean_queue``: requests that wait, for its prefill, a slot or the end of a round.
    """

    id: str
    role: str
    requests: int
    utilisation: float
    mean_queue: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One device; ``utilisation`` is the share of the time for which its stage computes.

    ``mean_queue`` is that of the replica it belongs to.
    """

    device: str
    replica: str
    utilisation: float
    mean_queue: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkUse:
    """One link, network card or bus in one direction, KV caches and activations together.

    ``mean_queue``: KV transfers that cross it and are under way or wait.
    """

    kind: str
    name: str
    direction: str
    utilisation: float
    mean_queue: float


class Usage(NamedTuple):
    """Of all of them; the means are over the whole simulation."""

    replicas: tuple[ReplicaUse, ...]
    devices: tuple[DeviceUse, ...]
    links: tuple[LinkUse, ...]


class _Batches(NamedTuple):
    """How one replica decoded."""

    rounds: Floats
    """Rounds with n + 1 requests [N]."""
    micro_batches: NDArray[np.int64]
    """[N]"""
    mean: float
    """Mean number of requests in a round."""


def usage_of(costs: Costs, actors: Sequence[Actor], simulation: Simulation) -> Usage:
    """Return how busy everything was, from what became of the requests.

    Notes
    -----
    Prefills are summed exactly. Of decoding, requests tell how long each batch size lasted, and the
    cost model how long a stage works in a round of so many at the mean context; rounds are scaled
    so that they yield the tokens that were decoded. Queues follow from waits by Little's law.
    """
    batches = [_batches(costs, actor, simulation, r) for r, actor in enumerate(actors)]
    queues = [_queue(simulation, r) for r in range(len(actors))]
    replicas = tuple(
        ReplicaUse(
            id=simulation.names[r],
            role=str(actor.role),
            requests=int(_own(simulation, r).sum()),
            utilisation=simulation.busy[r],
            mean_queue=queues[r],
        )
        for r, actor in enumerate(actors)
    )
    devices = tuple(
        DeviceUse(
            device=name,
            replica=simulation.names[r],
            utilisation=float(busy) / simulation.span_s,
            mean_queue=queues[r],
        )
        for r, actor in enumerate(actors)
        for j, busy in enumerate(_stage_seconds(costs, actor, simulation, r, batches[r]))
        for name in costs.names(actor.cut[j][0])
    )
    return Usage(replicas, devices, _links(costs, actors, simulation, batches))


def _own(simulation: Simulation, r: int) -> NDArray[np.bool_]:
    """Return the requests that replica *r* did something for [n]."""
    own: NDArray[np.bool_] = (simulation.entry == r) | (simulation.decoder == r)
    return own


def _queue(simulation: Simulation, r: int) -> float:
    """Return how many requests waited at replica *r* on average."""
    own = simulation.entry == r
    lost = simulation.came_s[own] - simulation.arrivals.arrival_s[own]
    before = float((simulation.wait_prefill_s[own] - lost).sum())
    after = float(simulation.wait_decode_s[simulation.decoder == r].sum())
    return (before + after) / simulation.span_s


def _batches(costs: Costs, actor: Actor, simulation: Simulation, r: int) -> _Batches:
    own = simulation.decoder == r
    if actor.role is Role.PREFILL or not own.any():
        return _Batches(np.zeros(1), np.ones(1, np.int64), 1.0)
    tokens = simulation.arrivals.output_tokens[own]
    finish = simulation.finish_s[own]
    pauses = None
    if actor.role is Role.MIXED:
        begin = simulation.arrivals.arrival_s[own] + simulation.wait_prefill_s[own]
        pauses = begin, begin + _pauses(costs, actor, simulation.arrivals.prompt_tokens[own])
    seconds = batch_seconds(simulation.join_s[own], finish, slots=actor.slots, pauses=pauses)
    law = decode(costs, actor.cut, actor.slots, actor.spilled)
    rounds = seconds / law.tpot_s
    sizes = np.arange(1, actor.slots + 1)
    produced = float((rounds * sizes).sum())
    rounds *= float(tokens.sum()) / produced if produced > 0 else 0.0
    mean = float((rounds * sizes).sum() / rounds.sum()) if rounds.sum() > 0 else 1.0
    return _Batches(rounds, law.micro_batches, mean)


def batch_seconds(
    join: Floats, finish: Floats, *, slots: int, pauses: tuple[Floats, Floats] | None = None
) -> Floats:
    """Return how long 1 … *slots* requests decoded at once [slots] [s].

    Parameters
    ----------
    join, finish
        Between which each request decodes [n] [s].
    slots
        Most at once.
    pauses
        Begins and ends of the times in which nothing decodes [n] [s].
    """
    begin, end = pauses if pauses is not None else (join[:0], join[:0])
    times = np.concatenate([join, finish, begin, end])
    change = np.zeros((2, len(times)), dtype=np.int8)
    n, m = len(join), len(begin)
    change[0, :n], change[0, n : 2 * n] = 1, -1
    change[1, 2 * n : 2 * n + m], change[1, 2 * n + m :] = 1, -1
    order = np.argsort(times, kind="stable")
    lasted = np.diff(times[order])
    busy = np.cumsum(change[0, order[:-1]], dtype=np.int32)
    paused = np.cumsum(change[1, order[:-1]], dtype=np.int32)
    lasted[paused > 0] = 0.0
    counts = np.bincount(np.clip(busy, 0, slots), weights=lasted, minlength=slots + 1)
    return counts[1:].astype(np.float64)


def _pauses(costs: Costs, actor: Actor, prompts: NDArray[np.int64]) -> Floats:
    """Return for how long decoding stops for each prompt [n] [s]."""
    lengths, row = np.unique(prompts, return_inverse=True)
    found = prefill_of_lengths(costs, actor.cut, lengths.astype(np.float64), actor.spilled)
    is_short = costs.problem.runtime.mixed_pause is MixedPause.OCCUPANCY
    return (found.occupancy_s if is_short else found.latency_s)[row]


def _stage_seconds(
    costs: Costs, actor: Actor, simulation: Simulation, r: int, batches: _Batches
) -> Floats:
    """Return how long each stage of replica *r* computed [S] [s]."""
    busy = np.zeros(len(actor.cut))
    prompts = simulation.arrivals.prompt_tokens[simulation.entry == r]
    if len(prompts):
        lengths, counts = np.unique(prompts, return_counts=True)
        found = prefill_of_lengths(costs, actor.cut, lengths.astype(np.float64), actor.spilled)
        busy += counts @ found.stage_s
    stages: dict[int, Floats] = {}
    for n in np.flatnonzero(batches.rounds).tolist():
        m = int(batches.micro_batches[n])
        batch = -(-(n + 1) // m)
        if batch not in stages:
            stages[batch] = decode_stages(costs, actor.cut, batch, actor.spilled)[0]
        busy += batches.rounds[n] * m * stages[batch]
    return busy


def _links(
    costs: Costs, actors: Sequence[Actor], simulation: Simulation, batches: Sequence[_Batches]
) -> tuple[LinkUse, ...]:
    seconds = {x: share * simulation.span_s for x, share in simulation.links.items()}
    queues: dict[Resource, float] = {}
    for r, actor in enumerate(actors):
        for x, num_bytes in _activations(costs, actor, simulation, r, batches[r]).items():
            seconds[x] = seconds.get(x, 0.0) + num_bytes / costs.network.capacity[x]
    for (a, b), waited in _transfers(simulation).items():
        route = kv_routes(costs, actors[a].cut, actors[b].cut)
        for x in {x for _, x, _ in route.parts} if route is not None else ():
            queues[x] = queues.get(x, 0.0) + waited
    return tuple(
        LinkUse(
            kind=x[0],
            name=_name(costs, x),
            direction=x[2],
            utilisation=seconds[x] / simulation.span_s,
            mean_queue=queues.get(x, 0.0) / simulation.span_s,
        )
        for x in sorted(seconds, key=lambda x: (-seconds[x], x))
        if seconds[x] > 0
    )


def _activations(
    costs: Costs, actor: Actor, simulation: Simulation, r: int, batches: _Batches
) -> dict[Resource, float]:
    """Return the bytes that replica *r* put on each link and card beside KV caches."""
    arrivals, found = simulation.arrivals, dict[tuple[str, str, str], float]()
    batch = max(round(batches.mean / float(batches.micro_batches[-1])), 1)
    prompts = float(arrivals.prompt_tokens[simulation.entry == r].sum()) / costs.prompt_tokens
    answers = float(arrivals.output_tokens[simulation.decoder == r].sum()) / costs.output_tokens
    for loads, times in (
        (prefill_loads(costs, actor.cut), prompts),
        (decode_loads(costs, actor.cut, batch), answers),
    ):
        for x, num_bytes in loads.items():
            found[x] = found.get(x, 0.0) + times * num_bytes
    return found


def _transfers(simulation: Simulation) -> dict[tuple[int, int], float]:
    """Return the time that KV transfers took, those that waited included, by route [s]."""
    moved = (simulation.decoder >= 0) & (simulation.decoder != simulation.entry)
    pairs = np.stack([simulation.entry[moved], simulation.decoder[moved]], axis=1)
    found, row = np.unique(pairs, axis=0, return_inverse=True)
    waited = np.bincount(row.ravel(), weights=simulation.wait_kv_s[moved], minlength=len(found))
    return {(a, b): w for (a, b), w in zip(found.tolist(), waited.tolist(), strict=True)}


def _name(costs: Costs, resource: Resource) -> str:
    """Return ``tower - lan (ethernet)`` for a link; a card or bus has its name already."""
    if resource[0] != "link":
        return resource[1]
    link = costs.problem.inventory.links[int(resource[1])]
    return " - ".join(link.ends) + (f" ({link.interface})" if link.interface else "")
