"""What every possible stage costs, and what else may hold it up: what cuts are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.stages.kernel import Stages, stage_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.partition.partition import Demand

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def stage_table(costs: Costs, rows: Ints, demand: Demand) -> Floats:
    """Return the time of layers ``[b, a)`` on each of the devices *rows* [K, L+1, L+1] [s].

    As few layers are spilled to host RAM as memory needs, embedding and head are where the first
    and the last layer are; infinite where nothing fits.
    """
    rule = costs.spill_rule
    stages = Stages(
        time=demand.time[rows],
        extra=demand.extra[rows],
        memory=demand.memory[rows],
        room=costs.room()[rows],
        host=rule.host[rows],
        spillable=rule.spillable,
        order=rule.order,
        penalty=demand.penalty[rows],
        num_layers=costs.fixed_layers[rows],
    )
    times: Floats = stage_times(stages)
    return times


def not_faster(times: Floats, busy: Floats, hop: Floats) -> Floats:
    """Return stages [K, L+1, L+1] that take at least *busy* [K, L+1, L+1], hop included [s].

    The longest finite *hop* of a class [K, K] is taken off, so that stages whose hop is shorter are
    counted as a bit faster than they are; a last stage has none.
    """
    longest = np.where(np.isfinite(hop), hop, 0.0).max(axis=1)
    least = busy.copy()
    least[:, :, :-1] -= longest[:, None, None]
    found: Floats = np.maximum(times, least)
    return found
