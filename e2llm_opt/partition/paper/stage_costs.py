"""What every possible stage costs, as one table: the only thing the paper's program asks of us."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.partition.stage_table import stage_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.partition.partition import Demand

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def stage_costs(costs: Costs, rows: Ints, demand: Demand) -> Floats:
    """Return the time of layers ``[b, a)`` on each of the devices *rows* [K, L+1, L+1] [s].

    The same table that our own method cuts by: as few layers spilled to host RAM as memory needs,
    embedding and head where the first and the last layer are, infinite where nothing fits or no
    stage may start. The paper counts offloaded blocks, too, but does not say how it times them.
    """
    times = stage_table(costs, rows, demand)
    allowed = costs.problem.model.allowed_stage_starts
    if allowed is not None:
        is_wrong = np.ones(times.shape[1], dtype=np.bool_)
        is_wrong[[0, *allowed]] = False
        times[:, is_wrong] = np.inf
    return times
