"""The exact method for capacity, and the bound on it for plans of every objective."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from e2llm_opt.problem import Role
from e2llm_opt.search.bound import MAX_GROUPS, CapacityBound
from e2llm_opt.search.pool import best_packing
from e2llm_opt.search.roles import wanted_roles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.search.bound import Roles
    from e2llm_opt.search.candidates import Candidates
    from e2llm_opt.search.rules import Rules
    from e2llm_opt.search.stop import Stop

REFINEMENTS_OF_A_BOUND = 40
"""Columns made exact where capacity is not the objective."""
MANY_GROUPS = 60_000
"""Enumerated where the bound with fewer is too far from the best packing."""
_SMALL_GAP = 1e-3
"""That far, relatively."""
_MANY_CLASSES = 64
"""Above so many, larger groups are enumerated before the rest is looked at closely."""
_CLASSES_MORE = 32
"""With so many more, so many more columns are made exact: an optimum takes one a class."""
_SHARE_OF_TIME = 0.8
"""Of a time limit: the rest is for the search that follows where the method does not end."""
_SCOPES = ((Role.MIXED,), (Role.PREFILL, Role.DECODE))


class Exact:
    """One problem's bound on capacity, and the packings found on the way to it.

    Parameters
    ----------
    candidates
        The store of replicas.
    rules
        What the constraints allow.

    Attributes
    ----------
    limit
        No plan has more requests a second; None: not computed [1/s].
    bound
        How it is computed; None: not yet.
    share_of_time
        Of a time limit; the rest is for what follows.
    """

    def __init__(self, candidates: Candidates, rules: Rules) -> None:
        self._candidates, self._rules = candidates, rules
        self._problem = candidates.costs.problem
        self.bound: CapacityBound | None = None
        self.limit: float | None = None
        self.share_of_time = _SHARE_OF_TIME

    def solve(self, known: float, stop: Stop, elapsed_s: float) -> Iterator[list[Roles]]:
        """Find the packing with the highest capacity, as far as the limits allow.

        Yields the packings found, step by step; :attr:`limit` falls meanwhile.

        Parameters
        ----------
        known
            Capacity of the best plan so far [1/s].
        stop, elapsed_s
            Limits, and what is over of the time [s].
        """
        deadline = float("inf")
        if stop.time_limit_s is not None:
            left = self.share_of_time * (stop.time_limit_s - elapsed_s)
            deadline = time.monotonic() + max(left, 0.0)
        bound = self._built()
        is_last = bound.num_classes <= _MANY_CLASSES
        yield from self._lowered(bound, known, stop, deadline, is_last=is_last)
        is_open = bound.has_large and bound.gap > max(stop.gap, _SMALL_GAP)
        if is_open and time.monotonic() < deadline:  # more groups, now that something is known
            known, bound = bound.known, self._built(MANY_GROUPS)
            yield from self._lowered(bound, known, stop, deadline, is_last=True)
        if not bound.is_closed or self._problem.constraints.survive:
            yield [best_packing(self._candidates, self._rules)]
        for roles in _SCOPES:
            if set(roles) < set(bound.roles):
                yield bound.packing_of(roles)

    def _lowered(
        self, bound: CapacityBound, known: float, stop: Stop, deadline: float, *, is_last: bool
    ) -> Iterator[list[Roles]]:
        """Run *bound*, and yield its packings."""
        told = 0
        for _ in bound.run(
            known,
            refinements=stop.max_refinements * (1 + bound.num_classes // _CLASSES_MORE),
            deadline=deadline,
            gap=stop.gap,
            is_last=is_last,
        ):
            self._lower(bound.value)
            yield bound.packings[told:]
            told = len(bound.packings)
        self._lower(bound.value)

    def _lower(self, value: float) -> None:
        self.limit = value if self.limit is None else min(self.limit, value)

    def bind(self, stop: Stop) -> None:
        """Bound the capacity with fractions of replicas, if that was not done yet."""
        if self.limit is not None or stop.max_refinements == 0:
            return
        bound = self._built()
        most = min(stop.max_refinements, REFINEMENTS_OF_A_BOUND)
        for _ in bound.run(0.0, refinements=most, is_whole=False):
            pass
        self.limit = bound.value

    @property
    def gap(self) -> float:
        """How far the best packing, links left out, is below the bound, as a share of that."""
        return 1.0 if self.bound is None else self.bound.gap

    @property
    def is_closed(self) -> bool:
        """Whether the best packing found has as much as the bound says."""
        return self.bound is not None and self.bound.is_closed

    def _built(self, max_groups: int = MAX_GROUPS) -> CapacityBound:
        if self.bound is None or max_groups > MAX_GROUPS:
            roles = wanted_roles(self._problem)
            self.bound = CapacityBound(
                self._candidates,
                self._rules,
                roles,
                self._problem.constraints.replicas,
                max_groups,
            )
        return self.bound
