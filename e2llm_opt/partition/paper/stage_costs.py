"""What every possible stage costs, as one table: the only thing the paper's program asks of us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.partition.partition import Demand

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def stage_costs(costs: Costs, rows: Ints, demand: Demand) -> Floats:
    """Return the time of layers ``[b, a)`` on each device at each position [K, 4, L+1, L+1] [s].

    Axes: place in *rows* (devices); position MIDDLE, FIRST, LAST, ONLY; start b; stop a. Infinite
    where there is no layer, where a stage may not start, or where memory does not hold it:
    what a stage costs and may hold is decided here, and nowhere else in the paper's method.
    """
    memory = costs.memory_prefix(demand.slots)
    room = (costs.room() if demand.room is None else demand.room)[rows]
    time = demand.time[rows]
    table: Floats = time[:, None, None, :] - time[:, None, :, None]
    table = table + demand.extra[rows][:, :, None, None]
    held = memory[None, :] - memory[:, None]
    is_possible = held[None, None] <= room[:, :, None, None]
    table[~(is_possible & _may_be(costs))] = np.inf
    return table


def _may_be(costs: Costs) -> NDArray[np.bool_]:
    """Whether ``[b, a)`` has a layer and may start at b [L+1, L+1]."""
    ends = np.arange(costs.problem.model.num_layers + 1)
    starts = np.ones(len(ends), dtype=np.bool_)
    allowed = costs.problem.model.allowed_stage_starts
    if allowed is not None:
        starts[:] = False
        starts[[0, *allowed]] = True
    found: NDArray[np.bool_] = (ends[:, None] < ends[None, :]) & starts[:, None]
    return found
