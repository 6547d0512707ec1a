"""One device set in one order, cut as in the E2LLM paper: the best of every choice of master."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.partition.paper import kernel
from e2llm_opt.partition.paper.stage_costs import stage_costs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.partition.partition import Demand

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedOrderCut:
    """The paper's cut of one device set.

    Parameters
    ----------
    stages
        (device, start, stop) in pipeline order; every device has layers.
    slowest_s
        Its slowest stage or link, whichever takes longer [s].
    """

    stages: Cut
    slowest_s: float

    @property
    def forward_pass_s(self) -> float:
        """One pass by the paper's law: as many times the slowest stage as there are stages [s]."""
        return len(self.stages) * self.slowest_s


def fixed_order_cut(costs: Costs, devices: Sequence[int], demand: Demand) -> FixedOrderCut | None:
    """Cut the layers over *devices* by the paper's program, each of them once as the master.

    Parameters
    ----------
    costs
        Of the problem.
    devices
        Rows in the order of the pipeline, as a ring: it is turned so that the master, which holds
        the head, is where the engine wants it, first or last.
    demand
        What a stage does; a way back from the last to the first stage must exist where it has one.

    Returns
    -------
    FixedOrderCut or None
        The first master of those with the least slowest stage; None where no cut fits.

    Notes
    -----
    O(K² L²) for K devices and L layers, as in the paper.
    """
    rows = np.array(devices, dtype=np.int64)
    places = np.arange(len(rows))
    rings = rows[(places[:, None] + places) % len(rows)]
    links = np.array([_links(costs, ring, demand) for ring in rings])
    slowest, front, stops = kernel.best_master(stage_costs(costs, rows, demand), links)
    if slowest == np.inf:
        return None
    stop = stops.tolist()
    stages = tuple(zip(rings[front].tolist(), [0, *stop[:-1]], stop, strict=True))
    return FixedOrderCut(stages=stages, slowest_s=float(slowest))


def _links(costs: Costs, ring: Ints, demand: Demand) -> Floats:
    """Return T of the hop into each stage [K] [s]; infinite at the end without a way back."""
    anchor = costs.anchor(int(ring[0]), int(ring[-1]))
    link = np.zeros(len(ring))
    for num_bytes, weight in demand.hops:
        link[1:] += weight * costs.hop(num_bytes, ring[:-1], ring[1:], anchor)
    num_bytes, weight = demand.back
    if weight > 0 and costs.hop(num_bytes, ring[-1], ring[0], anchor) == np.inf:
        link[-1] = np.inf
    return link
