"""The plans seen so far of which none is better than another in everything."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.search.ranking import FRAGILE
from e2llm_opt.search.tradeoff.geometry import covered, ends, knee, spread_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.rules import Rules
    from e2llm_opt.search.tradeoff.aims import Aims

    Floats = NDArray[np.float64]


class Member(NamedTuple):
    """One plan of the front."""

    outcome: Outcome
    values: Floats
    """Its objectives [M]."""
    key: Key
    """Of equals the smallest stays."""


class Archive:
    """All outcomes that no other one seen is better than in all objectives.

    Parameters
    ----------
    evaluator, rules
        Say what is possible, and allowed.
    aims
        Objectives.

    Attributes
    ----------
    points
        Objectives of the members as they are compared [N, M].
    num_changes
        How often the front has changed.
    refused
        A plan with a steady state that was offered while none was thought to have one.
    """

    def __init__(self, evaluator: Evaluator, rules: Rules, aims: Aims) -> None:
        self._evaluator, self._rules, self.aims = evaluator, rules, aims
        self._members: list[Member] = []
        self.points: Floats = np.empty((0, len(aims.names)))
        self.num_changes = 0
        self.refused: Outcome | None = None

    def __len__(self) -> int:
        """Return how many plans there are."""
        return len(self._members)

    def members(self) -> list[Member]:
        """Return the plans by their objectives, the first objective first."""
        order = np.lexsort(self.points.T[::-1])
        return [self._members[i] for i in order]

    def covers(self, points: Floats) -> NDArray[np.bool_]:
        """Return which *points* [N, M] would add nothing."""
        return covered(points, self.points)

    def offer(self, outcome: Outcome) -> bool:
        """Take *outcome* in where it is possible, allowed, and no member is as good in all."""
        key = self._evaluator.key(outcome)
        if key[0] >= FRAGILE or not self._rules.is_obeyed(outcome):
            return False
        if outcome.is_stable is not self.aims.is_stable:
            self.refused = outcome if outcome.is_stable else self.refused
            return False
        values = self.aims.of(outcome)
        point = self.aims.points(values)
        equal = (self.points == point).all(axis=1)
        if equal.any():
            i = int(equal.argmax())
            if key < self._members[i].key:
                self._members[i] = Member(outcome, values, key)
            return False
        if self.covers(point[None, :])[0]:
            return False
        stay = ~covered(self.points, point[None, :])
        self._members = [one for one, stays in zip(self._members, stay, strict=True) if stays]
        self._members.append(Member(outcome, values, key))
        self.points = np.vstack([self.points[stay], point])
        self.num_changes += 1
        return True

    def thinned(self, size: int) -> tuple[list[Member], int]:
        """Return at most *size* plans that differ much, by their objectives, and the knee's place.

        The ends of the front are among them, and its knee, as far as there is room.
        """
        members = self.members()
        points = self.points[np.lexsort(self.points.T[::-1])]
        best = knee(points)
        rows = spread_out(points, size, [*ends(points), best])
        place = rows.index(best) if best in rows else knee(points[rows])
        return [members[i] for i in rows], place
