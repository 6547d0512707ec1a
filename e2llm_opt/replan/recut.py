"""Cuts of one pipeline that move little: the fewest bytes for every speed of the slowest stage.

A dynamic program over the boundaries of a fixed device order. With C_k(b, a) the price of layers
``[b, a)`` on device k, and f_k(a) that of the first a layers on the first k devices:

    f_0(0) = 0,   f_k(a) = min( f_{k-1}(a), min_b f_{k-1}(b) + C_k(b, a) )

The price is the bytes that the device must fetch, plus a weight times its time; stages above a
limit are not allowed. All pairs of weight and limit are solved at once: O(K L²) each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.partition.collapse import allowed_starts
from e2llm_opt.partition.partition import demand_of
from e2llm_opt.partition.stage_table import stage_table
from e2llm_opt.replan.weights import NOTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.problem import Role
    from e2llm_opt.replan.weights import Holdings, Weights

    Floats = NDArray[np.float64]

_LIMITS = (1.0, 1.05, 1.15, 1.35, 1.8, 3.0)
"""Slowest stages that are asked for, over that of the best cut."""
_WEIGHTS = (0.3, 3.0)
"""Of the time against the bytes: of all layers where both weigh the same."""
_TIE = 1e-6
"""Of cuts that move as little, the faster one."""


def recuts(
    costs: Costs,
    weights: Weights,
    old: Holdings,
    order: Sequence[int],
    work: tuple[Role, int, int],
) -> list[Cut]:
    """Return cuts of the layers over devices in this *order*, some of which may stay empty.

    Parameters
    ----------
    costs, weights
        Times and bytes.
    old
        Who holds what now.
    order
        Rows of devices, in pipeline order.
    work
        Role, slots and micro-batches that the stages are timed for.

    Returns
    -------
    list of Cut
        Different ones, none of which breaks memory with these slots; empty where there is none.
    """
    demand = demand_of(costs, *work)
    rows = np.array(order, dtype=np.int64)
    times = stage_table(costs, rows, demand)
    times[:, ~allowed_starts(costs.problem)] = np.inf
    hops = np.zeros(len(rows))
    for num_bytes, weight in demand.hops:
        hops[:-1] += weight * costs.hop(num_bytes, rows[:-1], rows[1:])
    times[:, :, :-1] += np.where(np.isfinite(hops), hops, 0.0)[:, None, None]
    moved = np.stack([weights.stage_bytes(d, old.get(d, NOTHING)) for d in order])
    least = _least_bottleneck(times)
    if not np.isfinite(least):
        return []
    total = float(weights.prefix[-1])
    mean = np.where(np.isfinite(times), times, 0.0).max(axis=(1, 2)).mean() or 1.0
    scale = total / mean
    limits = [least * factor * (1 + 1e-12) for factor in _LIMITS]
    asked = [(limit, _TIE) for limit in [*limits, np.inf]] + [(np.inf, w) for w in _WEIGHTS]
    caps, share = np.array(asked).T
    price = moved[None] + (share * scale)[:, None, None, None] * times[None]
    price = np.where(times[None] <= caps[:, None, None, None], price, np.inf)
    return list(dict.fromkeys(_solved(price, order)))


def _least_bottleneck(times: Floats) -> float:
    """Return the slowest stage of the cut whose slowest stage is fastest [s]."""
    best = np.full(times.shape[1], np.inf)
    best[0] = 0.0
    for own in times:
        best = np.minimum(best, np.maximum(best[:, None], own).min(axis=0))
    return float(best[-1])


def _solved(price: Floats, order: Sequence[int]) -> list[Cut]:
    """Return the cheapest cut for each of several prices [P, K, L+1, L+1]."""
    num, size = price.shape[0], price.shape[2]
    best = np.full((num, size), np.inf)
    best[:, 0] = 0.0
    choice = np.full((len(order), num, size), -1, dtype=np.int64)
    for k in range(len(order)):
        sums = best[:, :, None] + price[:, k]
        first = sums.argmin(axis=1)
        found = np.take_along_axis(sums, first[:, None, :], axis=1)[:, 0]
        is_better = found < best
        choice[k] = np.where(is_better, first, -1)
        best = np.where(is_better, found, best)
    cuts = []
    for p in np.flatnonzero(np.isfinite(best[:, -1])).tolist():
        stages, stop = [], size - 1
        for k in range(len(order) - 1, -1, -1):
            start = int(choice[k, p, stop])
            if start >= 0:
                stages.append((order[k], start, stop))
                stop = start
        cuts.append(tuple(reversed(stages)))
    return cuts
