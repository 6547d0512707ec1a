"""Times that no cut of a group of devices can beat, for thousands of groups at once.

The order of the devices is left out: each stage takes the shortest hop that its device has inside
the group, and any stretch of layers of its length. With a limit θ on every stage, a device of
class k can hold at most

    mid_k(θ)  = most layers of a middle stage with time + hop <= θ,     first_k(θ), last_k(θ) alike,

so a cut needs  Σ c_k mid_k + max_k (first_k - mid_k) + max_k (last_k - mid_k) >= L  (or one device
that holds everything), and its sum is at least that of the cheapest layers within these limits,
with as few hops as the largest stages allow. Both are necessary, neither is sufficient: times found
are never above the truth. K classes, L layers, N demands, G groups.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from e2llm_opt.partition.relax.tables import Loads, Rules, Windows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

ONLY = 3
ROUND, SUM = 1, 2
_TINY, _ENDLESS = 1e-300, 1e12
_INTERVALS = 24
"""Of the slowest prompt stage, tried one by one."""
_STEPS = 34
"""Halvings of a bisection: 10⁻¹⁰ of where it began."""


@njit(cache=True, error_model="numpy")
def windows(times: Floats, extra: Floats, starts: Bools, head: int) -> tuple[Floats, Floats]:
    """Return stages [3, K, L+1] and single [3, K] of one demand, as in :class:`Windows`.

    *times* as in ``stage_times``, *extra* by position [K, 4]; *head* is the position with the head.
    """
    num, top = times.shape[0], times.shape[1] - 1
    stages, single = np.full((3, num, top + 1), np.inf), np.full((3, num), np.inf)
    for k in range(num):
        for b in range(top):
            for a in range(b + 1, top + 1):
                if not (starts[b] and (a == top or starts[a])) or times[k, b, a] == np.inf:
                    continue
                position = (1 if b == 0 else 0) + (2 if a == top else 0)
                layer = (times[k, b, a] - extra[k, position]) / (a - b)
                single[1, k] = min(single[1, k], layer)
                if position != ONLY:
                    stages[position, k, a - b] = min(stages[position, k, a - b], times[k, b, a])
        single[0, k], single[2, k] = times[k, 0, top], extra[k, head]
        for i in range(3):
            stages[i, k, 0] = 0.0
            for size in range(top - 1, 0, -1):
                stages[i, k, size] = min(stages[i, k, size], stages[i, k, size + 1])
    return stages, single


@njit(cache=True, error_model="numpy")
def _most(least: Floats, limit: float) -> int:
    """Return the most layers j with ``least[j] <= limit``; *least* does not fall."""
    low, high = 0, len(least) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if least[middle] <= limit:
            low = middle
        else:
            high = middle - 1
    return low


@njit(cache=True, error_model="numpy")
def _hops(w: Windows, i: int, count: Ints) -> Floats:
    """Return the shortest outgoing hop of each class inside a group [K] [s]."""
    num = len(count)
    hop = np.full(num, np.inf)
    for k in range(num):
        for f in range(num):
            if count[k] > 0 and count[f] > (1 if f == k else 0):
                hop[k] = min(hop[k], w.hop[i, k, f])
    return hop


@njit(cache=True, error_model="numpy")
def _can(
    w: Windows,
    i: int,
    count: Ints,
    hop: Floats,
    limits: tuple[float, float, bool],
    most: Ints,
) -> bool:
    """Whether some cut may keep every stage and the sum within *limits*.

    The third says whether the way back counts in the sum. No stage has more than *most* layers:
    a middle one, the first, the last, an only one [4, K].
    """
    stage, total, is_round = limits
    num, top = len(count), w.stages.shape[3] - 1
    held, gain_first, gain_last = 0, -top, -top
    size = np.zeros(num, np.int64)
    nearest, head = np.inf, np.inf
    for k in range(num):
        if count[k] == 0:
            continue
        if w.single[i, 0, k] <= stage and w.single[i, 0, k] <= total and most[3, k] >= top:
            return True
        middle = min(most[0, k], _most(w.stages[i, 0, k], stage - hop[k]))
        first = min(most[1, k], _most(w.stages[i, 1, k], stage - hop[k]))
        last = min(most[2, k], _most(w.stages[i, 2, k], stage))
        held += count[k] * middle
        gain_first, gain_last = max(gain_first, first - middle), max(gain_last, last - middle)
        size[k] = max(middle, first, last)
        nearest, head = min(nearest, hop[k]), min(head, w.single[i, 2, k])
    if held + gain_first + gain_last < top or nearest == np.inf:
        return False
    if total == np.inf:
        return True
    cost, left, stages = head, top, 0
    is_done = np.zeros(num, np.bool_)
    for _ in range(num):  # the cheapest layers first
        best = -1
        for k in range(num):
            if (
                size[k] > 0
                and not is_done[k]
                and (best < 0 or w.single[i, 1, k] < w.single[i, 1, best])
            ):
                best = k
        if best < 0 or left <= 0:
            break
        is_done[best] = True
        taken = min(left, count[best] * size[best])
        cost += taken * w.single[i, 1, best]
        left -= taken
    left = top
    is_done[:] = False
    for _ in range(num):  # the largest stages first
        best = -1
        for k in range(num):
            if size[k] > 0 and not is_done[k] and (best < 0 or size[k] > size[best]):
                best = k
        if best < 0 or left <= 0:
            break
        is_done[best] = True
        needed = min(count[best], -(-left // size[best]))
        stages += needed
        left -= needed * size[best]
    stages = max(stages, 2)
    cost += (stages - 1) * nearest
    if is_round:
        cost += w.back[i]
    return left <= 0 and cost <= total


@njit(cache=True, error_model="numpy")
def _sizes(w: Windows, i: int, count: Ints, limit: float) -> Ints:
    """Return the most layers of a middle, first, last, only stage within *limit* [4, K]."""
    num, top = len(count), w.stages.shape[3] - 1
    most = np.full((4, num), top)
    if limit < np.inf:
        hop = _hops(w, i, count)
        for k in range(num):
            most[0, k] = _most(w.stages[i, 0, k], limit - hop[k])
            most[1, k] = _most(w.stages[i, 1, k], limit - hop[k])
            most[2, k] = _most(w.stages[i, 2, k], limit)
            most[3, k] = top if w.single[i, 0, k] <= limit else 0
    return most


@njit(cache=True, error_model="numpy")
def _least(w: Windows, i: int, count: Ints, how: int, high: float) -> float:
    """Return a time T that no cut can beat, at most *high*, with which some may do [s].

    *how* is 4 m (with m > 0 micro-batches each stage takes at most T/m), plus SUM where the sum is
    at most T, plus ROUND where the sum counts the way back. One number: a tuple of constants would
    have the compiler make one version of this for each.
    """
    hop, most = _hops(w, i, count), _sizes(w, i, count, np.inf)
    limits = _limits(high, how)
    if high < np.inf and not _can(w, i, count, hop, limits, most):
        return np.inf
    if high == np.inf:
        high = 1e-6
        while not _can(w, i, count, hop, _limits(high, how), most):
            high *= 8.0
            if high > _ENDLESS:
                return np.inf
    low = 0.0
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if _can(w, i, count, hop, _limits(middle, how), most):
            high = middle
        else:
            low = middle
    return low


@njit(cache=True, error_model="numpy")
def _limits(time: float, how: int) -> tuple[float, float, bool]:
    """Return the limits on a stage and on the sum, and whether that counts the way back."""
    micro = how // 4
    stage = time / micro if micro > 0 else np.inf
    return stage, (time if how & SUM else np.inf), how & ROUND > 0


@njit(cache=True, error_model="numpy")
def prefill_rates(w: Windows, rules: Rules, counts: Ints) -> Floats:
    """Return a rate that no PREFILL replica of each group can exceed [G] [1/s].

    Row 0 of *w* is a chunk of a prompt, with the memory of one request.
    """
    rates = np.zeros(len(counts))
    how = 4 if rules.is_pipelined else SUM
    for g in range(len(counts)):
        time = _least(w, 0, counts[g], how, np.inf)
        rates[g] = 1.0 / (rules.chunks * max(time, _TINY))
    return rates


@njit(cache=True, error_model="numpy")
def decode_times(
    w: Windows, loads: Loads, rules: Rules, count: Ints, rate: float
) -> tuple[float, Floats]:
    """Return a rate that no DECODE replica can exceed, *rate* or more, and rounds by entry.

    Rounds are inf where no replica with these slots and micro-batches exceeds *rate* [1/s]; else
    no cut has a shorter one [N] [s].
    """
    times = np.full(len(loads.micro), np.inf)
    size, i, best = count.sum(), 0, rate
    while i < len(loads.micro):
        micro = loads.micro[i]
        limit = rules.slowest
        if best > 0:
            limit = min(limit, loads.most[i] / (rules.output * best))
        time = np.inf
        if micro <= size:
            time = _least(w, loads.decoding[i], count, 4 * micro + SUM + ROUND, limit)
        if time < np.inf and loads.members[i] == 0:
            times[i] = time
            if rate == 0.0:
                best = max(best, loads.most[i] / (rules.output * max(time, _TINY)))
        i += 1 + (loads.members[i] if time == np.inf else 0)
    return best, times


@njit(cache=True, error_model="numpy")
def decode_rates(w: Windows, loads: Loads, rules: Rules, counts: Ints) -> Floats:
    """Return a rate that no DECODE replica of each group can exceed [G] [1/s]."""
    rates = np.zeros(len(counts))
    for g in range(len(counts)):
        rates[g] = decode_times(w, loads, rules, counts[g], 0.0)[0]
    return rates


@njit(cache=True, error_model="numpy")
def _may_serve(
    w: Windows,
    i: int,
    loads: Loads,
    rules: Rules,
    load: tuple[Ints, float, float, float],
) -> bool:
    """Whether some cut may serve a request in less than a time, its slowest stage tried in steps.

    *load*: devices of each class, the time [s], and the least slowest stage and the least sum of a
    chunk of a prompt.
    """
    count, time, slowest, total = load
    row, step, share = loads.prompts[i], loads.decoding[i], rules.output / loads.most[i]
    hop = _hops(w, step, count)
    fixed, slope = _pause(rules, total)
    if slope == 0.0:
        limit = min((time - fixed) / share, rules.slowest - loads.least[i] * fixed / rules.output)
        limits = _limits(limit, 4 * loads.micro[i] + SUM + ROUND)
        return _can(w, step, count, hop, limits, _sizes(w, step, count, np.inf))
    width = ((time - fixed) / slope - slowest) / _INTERVALS
    if not width >= 0.0:
        return False
    for j in range(_INTERVALS):
        low = slowest + j * width
        pause = fixed + slope * low
        limit = min((time - pause) / share, rules.slowest - loads.least[i] * pause / rules.output)
        if limit <= 0.0:
            return False
        most = _sizes(w, row, count, (low + width) * (1.0 + 1e-12))
        if _can(w, step, count, hop, _limits(limit, 4 * loads.micro[i] + SUM + ROUND), most):
            return True
    return False


@njit(cache=True, error_model="numpy")
def _pause(rules: Rules, total: float) -> tuple[float, float]:
    """Return a and b of the pause a + b · slowest stage; *total* is the sum of stages [s]."""
    if not rules.is_pipelined:
        return rules.chunks * total, 0.0
    if rules.is_short:
        return 0.0, rules.chunks
    return total, rules.chunks - 1.0


@njit(cache=True, error_model="numpy")
def _request_time(
    w: Windows,
    i: int,
    loads: Loads,
    rules: Rules,
    load: tuple[Ints, float],
) -> float:
    """Return a time of pause + output · round / slots that no MIXED cut can beat [s].

    Inf where it is not below the limit in *load*: devices of each class, and the limit.
    """
    count, best = load
    row = loads.prompts[i]
    slowest = _least(w, row, count, 4, np.inf) if rules.is_pipelined else 0.0
    total = 0.0
    if not (rules.is_pipelined and rules.is_short):
        total = _least(w, row, count, SUM, np.inf)
    if max(slowest, total) == np.inf:
        return np.inf
    is_sum = not (rules.is_pipelined and rules.is_short)
    scale = 1.0 if rules.is_pipelined and is_sum else rules.chunks
    extra = (rules.chunks - 1.0) * slowest if rules.is_pipelined and is_sum else 0.0
    how = SUM + ROUND if is_sum else 4
    together = extra + scale * _least(w, loads.both[i], count, how, (best - extra) / scale)
    if together == np.inf:
        return np.inf
    own = (count, best, slowest, total)
    if best < np.inf and not _may_serve(w, i, loads, rules, own):
        return np.inf
    if loads.members[i] > 0:
        return together
    low, high = together, best
    if best == np.inf:
        high = 2.0 * together + 1e-6
        while not _may_serve(w, i, loads, rules, (count, high, slowest, total)):
            high *= 2.0
            if high > _ENDLESS:
                return np.inf
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        if _may_serve(w, i, loads, rules, (count, middle, slowest, total)):
            high = middle
        else:
            low = middle
    return low


@njit(cache=True, error_model="numpy")
def mixed_times(
    w: Windows, loads: Loads, rules: Rules, count: Ints, rate: float
) -> tuple[float, Floats]:
    """Return a rate that no MIXED replica can exceed, *rate* or more, and times by entry.

    A request takes pause + output · round / slots. With the slowest prompt stage between two times
    the pause is at least that of the lower one, and no stage has more layers than the higher one
    lets it have; nor has any cut a shorter time of both phases than the best one for both demands
    added (a chunk, and its share of the decode steps). Times are inf where no replica with these
    slots and micro-batches exceeds *rate* [1/s] [N] [s].
    """
    times = np.full(len(loads.micro), np.inf)
    size, i, found = count.sum(), 0, rate
    while i < len(loads.micro):
        best = 1.0 / found if found > 0 else np.inf
        time = np.inf
        if loads.micro[i] <= size:
            time = _request_time(w, i, loads, rules, (count, best))
        if time < np.inf and loads.members[i] == 0:
            times[i] = time
            if rate == 0.0:
                found = max(found, 1.0 / max(time, _TINY))
        i += 1 + (loads.members[i] if time == np.inf else 0)
    return found, times


@njit(cache=True, error_model="numpy")
def mixed_rates(w: Windows, loads: Loads, rules: Rules, counts: Ints) -> Floats:
    """Return a rate that no MIXED replica of each group can exceed [G] [1/s]."""
    rates = np.zeros(len(counts))
    for g in range(len(counts)):
        rates[g] = mixed_times(w, loads, rules, counts[g], 0.0)[0]
    return rates
