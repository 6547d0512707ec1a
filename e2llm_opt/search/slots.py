"""How many requests a replica should decode at once: bounded by memory and speed, then searched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from e2llm_opt.cost.pipeline import position_of
from e2llm_opt.partition.partition import best_cut, decode_demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.pipeline import Cut

_STEP_DOWN = 0.85


def most_slots(costs: Costs, cut: Cut) -> int:
    """Return how many slots' KV cache fits on every stage of *cut*, up to the engine's limit."""
    most = costs.problem.runtime.max_slots
    weights, room = costs.memory_prefix(0), costs.room()
    kv = costs.memory_prefix(1) - weights
    for j, (d, start, stop) in enumerate(cut):
        free = room[d, position_of(cut, j)] - (weights[stop] - weights[start])
        needed = kv[stop] - kv[start]
        if needed > 0:
            most = min(most, math.floor(free / needed))
    return max(most, 0)


def try_slots(costs: Costs, devices: tuple[int, ...], rate: Callable[[int], float]) -> None:
    """Call *rate* with the numbers of slots that may be best; it keeps the best.

    The rate grows with the slots as long as memory does not force layers onto slow devices and
    the speed limit is kept, so the search starts at the most slots that do both, goes down in
    steps of 15 % while memory binds, and ends with the neighbours of the best.
    """
    fixed = costs.problem.workload.slots
    if fixed is not None:
        rate(fixed)
        return
    holding = _greatest(costs.problem.runtime.max_slots, lambda n: _fits(costs, devices, n))
    fast = _greatest(holding, lambda n: rate(n) > 0)
    if fast == 0:
        return
    tried: dict[int, float] = {}
    n = fast
    while n >= 1 and n not in tried:
        tried[n] = rate(n)
        if n < max(tried, key=tried.__getitem__) / 2:
            break
        n = min(n - 1, int(n * _STEP_DOWN))
        if not _is_memory_bound(costs, devices, fast):
            break
    _climb(rate, tried, fast)


def _climb(rate: Callable[[int], float], tried: dict[int, float], most: int) -> None:
    """Try the neighbours of the best until none is better."""
    for _ in range(8):
        best = max(tried, key=tried.__getitem__)
        around = [n for n in (best - 1, best + 1) if 1 <= n <= most and n not in tried]
        if not around:
            return
        for n in around:
            tried[n] = rate(n)


def _fits(costs: Costs, devices: tuple[int, ...], slots: int) -> bool:
    return best_cut(costs, devices, decode_demand(costs, slots, 1), "sum") is not None


def _is_memory_bound(costs: Costs, devices: tuple[int, ...], slots: int) -> bool:
    """Whether fewer slots would allow another cut: the best cut for one slot does not hold all."""
    if len(devices) == 1:
        return False
    cut = best_cut(costs, devices, decode_demand(costs, 1, slots), "sum")
    return cut is None or most_slots(costs, cut) < slots


def _greatest(most: int, holds: Callable[[int], bool]) -> int:
    """Return the greatest n <= most for which *holds*, assuming it holds below; 0 if none."""
    low, high = 0, most
    if most >= 1 and holds(most):
        return most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
