"""Many devices at several sites: what could serve most anywhere, then packed site by site.

Distances between sites are left out at first (:mod:`e2llm_opt.inventory.sites`): devices of one
kind are then one class wherever they are, and the best capacity there is a bound for the real
network. Replicas that are found on the way to it are packed into each site, so that neither
activations nor KV caches leave it; sites too small for any replica are packed together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.costs import Costs
from e2llm_opt.inventory.sites import sites_of, without_distances
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.exact import Exact
from e2llm_opt.search.packing import Packing, Side, repeated, served
from e2llm_opt.search.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.problem import Role
    from e2llm_opt.search.candidate import Candidate

    Floats = NDArray[np.float64]

_MAX_PATTERNS = 3000
_MAX_NODES = 300
_MAX_S = 10.0
"""For the packing of one site [s]."""
_SHARE_OF_TIME = 0.8
"""Of a time limit, for the bound and its patterns."""
_GAP = 1e-3
"""Of a site's packing, relatively."""


class _Pattern(NamedTuple):
    """A replica that may stand at any site with its devices."""

    counts: Counter[int]
    """Devices of each class, distances left out."""
    replica: Candidate
    rate: float
    """Requests a second, network cards counted [1/s]."""


class Hierarchy:
    """One problem with its sites.

    Parameters
    ----------
    candidates
        The store of replicas on the real network.
    devices
        Rows that may be used.

    Attributes
    ----------
    exact
        The method for capacity, distances left out. The replicas that it finds are the patterns.
    """

    def __init__(self, candidates: Candidates, devices: Sequence[int]) -> None:
        self._candidates, self._costs = candidates, candidates.costs
        problem, network = self._costs.problem, self._costs.network
        bare = without_distances(problem.inventory, network)
        self._bare = Costs(replace(problem, inventory=bare))
        self._patterns = Candidates(self._bare, devices)
        self.exact = Exact(self._patterns, Rules(self._bare, devices))
        self.exact.share_of_time = _SHARE_OF_TIME
        self._sites: dict[int, list[int]] = {}
        of = sites_of(problem.inventory, network)
        for d in devices:
            self._sites.setdefault(of[d], []).append(d)

    def packed(self, roles: Sequence[Role]) -> tuple[Candidate, ...]:
        """Return replicas in *roles* on the devices of all sites, each site packed by itself."""
        patterns = list(self._known_patterns(roles))
        found: list[Candidate] = []
        idle: list[int] = []
        packings: dict[tuple[tuple[int, int], ...], list[_Pattern]] = {}
        for rows in self._sites.values():
            is_alike = self._is_alike(rows)
            key = tuple(sorted(self._counts(rows).items()))
            packing = packings.get(key) if is_alike else None
            if packing is None:
                packing = self._packing(rows, patterns, is_alike=is_alike)
            if is_alike:  # others like it are packed alike
                packings[key] = packing
            chosen = self._placed(rows, packing, is_alike=is_alike)
            found += chosen
            idle += [] if chosen else rows
        if idle and len(self._sites) > 1:
            packing = self._packing(idle, patterns, is_alike=False)
            found += self._placed(idle, packing, is_alike=False)
        return tuple(found)

    def _known_patterns(self, roles: Sequence[Role]) -> Iterator[_Pattern]:
        """Yield the replicas known that give most for each device."""
        columns = self._patterns.columns
        known = [
            (columns.rate(group, role) / len(group), group, role)
            for group in columns
            for role in roles
            if columns.rate(group, role) > 0
        ]
        known.sort(key=lambda one: (-one[0], one[1], one[2]))
        for _, group, role in known[:_MAX_PATTERNS]:
            replica = columns.best(group, role)
            if replica is not None:
                useful = Counter(self._bare.group(replica.cut))
                yield _Pattern(useful, replica, columns.rate(group, role))

    def _counts(self, rows: Sequence[int]) -> Counter[int]:
        return Counter(self._bare.classes.class_of[d] for d in rows)

    def _is_alike(self, rows: Sequence[int]) -> bool:
        """Whether the devices of a site are as near each other as without any distance."""
        heads = {self._costs.classes.class_of[d]: d for d in rows}
        seconds = {self._costs.classes.class_of[d]: d for d in rows[::-1]}
        own = np.array(sorted({*heads.values(), *seconds.values()}))
        real, bare = (one.ways.of(own[:, None], own) for one in (self._costs, self._bare))
        off = ~np.eye(len(own), dtype=bool)
        return all(
            a.shape == b.shape and np.array_equal(a[off], b[off])
            for a, b in zip(real, bare, strict=True)
        )

    def _packing(
        self, rows: Sequence[int], patterns: Sequence[_Pattern], *, is_alike: bool
    ) -> list[_Pattern]:
        """Return the patterns that serve most on *rows* together, each as often as it is taken."""
        have = self._counts(rows)
        fitting = [one for one in patterns if one.counts <= have]
        if not is_alike:
            fitting = [self._real(rows, one) for one in fitting]
        fitting = [one for one in fitting if one.rate > 0]
        if not fitting:
            return []
        classes = sorted(have)
        rates = np.array([one.rate for one in fitting])
        program = Packing(
            np.array([[float(one.counts[k]) for k in classes] for one in fitting]),
            served(rates, [one.replica.role for one in fitting]),
            Side(
                available=np.array([float(have[k]) for k in classes]),
                must=np.zeros(len(classes)),
                replicas=None,
            ),
        )
        solved = program.whole(_MAX_S, _MAX_NODES, _GAP)
        if solved.value <= 0:
            return []
        return repeated(fitting, solved.x)

    def _real(self, rows: Sequence[int], pattern: _Pattern) -> _Pattern:
        """Return *pattern* with its figures on the real network, at its first place on *rows*."""
        placed = self._placed(rows, [pattern], is_alike=False)
        if not placed:
            return pattern._replace(rate=0.0)
        return pattern._replace(rate=self._candidates.rate(placed[0]))

    def _placed(
        self, rows: Sequence[int], packing: Sequence[_Pattern], *, is_alike: bool
    ) -> list[Candidate]:
        """Return the replicas of *packing* on disjoint devices of *rows*."""
        waiting: dict[int, list[int]] = {}
        for d in rows:
            waiting.setdefault(self._bare.classes.class_of[d], []).append(d)
        found: list[Candidate] = []
        for one in packing:
            old = self._bare.units.devices(one.replica.cut)
            new = [waiting[self._bare.classes.class_of[d]].pop(0) for d in old]
            where = dict(zip(old, new, strict=True))
            cut = self._bare.units.moved(one.replica.cut, where, self._costs.units)
            if cut is None:  # a site has its devices in another order
                continue
            replica: Candidate | None
            replica = replace(one.replica, cut=cut, group=self._costs.group(cut))
            if not is_alike:
                like = one.replica
                replica = self._candidates.at_cut(cut, like.role, like.slots, like.spilled)
            found += [] if replica is None else [replica]
        return found
