"""The longest request: what a cut can hold, and the cut that holds most."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.memory import room_shares
from e2llm_opt.partition.partition import best_cut, demand_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.problem import Role
    from e2llm_opt.search.cut_figures import Figures

_AMPLE = 0.999
"""Share of the time from which on a slot counts as always usable."""
MOST_TOKENS = 2**40
"""No request is longer: where a KV cache costs nothing, or stops growing."""


def max_context(costs: Costs, cut: Cut, slots: int, spilled: Spilled) -> int:
    """Return the longest request that every stage can hold in all of *slots* slots [tokens].

    With the layers in host RAM that are *spilled* now.
    """
    weights, room = costs.memory_prefix(0), costs.room()
    away = [sum(float(costs.spill_rule.spillable[layer]) for layer in part) for part in spilled]

    def fits(tokens: int) -> bool:
        kv = costs.kv_prefix(tokens)
        for j, (d, start, stop) in enumerate(cut):
            cache = slots * (kv[stop] - kv[start]) * costs.tables.kv_copies[d]
            held = weights[stop] - weights[start] + cache
            if held - away[j] > room[d, position_of(cut, j)]:
                return False
        return True

    return _last(0, fits)


def usable_slots(costs: Costs, cut: Cut, figures: Figures, role: Role) -> NDArray[np.float64]:
    """Return the share of the time that memory has room for 1, 2 … slots requests [slots]."""
    slots, workload = figures.slots, costs.problem.workload
    if role == "PREFILL" or slots <= 1:
        return np.ones(slots)
    shares = room_shares(workload, slots, slots * workload.context_tokens)
    if shares[-1] < _AMPLE:
        tokens = max_context(costs, cut, slots, figures.spilled)
        shares = room_shares(workload, slots, slots * tokens)
    return shares


def longest_cut(
    costs: Costs,
    devices: tuple[int, ...],
    role: Role,
    is_fast: Callable[[Cut, Spilled], bool],
    max_states: int,
) -> tuple[Cut, Spilled] | None:
    """Return the cut that holds the longest request, and of those the one with least latency.

    Parameters
    ----------
    costs, devices, role
        A replica in this role on these devices (rows).
    is_fast
        Whether a cut with these layers spilled obeys the speed limits.
    max_states
        As for :func:`~e2llm_opt.partition.partition.best_cut`.

    Returns
    -------
    (cut, spilled) or None
        None where not even the context asked for is held.
    """
    slots = slots_of(costs, role)
    demand = demand_of(costs, role, slots, 1)
    found: tuple[Cut, Spilled] | None = None

    def holds(tokens: int) -> bool:
        nonlocal found
        asked = replace(demand, memory=costs.held_prefix(slots, tokens))
        cut = best_cut(costs, devices, asked, "sum", math.inf, max_states)
        if cut is None:
            return False
        spilled = costs.spilled(cut, slots, tokens)
        if is_fast(cut, spilled):
            found = cut, spilled
            return True
        return False

    least = costs.problem.workload.context_tokens
    if holds(least):
        _last(least, holds)
    return found


def slots_of(costs: Costs, role: Role) -> int:
    """Return the slots of a replica that is to hold the longest request: asked for, else one."""
    return 1 if role == "PREFILL" else costs.problem.workload.slots or 1


def _last(low: int, fits: Callable[[int], bool]) -> int:
    """Return the greatest number that *fits*, which *low* does; ends with a call that fitted."""
    high, step = MOST_TOKENS, max(low, 1024)
    while low + step < high:
        if not fits(low + step):
            high = low + step
            break
        low, step = low + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
