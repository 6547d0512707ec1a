"""All groups seen so far as rows of arrays, so that any set of them is a pool in microseconds."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.pools import Pool
from e2llm_opt.cost.transfer import kv_transfer
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.candidates import Candidates
    from e2llm_opt.search.variant import Variant
    from e2llm_opt.workload.workload import Workload

    Floats = NDArray[np.float64]

_FIRST_ROWS = 64
_BY_GROUP = tuple(name for name in Pool._fields if name not in {"transfer", "load"})
"""Arrays of a pool with one row a replica."""


class Atlas:
    """Figures of every group of one variant, in every role it can play.

    Parameters
    ----------
    candidates
        The store of replicas.
    variant
        Which cuts.
    """

    def __init__(self, candidates: Candidates, variant: Variant) -> None:
        self._candidates = candidates
        self._variant = variant
        self._row_of: dict[Group, int] = {}
        self._found: list[list[Candidate | None]] = []
        self._linked: set[tuple[int, int]] = set()
        workload = candidates.costs.problem.workload
        width = candidates.costs.problem.runtime.max_slots
        empty: list[list[Candidate | None]] = [[None, None, None]] * _FIRST_ROWS
        blank = np.full((_FIRST_ROWS, _FIRST_ROWS), np.nan)
        self._all = pool_of(empty, blank, workload, width)

    @property
    def pool_of_all(self) -> Pool:
        """All groups seen so far."""
        return self._all

    def rows(self, groups: Sequence[Group]) -> tuple[Pool, list[int]]:
        """Return the pool of all groups seen so far, and the rows of *groups* in it."""
        rows = [self._row(group) for group in groups]
        for i, j in permutations(rows, 2):  # also from a group to another one like it
            if (i, j) not in self._linked:
                self._linked.add((i, j))
                self._all.transfer[i, j] = self._exposed(i, j)
        return self._all, rows

    def pool(self, groups: Sequence[Group]) -> Pool:
        """Return the rows of *groups* as a pool of their own."""
        _, rows = self.rows(groups)
        return self._all._replace(
            transfer=self._all.transfer[np.ix_(rows, rows)],
            **{name: getattr(self._all, name)[rows] for name in _BY_GROUP},
        )

    def _row(self, group: Group) -> int:
        row = self._row_of.get(group)
        if row is None:
            found = [self._candidates.find(group, role, self._variant) for role in Role]
            row = self._row_of[group] = len(self._found)
            self._found.append(found)
            if row >= len(self._all.occupancy):
                self._grow()
            workload = self._candidates.costs.problem.workload
            width = self._all.decode_tpot.shape[1]
            one = pool_of([found], np.full((1, 1), np.nan), workload, width)
            for name in _BY_GROUP:
                getattr(self._all, name)[row] = getattr(one, name)[0]
        return row

    def _grow(self) -> None:
        num = 2 * len(self._all.occupancy)
        larger = {}
        for name in _BY_GROUP:
            array = getattr(self._all, name)
            larger[name] = np.zeros((num, *array.shape[1:]), dtype=array.dtype)
            larger[name][: len(array)] = array
        transfer = np.full((num, num), np.nan)
        old = len(self._all.transfer)
        transfer[:old, :old] = self._all.transfer
        self._all = self._all._replace(transfer=transfer, **larger)

    def _exposed(self, i: int, j: int) -> float:
        """KV transfer between two groups on disjoint devices, by class [s]."""
        source, target = self._found[i][0], self._found[j][1]
        if source is None or target is None:
            return float("inf")
        waiting = {k: list(rows) for k, rows in self._candidates.rows.items()}
        needed = source.group + target.group
        if any(needed.count(k) > len(waiting[k]) for k in needed):
            return float("inf")  # the two never stand side by side
        costs = self._candidates.costs
        cuts = []
        for candidate in (source, target):
            rows = [waiting[k].pop(0) for k in candidate.group]
            old = self._candidates.concrete(candidate.group)
            there = moved(costs, candidate, old, rows)
            if there is None:
                return float("inf")
            cuts.append(there.cut)
        return kv_transfer(costs, cuts[0], cuts[1], source.prefill_latency_s).exposed_s


def moved(
    costs: Costs, candidate: Candidate, old: Sequence[int], new: Sequence[int]
) -> Candidate | None:
    """Return *candidate* on other devices of the same classes; None where they form no units."""
    cut = costs.units.moved(candidate.cut, dict(zip(old, new, strict=True)))
    return None if cut is None else replace(candidate, cut=cut)


def pool_of(
    found: list[list[Candidate | None]], transfer: Floats, workload: Workload, width: int
) -> Pool:
    """Return the pool of replicas given as rows of candidates (PREFILL, DECODE, MIXED)."""
    num = len(found)
    occupancy, latency = np.full(num, np.inf), np.zeros(num)
    busy = np.zeros((2, num))
    behind, scv, usable = np.zeros(num), np.zeros(num), np.ones((2, num, width))
    slots = np.zeros((2, num), dtype=np.int64)
    tpot = np.full((2, num, width), np.inf)
    pause, mixed_latency, mixed_scv = np.zeros(num), np.zeros(num), np.zeros(num)
    for r, (first, second, both) in enumerate(found):
        if first is not None:
            occupancy[r], latency[r] = first.occupancy_s, first.prefill_latency_s
            busy[0, r], scv[r], behind[r] = first.spread
        for i, candidate in enumerate((second, both)):
            if candidate is not None:
                slots[i, r] = candidate.slots
                tpot[i, r, : candidate.slots] = candidate.tpot_s
                usable[i, r, : candidate.slots] = candidate.usable
        if both is not None:
            pause[r], mixed_latency[r] = both.pause_s, both.prefill_latency_s
            busy[1, r], mixed_scv[r], _ = both.spread
    shorter = workload.output.mean_of_shorter / workload.output.mean
    return Pool(
        occupancy=occupancy,
        prefill_latency=latency,
        prefill_busy=busy[0].copy(),
        prefill_scv=scv,
        prefill_behind=behind,
        decode_slots=slots[0].copy(),
        decode_tpot=tpot[0].copy(),
        decode_usable=usable[0].copy(),
        mixed_slots=slots[1].copy(),
        mixed_tpot=tpot[1].copy(),
        mixed_usable=usable[1].copy(),
        mixed_pause=pause,
        mixed_busy=busy[1].copy(),
        mixed_latency=mixed_latency,
        mixed_scv=mixed_scv,
        transfer=transfer,
        load=np.array([workload.rate_per_s, workload.output.mean, workload.output.cv**2, shorter]),
    )
