"""The search for a front on one screen: single objectives, groupings, then every plan polished."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Objective
from e2llm_opt.search.exhaustive import MAX_DEVICES, all_groups, packings
from e2llm_opt.search.operators import UNUSED
from e2llm_opt.search.polish import changes
from e2llm_opt.search.progress import Progress
from e2llm_opt.search.quick import QuickJudge
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.tradeoff.aim import Aim
from e2llm_opt.search.tradeoff.aims import Aims
from e2llm_opt.search.tradeoff.front import Archive
from e2llm_opt.search.tradeoff.judge import PackingJudge
from e2llm_opt.search.variant import all_variants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop
    from e2llm_opt.search.tradeoff.judge import Verdict

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

NUM_SEEDS = 10
"""Best plans of each single objective that a front starts from."""
_QUICK_ASSIGNMENTS, _ALL_ASSIGNMENTS = 250, 3**8
"""Role assignments of a grouping that are judged one by one, while many devices evolve and else."""
_BATCH = 128
"""Sets of groups that are judged together."""
_MAX_POLISHED = 3
"""Rounds in which plans of the front are changed replica by replica."""
_BOX = 1.1
"""The hypervolume's reference point, by the worst of the front from which a search started."""


class Tradeoff:
    """One search for the front of one problem.

    Parameters
    ----------
    search
        Of the problem, not run yet. It is run for the problem's own objective.
    asked
        Objectives of the front.
    size
        Plans wanted; so many of the front are polished.
    progress
        Told how far it is; may be None.

    Attributes
    ----------
    archive
        The front so far.
    num_judged
        Groupings judged so far, apart from those of the single objectives.
    """

    def __init__(
        self, search: Search, asked: Sequence[Aim], size: int, progress: ProgressCallback | None
    ) -> None:
        self.search, self._asked, self._size = search, tuple(asked), size
        self._progress = progress
        self._problem = search.evaluator.costs.problem
        self._variants = all_variants(self._problem)
        self._seeds: list[Outcome] = []
        self._box: Floats | None = None
        self._shown: tuple[int, float] = (-1, 0.0)
        self.num_judged, self._is_complete = 0, False
        self._begin(is_stable=True)

    def run(self, stop: Stop, seed: int) -> None:
        """Fill the archive until *stop*."""
        objectives = self._objectives()
        share = None if stop.time_limit_s is None else 0.5 * stop.time_limit_s / len(objectives)
        for number, objective in enumerate(objectives):
            search = self.search if number == 0 else self._another(objective)
            try:
                search.run(replace(stop, time_limit_s=share), seed)
            finally:  # an interrupted search has plans, too
                self._take(search)
        if not self._seeds:
            return
        self._grow(stop, seed)
        if self.archive.refused is not None:  # nothing seemed to be stable, but something is
            self._seeds.append(self.archive.refused)
            self._begin(is_stable=True)
            self._grow(stop, seed)

    def thinned(self) -> tuple[list[Outcome], list[Floats], int]:
        """Return the plans of the front by their objectives, these, and the place of the knee."""
        self._settle()
        if not len(self.archive):
            return [], [], 0
        members, knee = self.archive.thinned(self._size)
        return [one.outcome for one in members], [one.values for one in members], knee

    @property
    def how(self) -> str:
        """How groupings were looked for, in a few words."""
        if self._is_complete:
            return "all groupings in all roles were judged"
        return f"{self.num_judged} groupings were judged"

    def hypervolume(self) -> float:
        """Return the share that the front dominates of the box in which the search started."""
        from e2llm_opt.search.tradeoff.evolve import hypervolume  # noqa: PLC0415 - pymoo is slow

        if self._box is None:
            return 0.0
        if self._shown[0] != self.archive.num_changes:
            found = hypervolume(self.archive.points, self._box)
            self._shown = (self.archive.num_changes, found)
        return self._shown[1]

    # -------------------------------------------------------------- seeds

    def _objectives(self) -> list[Objective]:
        """Return the problem's own objective, and those that make the ends of the front."""
        asked = set(self._asked)
        price = self.search.evaluator.ranking.price_unit
        wanted = {
            Objective.WAITING_TIME: asked & {Aim.WAITING_TIME},
            Objective.LATENCY: asked & {Aim.LATENCY, Aim.TTFT, Aim.TPOT},
            Objective.THROUGHPUT: asked & {Aim.CAPACITY},
            Objective.COST: asked & {price},
        }
        found = [self._problem.objective, *(one for one, aims in wanted.items() if aims)]
        return list(dict.fromkeys(found))

    def _another(self, objective: Objective) -> Search:
        costs = costs_of(replace(self._problem, objective=objective))
        return Search(costs, self._progress)

    def _take(self, search: Search) -> None:
        """Take the best plans of a search for a single objective."""
        rivals = [*search.baselines.values(), *(search.best(scope) for scope in Scope)]
        for outcome in (*search.ranked(NUM_SEEDS), *filter(None, rivals)):
            self._seeds.append(self.search.evaluator.outcome(outcome.replicas))
            self.archive.offer(self._seeds[-1])

    def _begin(self, *, is_stable: bool) -> None:
        """Start with an empty archive, and offer it what is known."""
        evaluator = self.search.evaluator
        aims = Aims(evaluator, self._asked, is_stable=is_stable)
        self.archive = Archive(evaluator, self.search.rules, aims)
        for outcome in self._seeds:
            self.archive.offer(outcome)

    def _settle(self) -> None:
        """Take what is not stable where nothing is."""
        if self._seeds and not len(self.archive) and self.archive.aims.is_stable:
            self._begin(is_stable=False)

    # -------------------------------------------------------------- groupings

    def _grow(self, stop: Stop, seed: int) -> None:
        """Look for plans between the single objectives' ones, and polish the front."""
        self._settle()
        if len(self.archive):
            self._box = _BOX * self.archive.points.max(axis=0)
        is_small = len(self.search.devices) <= MAX_DEVICES
        if stop.method == "exhaustive" or (stop.method == "auto" and is_small):
            self._enumerate(stop)
        else:
            self._evolve(stop, seed)
        self._polish(stop)

    def _enumerate(self, stop: Stop) -> None:
        """Judge all groupings in all roles."""
        search = self.search
        judge = PackingJudge(search, self.archive, search.evaluator, _ALL_ASSIGNMENTS)
        available = {k: len(rows) for k, rows in search.candidates.rows.items()}
        every = [g for g in all_groups(available) if search.rules.allows_group(g)]
        for variant in self._variants:
            groups = [g for g in every if judge.chooser.options(g, variant)]
            allowed = filter(search.rules.allows, packings(groups, available))
            while batch := list(itertools.islice(allowed, _BATCH)):
                judge.offer([judge.in_roles(packing, variant) for packing in batch], variant)
                self._count(len(batch), "packing")
                if search.is_late(stop):
                    return
        self._is_complete = True

    def _evolve(self, stop: Stop, seed: int) -> None:
        """Evolve groupings; little effort is spent on each of many devices' replicas."""
        from e2llm_opt.search.tradeoff.evolve import evolve  # noqa: PLC0415 - pymoo is slow

        search, self.num_judged = self.search, 0
        quick = QuickJudge(search, search.variant, stop)
        judge = PackingJudge(search, self.archive, quick.evaluator, _QUICK_ASSIGNMENTS)

        def judged(labels: Labels) -> Verdict:
            verdict = judge.grouping(quick.identity(labels), self._variants)
            self._count(1, "grouping", stop.max_evaluations)
            return verdict

        with warnings.catch_warnings():  # pymoo changes what is shown
            evolve(
                [*self._labels(), *quick.seeds],
                judged,
                quick.identity,
                stop=stop,
                seed=seed,
                is_late=lambda: search.is_late(stop),
                num_changes=lambda: self.archive.num_changes,
            )

    def _labels(self) -> Iterator[Labels]:
        """Yield the groupings of the front, and each of their replicas alone."""
        place = {d: i for i, d in enumerate(self.search.devices)}
        units = self.search.evaluator.costs.units
        found: dict[bytes, Labels] = {}
        for member in self.archive.members():
            whole = np.full(len(place), UNUSED, dtype=np.int64)
            for number, replica in enumerate(member.outcome.replicas):
                rows = [place[d] for d in units.devices(replica.cut)]
                whole[rows] = number
                one = np.full(len(place), UNUSED, dtype=np.int64)
                one[rows] = 0
                found.setdefault(one.tobytes(), one)
            found.setdefault(whole.tobytes(), whole)
        yield from found.values()

    # -------------------------------------------------------------- polish

    def _polish(self, stop: Stop) -> None:
        """Look closely at the plans of the front: all roles, exact replicas, single changes."""
        search = self.search
        judge = PackingJudge(search, self.archive, search.evaluator, _QUICK_ASSIGNMENTS)
        tried: set[object] = set()
        for _ in range(_MAX_POLISHED):
            members, _ = self.archive.thinned(self._size) if len(self.archive) else ([], 0)
            fresh = [one.outcome for one in members if _name(one.outcome) not in tried]
            for outcome in fresh:
                tried.add(_name(outcome))
                judge.grouping([replica.group for replica in outcome.replicas], self._variants)
                for replicas in changes(search.evaluator, outcome, Scope.ANY, search.rules):
                    self.archive.offer(search.evaluator.outcome(replicas))
                self._tell("plan", len(tried))
                if search.is_late(stop):
                    return
            if not fresh:
                return

    def _count(self, num: int, doing: str, planned: int | None = None) -> None:
        self.num_judged += num
        self._tell(doing, self.num_judged, planned)

    def _tell(self, doing: str, done: int, planned: int | None = None) -> None:
        if self._progress is None:
            return
        num = len(self.archive)
        self._progress(
            Progress(
                evaluations=self.search.evaluator.num_evaluations,
                elapsed_s=self.search.teller.elapsed_s,
                best=f"front of {num} plans, hypervolume {self.hypervolume():.3f}",
                doing=doing,
                done=done,
                planned=planned,
                front_size=num,
                hypervolume=self.hypervolume(),
            )
        )


def _name(outcome: Outcome) -> object:
    return frozenset((one.role, one.cut, one.slots) for one in outcome.replicas)
