"""Groupings judged by many objectives: every role assignment that is worth it goes to the front."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.search.evaluate import ROLE_OF
from e2llm_opt.search.quick import useful
from e2llm_opt.search.ranking import FRAGILE
from e2llm_opt.search.roles import RoleChooser, wanted_roles
from e2llm_opt.search.tradeoff.geometry import efficient, ends, knee, spread_out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.evaluate import Evaluator, Roled
    from e2llm_opt.search.search import Search
    from e2llm_opt.search.tradeoff.front import Archive
    from e2llm_opt.search.variant import Variant

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_NUM_POINTS = 3
"""Points that one grouping brings into the population, each of other roles or cuts."""
_FORBIDDEN = 1e6
"""How far what can never be a plan is from one."""
_UNSTABLE = 1e-3
"""How far what is not quite stable is from a plan, at least."""


class Verdict(NamedTuple):
    """What a grouping is worth."""

    points: Floats
    """Objectives, as they are compared, in its best roles, a few of them [K, M]."""
    amiss: float
    """How far it is from being a plan; 0 where there are points."""


class PackingJudge:
    """Judges packings in all roles, and shows the archive what may be better than its members.

    Parameters
    ----------
    search
        Gives rules and roles.
    archive
        Takes what is good, with its links.
    evaluator
        Of the replicas that are looked for.
    max_assignments
        Role assignments above which roles go by comparative advantage.
    """

    def __init__(
        self, search: Search, archive: Archive, evaluator: Evaluator, max_assignments: int
    ) -> None:
        self._search, self._archive, self._evaluator = search, archive, evaluator
        self.chooser = RoleChooser(
            evaluator, wanted_roles(evaluator.costs.problem), max_assignments
        )

    def grouping(self, groups: Sequence[Group], variants: Sequence[Variant]) -> Verdict:
        """Return what *groups* are worth with each kind of cut, idle devices cut off."""
        points, amiss = [], 2 * _FORBIDDEN
        for variant in variants:
            parts = [useful(self.chooser, group, variant) for group in groups]
            packing = tuple(sorted(group for group in parts if group))
            if not packing:
                continue
            if not self._search.rules.allows(packing):
                amiss = min(amiss, _FORBIDDEN * (1 + self._search.rules.distance(packing)))
                continue
            found, far = self.offer([self.in_roles(packing, variant)], variant)
            points.append(found)
            amiss = min(amiss, far)
        if not points:
            return Verdict(np.empty((0, len(self._archive.aims.names))), amiss)
        whole = np.concatenate(points)
        best = whole[efficient(whole)]
        if len(best) > _NUM_POINTS:
            best = best[spread_out(best, _NUM_POINTS, [knee(best), *ends(best)])]
        return Verdict(best, amiss)

    def in_roles(self, packing: tuple[Group, ...], variant: Variant) -> Roled:
        """Return *packing* with all its role assignments, or the likely ones where many."""
        rows = self.chooser.assignments(packing, variant)
        if rows is None and all(self.chooser.options(group, variant) for group in packing):
            rows = self.chooser.likely(packing, variant)
        return packing, np.empty((0, len(packing)), np.int64) if rows is None else rows

    def offer(self, sets: Sequence[Roled], variant: Variant) -> tuple[Floats, float]:
        """Show the archive *sets* of groups in many roles.

        Returns
        -------
        tuple
            Objectives of what can be a plan [A, M], and how far the nearest other one is
            from being a plan; 0 where there are any.
        """
        aims = self._archive.aims
        sets = [(groups, rows) for groups, rows in sets if len(rows)]
        if not sets:
            return np.empty((0, len(aims.names))), _FORBIDDEN
        figures, keys = self._evaluator.screen(sets, variant)
        last = np.cumsum([len(rows) for _, rows in sets])
        parts = np.split(figures, last[:-1])
        amiss = self._amiss(figures, keys)
        good = np.flatnonzero(amiss == 0)
        if not len(good):
            return np.empty((0, len(aims.names))), float(amiss.min())
        values = [
            aims.of_figures(self._evaluator, roled, variant, part)
            for roled, part in zip(sets, parts, strict=True)
        ]
        points = aims.points(np.concatenate(values)[good])
        alike, first = np.unique(points, axis=0, return_index=True)
        new = first[~self._archive.covers(alike)]
        for i in efficient(points[new]).tolist():
            if not self._archive.covers(points[new[i]][None, :])[0]:
                row = int(good[new[i]])
                k = int(np.searchsorted(last, row, side="right"))
                groups, rows = sets[k]
                self._show(groups, rows[row - (last[k] - len(rows))], variant)
        return points, 0.0

    def _show(self, groups: Sequence[Group], codes: Ints, variant: Variant) -> None:
        roles = [ROLE_OF[code] for code in codes.tolist()]
        placed = self._evaluator.place(groups, roles, variant)
        if placed is not None:
            self._archive.offer(self._search.evaluator.outcome(placed))

    def _amiss(self, figures: Floats, keys: Floats) -> Floats:
        """Return how far each row is from being a plan [A]; 0: it is one, links left out."""
        capacity = figures[:, kernel.CAPACITY]
        is_possible = (capacity > 0) & (keys[:, 0] < FRAGILE)
        far = np.where(is_possible, 0.0, _FORBIDDEN)
        if self._archive.aims.is_stable:
            rate = self._evaluator.costs.problem.workload.rate_per_s
            late = is_possible & ~(figures[:, kernel.WAITING] < np.inf)
            far[late] = np.maximum(rate / capacity[late] - 1.0, _UNSTABLE)
        return far
