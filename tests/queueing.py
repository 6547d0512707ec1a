"""The queueing formulas of DESIGN section 5 in plain Python: chains summed state by state."""

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
    its occupancy, and then ``scv`` is that of the occupancy.
    """

    tpot_s: Sequence[float]
    pause_s: float = 0.0
    latency_s: float = 0.0
    scv: float = 0.0

    def rate(self, n: int, tokens: float) -> float:
        """Return requests a second with n of them decoding *tokens* each."""
        return n / (n * self.pause_s + tokens * self.tpot_s[n - 1]) if n else 0.0

    def full(self, tokens: float) -> float:
        return self.rate(len(self.tpot_s), tokens)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Means over all requests [s], and each server's share of them."""

    wait: float
    in_slot: float
    shares: list[float]


def fills(servers: Sequence[Server]) -> list[list[int]]:
    """Return how many slots of each server are busy with 0, 1, 2 … requests in slots."""
    busy = [0] * len(servers)
    states = [list(busy)]
    for _ in range(sum(len(server.tpot_s) for server in servers)):
        free = [i for i, server in enumerate(servers) if busy[i] < len(server.tpot_s)]
        busy[min(free, key=lambda i: servers[i].tpot_s[busy[i]])] += 1
        states.append(list(busy))
    return states


def chain(servers: Sequence[Server], tokens: float, arrival: float) -> Figures:
    """Return the birth-death chain of a pool with exponential service, summed state by state."""
    states = fills(servers)
    most = len(states) - 1
    rates = [
        [server.rate(n, tokens) for server, n in zip(servers, state, strict=True)]
        for state in states
    ]
    weight = norm = 1.0
    waiting = active = 0.0
    served = [0.0] * len(servers)
    for n in range(1, _LAST_STATE):
        now = rates[min(n, most)]
        weight *= arrival / sum(now)
        norm += weight
        waiting += max(n - most, 0) * weight
        active += min(n, most) * weight
        served = [total + weight * rate for total, rate in zip(served, now, strict=True)]
        if n > most and weight < 1e-18 * norm:
            break
    total = sum(served)
    return Figures(
        wait=waiting / norm / arrival,
        in_slot=active / norm / arrival,
        shares=[part / total for part in served],
    )


def kimura(wait: float, rho: float, slots: int, scv: float) -> float:
    """Return the wait for lengths of squared cv *scv*, Poisson arrivals."""
    c = slots
    ratio = 0.5 * (1 + (1 - rho) * (c - 1) * (math.sqrt(4 + 5 * c) - 2) / (16 * rho * c))
    ratio = min(ratio, 1.0)
    return wait * (scv + (1 - scv) * ratio) * (1 + scv) / (1 + scv)


def prefill_wait(servers: Sequence[Server], arrival: float) -> float:
    """Return the wait before prefill in a pool of PREFILL replicas."""
    found = chain(servers, 1.0, arrival)
    scv = sum(share * server.scv for share, server in zip(found.shares, servers, strict=True))
    return found.wait * (1 + scv) / 2


def slot_wait(servers: Sequence[Server], tokens: float, arrival: float, scv: float) -> float:
    """Return the wait for a decode slot in a pool of DECODE or MIXED replicas."""
    found = chain(servers, tokens, arrival)
    slots = sum(len(server.tpot_s) for server in servers)
    rho = arrival / sum(server.full(tokens) for server in servers)
    return kimura(found.wait, rho, slots, scv)


def mixed_wait(servers: Sequence[Server], tokens: float, arrival: float, scv: float) -> float:
    """Return the wait in a pool of MIXED replicas: for a slot, then for a running prefill."""
    wait = slot_wait(servers, tokens, arrival, scv)
    shares = chain(servers, tokens, arrival).shares
    for share, server in zip(shares, servers, strict=True):
        mine = share * arrival
        square = server.pause_s**2 * (1 + server.scv)
        wait += share * mine * square / (2 * (1 - mine * server.pause_s))
    return wait


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
