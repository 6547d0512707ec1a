"""The outer problem on one screen: seeds, enumeration or evolution, polish, the best of all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from e2llm_opt.baselines import BASELINES
from e2llm_opt.cost import kernel
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.archive import Archive
from e2llm_opt.search.candidates import QUICK, Candidates, Variant
from e2llm_opt.search.evaluate import Evaluator
from e2llm_opt.search.exhaustive import MAX_DEVICES, all_groups, packings
from e2llm_opt.search.paper.search import PaperSearch
from e2llm_opt.search.polish import polish
from e2llm_opt.search.progress import Progress
from e2llm_opt.search.roles import RoleChooser, Scope, engine_roles
from e2llm_opt.search.seeds import seed_groupings
from e2llm_opt.search.stop import PAPER

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidates import Candidate, Group
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop

    Labels = NDArray[np.int64]

_QUICK_ASSIGNMENTS = 250
"""Most role assignments a grouping while the genetic algorithm runs."""
_UNFIT = 1e18
_MAX_THOROUGH = 6
"""Most devices for which both kinds of cut are always tried."""


class Search:
    """One search for one problem.

    Parameters
    ----------
    costs
        Of the problem.
    progress
        Told about every packing or generation; may be None.

    Attributes
    ----------
    evaluator
        Judges; its ``wait_unit_s`` is set from the baselines.
    baselines
        Outcome of each baseline by name, where it exists.
    paper
        The paper's own method, where that is what was run.
    """

    def __init__(self, costs: Costs, progress: ProgressCallback | None = None) -> None:
        self._costs = costs
        self._problem = costs.problem
        self._progress = progress
        self._began = time.monotonic()
        excluded = set(self._problem.constraints.exclude)
        self.devices = [
            d for d in costs.classes.order if self._problem.devices[d].name not in excluded
        ]
        self.candidates = Candidates(costs, self.devices)
        self.evaluator = Evaluator(self.candidates)
        self._chooser = RoleChooser(self.evaluator, engine_roles(self._problem))
        self.archive = Archive()
        self.paper: PaperSearch | None = None
        self.baselines = self._baselines()
        alone = [outcome.unloaded_latency_s for outcome in self.baselines.values()]
        self.evaluator.wait_unit_s = max(1e-3, 0.01 * min(alone, default=0.0))

    def run(self, stop: Stop, seed: int) -> None:
        """Fill the archive: every packing of few devices, else groupings by evolution."""
        if stop.method == PAPER:
            self.paper = PaperSearch(self.evaluator, self.devices)
            self.paper.run(stop, seed, tell=self._tell, is_late=lambda: self._is_late(stop))
            return
        is_small = len(self.devices) <= MAX_DEVICES
        is_exhaustive = stop.method == "exhaustive" or (stop.method == "auto" and is_small)
        for variant in self._variants():
            if variant is not self.variant and self._is_settled():
                return
            if is_exhaustive:
                self._enumerate(variant, stop)
            else:
                self._evolve(variant, stop, seed)

    def best(self, scope: Scope) -> Outcome | None:
        """Return the best outcome of *scope*, polished; for ANY also against the baselines."""
        if self.paper is not None:
            return self.paper.best() if scope is Scope.ANY else None
        found = self.archive.best(scope, self.evaluator)
        if found is not None:
            found = polish(self.evaluator, found, scope)
        if scope is Scope.ANY:
            allowed = [o for o in self.baselines.values() if self.is_allowed(o)]
            outcomes = [found, *allowed] if found is not None else allowed
            found = min(outcomes, key=self.evaluator.key, default=None)
        return found

    def remarks(self, outcome: Outcome) -> tuple[str, ...]:
        """Return what the method itself has to say about *outcome*."""
        return () if self.paper is None else self.paper.remarks(outcome)

    def is_allowed(self, outcome: Outcome) -> bool:
        """Whether *outcome* obeys the constraints on roles, replicas and devices."""
        constraints = self._problem.constraints
        has_roles = constraints.roles != "disaggregated" or all(
            replica.role is not Role.MIXED for replica in outcome.replicas
        )
        has_all = not constraints.use_all_devices or outcome.num_devices == len(self.devices)
        wanted = constraints.replicas
        return has_roles and has_all and wanted in {None, len(outcome.replicas)}

    @property
    def variant(self) -> Variant:
        """The kind of cut that was searched first."""
        return self._variants()[0]

    def _variants(self) -> tuple[Variant, ...]:
        """Return the kinds of cut to try: the one that the objective wants first."""
        if self._problem.objective is Objective.THROUGHPUT:
            return (Variant.RATE,)
        if self._problem.workload.rate_per_s == 0:
            return (Variant.LATENCY,)
        if self._problem.objective is Objective.LATENCY:
            return (Variant.LATENCY, Variant.RATE)
        return (Variant.RATE, Variant.LATENCY)

    def _is_settled(self) -> bool:
        """Whether the second kind of cut would hardly help, and many devices make it slow.

        Latency decides nothing while the best plan waits; rate nothing while it is stable.
        """
        kept = self.archive.choices(Scope.ANY)
        if len(self.devices) <= _MAX_THOROUGH or not kept:
            return False
        is_late = kept[0].key[:2] > (0.0, 0.0)
        return kept[0].key[0] == 0 if self._problem.objective is Objective.LATENCY else is_late

    def _enumerate(self, variant: Variant, stop: Stop) -> None:
        available = {k: len(rows) for k, rows in self.candidates.rows.items()}
        groups = [g for g in all_groups(available) if self._chooser.options(g, variant)]
        for packing in packings(groups, available):
            if self._is_wanted(packing):
                self.archive.offer(self._chooser.best(packing, variant))
                self._tell()
            if self._is_late(stop):
                return

    def _evolve(self, variant: Variant, stop: Stop, seed: int) -> None:
        """Evolve groupings, judged with little effort; then look closely at the best."""
        from e2llm_opt.search.evolve import evolve  # noqa: PLC0415 - pymoo costs time to import

        is_small = len(self.devices) <= MAX_DEVICES
        store = self.candidates if is_small else Candidates(self._costs, self.devices, QUICK)
        judge = Evaluator(store, self.evaluator.wait_unit_s)
        roles = engine_roles(self._problem)
        quick = RoleChooser(judge, roles, _QUICK_ASSIGNMENTS)
        archive = Archive()
        known: dict[tuple[Group, ...], float] = {}

        def worth(labels: Labels) -> float:
            packing = self._groups(labels, variant, quick)
            if packing not in known:
                known[packing] = _UNFIT
                if not self._is_late(stop):
                    known[packing] = self._judge(packing, variant, quick, archive)
                tell()
            return known[packing]

        def tell() -> None:
            self.evaluator.num_evaluations += judge.num_evaluations
            judge.num_evaluations = 0
            self._tell(archive)

        try:
            evolve(
                seed_groupings(self._costs, self.devices),
                worth,
                self._identity,
                stop=stop,
                seed=seed,
                is_late=lambda: self._is_late(stop),
            )
        finally:  # an interrupted search has finalists too
            self._take_finalists(archive)

    def _take_finalists(self, archive: Archive) -> None:
        for scope, num in ((Scope.ANY, 8), (Scope.MIXED, 1), (Scope.DISAGGREGATED, 1)):
            for choice in archive.choices(scope)[:num]:
                useful = [self._useful(g, choice.variant, self._chooser) for g in choice.groups]
                packing = tuple(sorted(group for group in useful if group))
                mixed = tuple(g for g in packing if self._can_mix(g, choice.variant))
                for groups in dict.fromkeys((packing, mixed)):
                    if self._is_wanted(groups):
                        self.archive.offer(self._chooser.best(groups, choice.variant))

    def _can_mix(self, group: Group, variant: Variant) -> bool:
        return kernel.MIXED in self._chooser.options(group, variant)

    def _judge(
        self, packing: tuple[Group, ...], variant: Variant, quick: RoleChooser, archive: Archive
    ) -> float:
        """Return the key as one number to minimise; broken constraints as a distance."""
        if not packing:
            return 2 * _UNFIT
        if not self._is_wanted(packing):
            constraints = self._problem.constraints
            idle = len(self.devices) - sum(len(group) for group in packing)
            return _UNFIT * (
                1 + 1e-3 * idle + 1e-2 * abs((constraints.replicas or 0) - len(packing))
            )
        found = quick.best(packing, variant)
        archive.offer(found)
        if Scope.ANY not in found:
            return _UNFIT
        status, first, second, *_ = found[Scope.ANY][0].key
        is_whole = self._problem.objective is Objective.WAITING_TIME and status == 0
        return status * 1e15 + first + (0.5 if is_whole else 1e-9) * second / (1 + abs(second))

    def _groups(self, labels: Labels, variant: Variant, chooser: RoleChooser) -> tuple[Group, ...]:
        """Labels to groups that can be replicas, each cut down to the devices that get layers."""
        groups = [self._useful(group, variant, chooser) for group in self._identity(labels)]
        return tuple(sorted(group for group in groups if group))

    def _identity(self, labels: Labels) -> tuple[Group, ...]:
        """Labels to sorted groups of classes: equal for groupings that are one up to names."""
        members: dict[int, list[int]] = {}
        for d, label in zip(self.devices, labels.tolist(), strict=True):
            if label >= 0:
                members.setdefault(label, []).append(self._costs.classes.class_of[d])
        return tuple(sorted(tuple(sorted(classes)) for classes in members.values()))

    def _useful(self, group: Group, variant: Variant, chooser: RoleChooser) -> Group:
        """Return the part of *group* that gets layers in some role; empty where none can be."""
        return group if chooser.options(group, variant) else chooser.part(group, variant)

    def _is_wanted(self, packing: Sequence[Group]) -> bool:
        constraints = self._problem.constraints
        num_devices = sum(len(group) for group in packing)
        if constraints.use_all_devices and num_devices < len(self.devices):
            return False
        return constraints.replicas in {None, len(packing)}

    def _baselines(self) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        for baseline in BASELINES:
            outcomes = []
            for cut in baseline.cuts(self._costs, self.devices):
                candidate = self.candidates.at_cut(cut)
                if candidate is not None:
                    outcomes.append(self._alone(candidate))
            if outcomes:
                found[baseline.NAME] = min(outcomes, key=self.evaluator.key)
        return found

    def _alone(self, candidate: Candidate) -> Outcome:
        return self.evaluator.outcome([candidate])

    def _is_late(self, stop: Stop) -> bool:
        return stop.time_limit_s is not None and self._elapsed() > stop.time_limit_s

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _tell(self, archive: Archive | None = None) -> None:
        if self._progress is None:
            return
        kept = (archive or self.archive).choices(Scope.ANY)
        words = f"{len(kept[0].groups)} replicas, key {kept[0].key[:3]}" if kept else "none yet"
        words = words if self.paper is None else self.paper.state
        self._progress(
            Progress(
                evaluations=self.evaluator.num_evaluations, elapsed_s=self._elapsed(), best=words
            )
        )
