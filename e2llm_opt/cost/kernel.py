"""Pooled queueing: waiting time, latency and traffic of replicas in given roles.

All slots, of DECODE and of MIXED replicas, are one birth-death chain; PREFILL replicas are another.
State N of a chain has N requests. Slots fill as the router chooses, and the chain leaves N at

    mu[N] = sum over replicas of n_r / (n_r pause_r + more_r + output tpot_r(n_r))

(no pause in a DECODE replica; a PREFILL replica is one slot of rate 1 / occupancy). Requests beyond
the c slots wait. docs/cost-model.md derives it. R replicas, N slots of one, n slots of a pool.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from e2llm_opt.cost.pools import Ladder, Pool, Rounds

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pair = tuple[float, float]
Ladders = tuple[Ladder, Ladder]

UNUSED, PREFILL, DECODE, MIXED = 0, 1, 2, 3
CAPACITY, WAITING, TTFT, TPOT, LATENCY, UNLOADED = 0, 1, 2, 3, 4, 5
_MUCH_FASTER, _SPARE = 4.0, 30
"""A pool so many times faster than the load needs no more than so many further slots."""
_NEGLIGIBLE, _TOO_LARGE, _NOTHING = 1e-18, 1e200, 1e-12
"""Relative probability after which a chain may end, scaled down above; share that is none."""
_LEAST_LOAD = 1e-12
"""Share of the capacity that arrives where nothing does: shares of replicas need some."""
_NO_TRAFFIC = 1e-6
"""Share of the requests below which a MIXED replica is none that prompts are sent to."""
_TIE_S = 1e-9
"""Waits that differ by less are equal to a router [s]."""
_LEAST_IDLE, _MOST = 0.25, 0.95
"""Least share of the nominal idle rate that is kept; utilisation above which no wait grows."""


@njit(cache=True, error_model="numpy")
def _fill(rounds: Rounds, load: Floats, far: Floats, most: float) -> Ladder:
    """Fill slots in the router's order: the least *far* away first, of equals the fastest next.

    Slots that are away at all, behind PREFILL replicas, add no more than *most* to the rate.
    Ends early where the pool is so much faster than *load* (arrival rate, tokens a request) that
    further slots are never used: each state then has at most a quarter of the probability before.
    """
    slots, tpot = rounds.slots, rounds.tpot
    num, total, behind = len(slots), slots.sum(), 0.0
    full = np.zeros(num)
    for r in range(num):
        if slots[r] > 0:
            full[r] = slots[r] / (slots[r] * rounds.nominal[r] + load[1] * tpot[r, slots[r] - 1])
    who, step, rate = np.empty(total, np.int64), np.empty(total), np.empty(total)
    half, held = np.zeros(total), np.empty(total)
    used, now = np.zeros(num, np.int64), np.zeros(num)
    busy, blocked, spare, n = 0.0, 0.0, 0, 0
    while n < total and spare < _SPARE:
        b = -1
        for r in range(num):
            if used[r] < slots[r] and (
                b < 0
                or far[r] < far[b] - _TIE_S
                or (far[r] <= far[b] + _TIE_S and tpot[r, used[r]] < tpot[b, used[b]])
            ):
                b = r
        if used[b] > 0:
            half[n] = 0.5 * tpot[b, used[b] - 1]
        next_s, share = tpot[b, used[b]], rounds.usable[b, used[b]]
        used[b] += 1
        faster = used[b] / (used[b] * rounds.pause[b] + rounds.more[b] + load[1] * next_s)
        who[n], step[n] = b, (faster - now[b]) * share
        if far[b] > 0.0:
            step[n] = min(step[n], most - behind)
            behind += step[n]
        busy += step[n]
        blocked += 1.0 - share
        now[b], rate[n], held[n] = faster, busy, blocked
        spare = spare + 1 if busy > _MUCH_FASTER * load[0] else 0
        n += 1
    return Ladder(who[:n], step[:n], rate[:n], half[:n], held[:n], full, full.sum(), total)


@njit(cache=True, error_model="numpy")
def _chain(
    ladder: Ladder, arrival: float, capacity: float, peak: float
) -> tuple[float, float, Floats, Floats]:
    """Return mean wait [s], mean requests in slots, each replica's share [R], P(N) [n + 1].

    p[N] = p[N-1] · (λ / mu[N])^(1 / peak); beyond the c slots the tail is geometric with
    ρ = λ / mu[c], so that the mean number waiting there is p[c] ρ / (1 - ρ)².
    """
    most, left = len(ladder.rate), 1.0
    if most == ladder.num_slots:
        left = 1.0 - arrival / ladder.rate[most - 1]
        left = max(left, _LEAST_IDLE * (1.0 - arrival / capacity))
    mass = np.zeros(most + 1)
    mass[0] = weight = norm = 1.0
    n = 0
    while n < most and (weight > _NEGLIGIBLE * norm or ladder.rate[n] < arrival):
        ratio = arrival / ladder.rate[n]
        weight *= ratio if peak == 1.0 else ratio ** (1.0 / peak)
        mass[n + 1] = weight if n < most - 1 else weight / left
        norm += mass[n + 1]
        if weight > _TOO_LARGE:
            weight, norm = weight / _TOO_LARGE, norm / _TOO_LARGE
            mass[: n + 2] /= _TOO_LARGE
        n += 1
    mass /= norm
    waiting = weight / norm * (1.0 - left) / left**2 if n == most else 0.0
    shares, tail, active = np.zeros(len(ladder.full)), 0.0, 0.0
    for i in range(n - 1, -1, -1):
        waiting += ladder.held[i] * mass[i + 1]
        active += (i + 1 - ladder.held[i]) * mass[i + 1]
        tail += mass[i + 1]
        shares[ladder.who[i]] += ladder.step[i] * tail
    shares = np.maximum(shares, 0.0)
    return waiting / arrival, active, shares / shares.sum(), mass


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
def _ladders(p: Pool, roles: Ints) -> Ladders:
    """Return the ladders of PREFILL replicas, and of the slots of all others.

    A PREFILL replica is as far away as its nearest decoder. A DECODE replica is as far as the
    PREFILL replica that is farthest, so that it comes later only where all agree that it does.
    """
    num = len(roles)
    nothing, one, width = np.zeros(num), np.ones((num, 1)), p.decode_tpot.shape
    far = np.where(roles == PREFILL, np.inf, np.where(roles == DECODE, 1e-300, 0.0))
    slots = np.where(roles == DECODE, p.decode_slots, 0)
    nominal, pause, more = np.zeros(num), np.zeros(num), np.zeros(num)
    tpot, usable = np.empty(width), np.empty(width)
    for r in range(num):
        for q in range(num):
            if roles[r] == PREFILL and roles[q] == DECODE:
                far[r], far[q] = min(far[r], p.transfer[r, q]), max(far[q], p.transfer[r, q])
        if roles[r] == MIXED:
            slots[r], nominal[r], pause[r] = p.mixed_slots[r], p.mixed_pause[r], p.mixed_busy[r]
            more[r] = max(p.mixed_latency[r] - p.mixed_pause[r], 0.0)
            tpot[r], usable[r] = p.mixed_tpot[r], p.mixed_usable[r]
        elif roles[r] == DECODE:
            tpot[r], usable[r] = p.decode_tpot[r], p.decode_usable[r]
    is_first = np.where(roles == PREFILL, 1, 0)
    longer = np.where(roles == PREFILL, p.prefill_busy - p.occupancy, 0.0)
    occupancy = p.occupancy.copy().reshape((num, 1))
    servers = Rounds(is_first, occupancy, one, nothing, longer, nothing)
    first = _fill(servers, np.array([p.load[0], 1.0]), far, np.inf)
    most = first.total if (roles == MIXED).any() else np.inf
    return first, _fill(Rounds(slots, tpot, usable, nominal, pause, more), p.load, far, most)


@njit(cache=True, error_model="numpy")
def _total(values: Floats | Ints, roles: Ints, role: int) -> float:
    """Return the sum over the replicas in a role."""
    total = 0.0
    for r in range(len(roles)):
        total += values[r] if roles[r] == role else 0.0
    return total


@njit(cache=True, error_model="numpy")
def _variability(p: Pool, ladders: Ladders, roles: Ints, rates: Floats) -> tuple[Pair, float]:
    """Return peakedness of N, squared cv of the work, ca² of arrivals: means over all requests.

    Each replica gets *rates* requests [R] [1/s].
    """
    servers, slots = ladders
    second, apart = _total(slots.full, roles, DECODE), _total(rates, roles, DECODE)
    arrival, smooth = apart + _total(rates, roles, MIXED), 1.0
    if apart > 0.0:
        scv = _total(servers.full * p.prefill_scv, roles, PREFILL) / servers.total
        rho = min(apart / servers.total, _MOST)
        memory = rho * (1.0 + scv) / (servers.total * (1.0 - rho) ** 2)
        stay = _total(p.decode_slots, roles, DECODE) / second
        smooth = 1.0 - rho**2 * max(1.0 - scv, 0.0) * memory / (memory + stay)
    share = apart / arrival
    peak, work, ca2 = share * smooth, share * p.load[2], share * smooth + 1.0 - share
    for r in range(len(roles)):
        if roles[r] == MIXED:
            share, part = rates[r] / arrival, slots.full[r] * p.mixed_pause[r]
            busy = min(rates[r] * p.mixed_busy[r], _MOST)
            batch = (1.0 + busy * p.mixed_scv[r]) / (1.0 - busy) ** 2
            peak += share * (1.0 + (batch - 1.0) * p.load[3]) * (1.0 - busy)
            work += share * (part**2 * p.mixed_scv[r] + (1.0 - part) ** 2 * p.load[2])
    return (peak, work), ca2


@njit(cache=True, error_model="numpy")
def _runs(p: Pool, slots: Ladder, roles: Ints, rates: Floats, mass: Floats) -> Pair:
    """Return the mean waits for what runs where a slot is free: before prefill, and after it [s].

    Goes from full pools down to empty ones, so that replicas come to have free slots one by one.
    """
    free, num, rate = np.empty(len(roles), np.int64), 0, 0.0
    wait, all_busy, before, after = 0.0, 0.0, 0.0, 0.0
    least = _NO_TRAFFIC * p.load[0]  # who is hardly asked takes nobody's prompt off him either
    for i in range(len(slots.who) - 1, -1, -1):
        r = slots.who[i]
        if roles[r] == DECODE:
            after += mass[i] * slots.half[i]
            continue
        own = rates[r]
        if own >= least and not (free[:num] == r).any():
            free[num] = r
            num += 1
            rate += own
            wait, all_busy = _all_prefill(p, free[:num], rate)
        before += mass[i] * (wait + (1.0 - all_busy) * slots.half[i])
        if p.mixed_latency[r] > p.mixed_pause[r] * (1.0 + _TIE_S):
            busy = min(own * p.mixed_busy[r], _MOST)
            rest = 0.5 * p.mixed_busy[r] * (1.0 + p.mixed_scv[r])
            after += mass[i] * ((1.0 - busy) * slots.half[i] + busy * rest)
    return before, after


@njit(cache=True, error_model="numpy")
def _all_prefill(p: Pool, free: Ints, arrival: float) -> Pair:
    """Return the wait for one of the MIXED replicas *free* to end a prefill [s], P(all prefill)."""
    weight, norm, speed, scv = 1.0, 1.0, 0.0, 0.0
    for r in free[::-1]:
        speed += 1.0 / (p.mixed_busy[r] + 1e-300)
        weight *= arrival / speed
        norm += weight
        scv += p.mixed_scv[r] / len(free)
    left = max(1.0 - arrival / speed, 1.0 - _MOST)
    norm += weight * (1.0 - left) / left
    busy = weight / left / norm
    return _kimura(busy / (speed * left), 1.0 - left, len(free), scv), busy


@njit(cache=True, error_model="numpy")
def _moving(p: Pool, first: Floats, second: Floats, rate: float, full: float) -> Pair:
    """Return the mean KV transfer, and the wait for others on the way to that decoder [s].

    The nearest pairs of replicas take as much of each other's traffic as both have. A decoder whose
    link is busy is avoided unless those of the others are, too, or *full*: all slots are.
    """
    total, wait, busy, everywhere = 0.0, 0.0, np.zeros(len(first)), 1.0
    out, into, parts = first.copy(), second.copy(), np.zeros(p.transfer.shape)
    while True:
        a, b = np.int64(-1), np.int64(-1)
        for r in np.flatnonzero(out > _NOTHING):
            for q in np.flatnonzero(into > _NOTHING):
                if a < 0 or p.transfer[r, q] < p.transfer[a, b]:
                    a, b = r, q
        if a < 0:
            break
        parts[a, b] = min(out[a], into[b])
        out[a], into[b] = out[a] - parts[a, b], into[b] - parts[a, b]
        busy[b] = min(busy[b] + rate * parts[a, b] * p.transfer[a, b], _MOST)
    for d in np.flatnonzero(second > _NOTHING):
        everywhere *= busy[d]
    for d in np.flatnonzero(second > _NOTHING):
        taken = full * busy[d] + (1.0 - full) * everywhere
        for f in np.flatnonzero(parts[:, d]):
            rest = 0.5 * p.transfer[f, d] * (1.0 + p.prefill_scv[f]) / (1.0 - busy[d])
            wait += parts[f, d] * taken * rest
            total += parts[f, d] * p.transfer[f, d]
    return total, wait


@njit(cache=True, error_model="numpy")
def evaluate(p: Pool, roles: Ints) -> tuple[Floats, Floats]:
    """Return the figures of replicas in *roles* and the requests each takes part in.

    These are (capacity, waiting, TTFT, TPOT, latency, unloaded latency) [1/s, s …]: waiting, TTFT
    and latency are inf above capacity; and the rate of each replica [R] [1/s].
    """
    able = roles.copy()
    for r in range(len(roles)):
        is_first, is_mixed = roles[r] == PREFILL, roles[r] == MIXED
        num = p.mixed_slots[r] if is_mixed else p.decode_slots[r]
        if (is_first and p.occupancy[r] == np.inf) or (not is_first and num == 0):
            able[r] = UNUSED
    ladders = _ladders(p, able)
    servers, slots = ladders
    second = _total(slots.full, able, DECODE)
    pairs = min(servers.total, second)
    capacity = pairs + _total(slots.full, able, MIXED)
    is_lone = pairs <= 0.0 and ((roles == PREFILL) | (able == DECODE)).any()
    for f in np.flatnonzero(able == PREFILL):
        for d in np.flatnonzero(able == DECODE):
            is_lone = is_lone or not np.isfinite(p.transfer[f, d])
    values = np.full(6, np.inf)
    if capacity <= 0.0 or is_lone:
        values[CAPACITY] = 0.0
        return values, np.zeros(len(roles))
    values[CAPACITY] = capacity
    if p.load[0] < capacity * (1.0 - 1e-9):
        return values, _settle(p, ladders, able, values)
    values[TPOT] = values[UNLOADED] = 0.0
    rates = servers.full * (pairs / servers.total if pairs > 0.0 else 0.0)
    for k in np.flatnonzero((able == DECODE) | (able == MIXED)):
        is_mixed = able[k] == MIXED
        rates[k] = slots.full[k] * (1.0 if is_mixed else pairs / second)
        last = p.mixed_tpot[k, p.mixed_slots[k] - 1]
        last = last if is_mixed else p.decode_tpot[k, p.decode_slots[k] - 1]
        values[TPOT] += rates[k] / capacity * last
    values[UNLOADED] = _alone(p, able, rates / capacity)
    return values, rates


@njit(cache=True, error_model="numpy")
def _alone(p: Pool, roles: Ints, shares: Floats) -> float:
    """Return the mean prefill and decoding of requests that are alone [s]."""
    alone = 0.0
    for r in range(len(roles)):
        if roles[r] == PREFILL:
            alone += shares[r] * p.prefill_latency[r]
        elif roles[r] == DECODE:
            alone += shares[r] * p.load[1] * p.decode_tpot[r, 0]
        elif roles[r] == MIXED:
            alone += shares[r] * (p.mixed_latency[r] + p.load[1] * p.mixed_tpot[r, 0])
    return alone


@njit(cache=True, error_model="numpy")
def _settle(p: Pool, ladders: Ladders, roles: Ints, values: Floats) -> Floats:
    """Fill in the figures below capacity, and return the rates [R] [1/s]."""
    servers, slots = ladders
    capacity, output = values[CAPACITY], p.load[1]
    arrival = max(p.load[0], _LEAST_LOAD * capacity)
    most = capacity if (roles == MIXED).any() else slots.total
    both = _total(slots.full, roles, MIXED)
    is_both = 0.0 < both < slots.total
    shares = slots.full / slots.total  # without MIXED replicas only the sum of them matters
    if both > 0.0:
        shares = _chain(slots, arrival, most, 1.0)[2]
    if is_both:
        shares = _balanced(shares, slots.full, roles, servers.total, arrival)
    (peak, scv), ca2 = _variability(p, ladders, roles, arrival * shares)
    wait, active, shares, mass = _chain(slots, arrival, most, peak)
    wait = _kimura(wait, arrival / most, slots.num_slots, scv) * (ca2 + scv) / (1.0 + scv)
    if is_both:
        shares = _balanced(shares, slots.full, roles, servers.total, arrival)
    before, after = _runs(p, slots, roles, arrival * shares, mass)
    second = np.where(roles == DECODE, shares, 0.0)
    apart, queue, moving, link = second.sum(), 0.0, 0.0, 0.0
    if apart > 0.0:
        full = 1.0 - mass[: slots.num_slots].sum()
        queue, _, first, mass = _chain(servers, apart * arrival, servers.total, 1.0)
        spread = (first * p.prefill_scv).sum()
        queue = _kimura(queue, apart * arrival / servers.total, servers.num_slots, spread)
        num = _total(p.mixed_slots, roles, MIXED)
        queue *= (_overflow(num, both, arrival) + spread) / (1.0 + spread)
        queue += (1.0 - mass[: servers.num_slots].sum()) * (first * p.prefill_behind).sum()
        moving, link = _moving(p, apart * first, second, arrival, full)
        shares += apart * first
    latency = _total(shares * p.prefill_latency, roles, PREFILL)
    latency += _total(shares * p.mixed_latency, roles, MIXED)
    more = np.maximum(p.mixed_latency - p.mixed_pause, 0.0)
    own = _total(shares * (p.mixed_busy + more), roles, MIXED)
    waiting, decoding = (
        wait + before + after + apart * queue + moving + link,
        active / arrival - own,
    )
    values[WAITING], values[TPOT] = waiting, decoding / output
    values[TTFT] = (1.0 - apart) * wait + before + apart * queue + latency
    values[LATENCY] = waiting + latency + decoding
    values[UNLOADED] = _alone(p, roles, shares) + moving
    return arrival * shares


@njit(cache=True, error_model="numpy")
def _balanced(shares: Floats, full: Floats, roles: Ints, servers: float, arrival: float) -> Floats:
    """Return *shares* of which neither kind of slot takes more than leaves it some idle rate [R].

    A chain of all slots together does not know that prefill, too, limits what DECODE slots serve.
    """
    both = _total(full, roles, MIXED)
    pairs = min(servers, _total(full, roles, DECODE))
    share = 1.0 - _LEAST_IDLE * (1.0 - arrival / (pairs + both))
    old = _total(shares, roles, DECODE)
    new = max(min(old, share * pairs / arrival), 1.0 - share * both / arrival)
    found = shares.copy()
    for r in range(len(roles)):
        if roles[r] == DECODE:
            found[r] = new * (shares[r] / old if old > 0.0 else full[r] / (full.sum() - both))
        elif roles[r] == MIXED:
            found[r] = (1.0 - new) * (shares[r] / (1.0 - old) if old < 1.0 else full[r] / both)
    return found


@njit(cache=True, error_model="numpy")
def _overflow(num: float, rate: float, arrival: float) -> float:
    """Return ca² of the requests that find all of *num* slots full; 1 where there are none."""
    blocked, erlangs = 1.0, arrival * num / rate if num > 0 else 0.0
    for n in range(1, int(num) + 1):
        blocked = erlangs * blocked / (n + erlangs * blocked)
    over = erlangs * blocked
    peak = 1.0 - over + erlangs / (num + 1.0 + over - erlangs)
    return 2.0 * max(peak, 1.0) - 1.0


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
    prefill = p.occupancy[rows], p.prefill_latency[rows], p.prefill_busy[rows]
    lengths = p.prefill_scv[rows], p.prefill_behind[rows]
    decode = p.decode_slots[rows], p.decode_tpot[rows], p.decode_usable[rows]
    mixed = p.mixed_slots[rows], p.mixed_tpot[rows], p.mixed_usable[rows]
    pauses = p.mixed_pause[rows], p.mixed_busy[rows], p.mixed_latency[rows], p.mixed_scv[rows]
    transfer = p.transfer[rows][:, rows]
    return Pool(*prefill, *lengths, *decode, *mixed, *pauses, transfer, p.load)  # type: ignore[arg-type]
