"""Who may serve a stage: one device, or several identical ones of one host as one unit.

A row of the cost tables is a unit. The first rows are the devices themselves; behind them come 2, 4
or 8 devices of one class and host that share every layer of a stage (tensor parallelism). All that
maps a cut to its devices goes through :class:`Units`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.inventory.classes import DeviceClasses
    from e2llm_opt.inventory.device import Device

Members = tuple[int, ...]
"""Device rows, in the canonical order of devices."""


class Units:
    """The rows of the cost tables, devices first.

    Parameters
    ----------
    devices, classes
        Of the problem.
    degrees
        Devices that a stage may have; all stages of a replica have equally many.
    is_whole
        Whether such a unit must be a replica of its own.
    further
        Units that a plan names and that no search would form.

    Attributes
    ----------
    members
        Devices of each row [R]; row d < D is device d.
    class_of
        Class of each row [R]: that of a device, or one for the units of so many devices of a class.
    order
        All rows, devices in their canonical order first [R].
    degrees
        As given.

    Notes
    -----
    Devices of a class are alike, so that of all sets of them only those that follow each other in
    the canonical order are rows: groups always stand on such ones.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        classes: DeviceClasses,
        degrees: tuple[int, ...] = (1,),
        further: Iterable[Members] = (),
        *,
        is_whole: bool = False,
    ) -> None:
        self.degrees, self.is_whole = degrees, is_whole
        self._place = {d: i for i, d in enumerate(classes.order)}
        self._classes = classes
        self.alike = _alike(devices, classes)
        found: dict[Members, int] = {(d,): d for d in range(len(devices))}
        for members in (*self._blocks(), *map(self._sorted, further)):
            found.setdefault(members, len(found))
        self._row_of = found
        self.members: tuple[Members, ...] = tuple(found)
        numbers: dict[tuple[int, int], int] = {}
        first_free = max(classes.class_of) + 1
        class_of = list(classes.class_of)
        for members in self.members[len(devices) :]:
            key = classes.class_of[members[0]], len(members)
            class_of.append(numbers.setdefault(key, first_free + len(numbers)))
        self.class_of: tuple[int, ...] = tuple(class_of)
        self.order = (*classes.order, *range(len(devices), len(self.members)))

    @property
    def first(self) -> list[int]:
        """First device of each row [R]."""
        return [members[0] for members in self.members]

    @property
    def sizes(self) -> list[int]:
        """Devices of each row [R]."""
        return [len(members) for members in self.members]

    def row(self, devices: Iterable[int]) -> int | None:
        """Return the row of *devices* (in any order) as one unit; None where they are none."""
        return self._row_of.get(self._sorted(devices))

    def known(self, devices: Iterable[int]) -> int:
        """Return the same of devices that are known to be a unit."""
        return self._row_of[self._sorted(devices)]

    def devices(self, cut: Cut) -> list[int]:
        """Return the devices that hold layers, stage by stage."""
        return [d for row, _, _ in cut for d in self.members[row]]

    def degree(self, cut: Cut) -> int:
        """Return how many devices serve each stage."""
        return len(self.members[cut[0][0]])

    def moved(self, cut: Cut, where: Mapping[int, int], there: Units | None = None) -> Cut | None:
        """Return *cut* on other devices; None where those are no units, *there* if given."""
        target, found = there or self, []
        for row, start, stop in cut:
            new = target.row(where[d] for d in self.members[row])
            if new is None:
                return None
            found.append((new, start, stop))
        return tuple(found)

    def fusings(self, devices: Sequence[int]) -> list[tuple[int, ...]]:
        """Return each way to form units of *devices*, all of one size: their rows.

        None is left over: fewer devices are another group.
        """
        return [rows for t in self.degrees if (rows := self._fused(devices, t))]

    def fused_class(self, devices: Sequence[int], degree: int) -> list[int]:
        """Return the rows of units of *degree* of these *devices* of a class; [] for none."""
        if degree == 1:
            return []
        starts = range(len(devices) - degree + 1)
        rows = [self.row(devices[i : i + degree]) for i in starts]
        return [row for row in rows if row is not None]

    def are_joinable(self, counts: Mapping[int, int], degree: int) -> bool:
        """Whether so many devices of each class can form units of *degree*, none left over."""
        if self.is_whole and sum(counts.values()) != degree:
            return False
        return all(n % degree == 0 and n <= len(self.alike.get(k, ())) for k, n in counts.items())

    def _fused(self, devices: Sequence[int], degree: int) -> tuple[int, ...]:
        """Return rows of units of *degree* devices; empty where they cannot be formed."""
        if degree == 1:
            return tuple(devices)
        class_of = self._classes.class_of
        if not self.are_joinable(Counter(class_of[d] for d in devices), degree):
            return ()
        found = []
        for k in dict.fromkeys(class_of[d] for d in devices):
            own = sorted((d for d in devices if class_of[d] == k), key=self._place.__getitem__)
            found += [self.row(own[i : i + degree]) for i in range(0, len(own), degree)]
        rows = tuple(row for row in found if row is not None)
        return rows if len(rows) == len(found) else ()

    def _sorted(self, devices: Iterable[int]) -> Members:
        return tuple(sorted(devices, key=self._place.__getitem__))

    def _blocks(self) -> Iterator[Members]:
        for rows in self.alike.values():
            for degree in self.degrees:
                if degree > 1:
                    starts = range(len(rows) - degree + 1)
                    yield from (rows[i : i + degree] for i in starts)


def _alike(devices: Sequence[Device], classes: DeviceClasses) -> dict[int, Members]:
    """Return the devices of each class that has several on one host."""
    found: dict[int, list[int]] = {}
    for d in classes.order:
        found.setdefault(classes.class_of[d], []).append(d)
    return {
        k: tuple(rows)
        for k, rows in found.items()
        if len(rows) > 1 and len({devices[d].host for d in rows}) == 1
    }
