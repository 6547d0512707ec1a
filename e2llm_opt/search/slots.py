"""How many requests a replica may decode at once, and at which numbers a cut is asked for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from e2llm_opt.cost.cut import position_of
from e2llm_opt.partition.partition import best_cut, decode_demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.partition.partition import Criterion

_STEP_DOWN = 0.5


def most_slots(costs: Costs, cut: Cut) -> int:
    """Return how many slots' KV cache fits on every stage of *cut*, up to the engine's limit."""
    most = costs.problem.runtime.max_slots
    weights, room = costs.memory_prefix(0), costs.room()
    kv = costs.memory_prefix(1) - weights
    for j, (d, start, stop) in enumerate(cut):
        position = position_of(cut, j)
        free = room[d, position] - (weights[stop] - weights[start])
        if costs.tables.host_memory[d] > 0:
            free += costs.spill_rule.most((d, start, stop), position)
        needed = (kv[stop] - kv[start]) * costs.tables.kv_copies[d]
        if free < 0:
            return 0
        if needed > 0:
            most = min(most, math.floor(free / needed))
    return max(most, 0)


def spill_steps(costs: Costs, cut: Cut, most: int) -> list[tuple[int, Spilled]]:
    """Return (most slots, spilled layers) for each set of layers that 1 … *most* slots spill.

    One pair where nothing changes, with 0 slots where not even one request fits.
    """
    spilled = costs.spilled(cut, most)
    if not any(spilled):
        return [(most, spilled)]
    steps = []
    slots = most
    while slots >= 1:
        low, high = 0, slots  # so many slots spill less, so many spill the same
        while high - low > 1:
            middle = (low + high) // 2
            is_same = costs.spilled(cut, middle) == spilled
            low, high = (low, middle) if is_same else (middle, high)
        steps.append((slots, spilled))
        slots, spilled = low, costs.spilled(cut, max(low, 1))
    return steps[::-1] or [(0, spilled)]


def slot_counts(costs: Costs, devices: tuple[int, ...], max_states: int) -> list[int]:
    """Return the numbers of slots to ask cuts for, the most that memory holds first.

    A cut's rate grows with its slots. Fewer than the most are only worth asking for where memory
    binds: where the slots' KV cache forces layers onto other devices.
    """
    fixed = costs.problem.workload.slots
    if fixed is not None:
        return [fixed]

    def any_cut(slots: int) -> Cut | None:
        demand = decode_demand(costs, slots, 1)
        return best_cut(costs, devices, demand, "any", math.inf, max_states)

    most = _most_held(costs, devices, any_cut)
    if most == 0:
        return []
    demand = decode_demand(costs, 1, most)
    criterion: Criterion = "bottleneck" if costs.problem.runtime.is_pipelined else "sum"
    free = best_cut(costs, devices, demand, criterion, math.inf, max_states)
    is_bound = len(devices) > 1 and (free is None or most_slots(costs, free) < most)
    counts = [most]
    while is_bound and counts[-1] > 1:
        counts.append(max(1, int(counts[-1] * _STEP_DOWN)))
    return counts


def _most_held(costs: Costs, devices: tuple[int, ...], any_cut: Callable[[int], Cut | None]) -> int:
    """Return the most slots for which some cut of *devices* fits into memory; 0 for none."""
    room = costs.room()
    weights = float(costs.memory_prefix(0)[-1])
    kv = float(costs.memory_prefix(1)[-1]) - weights
    free = sum(float(room[d].max()) for d in devices) - weights
    free += costs.most_spilled(devices)
    high = costs.problem.runtime.max_slots
    if kv > 0:
        high = min(high, max(math.floor(free / kv), 0))
    low, step = 0, high
    while step >= 1 and low < high:
        cut = any_cut(step)
        if cut is not None:
            low = max(step, min(most_slots(costs, cut), high))
        else:
            high = step - 1
        step = (low + high + 1) // 2
    return low
