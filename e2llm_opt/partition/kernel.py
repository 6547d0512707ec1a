"""Dynamic programs over (devices used, first device so far), from the last layer backwards.

State ``s`` counts the devices used of each class in mixed radix: ``s = sum(used[k] * stride[k])``;
``f`` is the class of the first device so far. A stage ``[b, a)`` on class g in front of f costs
``times[g, b, a] + hop[g, f]``, infinite where it does not fit into memory.

* ``cover``: which starts can (s, f) reach when no stage costs more than a threshold?
* ``least_sum``: least total cost of [a, L) for each start a.

K classes, L layers; float64.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

End = tuple[int, int, int, int]
"""State (s, f), the class in front of it, and where its stage stops."""
LEAST, INTERVAL, ALL = 0, 1, 2
NO_LIMIT = 1e300
"""Above any real cost, below an impossible one (inf) [s]."""
_SLACK = 1e-11  # alike layers differ by the rounding of their prefix sums


class Inner(NamedTuple):
    """One inner problem, collapsed to classes of interchangeable devices."""

    available: Ints
    """Devices of each class [K]."""
    must: Ints
    """Devices of each class that must get layers [K]."""
    times: Floats
    """Time of stage ``[b, a)``, its hop apart; inf where it does not fit [K, L+1, L+1] [s]."""
    prefix: Floats
    """Prefix sums of layer times [K, L+1] [s]; for *is_additive* classes only."""
    middle: Floats
    """What a middle stage takes beside its layers [K] [s]."""
    is_additive: Bools
    """Middle stages that fit take differences of *prefix*, plus *middle* [K]."""
    hop: Floats
    """Outgoing hop, from row to column [K, K] [s]."""
    back: Floats
    """Hop from the last to the first stage [K, K] [s]; counts in sums only."""
    starts: Bools
    """Layers at which a stage may start [L+1]."""
    after: Ints
    """Least allowed start at or after each layer [L+1]; L+1 where none."""
    before: Ints
    """Greatest allowed start before each layer [L+1]; 0 where none."""
    pin: Ints
    """Class that must be first, class that must be last; -1 where free [2]."""
    is_ordered: bool
    """Later classes stand earlier in the pipeline, one device each: no subsets, O(K) states."""
    latest: Ints
    """Greatest stop of a stage from b on g before f, in sums; L where free [K, K, L+1]."""


@njit(cache=True, error_model="numpy")
def _strides(p: Inner) -> Ints:
    """Place values of the states; the last is how many states there are [K+1]."""
    stride = np.ones(len(p.available) + 1, np.int64)
    for k in range(len(p.available)):
        stride[k + 1] = stride[k] * (p.available[k] + 1)
    if p.is_ordered:
        stride[-1] = len(p.available) + 1
    return stride


@njit(cache=True, error_model="numpy")
def _are_idle(p: Inner, start: int, stop: int) -> bool:
    """Whether no class of ``[start, stop)`` must get layers."""
    return p.must[start:stop].sum() == 0


@njit(cache=True, error_model="numpy")
def _is_complete(p: Inner, stride: Ints, s: int) -> bool:
    """Whether state s uses every device that must get layers."""
    if p.is_ordered:
        return _are_idle(p, s, len(p.available))
    complete = True
    for k in range(len(p.available)):
        complete &= (s // stride[k]) % (p.available[k] + 1) >= p.must[k]
    return complete


@njit(cache=True, error_model="numpy")
def _may_be_last(p: Inner, g: int) -> bool:
    """Whether class g may hold the last stage."""
    return (p.pin[1] < 0 or p.pin[1] == g) and (not p.is_ordered or _are_idle(p, 0, g))


@njit(cache=True, error_model="numpy")
def _start_state(p: Inner, stride: Ints, g: int) -> int:
    """State in which only one device, of class g, is used."""
    return g + 1 if p.is_ordered else stride[g]


@njit(cache=True, error_model="numpy")
def _state_behind(p: Inner, stride: Ints, s: int, f: int, behind: int) -> int:
    """State before f was put in front of class *behind*; 0 (nothing used) where it cannot be."""
    if p.is_ordered:
        return behind + 1 if behind < f and _are_idle(p, behind + 1, f) else 0
    return s - stride[f]


@njit(cache=True, error_model="numpy")
def _next_states(p: Inner, stride: Ints, s: int, target: Ints) -> None:
    """Fill in the states reached from s by one more device of each class; 0 where none."""
    for g in range(len(p.available)):
        if p.is_ordered:
            target[g] = g + 1 if g >= s and _are_idle(p, s, g) else 0
        elif (s // stride[g]) % (p.available[g] + 1) < p.available[g]:
            target[g] = s + stride[g]
        else:
            target[g] = 0


@njit(cache=True, error_model="numpy")
def _least_starts(p: Inner, limit: float, keeps: int) -> tuple[Ints, Floats]:
    """Least start b >= 1 of a stage ``[b, a)`` on g before f, and the least cost above *limit*.

    ``[K, K+1, L+1]`` each; column K is the last stage (no hop); L+1 where no stage fits. Unless
    ALL starts are kept, longer stages must not be faster.
    """
    num, top = len(p.available), len(p.starts) - 1
    least = np.full((num, num + 1, top + 1), top + 1, np.int64)
    beyond = np.full((num, num + 1, top + 1), np.inf)
    for g in range(num):
        for f in range(num + 1):
            hop = p.hop[g, f] if f < num else 0.0
            b = top
            for a in range(top if f == num else top - 1, top - 1 if f == num else 1, -1):
                if keeps == ALL:
                    for c in range(a - 1, 0, -1):
                        cost = p.times[g, c, a] + hop
                        if p.starts[c] and cost <= limit:
                            least[g, f, a] = c
                        elif p.starts[c]:
                            beyond[g, f, a] = min(beyond[g, f, a], cost)
                    continue
                b = min(b, a)
                while b > 1 and p.times[g, b - 1, a] + hop <= limit:
                    b -= 1
                if p.after[b] < a:
                    least[g, f, a] = p.after[b]
                if p.before[b] >= 1:
                    beyond[g, f, a] = p.times[g, p.before[b], a] + hop
    return least, beyond


@njit(cache=True, error_model="numpy")
def _front_cost(p: Inner, g: int, f: int, a: int) -> float:
    """Cost of ``[0, a)`` on g as the first stage before f, or alone (f == K); inf if impossible."""
    alone = f == len(p.available)
    if (p.pin[0] >= 0 and p.pin[0] != g) or (not alone and a > p.latest[g, f, 0]):
        return np.inf
    if p.pin[1] >= 0 and (p.pin[1] != g if alone else p.back[p.pin[1], g] == np.inf):
        return np.inf
    return p.times[g, 0, a] + (0.0 if alone else p.hop[g, f])


@njit(cache=True, error_model="numpy")
def cover(p: Inner, limit: float, keeps: int) -> tuple[bool, float, Ints]:
    """Cover all layers with no stage that costs more than *limit* [s].

    *keeps* says which starts of each (s, f) are kept: LEAST (exact where all hops are equal),
    INTERVAL (exact where all layers are alike: up to one layer a device), ALL (always exact).
    Returns whether it can be done; the least cost above *limit* that was in the way; rows (class,
    start, stop). O(states · K²), times L where ALL starts are kept, times L².
    """
    num, top = len(p.available), len(p.starts) - 1
    stride = _strides(p)
    limit *= 1.0 + _SLACK
    least, beyond = _least_starts(p, limit, keeps)
    lowest = np.full((stride[num], num), top + 1, np.int64)
    highest = np.zeros((stride[num], num), np.int64)
    kept = np.zeros((stride[num], num, top + 1), np.bool_)
    then = np.zeros(num, np.int64)
    blocked = np.inf
    for g in range(num):
        s = _start_state(p, stride, g)
        if _may_be_last(p, g):
            cost = _front_cost(p, g, num, top) if _is_complete(p, stride, s) else np.inf
            if cost <= limit:
                return True, 0.0, _trace(p, kept, limit, (0, -1, g, top))
            blocked = min(blocked, cost, beyond[g, num, top])
            lowest[s, g], highest[s, g] = least[g, num, top], top - 1
            for a in range(lowest[s, g], top):
                kept[s, g, a] = p.starts[a] and (keeps != ALL or p.times[g, a, top] <= limit)
    for s in range(1, stride[num]):
        _next_states(p, stride, s, then)
        for f in range(num):
            for g in range(num if lowest[s, f] < top else 0):
                t = then[g]
                is_complete = t > 0 and _is_complete(p, stride, t)
                for a in range(lowest[s, f], top if t > 0 else 0):
                    if not kept[s, f, a]:
                        continue
                    cost = _front_cost(p, g, f, a) if is_complete else np.inf
                    if cost <= limit:
                        return True, 0.0, _trace(p, kept, limit, (s, f, g, a))
                    # A middle stage leaves one layer to the stage in front of it.
                    c = max(a, 2) if keeps == INTERVAL and kept[s, f, min(2, top)] else a
                    blocked = min(blocked, cost, beyond[g, f, c])
                    b, end = least[g, f, c], highest[s, f] if keeps == INTERVAL else c
                    if b < top and (keeps == ALL or b < lowest[t, g] or end > highest[t, g] + 1):
                        kept[t, g, b] = True
                        for d in range(b + 1, end if keeps != LEAST else 0):
                            if keeps != ALL or p.times[g, d, c] + p.hop[g, f] <= limit:
                                kept[t, g, d] |= p.starts[d]
                        lowest[t, g] = min(b, lowest[t, g])
                        highest[t, g] = max(end - 1, highest[t, g])
                    if keeps != ALL:
                        break
    return False, blocked, np.empty((0, 3), np.int64)


@njit(cache=True, error_model="numpy")
def _trace(p: Inner, kept: Bools, limit: float, end: End) -> Ints:
    """Stages of one way to *end* within *limit*, in pipeline order."""
    num, top = len(p.available), len(p.starts) - 1
    stride = _strides(p)
    s, f, g, b = end
    rows = np.empty((len(kept) + 1, 3), np.int64)
    rows[0, 0], rows[0, 1], rows[0, 2] = g, 0, b
    num_rows = 1
    while f >= 0:
        stop, behind = top, -1
        is_last = s == _start_state(p, stride, f) and _may_be_last(p, f)
        if not (is_last and p.times[f, b, top] <= limit):
            for k in range(num):
                before = _state_behind(p, stride, s, f, k)
                for a in range(b + 1, top):
                    cost = p.times[f, b, a] + p.hop[f, k]
                    if behind < 0 and kept[before, k, a] and cost <= limit:
                        stop, behind = a, k
        rows[num_rows, 0], rows[num_rows, 1], rows[num_rows, 2] = f, b, stop
        num_rows += 1
        s, f, b = _state_behind(p, stride, s, f, behind), behind, stop
    return rows[:num_rows]


@njit(cache=True, error_model="numpy")
def least_bottleneck(p: Inner, keeps: int, above: float) -> tuple[float, Ints]:
    """Least possible cost of the costliest stage [s] (inf when no cut fits), and a cut that has it.

    Bisection between the best cut found and the least cost in the way of the last limit that was
    too low (at first *above*): both are real costs, so it ends at the optimum.
    """
    best, low, limit = np.inf, above, NO_LIMIT
    stages = np.empty((0, 3), np.int64)
    while low * (1.0 + 4.0 * _SLACK) < best:
        is_covered, blocked, found = cover(p, limit, keeps)
        if is_covered:
            stages = found
            best = costliest(p, found)
        elif limit == NO_LIMIT:
            return np.inf, stages
        else:
            low = blocked
        limit = np.sqrt(low * best) if low > 0 and best > 4 * low else 0.5 * (low + best)
        if limit >= best:
            limit = low
    return best, stages


@njit(cache=True, error_model="numpy")
def costliest(p: Inner, stages: Ints) -> float:
    """Cost of the costliest stage of a cut, with its outgoing hop [s]."""
    worst, last = -np.inf, len(stages) - 1
    for j in range(len(stages)):
        g, start, stop = stages[j, 0], stages[j, 1], stages[j, 2]
        hop = p.hop[g, stages[j + 1, 0]] if j < last else 0.0
        worst = max(worst, p.times[g, start, stop] + hop)
    return worst


@njit(cache=True, error_model="numpy")
def _latest_stops(p: Inner, limit: float) -> Ints:
    """Greatest stop a of a middle stage ``[b, a)`` of an additive g before f; b when none."""
    num, top = len(p.available), len(p.starts) - 1
    latest = np.full((num, num, top + 1), top - 1, np.int64)
    for g in range(num):
        for f in range(num if p.is_additive[g] else 0):
            a = top - 1
            for b in range(top - 1, -1, -1):
                a = min(a, max(p.latest[g, f, b], b))
                while a > b > 0 and not p.times[g, b, a] + p.hop[g, f] <= limit:
                    a -= 1
                latest[g, f, b] = max(a, b)
    return latest


@njit(cache=True, error_model="numpy")
def _extend(p: Inner, value: Floats, target: Floats, g: int, f: int, latest: Ints) -> None:
    """Put g in front of f: ``target[b] = min`` over a in (b, latest[b]], by a sliding window."""
    top = len(value) - 1
    queue = np.empty(top + 1, np.int64)
    head, tail = 0, 0
    fixed = p.middle[g] + p.hop[g, f]
    for b in range(top - 2, 0, -1):
        a = b + 1
        key = value[a] + p.prefix[g, a]
        while tail > head and value[queue[tail - 1]] + p.prefix[g, queue[tail - 1]] >= key:
            tail -= 1
        queue[tail] = a
        tail += 1
        while head < tail and queue[head] > latest[b]:
            head += 1
        if head < tail and p.starts[b]:
            cost = value[queue[head]] + p.prefix[g, queue[head]] - p.prefix[g, b] + fixed
            target[b] = min(target[b], cost)


@njit(cache=True, error_model="numpy")
def _try_all(p: Inner, value: Floats, target: Floats, g: int, f: int, limit: float) -> None:
    """Put g in front of f: ``target[b] = min`` over all a, where longer stages may be faster."""
    top = len(value) - 1
    for b in range(1, top - 1):
        for a in range(b + 1, min(top, p.latest[g, f, b] + 1) if p.starts[b] else 0):
            cost = p.times[g, b, a] + p.hop[g, f]
            if cost <= limit:
                target[b] = min(target[b], value[a] + cost)


@njit(cache=True, error_model="numpy")
def least_sum(p: Inner, limit: float) -> tuple[float, Ints]:
    """Least sum of all stages and hops, no stage costing more than *limit*.

    The hop back counts when the last class is pinned, or when all of *back* is one number. Returns
    the sum [s] (inf when no cut fits) and rows (class, start, stop). O(states · K² · L).
    """
    num, top = len(p.available), len(p.starts) - 1
    stride = _strides(p)
    limit = min(limit, NO_LIMIT)
    latest = _latest_stops(p, limit)
    then = np.zeros(num, np.int64)
    value = np.full((stride[num], num, top + 1), np.inf)
    best = np.inf
    end = (0, -1, -1, top)
    for g in range(num):
        s = _start_state(p, stride, g)
        cost = _front_cost(p, g, num, top) if _may_be_last(p, g) else np.inf
        if cost <= limit and cost < best and _is_complete(p, stride, s):
            best, end = cost, (0, -1, g, top)
        for a in range(1, top if _may_be_last(p, g) else 0):
            cost = p.times[g, a, top] if p.starts[a] else np.inf
            value[s, g, a] = cost if cost <= limit else np.inf
    for s in range(1, stride[num]):
        _next_states(p, stride, s, then)
        for f in range(num):
            for g in range(num if value[s, f].min() < np.inf else 0):
                if then[g] == 0:
                    continue
                back = p.back[p.pin[1] if p.pin[1] >= 0 else f, g]
                is_complete = _is_complete(p, stride, then[g])
                for a in range(1, top if is_complete else 0):
                    cost = _front_cost(p, g, f, a)
                    if cost <= limit and value[s, f, a] + cost + back < best:
                        best = value[s, f, a] + cost + back
                        end = (s, f, g, a)
                if p.is_additive[g]:
                    _extend(p, value[s, f], value[then[g], g], g, f, latest[g, f])
                else:
                    _try_all(p, value[s, f], value[then[g], g], g, f, limit)
    if best == np.inf:
        return best, np.empty((0, 3), np.int64)
    return best, _retrace(p, value, limit, end)


@njit(cache=True, error_model="numpy")
def _retrace(p: Inner, value: Floats, limit: float, end: End) -> Ints:
    """Stages of the best way, found again from the values."""
    num, top = len(p.available), len(p.starts) - 1
    stride = _strides(p)
    s, f, g, b = end
    rows = np.empty((len(value) + 1, 3), np.int64)
    rows[0, 0], rows[0, 1], rows[0, 2] = g, 0, b
    num_rows = 1
    while f >= 0:
        best, stop, behind = np.inf, top, -1
        if s == _start_state(p, stride, f) and _may_be_last(p, f) and p.times[f, b, top] <= limit:
            best = p.times[f, b, top]
        for k in range(num):
            before = _state_behind(p, stride, s, f, k)
            for a in range(b + 1, min(top, p.latest[f, k, b] + 1)):
                cost = p.times[f, b, a] + p.hop[f, k]
                if cost <= limit and value[before, k, a] + cost < best:
                    best, stop, behind = value[before, k, a] + cost, a, k
        rows[num_rows, 0], rows[num_rows, 1], rows[num_rows, 2] = f, b, stop
        num_rows += 1
        s, f, b = _state_behind(p, stride, s, f, behind), behind, stop
    return rows[:num_rows]
