"""What devices hold, and how long a replica takes to load the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import position_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.simulate.system import Actor


class _Part(NamedTuple):
    """What a device holds of a stage: one share of each of its layers and tables."""

    device: int
    start: int
    stop: int
    tables: float
    """Embedding and head of the stage [bytes]."""
    num_devices: int


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
        self._stages = [list(_parts(costs, actor)) for actor in actors]
        self._bytes_per_s, self._start_s = speed
        self._held: dict[int, _Part] = {}

    def load_s(self, r: int) -> float:
        """Return how long replica *r* takes to start: its device that has most to load."""
        most = max((self._missing(part) for part in self._stages[r]), default=0.0)
        return most / self._bytes_per_s + self._start_s

    def _missing(self, part: _Part) -> float:
        """Return what a device has to load [bytes]: its share of what it does not hold."""
        held = self._held.get(part.device)
        if held is None or held.num_devices != part.num_devices:  # other shares of each tensor
            held = _Part(part.device, 0, 0, 0.0, part.num_devices)
        both = self._bytes(max(part.start, held.start), min(part.stop, held.stop))
        layers = self._bytes(part.start, part.stop) - both
        return (layers + max(part.tables - held.tables, 0.0)) / part.num_devices

    def _bytes(self, start: int, stop: int) -> float:
        return float(self._before[stop] - self._before[start]) if stop > start else 0.0

    def hold(self, r: int) -> None:
        """Replica *r* is loaded."""
        self._held.update({part.device: part for part in self._stages[r]})

    def forget(self, devices: Iterable[int]) -> None:
        """*devices* hold nothing any more."""
        for d in devices:
            self._held.pop(d, None)


def _parts(costs: Costs, actor: Actor) -> Iterator[_Part]:
    for j, (row, start, stop) in enumerate(actor.cut):
        tables = costs.stage_fixed(row, position_of(actor.cut, j)).tables_bytes
        devices = costs.units.members[row]
        for d in devices:
            yield _Part(d, start, stop, tables, len(devices))
