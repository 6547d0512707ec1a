"""Cuts that serve both phases, within limits on the slowest stage of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from e2llm_opt.partition.collapse import MAX_STATES
from e2llm_opt.partition.partition import Prepared, decode_demand, mixed_demand, prefill_demand

if TYPE_CHECKING:
    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.partition.relax.relax import Entry

_SLACK = 1 + 1e-12


class Pause(NamedTuple):
    """The pause is at least fixed + slope · slowest stage of a chunk, and that at least slowest."""

    fixed: float
    slope: float
    slowest: float
    is_short: bool
    """The occupancy: only the slowest stage counts, not the sum."""


class Box(NamedTuple):
    """The slowest stage of a chunk, and that of a decode step, lie within these times [s]."""

    chunk: tuple[float, float]
    step: tuple[float, float]


class MixedCuts:
    """Cuts of one group that serve both phases with given slots and micro-batches.

    Where decode pauses for the occupancy the sum is that of a decode step; else it is that of a
    chunk and its share of the decode steps, as both sums count.

    Parameters
    ----------
    costs, devices
        Of the problem, and the group's.
    entry
        Slots and micro-batches.
    pause
        What is known of it.
    """

    def __init__(self, costs: Costs, devices: tuple[int, ...], entry: Entry, pause: Pause) -> None:
        self._micro, self._pause = entry.micro, pause
        self._share = costs.output_tokens / entry.most
        self._scale = 1.0 if costs.problem.runtime.is_pipelined else float(costs.num_chunks)
        self._prompts = prefill_demand(costs, entry.least)
        self._decoding = decode_demand(costs, entry.least, entry.batch)
        demand = self._decoding
        if not pause.is_short:
            weight = self._share / self._scale
            demand = mixed_demand(costs, entry.least, entry.batch, weight)
        self._prepared = Prepared(costs, devices, demand, "sum", MAX_STATES)
        self._costs, self._slots = costs, entry.least
        self._alone: Prepared | None = None
        if self._has_steps:
            self._alone = Prepared(costs, devices, self._prompts, "sum", MAX_STATES)
        self.is_exact = self._prepared.is_exact

    @property
    def _has_steps(self) -> bool:
        """Whether the slowest decode stage is bisected, too."""
        return self._costs.problem.runtime.is_pipelined and not self._pause.is_short

    def whole(self, target: float) -> Box:
        """Return the box that holds every cut which serves a request in less than *target* [s]."""
        fixed, slope, slowest, _ = self._pause
        chunk = (target - fixed) / slope if slope > 0 else slowest
        step = (target - fixed - slope * slowest) / self._share / self._micro
        return Box((slowest, chunk), (0.0, step))

    def cut(self, box: Box, target: float) -> Cut | None:
        """Return the cut of *box* with the least sum; None where none is within *target* [s]."""
        pause = self._pause.fixed + self._pause.slope * box.chunk[0]
        stage = (target - pause) / self._share / self._micro
        if stage <= box.step[0] or box.chunk[1] < box.chunk[0]:
            return None
        inside = self._prepared
        if self._pause.slope > 0:
            inside = inside.within(self._prompts, box.chunk[1] * _SLACK)
        if self._pause.is_short:
            return inside.cut("sum", stage * _SLACK)
        stage = min(stage, box.step[1]) * _SLACK
        if self._alone is not None and not self._is_left(box, stage, target):
            return None
        return inside.within(self._decoding, stage).cut("sum")

    def _is_left(self, box: Box, stage: float, target: float) -> bool:
        """Whether a chunk's sum leaves enough of *target* for the slowest decode stage of *box*."""
        if self._alone is None or box.step[0] == 0.0:
            return True
        inside = self._alone.within(self._decoding, stage)
        cut = inside.within(self._prompts, box.chunk[1] * _SLACK).cut("sum")
        if cut is None:
            return False
        total = self._sum(cut)
        least = self._pause.slope * box.chunk[0] + total
        return least + self._share * self._micro * box.step[0] <= target

    def _sum(self, cut: Cut) -> float:
        """Sum of the stages of a chunk [s]."""
        from e2llm_opt.cost.pipeline import prefill  # noqa: PLC0415 - only where it is asked

        costs = self._costs
        found = prefill(costs, cut, costs.prompt_tokens, costs.spilled(cut, self._slots))
        return float((found.stage_s + found.hop_s).sum()) / costs.num_chunks

    def time(self, box: Box, chunk: float, step: float) -> float:
        """Return a request's least time for sums of stages of a chunk and of a decode step [s]."""
        fixed = self._pause.slope * box.chunk[0]
        if self._pause.is_short:
            return fixed + self._share * step
        return fixed + self._scale * chunk + self._share * step

    def split(self, box: Box, least: float) -> list[Box]:
        """Return the halves of *box* along its longer side; none where both are below *least*."""
        chunk = self._pause.slope * (box.chunk[1] - box.chunk[0])
        step = 0.0
        if self._has_steps:
            step = self._share * self._micro * (box.step[1] - box.step[0])
        if max(chunk, step) <= least:
            return []
        if chunk >= step:
            middle = 0.5 * sum(box.chunk)
            low, high = (box.chunk[0], middle), (middle, box.chunk[1])
            return [box._replace(chunk=high), box._replace(chunk=low)]
        middle = 0.5 * sum(box.step)
        low, high = (box.step[0], middle), (middle, box.step[1])
        return [box._replace(step=high), box._replace(step=low)]
