"""One pipeline by EdgeShard's dynamic programs: least latency, or the fastest slowest step.

Source: EdgeShard (arXiv 2405.14371, IEEE Internet of Things Journal 2025). Layers go to a subset
of the devices in any order, within memory. For latency its program adds up computing and sending;
for throughput it minimises the slowest of all stages and all transfers, which overlap, over states
(layers placed, devices used, device at the end): O(N² · 2^M · M²) for N layers and M devices.

What is filled in: the time of a layer is that of one whole request, prompt and answer. Latency is
wanted where the objective is latency or context, or nothing arrives; throughput otherwise. There
is no source device that must hold the first layer: a request may enter anywhere. The latency
program remembers which devices are used, since each holds one stage. Interchangeable devices are
one class with a count; above 512 subsets the order is our partitioner's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.partition.collapse import inner_problem, shapes
from e2llm_opt.partition.partition import best_cut, expand, mixed_demand
from e2llm_opt.planners.planner import Planner
from e2llm_opt.problem import Objective

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.partition.kernel import Inner
    from e2llm_opt.partition.partition import Demand
    from e2llm_opt.search.stop import Stop

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_MAX_STATES = 512


class EdgeShard(Planner):
    """One MIXED replica over some of the devices."""

    NAME = "edgeshard"

    def run(self, stop: Stop, seed: int) -> None:  # noqa: ARG002 - exact, nothing random
        """Cut once, by the program that the objective asks for."""
        costs, rows = self.costs, tuple(self.search.devices)
        demand = request_demand(costs)
        cut = best_cut(costs, rows, demand, "sum") if self._wants_latency else None
        if not self._wants_latency:
            cut = throughput_cut(costs, rows, demand)
        if cut is None:
            self.reason = "no connected devices hold the whole model"
        else:
            self.keep_pipeline(cut)

    @property
    def _wants_latency(self) -> bool:
        wanted = self.problem.objective
        is_idle = self.problem.workload.rate_per_s == 0 and wanted is not Objective.THROUGHPUT
        return is_idle or wanted in {Objective.LATENCY, Objective.MAX_CONTEXT}


def request_demand(costs: Costs) -> Demand:
    """Return what one request alone asks of a stage: prompt and answer, divided by the chunks."""
    slots = costs.problem.workload.slots or 1
    return mixed_demand(costs, slots, 1, costs.output_tokens / costs.num_chunks)


def throughput_cut(costs: Costs, devices: tuple[int, ...], demand: Demand) -> Cut | None:
    """Return the cut of *devices* (rows) with the least slowest stage or hop; None for none."""
    found: list[tuple[float, int, Cut]] = []
    for shape in shapes(costs, devices, "exists", _MAX_STATES):
        if shape.is_ordered:
            return best_cut(costs, devices, demand, "bottleneck", max_states=_MAX_STATES)
        inner, _ = inner_problem(costs, shape, demand)
        slowest, stages = least_slowest(inner)
        if slowest < np.inf:
            found.append((slowest, len(stages), expand(shape, stages)))
    return min(found)[2] if found else None


def least_slowest(p: Inner) -> tuple[float, list[tuple[int, int, int]]]:
    """Return the slowest step [s] of the best pipeline, and its stages (class, start, stop).

    Published from the first layer on; here from the last one back, with the device in front in
    place of the one at the end. ``value[s, f, b]`` is the slowest stage or hop of layers
    ``[b, L)`` on the devices of s, f in front. Of equal pipelines, the one with fewer stages.
    """
    num, top = len(p.available), len(p.starts) - 1
    stride = np.concatenate([[1], np.cumprod(p.available + 1)])
    is_stage = p.starts[:, None] & (np.arange(top + 1) > np.arange(top + 1)[:, None])
    times = np.where(is_stage, p.times, np.inf)
    value = np.full((stride[num], num, top + 1), np.inf)
    stop = np.full(value.shape, top)
    behind = np.full(value.shape, -1)
    used = (np.arange(stride[num])[:, None] // stride[:-1]) % (p.available + 1)
    for g in range(num):
        if p.pin[1] in {-1, g}:
            value[stride[g], g] = times[g, :, top]
    for s in range(1, int(stride[num])):
        for g in np.flatnonzero(used[s] < p.available).tolist():
            rest = np.maximum(value[s], p.hop[g][:, None])
            cost = np.maximum(times[g], rest.min(axis=0))
            then = s + int(stride[g])
            stop[then, g] = cost.argmin(axis=1)
            value[then, g] = cost.min(axis=1)
            behind[then, g] = rest.argmin(axis=0)[stop[then, g]]
    return _retraced(p, (value, stop, behind), used, stride)


def _retraced(
    p: Inner, tables: tuple[Floats, Ints, Ints], used: Ints, stride: Ints
) -> tuple[float, list[tuple[int, int, int]]]:
    """Return the best complete way through the tables."""
    value, stop, behind = tables
    best: list[tuple[float, int, int, int]] = []
    for s, g in zip(*np.nonzero(value[:, :, 0] < np.inf), strict=True):
        last = p.pin[1] if p.pin[1] >= 0 else int(behind[s, g, 0])
        is_closed = used[s].sum() == 1 or p.back[last, g] < np.inf
        is_first = p.pin[0] in {-1, g}
        if is_closed and is_first and (used[s] >= p.must).all():
            best.append((float(value[s, g, 0]), int(used[s].sum()), int(s), int(g)))
    if not best:
        return np.inf, []
    slowest, _, s, g = min(best)
    stages: list[tuple[int, int, int]] = []
    b = 0
    while g >= 0:
        a, f = int(stop[s, g, b]), int(behind[s, g, b])
        stages.append((g, b, a))
        s, g, b = s - int(stride[g]), f, a
    return slowest, stages


PLANNER = EdgeShard
