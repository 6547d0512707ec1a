"""Dynamic programs over (devices used, first device so far), from the last layer backwards.

State ``s`` counts the devices used of each class in mixed radix: ``s = sum(used[k] * stride[k])``;
``f`` is the class of the first device so far. A stage ``[b, a)`` on class g in front of f costs

    time[g, a] - time[g, b] + extra[g, position] + hop[g, f]

and may hold ``memory[a] - memory[b] <= room[g, position]`` bytes.

* ``cover``: which starts can (s, f) reach when no stage costs more than a threshold? The least one
  suffices where all hops are equal; elsewhere a device with few layers can be a quick relay;
* ``least_sum``: least total cost of [a, L) for each start a.

K classes, L layers; float64; positions MIDDLE, FIRST, LAST, ONLY = 0 … 3.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MIDDLE, FIRST, LAST, ONLY = 0, 1, 2, 3
LEAST, INTERVAL, ALL = 0, 1, 2
_NO_LIMIT = 1e300  # above any real cost, below an impossible one (inf) [s]
_SLACK = 1e-11  # alike layers differ by the rounding of their prefix sums


class Inner(NamedTuple):
    """One inner problem, collapsed to classes of interchangeable devices."""

    available: Ints
    """Devices of each class [K]."""
    time: Floats
    """Prefix sums of layer times [K, L+1] [s]."""
    memory: Floats
    """Prefix sums of layer bytes [L+1] [bytes]."""
    room: Floats
    """Bytes for layers by position [K, 4] [bytes]."""
    extra: Floats
    """Fixed time by position [K, 4] [s]."""
    hop: Floats
    """Outgoing hop, from row to column [K, K] [s]."""
    back: Floats
    """Hop from the last to the first stage [K, K] [s]; counts in sums only."""
    starts: Bools
    """Layers at which a stage may start [L+1]."""
    pin: Ints
    """Class that must be first, class that must be last; -1 where free [2]."""
    uses_all: bool
    """No device may be left out."""
    is_ordered: bool
    """Later classes stand earlier in the pipeline, one device each: no subsets, O(K) states."""


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
def _start_state(p: Inner, stride: Ints, g: int) -> int:
    """State in which only one device, of class g, is used."""
    return g + 1 if p.is_ordered else stride[g]


@njit(cache=True, error_model="numpy")
def _state_behind(p: Inner, stride: Ints, s: int, f: int, behind: int) -> int:
    """State before f was put in front of class *behind*; 0 (nothing used) where it cannot be."""
    if p.is_ordered:
        return behind + 1 if behind < f else 0
    return s - stride[f]


@njit(cache=True, error_model="numpy")
def _next_states(p: Inner, stride: Ints, s: int, target: Ints) -> None:
    """Fill in the states reached from s by one more device of each class; 0 where none."""
    for g in range(len(p.available)):
        if p.is_ordered:
            target[g] = g + 1 if g == s or (g > s and not p.uses_all) else 0
        elif (s // stride[g]) % (p.available[g] + 1) < p.available[g]:
            target[g] = s + stride[g]
        else:
            target[g] = 0


@njit(cache=True, error_model="numpy")
def _least_starts(p: Inner, limit: float) -> tuple[Ints, Floats]:
    """Least start b >= 1 of a stage ``[b, a)`` on g before f, and the cost of the next less one.

    ``[K, K+1, L+1]`` each; column K is the last stage (no hop); L+1 where no stage fits.
    """
    num, top = len(p.available), len(p.memory) - 1
    least = np.full((num, num + 1, top + 1), top + 1, np.int64)
    beyond = np.full((num, num + 1, top + 1), np.inf)
    after, before = _neighbours(p.starts)
    for g in range(num):
        for f in range(num + 1):
            position = MIDDLE if f < num else LAST
            fixed = p.extra[g, position] + (p.hop[g, f] if f < num else 0.0)
            b = top
            for a in range(top, 1, -1):
                b = min(b, a)
                while (
                    b > 1
                    and p.memory[a] - p.memory[b - 1] <= p.room[g, position]
                    and p.time[g, a] - p.time[g, b - 1] + fixed <= limit
                ):
                    b -= 1
                if after[b] < a:
                    least[g, f, a] = after[b]
                c = before[b]
                if c >= 1 and p.memory[a] - p.memory[c] <= p.room[g, position]:
                    beyond[g, f, a] = p.time[g, a] - p.time[g, c] + fixed
    return least, beyond


@njit(cache=True, error_model="numpy")
def _neighbours(starts: Bools) -> tuple[Ints, Ints]:
    """Least allowed start at or after each layer, and greatest one before it (0: none)."""
    top = len(starts) - 1
    after, before = np.full(top + 1, top + 1, np.int64), np.zeros(top + 1, np.int64)
    for b in range(top - 1, -1, -1):
        after[b] = b if starts[b] else after[b + 1]
    for b in range(1, top + 1):
        before[b] = b - 1 if starts[b - 1] else before[b - 1]
    return after, before


@njit(cache=True, error_model="numpy")
def _front_cost(p: Inner, g: int, f: int, a: int) -> float:
    """Cost of ``[0, a)`` on g as the first stage before f, or alone (f == K); inf if impossible."""
    alone = f == len(p.available)
    position = ONLY if alone else FIRST
    if p.memory[a] > p.room[g, position] or (p.pin[0] >= 0 and p.pin[0] != g):
        return np.inf
    if p.pin[1] >= 0 and (p.pin[1] != g if alone else p.back[p.pin[1], g] == np.inf):
        return np.inf
    return p.time[g, a] + (p.extra[g, position] + (0.0 if alone else p.hop[g, f]))


@njit(cache=True, error_model="numpy")
def cover(p: Inner, limit: float, keeps: int) -> tuple[bool, float, Ints]:
    """Cover all layers with no stage that costs more than *limit* [s].

    *keeps* says which starts of each (s, f) are kept: LEAST (exact where all hops are equal),
    INTERVAL (exact where all layers are alike: up to one layer a device), ALL (always exact).
    Returns whether it can be done; the least cost above *limit* that was in the way; rows (class,
    start, stop). From a of (s, f), g reaches ``least[g, f, a]`` … a - 1. O(states · K²).
    """
    num, top = len(p.available), len(p.memory) - 1
    stride = _strides(p)
    full = stride[num] - 1 if p.uses_all else 0
    limit *= 1.0 + _SLACK
    least, beyond = _least_starts(p, limit)
    lowest = np.full((stride[num], num), top + 1, np.int64)
    highest = np.zeros((stride[num], num), np.int64)
    kept = np.zeros((stride[num], num, top + 1), np.bool_)
    then = np.zeros(num, np.int64)
    blocked = np.inf
    for g in range(num):
        cost = _front_cost(p, g, num, top) if _start_state(p, stride, g) >= full else np.inf
        if cost <= limit:
            return True, 0.0, _alone(g, top)
        blocked = min(blocked, cost)
        if p.pin[1] < 0 or p.pin[1] == g:
            blocked = min(blocked, beyond[g, num, top])
            first, s = least[g, num, top], _start_state(p, stride, g)
            lowest[s, g], highest[s, g] = first, top - 1
            for a in range(first, top):
                kept[s, g, a] = p.starts[a]
    for s in range(1, stride[num]):
        _next_states(p, stride, s, then)
        for f in range(num):
            for g in range(num if lowest[s, f] < top else 0):
                t = then[g]
                for a in range(lowest[s, f], top if t > 0 else 0):
                    if not kept[s, f, a]:
                        continue
                    cost = _front_cost(p, g, f, a) if t >= full else np.inf
                    if cost <= limit:
                        return True, 0.0, _trace(p, kept, least, _end(s, f, g, a))
                    # A middle stage leaves one layer to the stage in front of it.
                    c = max(a, 2) if keeps == INTERVAL and kept[s, f, min(2, top)] else a
                    blocked = min(blocked, cost, beyond[g, f, c])
                    b, end = least[g, f, c], highest[s, f] if keeps == INTERVAL else c
                    if b < top and (keeps == ALL or b < lowest[t, g] or end > highest[t, g] + 1):
                        kept[t, g, b] = True
                        for d in range(b + 1, end if keeps != LEAST else 0):
                            kept[t, g, d] |= p.starts[d]
                        lowest[t, g] = min(b, lowest[t, g])
                        highest[t, g] = max(end - 1, highest[t, g])
                    if keeps != ALL:
                        break
    return False, blocked, np.empty((0, 3), np.int64)


@njit(cache=True, error_model="numpy")
def _alone(g: int, top: int) -> Ints:
    """All layers on one device of class g."""
    rows = np.zeros((1, 3), np.int64)
    rows[0, 0], rows[0, 2] = g, top
    return rows


@njit(cache=True, error_model="numpy")
def _end(s: int, f: int, g: int, a: int) -> Ints:
    """State (s, f), class g in front of it, and where its stage stops."""
    end = np.empty(4, np.int64)
    end[0], end[1], end[2], end[3] = s, f, g, a
    return end


@njit(cache=True, error_model="numpy")
def _trace(p: Inner, kept: Bools, least: Ints, end: Ints) -> Ints:
    """Stages of one way to an end (:func:`_end`), in pipeline order."""
    num, top = len(p.available), len(p.memory) - 1
    stride = _strides(p)
    s, f, g, b = end[0], end[1], end[2], end[3]
    rows = np.empty((len(kept) + 1, 3), np.int64)
    rows[0, 0], rows[0, 1], rows[0, 2] = g, 0, b
    num_rows = 1
    while f >= 0:
        stop, behind = top, -1
        is_last = s == _start_state(p, stride, f) and least[f, num, top] <= b
        if not (is_last and (p.pin[1] < 0 or p.pin[1] == f)):
            for k in range(num):
                before = _state_behind(p, stride, s, f, k)
                for a in range(b + 1, top):
                    if behind < 0 and kept[before, k, a] and least[f, k, a] <= b:
                        stop, behind = a, k
        rows[num_rows, 0], rows[num_rows, 1], rows[num_rows, 2] = f, b, stop
        num_rows += 1
        s, f, b = _state_behind(p, stride, s, f, behind), behind, stop
    return rows[:num_rows]


@njit(cache=True, error_model="numpy")
def least_bottleneck(p: Inner, keeps: int, above: float) -> tuple[float, Ints]:
    """Least possible cost of the costliest stage [s] (inf when no cut fits), and a cut that has it.

    Bisection between the best cut found and the least cost in the way of the last infeasible limit
    (at first *above*, any lower bound): both are real costs, so it ends at the optimum.
    """
    best, low, limit = np.inf, above, _NO_LIMIT
    stages = np.empty((0, 3), np.int64)
    while low * (1.0 + 4.0 * _SLACK) < best:
        is_covered, blocked, found = cover(p, limit, keeps)
        if is_covered:
            stages = found
            best = costliest(p, found)
        elif limit == _NO_LIMIT:
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
        position = ONLY if last == 0 else FIRST if j == 0 else LAST if j == last else MIDDLE
        hop = p.hop[g, stages[j + 1, 0]] if j < last else 0.0
        cost = p.time[g, stop] - p.time[g, start] + (p.extra[g, position] + hop)
        worst = max(worst, cost)
    return worst


@njit(cache=True, error_model="numpy")
def _latest_stops(p: Inner, limit: float) -> Ints:
    """Greatest stop a of a middle stage ``[b, a)`` on g before f [K, K, L+1]; b when none."""
    num, top = len(p.available), len(p.memory) - 1
    latest = np.zeros((num, num, top + 1), np.int64)
    for g in range(num):
        for f in range(num):
            a = top - 1
            for b in range(top - 1, -1, -1):
                while a > b and (
                    p.memory[a] - p.memory[b] > p.room[g, MIDDLE]
                    or p.time[g, a] - p.time[g, b] + p.extra[g, MIDDLE] + p.hop[g, f] > limit
                ):
                    a -= 1
                latest[g, f, b] = max(a, b)
    return latest


@njit(cache=True, error_model="numpy")
def _extend(p: Inner, value: Floats, target: Floats, g: int, f: int, latest: Ints) -> None:
    """Put g in front of f: ``target[b] = min`` over a in (b, latest[b]], by a sliding window."""
    top = len(value) - 1
    queue = np.empty(top + 1, np.int64)
    head, tail = 0, 0
    fixed = p.extra[g, MIDDLE] + p.hop[g, f]
    for b in range(top - 2, 0, -1):
        a = b + 1
        key = value[a] + p.time[g, a]
        while tail > head and value[queue[tail - 1]] + p.time[g, queue[tail - 1]] >= key:
            tail -= 1
        queue[tail] = a
        tail += 1
        while head < tail and queue[head] > latest[b]:
            head += 1
        if head < tail and p.starts[b]:
            cost = value[queue[head]] + p.time[g, queue[head]] - p.time[g, b] + fixed
            target[b] = min(target[b], cost)


@njit(cache=True, error_model="numpy")
def least_sum(p: Inner, limit: float) -> tuple[float, Ints]:
    """Least sum of all stages and hops, no stage costing more than *limit*.

    The hop back counts when the last class is pinned, or when all of *back* is one number. Returns
    the sum [s] (inf when no cut fits) and rows (class, start, stop). O(states · K² · L).
    """
    num, top = len(p.available), len(p.memory) - 1
    stride = _strides(p)
    full = stride[num] - 1 if p.uses_all else 0
    latest = _latest_stops(p, limit)
    then = np.zeros(num, np.int64)
    value = np.full((stride[num], num, top + 1), np.inf)
    best = np.inf
    end = _end(0, -1, -1, top)
    for g in range(num):
        cost = _front_cost(p, g, num, top)
        if cost <= limit and cost < best and _start_state(p, stride, g) >= full:
            best, end = cost, _end(0, -1, g, top)
        if p.pin[1] < 0 or p.pin[1] == g:
            for a in range(1, top):
                value[_start_state(p, stride, g), g, a] = _last_cost(p, g, a, limit)
    for s in range(1, stride[num]):
        _next_states(p, stride, s, then)
        for f in range(num):
            if value[s, f].min() == np.inf:
                continue
            for g in range(num):
                if then[g] == 0:
                    continue
                back = p.back[p.pin[1] if p.pin[1] >= 0 else f, g]
                for a in range(1, top if then[g] >= full else 0):
                    cost = _front_cost(p, g, f, a)
                    if cost <= limit and value[s, f, a] + cost + back < best:
                        best = value[s, f, a] + cost + back
                        end = _end(s, f, g, a)
                _extend(p, value[s, f], value[then[g], g], g, f, latest[g, f])
    if best == np.inf:
        return best, np.empty((0, 3), np.int64)
    return best, _retrace(p, value, latest, end)


@njit(cache=True, error_model="numpy")
def _last_cost(p: Inner, g: int, a: int, limit: float) -> float:
    """Cost of ``[a, L)`` on g as the last stage; inf if impossible."""
    top = len(p.memory) - 1
    if not p.starts[a] or p.memory[top] - p.memory[a] > p.room[g, LAST]:
        return np.inf
    cost = p.time[g, top] - p.time[g, a] + p.extra[g, LAST]
    return cost if cost <= limit else np.inf


@njit(cache=True, error_model="numpy")
def _retrace(p: Inner, value: Floats, latest: Ints, end: Ints) -> Ints:
    """Stages of the best way, found again from the values."""
    num, top = len(p.available), len(p.memory) - 1
    stride = _strides(p)
    s, f, g, b = end[0], end[1], end[2], end[3]
    rows = np.empty((len(value) + 1, 3), np.int64)
    rows[0, 0], rows[0, 1], rows[0, 2] = g, 0, b
    num_rows = 1
    while f >= 0:
        best, stop, behind = np.inf, top, -1
        if s == _start_state(p, stride, f) and (p.pin[1] < 0 or p.pin[1] == f):
            best = _last_cost(p, f, b, np.inf)
        for k in range(num):
            before = _state_behind(p, stride, s, f, k)
            for a in range(b + 1, latest[f, k, b] + 1):
                cost = value[before, k, a] + p.time[f, a] - p.time[f, b]
                cost += p.extra[f, MIDDLE] + p.hop[f, k]
                if cost < best:
                    best, stop, behind = cost, a, k
        rows[num_rows, 0], rows[num_rows, 1], rows[num_rows, 2] = f, b, stop
        num_rows += 1
        s, f, b = _state_behind(p, stride, s, f, behind), behind, stop
    return rows[:num_rows]
