"""What a plan's replicas are predicted to do, put together from :mod:`tests.queueing`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.queueing import (
    all_prefilling,
    batch_peakedness,
    chain,
    departures,
    general_arrivals,
    kimura,
    overflow,
    rungs,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.cost.kernel import Floats
    from tests.queueing import Chain, Rung, Server


@dataclass(frozen=True, kw_only=True)
class Team:
    """Replicas in their roles, and the load: all that a prediction needs.

    ``transfer`` [PREFILL, DECODE] [s]; ``shorter``: the mean of the shorter of two outputs over the
    mean output.
    """

    first: Sequence[Server]
    second: Sequence[Server]
    both: Sequence[Server]
    transfer: Floats
    tokens: float
    arrival: float
    scv: float
    shorter: float

    @property
    def pairs(self) -> float:
        prefill = sum(server.full(1.0) for server in self.first)
        return min(prefill, sum(server.full(self.tokens) for server in self.second))

    @property
    def capacity(self) -> float:
        return self.pairs + sum(server.full(self.tokens) for server in self.both)

    @property
    def slots_rate(self) -> float:
        """Requests a second that all slots serve: MIXED ones and, behind their prefill, others."""
        if self.both:
            return self.capacity
        return sum(server.full(self.tokens) for server in self.second)

    @property
    def slots(self) -> list[Rung]:
        """Slots of DECODE, then of MIXED replicas, as they are filled."""
        everyone = [*self.second, *self.both]
        far = [max(float(self.transfer[:, q].max()), 1e-300) for q in range(len(self.second))]
        return rungs(
            everyone,
            self.tokens,
            far=far + [0.0] * len(self.both),
            most=sum(server.full(1.0) for server in self.first) if self.both else math.inf,
            is_mixed=[False] * len(self.second) + [True] * len(self.both),
        )


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """Means [s], and requests a second of each replica, in the order of roles."""

    waiting: float
    ttft: float
    tpot: float
    latency: float
    unloaded: float
    rates: list[float]


def predicted(team: Team) -> Predicted:
    """Return what docs/cost-model.md says of *team* below its capacity."""
    arrival, num = team.arrival, len(team.second)
    slots = team.slots
    found = chain(slots, num + len(team.both), arrival, 1.0, team.slots_rate)
    peak, scv, ca2 = _variability(team, *_possible(team, found.shares[:num], found.shares[num:]))
    found = chain(slots, num + len(team.both), arrival, peak, team.slots_rate)
    wait = kimura(found.wait, arrival / team.slots_rate, len(slots), scv)
    wait = general_arrivals(wait, ca2, scv)
    second, both = _possible(team, found.shares[:num], found.shares[num:])
    before, after = _running(team, slots, found, [arrival * share for share in both])
    apart, queue, moving, link = sum(second), 0.0, 0.0, 0.0
    first = [0.0] * len(team.first)
    if apart > 0:
        queue, first = _prefilling(team, apart * arrival)
        parts = coupling([apart * share for share in first], second, team.transfer)
        moving, link = float((parts * team.transfer).sum()), _meeting(team, parts, found.full)
    latency = sum(apart * f * server.latency_s for f, server in zip(first, team.first, strict=True))
    pause = alone = 0.0
    for share, server in zip(both, team.both, strict=True):
        latency += share * server.latency_s
        pause += share * (server.mean_pause_s + max(server.latency_s - server.pause_s, 0.0))
        alone += share * team.tokens * server.tpot_s[0]
    for share, server in zip(second, team.second, strict=True):
        alone += share * team.tokens * server.tpot_s[0]
    waiting = wait + before + after + apart * queue + moving + link
    decoding = found.in_slot - pause
    return Predicted(
        waiting=waiting,
        ttft=(1 - apart) * wait + before + apart * queue + latency,
        tpot=decoding / team.tokens,
        latency=waiting + latency + decoding,
        unloaded=latency + moving + alone,
        rates=[arrival * x for x in [*(apart * f for f in first), *second, *both]],
    )


def _possible(
    team: Team, second: list[float], both: list[float]
) -> tuple[list[float], list[float]]:
    """Return the shares with a quarter of the idle rate left to DECODE, prefill and MIXED."""
    if not second or not both:
        return second, both
    mixed = sum(server.full(team.tokens) for server in team.both)
    busiest = 1 - 0.25 * (1 - team.arrival / (team.pairs + mixed))
    away = max(
        min(sum(second), busiest * team.pairs / team.arrival),
        1 - busiest * mixed / team.arrival,
    )
    if sum(second) == 0:
        second = [server.full(team.tokens) for server in team.second]
    if sum(both) == 0:
        both = [server.full(team.tokens) for server in team.both]
    stay = 1 - away
    return [away * x / sum(second) for x in second], [stay * x / sum(both) for x in both]


def coupling(out: Sequence[float], into: Sequence[float], transfer: Floats) -> Floats:
    """Return the traffic of each pair: the nearest take as much as both have."""
    parts = np.zeros(transfer.shape)
    out, into = list(out), list(into)
    for at in np.argsort(transfer, axis=None, kind="stable"):
        r, q = np.unravel_index(at, transfer.shape)
        parts[r, q] = min(out[r], into[q])
        out[r] -= parts[r, q]
        into[q] -= parts[r, q]
    return parts


def _variability(
    team: Team, second: Sequence[float], both: Sequence[float]
) -> tuple[float, float, float]:
    peak, work, ca2 = 0.0, 0.0, 0.0
    if second:
        share = sum(second)
        prefill = sum(server.full(1.0) for server in team.first)
        decode = sum(server.full(team.tokens) for server in team.second)
        scv = sum(server.full(1.0) / prefill * server.scv for server in team.first)
        stay = sum(len(server.tpot_s) for server in team.second) / decode
        smooth = departures(min(team.arrival * share / prefill, 0.95), scv, prefill, stay)
        peak, work, ca2 = share * smooth, share * team.scv, share * smooth
    for share, server in zip(both, team.both, strict=True):
        part = server.full(team.tokens) * server.pause_s
        busy = min(team.arrival * share * server.mean_pause_s, 0.95)
        peak += share * batch_peakedness(busy, server.scv, team.shorter)
        work += share * (part**2 * server.scv + (1 - part) ** 2 * team.scv)
        ca2 += share
    return peak, work, ca2


def _running(
    team: Team, slots: Sequence[Rung], found: Chain, rates: Sequence[float]
) -> tuple[float, float]:
    """Return what waits where a slot is free: before prefill, and before decoding."""
    before = after = 0.0
    num = len(team.second)
    for n, (rung, probability) in enumerate(zip(slots, found.states, strict=True)):
        if rung.of < num:
            after += probability * rung.half_s
            continue
        free: list[int] = []  # those that still have a slot, the one that fills up first in front
        for later in slots[n:][::-1]:
            is_asked = later.of >= num and rates[later.of - num] >= 1e-6 * team.arrival
            if is_asked and later.of not in free:
                free.insert(0, later.of)
        servers = [team.both[i - num] for i in free]
        rate = sum(rates[i - num] for i in free)
        wait, none = all_prefilling(servers, rate) if servers else (0.0, 0.0)
        before += probability * (wait + (1 - none) * rung.half_s)
        server = team.both[rung.of - num]
        if server.latency_s > server.pause_s * (1 + 1e-9):
            busy = min(rates[rung.of - num] * server.mean_pause_s, 0.95)
            rest = server.mean_pause_s * (1 + server.scv) / 2
            after += probability * ((1 - busy) * rung.half_s + busy * rest)
    return before, after


def _prefilling(team: Team, arrival: float) -> tuple[float, list[float]]:
    """Return the wait for prefill, and the share of each PREFILL replica."""
    far = [float(team.transfer[r].min()) for r in range(len(team.first))]
    slots = rungs(team.first, 1.0, far=far)
    slots = [
        type(rung)(of=rung.of, step=1 / (team.first[rung.of].busy_s or 1 / rung.step))
        for rung in slots
    ]
    nominal = sum(server.full(1.0) for server in team.first)
    found = chain(slots, len(team.first), arrival, nominal=nominal)
    scv = sum(f * server.scv for f, server in zip(found.shares, team.first, strict=True))
    behind = sum(f * server.behind_s for f, server in zip(found.shares, team.first, strict=True))
    rho = arrival / nominal
    ca2 = 1.0
    if team.both:
        num = sum(len(server.tpot_s) for server in team.both)
        rate = sum(server.full(team.tokens) for server in team.both)
        ca2 = overflow(num, team.arrival * num / rate)
    wait = general_arrivals(kimura(found.wait, rho, len(slots), scv), ca2, scv)
    return wait + found.full * behind, found.shares


def _meeting(team: Team, parts: Floats, full: float) -> float:
    """Return the mean wait of a KV transfer for others to the same decoder."""
    used = [q for q in range(parts.shape[1]) if parts[:, q].sum() > 1e-12]
    busy = {q: min(team.arrival * float(parts[:, q] @ team.transfer[:, q]), 0.95) for q in used}
    everywhere = float(np.prod(list(busy.values())))
    total = 0.0
    for q in used:
        taken = full * busy[q] + (1 - full) * everywhere
        for r, server in enumerate(team.first):
            one = float(team.transfer[r, q])
            wait = taken * one * (1 + server.scv) / 2 / (1 - busy[q])
            total += float(parts[r, q]) * wait
    return total
