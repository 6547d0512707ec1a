"""Many groupings judged with little effort, the best of them kept."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, TypeAlias

from e2llm_opt.problem import Objective
from e2llm_opt.search.archive import Archive
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.effort import QUICK
from e2llm_opt.search.exhaustive import MAX_DEVICES
from e2llm_opt.search.pool import best_packing
from e2llm_opt.search.roles import RoleChooser, Scope
from e2llm_opt.search.scenarios import evaluator_of
from e2llm_opt.search.seeds import seed_groupings

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.problem import Role
    from e2llm_opt.search.candidates import Candidate, Group
    from e2llm_opt.search.search import Search
    from e2llm_opt.search.stop import Stop
    from e2llm_opt.search.variant import Variant

    Labels = NDArray[np.int64]
    Memo = dict[tuple[Group, Role, Variant], Candidate | None]

Evolver: TypeAlias = "Callable[[QuickJudge, Stop, int], None]"
"""Shows groupings to a judge, within limits and by a seed; the judge keeps what is good."""
_QUICK_ASSIGNMENTS, _QUICK_MOVES = 250, 2
"""Most role assignments, and changes of one role, a grouping."""
_UNFIT = 1e18
_POLISH_EVERY = 5
"""Generations between two looks at the pool of columns."""


class RememberedCandidates(Candidates):
    """A store that looks into a memo before it asks the partitioner.

    What a group is best at follows from the problem and the effort alone, so that it does not
    matter who filled the memo.

    Attributes
    ----------
    memo
        What was found so far, by group, role and kind of cut.
    """

    memo: Memo

    def _search(self, group: Group, role: Role, variant: Variant) -> Candidate | None:
        key = (group, role, variant)
        if key not in self.memo:
            self.memo[key] = super()._search(group, role, variant)
        return self.memo[key]


class QuickJudge:
    """Judges groupings for one search.

    Parameters
    ----------
    search
        Gives devices, rules, roles and the aim.
    variant
        The kind of cut.
    stop
        Limits.
    store
        Of the replicas; by default one that shares the columns of the search.
    is_late
        Whether time is up; by default as the search says.

    Attributes
    ----------
    archive
        The best choices so far.
    seeds
        Groupings to start from.
    known
        Worth of each packing so far.
    num_tried
        Packings judged so far.
    """

    def __init__(
        self,
        search: Search,
        variant: Variant,
        stop: Stop,
        store: Candidates | None = None,
        is_late: Callable[[], bool] | None = None,
    ) -> None:
        self.search, self.variant, self._stop = search, variant, stop
        self._costs = search.evaluator.costs
        self.store = quick_store(search) if store is None else store
        self._judge = evaluator_of(self.store, search.evaluator.ranking.wait_unit_s)
        self._chooser = RoleChooser(self._judge, search.roles, _QUICK_ASSIGNMENTS, _QUICK_MOVES)
        self.is_late = is_late or (lambda: search.is_late(stop))
        self.archive = Archive()
        self.seeds = seed_groupings(self._costs, search.devices)
        self.known: dict[tuple[Group, ...], float] = {}
        self.num_tried = 0
        self._generation = itertools.count(1)

    def worth(self, labels: Labels) -> float:
        """Return what is to be minimised; each packing is judged once, and none when it is late."""
        if self.is_late():
            return _UNFIT
        packing = self.packing(labels)
        if packing not in self.known:
            self.known[packing] = self._judged(packing)
            self.num_tried += 1
            self.tell()
        return self.known[packing]

    def identity(self, labels: Labels) -> tuple[Group, ...]:
        """Labels to sorted groups of classes: equal for groupings that are one up to names."""
        members: dict[int, list[int]] = {}
        repaired = self.search.rules.repaired(labels).tolist()
        for d, label in zip(self.search.devices, repaired, strict=True):
            if label >= 0:
                members.setdefault(label, []).append(self._costs.classes.class_of[d])
        return tuple(sorted(tuple(sorted(classes)) for classes in members.values()))

    def packing(self, labels: Labels) -> tuple[Group, ...]:
        """Labels to groups that can be replicas, each cut down to the devices that get layers."""
        found = [useful(self._chooser, group, self.variant) for group in self.identity(labels)]
        return tuple(sorted(group for group in found if group))

    def between(self) -> None:
        """Judge the best packing of all columns now and then, where capacity decides."""
        if next(self._generation) % _POLISH_EVERY == 0:
            self.polish()

    def polish(self) -> None:
        """Judge the best packing of all columns, where capacity decides."""
        if is_for_capacity(self.search, self._stop, self.archive):
            packing = tuple(group for group, _ in best_packing(self.store, self.search.rules))
            if packing and packing not in self.known:
                self.known[packing] = self._judged(packing)

    def tell(self, doing: str = "grouping", number: int | None = None) -> None:
        """Tell the search's listener how far this is."""
        self.search.evaluator.num_evaluations += self._judge.num_evaluations
        self._judge.num_evaluations = 0
        leader = self.archive.choices(self.search.aim)[:1] if self.search.teller.is_heard else ()
        self.search.tell(doing, self.num_tried if number is None else number, leader)

    def _judged(self, packing: tuple[Group, ...]) -> float:
        """Return the key as one number to minimise; broken constraints as a distance."""
        rules, aim = self.search.rules, self.search.aim
        if not packing:
            return 2 * _UNFIT
        if not rules.allows(packing):
            return _UNFIT * (1 + rules.distance(packing))
        found = self._chooser.best(packing, self.variant, self.archive.worst().get(Scope.ANY))
        self.archive.offer(found)
        if aim not in found:
            return _UNFIT
        status, first, second, *_ = found[aim][0].key
        is_whole = status == 0 and self._costs.problem.objective in {
            Objective.WAITING_TIME,
            Objective.MAX_CONTEXT,
        }
        return status * 1e15 + first + (0.5 if is_whole else 1e-9) * second / (1 + abs(second))


def quick_store(search: Search) -> Candidates:
    """Return a store of little effort with the columns of *search*; its own for few devices."""
    if len(search.devices) <= MAX_DEVICES:
        return search.candidates
    costs, columns = search.evaluator.costs, search.candidates.columns
    store = RememberedCandidates(costs, search.devices, QUICK, columns)
    store.memo = {}
    return store


def evolve_alone(judge: QuickJudge, stop: Stop, seed: int) -> None:
    """Evolve groupings in this process; the usual :data:`Evolver`."""
    from e2llm_opt.search.evolve import evolve  # noqa: PLC0415 - pymoo costs time to import

    judge.search.teller.planned = stop.max_evaluations
    evolve(
        judge.seeds,
        judge.worth,
        judge.identity,
        stop=stop,
        seed=seed,
        is_late=judge.is_late,
        between=judge.between,
    )


def is_for_capacity(search: Search, stop: Stop, archive: Archive) -> bool:
    """Whether the best packing by capacity is worth a look, because capacity decides."""
    if stop.max_refinements == 0 or search.aim is not Scope.ANY:
        return False
    kept = archive.choices(search.aim)
    is_throughput = search.evaluator.costs.problem.objective is Objective.THROUGHPUT
    return is_throughput or (bool(kept) and kept[0].key[0] > 0)


def useful(chooser: RoleChooser, group: Group, variant: Variant) -> Group:
    """Return the part of *group* that gets layers in some role; empty where none can be."""
    return group if chooser.options(group, variant) else chooser.part(group, variant)
