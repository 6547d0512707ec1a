"""What devices hold, and how long a replica takes to load the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.cut import position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.simulate.system import Actor


class Weights:
    """What devices hold.

    Parameters
    ----------
    costs
        Of the problem.
    actors
        All replicas.
    speed
        How fast a device loads [bytes/s], and what a start takes on top [s].
    """

    def __init__(self, costs: Costs, actors: Sequence[Actor], speed: tuple[float, float]) -> None:
        layers = costs.tables.dense + costs.tables.routed
        self._before = np.concatenate([[0.0], np.cumsum(layers)])
        self._stages = [
            [
                (d, start, stop, costs.stage_fixed(d, position_of(actor.cut, j)).tables_bytes)
                for j, (d, start, stop) in enumerate(actor.cut)
            ]
            for actor in actors
        ]
        self._bytes_per_s, self._start_s = speed
        self._held: dict[int, tuple[int, int, float]] = {}

    def load_s(self, r: int) -> float:
        """Return how long replica *r* takes to start: its device that has most to load."""
        most = 0.0
        for d, start, stop, tables in self._stages[r]:
            first, last, kept = self._held.get(d, (0, 0, 0.0))
            both = self._bytes(max(start, first), min(stop, last))
            most = max(most, self._bytes(start, stop) - both + max(tables - kept, 0.0))
        return most / self._bytes_per_s + self._start_s

    def _bytes(self, start: int, stop: int) -> float:
        return float(self._before[stop] - self._before[start]) if stop > start else 0.0

    def hold(self, r: int) -> None:
        """Replica *r* is loaded."""
        self._held.update({d: (start, stop, own) for d, start, stop, own in self._stages[r]})

    def forget(self, devices: Iterable[int]) -> None:
        """*devices* hold nothing any more."""
        for d in devices:
            self._held.pop(d, None)
