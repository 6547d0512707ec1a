"""The queueing formulas of docs/cost-model.md in plain Python: chains summed state by state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAST_STATE = 100_000


@dataclass(frozen=True, kw_only=True)
class Server:
    """One replica in its role.

    ``tpot_s`` has one round a number of requests; a PREFILL replica is one slot whose round is
    its occupancy, and then ``scv`` is that of the occupancy. ``busy_s`` is the mean occupancy or
    pause over the prompt lengths where that is not the one of a mean prompt.
    """

    tpot_s: Sequence[float]
    pause_s: float = 0.0
    latency_s: float = 0.0
    scv: float = 0.0
    busy_s: float | None = None
    behind_s: float = 0.0
    usable: Sequence[float] = ()

    @property
    def mean_pause_s(self) -> float:
        return self.pause_s if self.busy_s is None else self.busy_s

    def rate(self, n: int, tokens: float) -> float:
        """Return requests a second with n of them decoding *tokens* each."""
        return n / (n * self.pause_s + tokens * self.tpot_s[n - 1]) if n else 0.0

    def full(self, tokens: float) -> float:
        return self.rate(len(self.tpot_s), tokens)


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One slot in the order in which a router fills them.

    ``of``: its server; ``step``: what it adds to the rate [1/s]; ``half_s``: half of the round that
    runs there; ``blocked``: share of the time that memory has no room for it.
    """

    of: int
    step: float
    half_s: float = 0.0
    blocked: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Chain:
    """Means over all requests [s], each server's share of them, and P(N) of fewer than c."""

    wait: float
    in_slot: float
    shares: list[float]
    states: list[float]

    @property
    def full(self) -> float:
        """Probability that all slots are taken."""
        return 1.0 - sum(self.states)


def rungs(
    servers: Sequence[Server],
    tokens: float,
    *,
    far: Sequence[float] = (),
    most: float = math.inf,
    is_mixed: Sequence[bool] = (),
) -> list[Rung]:
    """Return the slots as a router fills them: nearest first, then the one that is fastest next."""
    far = far or [0.0] * len(servers)
    busy = [0] * len(servers)
    found: list[Rung] = []

    def rate(i: int, n: int) -> float:
        if n == 0:
            return 0.0
        server, pause, more = servers[i], 0.0, 0.0
        if is_mixed and is_mixed[i]:
            pause, more = server.mean_pause_s, max(server.latency_s - server.pause_s, 0.0)
        return n / (n * pause + more + tokens * server.tpot_s[n - 1])

    room = most
    for _ in range(sum(len(server.tpot_s) for server in servers)):
        free = [i for i, server in enumerate(servers) if busy[i] < len(server.tpot_s)]
        nearest = min(far[i] for i in free)
        near = [i for i in free if far[i] <= nearest + 1e-9]
        i = min(near, key=lambda i: servers[i].tpot_s[busy[i]])
        n = busy[i]
        usable = servers[i].usable[n] if servers[i].usable else 1.0
        step = (rate(i, n + 1) - rate(i, n)) * usable
        if far[i] > 0:
            step = min(step, room)
            room -= step
        half = servers[i].tpot_s[n - 1] / 2 if n else 0.0
        found.append(Rung(of=i, step=step, half_s=half, blocked=1 - usable))
        busy[i] += 1
    return found


def chain(
    slots: Sequence[Rung],
    num: int,
    arrival: float,
    peak: float = 1.0,
    nominal: float = math.inf,
    *,
    ceiling: float = math.inf,
) -> Chain:
    """Return the birth-death chain of slots of *num* servers, summed state by state.

    Of the idle rate that a pool nominally has at least a quarter is left when all slots are taken;
    more than *ceiling* is never taken of it.
    """
    most = len(slots)
    rates, blocked, total, held = [], [], 0.0, 0.0
    for rung in slots:
        total, held = total + rung.step, held + rung.blocked
        rates.append(total)
        blocked.append(held)
    weights = [1.0]
    full = min(arrival / rates[-1], ceiling)
    if nominal < math.inf:
        full = min(full, 1 - 0.25 * (1 - arrival / nominal))
    for n in range(1, _LAST_STATE):
        ratio = full if n > most else (arrival / rates[n - 1]) ** (1 / peak)
        weights.append(weights[-1] * ratio)
        if n > most and weights[-1] < 1e-18 * weights[n // 2]:
            break
    norm = sum(weights)
    waiting = active = 0.0
    served = [0.0] * num
    for n, weight in enumerate(weights):
        inside = min(n, most)
        lost = blocked[inside - 1] if inside else 0.0
        waiting += (n - inside + lost) * weight
        active += (inside - lost) * weight
        for rung in slots[:inside]:
            served[rung.of] += rung.step * weight
    return Chain(
        wait=waiting / norm / arrival,
        in_slot=active / norm / arrival,
        shares=[part / sum(served) for part in served],
        states=[weight / norm for weight in weights[:most]],
    )


def kimura(wait: float, rho: float, slots: int, scv: float) -> float:
    """Return the wait for lengths of squared cv *scv*, Poisson arrivals."""
    c = slots
    ratio = 0.5 * (1 + (1 - rho) * (c - 1) * (math.sqrt(4 + 5 * c) - 2) / (16 * rho * c))
    ratio = min(ratio, 1.0)
    return wait * (scv + (1 - scv) * ratio) * (1 + scv) / (1 + scv)


def general_arrivals(wait: float, ca2: float, scv: float) -> float:
    """Return the wait of arrivals with that squared cv, from that of Poisson ones."""
    return wait * (ca2 + scv) / (1 + scv)


def batch_peakedness(busy: float, scv: float, shorter: float) -> float:
    """Return the variance of the requests in slots with batches, over the one in the chain.

    A prefill busy period, M/G/1 with load *busy*, lets a batch of K go: E[K²] / E[K] follows from
    the branching of busy periods. Infinitely many slots hold 1 + (E[K²]/E[K] - 1) θ times as much
    variance as mean, θ = *shorter*; the chain 1 / (1 - busy).
    """
    mean = 1 / (1 - busy)
    square = mean**2 + busy * (1 + scv) * mean**3
    return (1 + (square / mean - 1) * shorter) / mean


def departures(busy: float, scv: float, servers_rate: float, stay_s: float) -> float:
    """Return ca² behind a prefill pool, as far as slots held for *stay_s* see it."""
    lag = busy / servers_rate * (1 + scv) / (1 - busy) ** 2
    return 1 - busy**2 * max(1 - scv, 0) * lag / (lag + stay_s)


def overflow(slots: int, erlangs: float) -> float:
    """Return ca² of what *slots* do not take (Hayward; Erlang's loss formula)."""
    terms = [erlangs**n / math.factorial(n) for n in range(slots + 1)]
    over = erlangs * terms[-1] / sum(terms)
    peak = 1 - over + erlangs / (slots + 1 + over - erlangs)
    return 2 * max(peak, 1) - 1


def all_prefilling(servers: Sequence[Server], arrival: float) -> tuple[float, float]:
    """Return the wait until one of some MIXED replicas can prefill, and P(none can).

    Above a utilisation of 0.95 no wait grows.
    """
    slots = [Rung(of=i, step=1 / server.mean_pause_s) for i, server in enumerate(servers)]
    found = chain(slots, len(servers), arrival, ceiling=0.95)
    scv = sum(server.scv for server in servers) / len(servers)
    most = sum(rung.step for rung in slots)
    rho = min(arrival / most, 0.95)
    return kimura(found.wait * arrival / (rho * most), rho, len(servers), scv), found.full


def erlang_c_wait(servers: int, service_s: float, arrival: float) -> float:
    """Return the mean wait of M/M/c (Erlang C)."""
    load = arrival * service_s
    idle = sum(load**n / math.factorial(n) for n in range(servers))
    all_busy = load**servers / math.factorial(servers) / (1 - load / servers)
    return all_busy / (idle + all_busy) / (servers / service_s - arrival)


def pollaczek_khinchine(service_s: float, scv: float, arrival: float) -> float:
    """Return the mean wait of M/G/1."""
    rho = arrival * service_s
    return rho / (1 - rho) * service_s * (1 + scv) / 2
