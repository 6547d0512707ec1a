"""What no replica of a group can exceed, however its devices are joined into units."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.partition.relax.relax import Relaxation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.partition.relax.large import Large
    from e2llm_opt.problem import Role
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.candidates import Candidates

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


class UnitRelaxation:
    """Over-estimates by device class, the best over all sizes of units.

    Parameters
    ----------
    candidates
        Give the classes with their rows, and what network cards leave.
    most_devices
        In one group.

    Attributes
    ----------
    of_units
        The same by class of units: each class of devices, then those of several devices.
    """

    def __init__(self, candidates: Candidates, most_devices: int) -> None:
        costs = candidates.costs
        self._units = costs.units
        self._classes = sorted(candidates.rows)
        rows = [list(candidates.rows[k]) for k in self._classes]
        self._home = list(range(len(rows)))
        self._place: dict[tuple[int, int], int] = {(i, 1): i for i in self._home}
        for degree in self._units.degrees:
            for i, k in enumerate(self._classes):
                first = self._units.fused_class(candidates.rows[k], degree)
                if first:
                    self._place[i, degree] = len(rows)
                    self._home.append(i)
                    rows.append(first)
        self._number = {self._units.class_of[own[0]]: c for c, own in enumerate(rows)}
        self.of_units = Relaxation(costs, rows, most_devices, candidates.kv_limits.times)

    def counts(self, group: Group) -> Ints:
        """Return the devices of each class in *group* [K]."""
        return np.array([group.count(k) for k in self._classes], dtype=np.int64)

    def count(self, units: Sequence[int]) -> Ints:
        """Return rows of units as numbers of each class of units [K]."""
        count = np.zeros(len(self._home), dtype=np.int64)
        for k, number in Counter(self._units.class_of[row] for row in units).items():
            count[self._number[k]] = number
        return count

    def rates(self, role: Role, counts: Ints) -> Floats:
        """Return a rate that no replica of each group can exceed in *role* [G] [1/s].

        *counts* are devices of each class [G, K].
        """
        return self._over(counts, lambda units: self.of_units.rates(role, units))

    def rates_of_cards(self, role: Role, counts: Ints) -> Floats:
        """Return the same for what network cards leave [G] [1/s]."""
        return self._over(counts, lambda units: self.of_units.rates_of_cards(role, units))

    def rates_of_phase(self, role: Role, counts: Ints) -> Floats:
        """Return the same for PREFILL or DECODE where no KV cache has to move [G] [1/s]."""
        return self._over(counts, lambda units: self.of_units.rates_of_phase(role, units))

    def large(self, role: Role, size: int) -> list[Large]:
        """Return over-estimates of all groups of *size* devices or more, by range of batches.

        Each class of devices is as quick as its quickest units.
        """
        return [self._by_device(one, size) for one in self.of_units.large(role, size)]

    def _by_device(self, one: Large, size: int) -> Large:
        num = len(self._classes)
        busy, stay = (np.full(num, np.inf) for _ in range(2))
        np.minimum.at(busy, self._home, one.busy)
        np.minimum.at(stay, self._home, one.stay)
        group = one.group._replace(room=one.group.room[:num], size=size)
        return one._replace(busy=busy, stay=stay, group=group)

    def _over(self, counts: Ints, rates: Callable[[Ints], Floats]) -> Floats:
        """Return the highest of *rates* over all sizes of units that the devices can form."""
        best = np.zeros(len(counts))
        for degree in self._units.degrees:
            units, rows = self._joined(counts, degree)
            if len(rows):
                best[rows] = np.maximum(best[rows], rates(units))
        return best

    def _joined(self, counts: Ints, degree: int) -> tuple[Ints, Ints]:
        """Return groups as units of *degree* devices [G', K'], and which groups they are [G']."""
        num = len(self._classes)
        place = np.array([self._place.get((i, degree), -1) for i in range(num)])
        most = np.array([len(self._units.alike.get(k, ())) for k in self._classes])
        is_left = (counts % degree > 0) | ((degree > 1) & (counts > most)) | (place < 0)
        joined = ~(is_left & (counts > 0)).any(axis=1)
        if degree > 1 and self._units.is_whole:
            joined &= counts.sum(axis=1) == degree
        rows = np.flatnonzero(joined)
        units = np.zeros((len(rows), len(self._home)), dtype=np.int64)
        known = np.flatnonzero(place >= 0)
        units[:, place[known]] = counts[rows][:, known] // degree
        return units, rows
