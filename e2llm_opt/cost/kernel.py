"""Pooled queueing: waiting time, latency and traffic of replicas in given roles (DESIGN section 5).

All replicas of a role are one pool. State N of a pool's birth-death chain has N requests; slots
fill in the order a router would choose (lowest next TPOT first), and the chain leaves state N at

    mu[N] = sum over replicas of n_i / (pause_i n_i + output tpot_i(n_i))

(pause 0 in a DECODE pool; a PREFILL replica is one slot of rate 1 / occupancy). Requests beyond
the c slots wait. Index contract: R replicas, N slots of the replica that has most.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from e2llm_opt.cost.pools import Ladder, Pool

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

UNUSED, PREFILL, DECODE, MIXED = 0, 1, 2, 3
CAPACITY, WAITING, TTFT, TPOT, LATENCY, UNLOADED = 0, 1, 2, 3, 4, 5
_SPLIT_STEPS = 12
_RATIO = 0.6180339887498949  # golden section
_STARTS = 4
"""Ends and inner points of the golden-section search."""
_MUCH_FASTER, _SPARE = 4.0, 30
"""A pool so many times faster than the load needs no more than so many further slots."""
_NEGLIGIBLE = 1e-18
"""Probability of a state, relative to all, after which a chain may end."""
_TOO_LARGE = 1e200
"""Probabilities are scaled down above this, before they overflow."""


@njit(cache=True, error_model="numpy")
def _fill(slots: Ints, tpot: Floats, pause: Floats, load: Floats, far: Floats) -> Ladder:
    """Fill slots, the one with the lowest next TPOT first; of equals, the one least *far* away.

    Ends early where the pool is so much faster than *load* (arrival rate, tokens a request) that
    further slots are never used: each state then has at most a quarter of the probability before.
    """
    num, total, most = len(slots), 0, 0.0
    full = np.zeros(num)
    for r in range(num):
        total += slots[r]
        if slots[r] > 0:
            full[r] = slots[r] / (slots[r] * pause[r] + load[1] * tpot[r, slots[r] - 1])
            most += full[r]
    who, step, rate = np.empty(total, np.int64), np.empty(total), np.empty(total)
    used, now = np.zeros(num, np.int64), np.zeros(num)
    busy, spare, n = 0.0, 0, 0
    while n < total and spare < _SPARE:
        best, lowest = -1, np.inf
        for r in range(num):
            if used[r] == slots[r]:
                continue
            next_s = tpot[r, used[r]]
            if best < 0 or next_s < lowest or (next_s == lowest and far[r] < far[best]):
                best, lowest = r, next_s
        used[best] += 1
        faster = used[best] / (used[best] * pause[best] + load[1] * lowest)
        who[n], step[n] = best, faster - now[best]
        busy += step[n]
        now[best], rate[n] = faster, busy
        spare = spare + 1 if busy > _MUCH_FASTER * load[0] else 0
        n += 1
    return Ladder(who[:n], step[:n], rate[:n], full, most, total)


@njit(cache=True, error_model="numpy")
def _chain(ladder: Ladder, arrival: float) -> tuple[float, float, Floats]:
    """Return mean wait [s], mean requests in slots, and each replica's share of the traffic [R].

    p[N] = p[N-1] · λ / mu[N]; beyond the c slots the tail is geometric with ρ = λ / mu[c], so
    the mean number waiting is p[c] ρ / (1 - ρ)².
    """
    most = len(ladder.rate)
    rho = arrival / ladder.rate[most - 1] if most == ladder.num_slots else 0.0
    mass = np.empty(most)
    weight, norm, active, n = 1.0, 1.0, 0.0, 0
    while n < most and (weight > _NEGLIGIBLE * norm or ladder.rate[n] < arrival):
        weight *= arrival / ladder.rate[n]
        mass[n] = weight if n < most - 1 else weight / (1.0 - rho)
        norm += mass[n]
        active += (n + 1) * mass[n]
        if weight > _TOO_LARGE:
            weight, norm, active = weight / _TOO_LARGE, norm / _TOO_LARGE, active / _TOO_LARGE
            for i in range(n + 1):
                mass[i] /= _TOO_LARGE
        n += 1
    waiting = weight / norm * rho / (1.0 - rho) ** 2 if n == most else 0.0
    shares = np.zeros(len(ladder.full))
    tail = 0.0
    for i in range(n - 1, -1, -1):
        tail += mass[i]
        shares[ladder.who[i]] += ladder.step[i] * tail
    total = 0.0
    for r in range(len(shares)):
        shares[r] = max(shares[r], 0.0)
        total += shares[r]
    for r in range(len(shares)):
        shares[r] /= total
    return waiting / arrival, active / norm, shares


@njit(cache=True, error_model="numpy")
def _kimura(wait: float, rho: float, slots: int, scv: float) -> float:
    """Return the wait for lengths of squared cv *scv* from that of exponential ones.

    W · [cs² + (1 - cs²) D] · (ca² + cs²) / (1 + cs²) with Poisson arrivals, ca² = 1; D is the
    Cosmetatos ratio of M/D/c to M/M/c, cut at 1.
    """
    c = float(slots)
    spread = (1.0 - rho) * (c - 1.0) * (np.sqrt(4.0 + 5.0 * c) - 2.0) / (16.0 * rho * c)
    ratio = min(1.0, 0.5 * (1.0 + spread))
    return wait * (scv + (1.0 - scv) * ratio)


@njit(cache=True, error_model="numpy")
def _disaggregated(
    p: Pool, servers: Ladder, slots: Ladder, arrival: float
) -> tuple[Floats, Floats]:
    """Return (wait, TTFT, TPOT, latency, unloaded latency) and the replicas' rates [R]."""
    output, scv = p.load[1], p.load[2]
    wait, _, first = _chain(servers, arrival)
    queue, active, second = _chain(slots, arrival)
    queue = _kimura(queue, arrival / slots.total, slots.num_slots, scv)
    moving, latency, alone, spread = 0.0, 0.0, 0.0, 0.0
    for r in range(len(first)):
        if first[r] > 0:
            spread += first[r] * p.prefill_scv[r]
            latency += first[r] * p.prefill_latency[r]
        if second[r] > 0:
            alone += second[r] * output * p.decode_tpot[r, 0]
        for q in range(len(first)):
            if first[r] * second[q] > 0:
                moving += first[r] * second[q] * p.transfer[r, q]
    wait *= (1.0 + spread) / 2.0
    in_slot = active / arrival
    waiting = wait + moving + queue
    values = np.empty(6)
    values[WAITING], values[TTFT], values[TPOT] = waiting, wait + latency, in_slot / output
    values[LATENCY], values[UNLOADED] = waiting + latency + in_slot, latency + moving + alone
    for r in range(len(first)):
        first[r] = arrival * (first[r] + second[r])
    return values, first


@njit(cache=True, error_model="numpy")
def _mixed(p: Pool, slots: Ladder, arrival: float) -> tuple[Floats, Floats]:
    """Return (wait, TTFT, TPOT, latency, unloaded latency) and the replicas' rates [R]."""
    output, scv = p.load[1], p.load[2]
    wait, active, shares = _chain(slots, arrival)
    wait = _kimura(wait, arrival / slots.total, slots.num_slots, scv)
    latency, pause, alone = 0.0, 0.0, 0.0
    for r in range(len(shares)):
        if shares[r] > 0:
            mine = shares[r] * arrival
            square = p.mixed_pause[r] ** 2 * (1.0 + p.mixed_scv[r])
            wait += shares[r] * mine * square / (2.0 * (1.0 - mine * p.mixed_pause[r]))
            latency += shares[r] * p.mixed_latency[r]
            pause += shares[r] * p.mixed_pause[r]
            alone += shares[r] * output * p.mixed_tpot[r, 0]
    decoding = active / arrival - pause
    values = np.empty(6)
    values[WAITING], values[TTFT], values[TPOT] = wait, wait + latency, decoding / output
    values[LATENCY], values[UNLOADED] = wait + latency + decoding, latency + alone
    for r in range(len(shares)):
        shares[r] *= arrival
    return values, shares


@njit(cache=True, error_model="numpy")
def _distances(p: Pool, roles: Ints) -> Floats:
    """Return the KV transfers between each P/D replica and all of the other role, added [R] [s]."""
    far = np.zeros(len(roles))
    for r in range(len(roles)):
        for q in range(len(roles)):
            if roles[r] == PREFILL and roles[q] == DECODE:
                far[r] += p.transfer[r, q]
                far[q] += p.transfer[r, q]
    return far


@njit(cache=True, error_model="numpy")
def _ladders(p: Pool, roles: Ints) -> tuple[Ladder, Ladder, Ladder]:
    """Return the ladders of the PREFILL, the DECODE and the MIXED pool."""
    num = len(roles)
    nothing, one, occupancy = np.zeros(num), p.load.copy(), np.ones((num, 1))
    far = _distances(p, roles)
    one[1] = 1.0
    first, second, both = np.zeros(num, np.int64), np.zeros(num, np.int64), np.zeros(num, np.int64)
    for r in range(num):
        if roles[r] == PREFILL:
            first[r], occupancy[r, 0] = 1, p.occupancy[r]
        elif roles[r] == DECODE:
            second[r] = p.decode_slots[r]
        elif roles[r] == MIXED:
            both[r] = p.mixed_slots[r]
    return (
        _fill(first, occupancy, nothing, one, far),
        _fill(second, p.decode_tpot, nothing, p.load, far),
        _fill(both, p.mixed_tpot, p.mixed_pause, p.load, nothing),
    )


@njit(cache=True, error_model="numpy")
def _split(p: Pool, ladders: tuple[Ladder, Ladder, Ladder], arrival: float, most: float) -> float:
    """Return the rate that P/D replicas take so that the mean wait is least [1/s].

    None where one more request waits longer for its KV cache than it would make MIXED replicas
    wait; else a golden-section search: where waits are convex it makes marginal waits equal.
    """
    servers, slots, both = ladders
    room = both.total * (1.0 - 1e-9)
    low, high = max(0.0, arrival - room), min(arrival, most * (1.0 - 1e-9))
    if low == 0.0:
        less = arrival * (1.0 - 1e-3)
        more = (
            arrival * _mixed(p, both, arrival)[0][WAITING]
            - less * _mixed(p, both, less)[0][WAITING]
        )
        if more <= (arrival - less) * _least_transfer(p, servers, slots):
            return 0.0
    best, least = low, np.inf
    at, worth, i = np.empty(_STARTS), np.empty(_STARTS), 0
    at[0], at[1] = low, high
    at[2], at[3] = high - _RATIO * (high - low), low + _RATIO * (high - low)
    for step in range(_STARTS + _SPLIT_STEPS):
        i = step if step < _STARTS else i
        x, total = at[i], 0.0
        if x > 0:
            total += x * _disaggregated(p, servers, slots, x)[0][WAITING]
        if arrival - x > 1e-12 * arrival:
            total += (arrival - x) * _mixed(p, both, arrival - x)[0][WAITING]
        worth[i] = total
        if total < least:
            best, least = x, total
        if step >= _STARTS - 1 and worth[2] < worth[3]:
            at[1], at[3], worth[3], i = at[3], at[2], worth[2], 2
            at[2] = at[1] - _RATIO * (at[1] - at[0])
        elif step >= _STARTS - 1:
            at[0], at[2], worth[2], i = at[2], at[3], worth[3], 3
            at[3] = at[0] + _RATIO * (at[1] - at[0])
    return best


@njit(cache=True, error_model="numpy")
def _least_transfer(p: Pool, servers: Ladder, slots: Ladder) -> float:
    """Return the shortest KV transfer between replicas in these roles [s]."""
    least = np.inf
    for r in range(len(servers.full)):
        for q in range(len(slots.full)):
            if servers.full[r] > 0 and slots.full[q] > 0:
                least = min(least, p.transfer[r, q])
    return least


@njit(cache=True, error_model="numpy")
def evaluate(p: Pool, roles: Ints) -> tuple[Floats, Floats]:
    """Return the figures of replicas in *roles* and the requests each takes part in.

    Returns
    -------
    tuple
        (capacity, waiting, TTFT, TPOT, latency, unloaded latency) [1/s, s …]: waiting, TTFT and
        latency are inf above capacity; and the rate of each replica [R] [1/s].
    """
    servers, slots, both = _ladders(p, roles)
    pairs = min(servers.total, slots.total)
    capacity = pairs + both.total
    values = np.empty(6)
    values[:] = np.inf
    values[CAPACITY] = capacity
    is_lone = pairs <= 0 and servers.num_slots + slots.num_slots > 0
    if capacity <= 0 or is_lone or _is_unlinked(p, servers, slots):
        values[CAPACITY] = 0.0
        return values, np.zeros(len(roles))
    if p.load[0] >= capacity * (1.0 - 1e-9):
        return _saturated(p, (servers, slots, both), pairs, values)
    arrival = max(p.load[0], 1e-9 * capacity)
    if both.total <= 0:
        found, rates = _disaggregated(p, servers, slots, arrival)
    elif pairs <= 0:
        found, rates = _mixed(p, both, arrival)
    else:
        x = _split(p, (servers, slots, both), arrival, pairs)
        rest = arrival - x
        found, rates = np.zeros(6), np.zeros(len(roles))
        if x > 0:
            _add(found, rates, _disaggregated(p, servers, slots, x), x / arrival)
        if rest > 1e-12 * arrival:
            _add(found, rates, _mixed(p, both, rest), rest / arrival)
    found[CAPACITY] = capacity
    return found, rates


@njit(cache=True, error_model="numpy")
def _is_unlinked(p: Pool, servers: Ladder, slots: Ladder) -> bool:
    """Whether some PREFILL replica cannot send its KV cache to some DECODE replica."""
    for r in range(len(servers.full)):
        for q in range(len(slots.full)):
            if servers.full[r] > 0 and slots.full[q] > 0 and not np.isfinite(p.transfer[r, q]):
                return True
    return False


@njit(cache=True, error_model="numpy")
def _add(values: Floats, rates: Floats, part: tuple[Floats, Floats], weight: float) -> None:
    """Add a part of the traffic to the means and to the rates."""
    for i in range(len(values)):
        values[i] += weight * part[0][i]
    for r in range(len(rates)):
        rates[r] += part[1][r]


@njit(cache=True, error_model="numpy")
def _saturated(
    p: Pool, ladders: tuple[Ladder, Ladder, Ladder], pairs: float, values: Floats
) -> tuple[Floats, Floats]:
    """Everything busy: TPOT with all slots full, traffic in proportion to the service rates."""
    servers, slots, both = ladders
    rates = both.full.copy()
    tpot, alone = 0.0, 0.0
    if pairs > 0:
        for r in range(len(rates)):
            rates[r] += servers.full[r] * (pairs / servers.total)
            rates[r] += slots.full[r] * (pairs / slots.total)
    output = p.load[1]
    for r in range(len(rates)):
        if both.full[r] > 0:
            share = both.full[r] / values[CAPACITY]
            tpot += share * p.mixed_tpot[r, p.mixed_slots[r] - 1]
            alone += share * (p.mixed_latency[r] + output * p.mixed_tpot[r, 0])
        if slots.full[r] > 0:
            share = slots.full[r] / slots.total * (pairs / values[CAPACITY])
            tpot += share * p.decode_tpot[r, p.decode_slots[r] - 1]
            alone += share * output * p.decode_tpot[r, 0]
        if servers.full[r] > 0:
            share = servers.full[r] / servers.total * (pairs / values[CAPACITY])
            alone += share * p.prefill_latency[r]
    values[TPOT], values[UNLOADED] = tpot, alone
    return values, rates


@njit(cache=True, error_model="numpy")
def screen(p: Pool, rows: Ints, num: Ints, first: Ints, roles: Ints) -> Floats:
    """Return the figures of :func:`evaluate` of many sets of replicas in many roles [A, 6].

    Set k are the first num[k] of rows[k] of the pool; its role codes are the rows
    ``[first[k], first[k + 1])`` of *roles*.
    """
    values = np.empty((len(roles), 6))
    for k in range(len(num)):
        own = _part(p, rows[k, : num[k]])
        for a in range(first[k], first[k + 1]):
            found = evaluate(own, roles[a, : num[k]])[0]
            for i in range(len(found)):
                values[a, i] = found[i]
    return values


@njit(cache=True, error_model="numpy")
def _part(p: Pool, rows: Ints) -> Pool:
    """Return some replicas of a pool."""
    return Pool(
        p.occupancy[rows],
        p.prefill_latency[rows],
        p.prefill_scv[rows],
        p.decode_slots[rows],
        p.decode_tpot[rows],
        p.mixed_slots[rows],
        p.mixed_tpot[rows],
        p.mixed_pause[rows],
        p.mixed_latency[rows],
        p.mixed_scv[rows],
        p.transfer[rows][:, rows],
        p.load,
    )
