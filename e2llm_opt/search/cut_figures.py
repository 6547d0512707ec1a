"""What a cut does in each phase for each number of slots, computed once."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.pipeline import decode, prefill, prefill_times
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause
from e2llm_opt.search.slots import most_slots, spill_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_NUM_NODES = 15


@cache
def _nodes() -> tuple[Floats, Floats]:
    """Return Gauss-Hermite nodes of the standard normal distribution, and their weights."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NUM_NODES)
    return nodes, weights / weights.sum()


class Figures(NamedTuple):
    """A cut in both phases with some layers spilled; rounds of 1, 2 … *slots* requests."""

    slots: int
    """As many as fit into memory with these layers spilled; the last figures hold most."""
    spilled: Spilled
    latency_s: float
    occupancy_s: float
    tpot_s: Floats
    micro_batches: Ints

    def shortened(self, slots: int) -> Figures:
        """Return the figures with *slots* slots, the same layers spilled."""
        return self._replace(
            slots=slots, tpot_s=self.tpot_s[:slots], micro_batches=self.micro_batches[:slots]
        )


class Spread(NamedTuple):
    """What prompts whose lengths vary do to a replica."""

    busy_s: float
    """Mean occupancy of a PREFILL replica, or mean pause of a MIXED one [s]."""
    scv: float
    """Its squared coefficient of variation."""
    behind_s: float
    """What a prompt waits between the stages of a PREFILL replica right behind another one [s].

    E[(b - b')+], b and b' being latency less occupancy of two prompts: a shorter one catches up.
    """


class CutFigures:
    """The store of figures by cut.

    Parameters
    ----------
    costs
        Of the problem.
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs
        self._figures: dict[Cut, list[Figures]] = {}
        mixed_pause = costs.problem.runtime.mixed_pause
        self._pauses_for_occupancy = mixed_pause is MixedPause.OCCUPANCY

    def rates(self, cut: Cut, role: Role) -> Floats:
        """Return the rate with 1, 2 … slots, 0 where that breaks memory or a limit [N] [1/s]."""
        workload = self.costs.problem.workload
        rates = [
            self._segment_rates(figures, role, first) for first, figures in self._segments(cut)
        ]
        found = np.concatenate(rates) if rates else np.empty(0)
        if workload.slots is not None:
            found[np.arange(1, len(found) + 1) != workload.slots] = 0.0
        return found

    def _segment_rates(self, figures: Figures, role: Role, first: int) -> Floats:
        effective = self._effective(figures, role)[first - 1 :]
        rates = np.arange(first, figures.slots + 1) / effective / self.costs.output_tokens
        return np.where(self.is_legal(figures, role)[first - 1 :], rates, 0.0)

    def is_legal(self, figures: Figures, role: Role) -> NDArray[np.bool_]:
        """Return whether 1, 2 … slots obey the speed limits, pauses counted."""
        effective = self._effective(figures, role)
        return effective <= self.costs.problem.workload.slowest_tpot_s

    def _effective(self, figures: Figures, role: Role) -> Floats:
        stall = self.pause(figures, role) / self.costs.output_tokens
        effective: Floats = figures.tpot_s + np.arange(1, figures.slots + 1) * stall
        return effective

    def _segments(self, cut: Cut) -> Iterator[tuple[int, Figures]]:
        """Yield figures with the least number of slots that they are for; some slots must fit."""
        first = 1
        for figures in self._of(cut):
            if figures.slots:
                yield first, figures
            first = figures.slots + 1

    def at(self, cut: Cut, slots: int) -> Figures:
        """Return the figures of a cut with *slots* slots."""
        return next(
            figures for figures in self._of(cut) if figures.slots >= slots or not figures.slots
        )

    def _of(self, cut: Cut) -> list[Figures]:
        """Return what every role needs to know of a cut, for more and more spilled layers."""
        if cut not in self._figures:
            most = most_slots(self.costs, cut)
            self._figures[cut] = [
                self.build(cut, slots, spilled)
                for slots, spilled in spill_steps(self.costs, cut, most)
            ]
        return self._figures[cut]

    def build(self, cut: Cut, slots: int, spilled: Spilled) -> Figures:
        """Return the figures of 1 … *slots* requests with *spilled* layers in host RAM."""
        found = prefill(self.costs, cut, self.costs.prompt_tokens, spilled)
        rounds = decode(self.costs, cut, slots, spilled) if slots else None
        return Figures(
            slots=slots,
            spilled=spilled,
            latency_s=found.latency_s,
            occupancy_s=found.occupancy_s,
            tpot_s=np.empty(0) if rounds is None else rounds.tpot_s,
            micro_batches=np.empty(0, np.int64) if rounds is None else rounds.micro_batches,
        )

    def pause(self, figures: Figures, role: Role) -> float:
        """Return how long decode stops for a prompt [s]; 0 where nothing is prefilled."""
        if role is not Role.MIXED:
            return 0.0
        return figures.occupancy_s if self._pauses_for_occupancy else figures.latency_s

    def spread(self, cut: Cut, role: Role, figures: Figures) -> Spread:
        """Return what prompts of many lengths do, by Gauss-Hermite nodes over them."""
        prompt = self.costs.problem.workload.prompt
        is_short = role is Role.PREFILL or self._pauses_for_occupancy
        if role is Role.DECODE or prompt.cv == 0:
            return Spread(figures.occupancy_s if is_short else figures.latency_s, 0.0, 0.0)
        nodes, weights = _nodes()
        lengths = tuple(prompt.quantile(float(z)) for z in nodes)
        latency, occupancy = prefill_times(self.costs, cut, lengths, figures.spilled)
        times = occupancy if is_short else latency
        mean = float(weights @ times)
        scv = float(weights @ times**2) / mean**2 - 1.0
        if role is Role.MIXED or len(cut) == 1 or not np.isfinite(mean):
            return Spread(mean, scv, 0.0)
        rest = latency - occupancy
        behind = float(weights @ np.maximum(rest[:, None] - rest, 0.0) @ weights)
        return Spread(mean, scv, behind)
