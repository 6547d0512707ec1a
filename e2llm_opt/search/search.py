"""The outer problem on one screen: seeds, enumeration or evolution, polish, the best of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.baselines import BASELINES
from e2llm_opt.cost import kernel
from e2llm_opt.errors import InputError
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.archive import Archive
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.certificate import is_near
from e2llm_opt.search.climb import climb
from e2llm_opt.search.exact import Exact
from e2llm_opt.search.exhaustive import MAX_DEVICES, all_groups, packings
from e2llm_opt.search.hierarchy import Hierarchy
from e2llm_opt.search.polish import polish
from e2llm_opt.search.pool import best_packing
from e2llm_opt.search.progress import Teller
from e2llm_opt.search.quick import QuickJudge, evolve_alone, is_for_capacity, useful
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.roles import ROLES_OF, RoleChooser, Scope, engine_roles, wanted_roles
from e2llm_opt.search.rules import Rules
from e2llm_opt.search.scenarios import evaluator_of
from e2llm_opt.search.stop import Stop
from e2llm_opt.search.variant import Variant, variants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.bound import Roles
    from e2llm_opt.search.candidates import Candidate, Group
    from e2llm_opt.search.evaluate import Outcome, Roled
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.quick import Evolver
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.roles import Choice

_BATCH = 128
"""Sets of groups that are judged together: an array more costs less than a call more."""
MANY_DEVICES = 128
"""Above so many, evolution would see too few groupings: sites are packed one by one."""
_SMALL_GAP = 0.02
"""Of the exact method; evolution would hardly close it."""
_MANY = 1000
"""Assignments of roles that are judged without waiting for more sets."""
_COUNT_AFTER_S = 1.0
"""Once a search runs so long it is worth knowing how many packings there are [s]."""
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
    aim
        Which plans are looked for; ANY: whatever is best.

    Attributes
    ----------
    evaluator
        Judges; its ``wait_unit_s`` is set from the baselines.
    baselines
        Outcome of each baseline by name, where it exists.
    rules
        Which outcomes the constraints allow.
    teller
        Passes on how far the search is.
    roles
        Those that engine and aim leave.
    evolver
        How groupings are evolved: in this process, or on islands.
    exact
        The bound on capacity, and the method that reaches it.
    found
        Outcomes that were found as a whole: the sites of very many devices, packed; plans for
        one of many loads.
    stop
        Limits of the last run.
    is_complete
        Whether all groupings were judged, in all roles and with every kind of cut.
    """

    def __init__(
        self,
        costs: Costs,
        progress: ProgressCallback | None = None,
        aim: Scope = Scope.ANY,
    ) -> None:
        self._costs = costs
        self.aim = aim
        self._problem = costs.problem
        self.teller = Teller(costs.problem, progress)
        excluded = set(self._problem.constraints.exclude)
        self.devices = [
            d for d in costs.classes.order if self._problem.devices[d].name not in excluded
        ]
        self.rules = Rules(costs, self.devices)
        self.candidates = Candidates(costs, self.devices)
        self.evaluator = evaluator_of(self.candidates)
        self.roles = tuple(r for r in engine_roles(self._problem) if r in ROLES_OF[aim])
        self.chooser = RoleChooser(self.evaluator, self.roles)
        self.evolver: Evolver = evolve_alone
        self.archive = Archive()
        self.exact = Exact(self.candidates, self.rules)
        self.is_complete = False
        self.found: list[Outcome] = []
        self.stop = Stop()
        self.baselines = self._baselines()
        alone = [outcome.unloaded_latency_s for outcome in self.baselines.values()]
        self.evaluator.ranking.wait_unit_s = max(1e-3, 0.01 * min(alone, default=0.0))

    def run(self, stop: Stop, seed: int) -> None:
        """Fill the archive: the exact method, every packing of few devices, or evolution."""
        self.stop = stop
        if self._is_for_sites(stop):
            self._pack_sites(stop)
            return
        is_small = len(self.devices) <= MAX_DEVICES
        is_exhaustive = stop.method == "exhaustive" or (stop.method == "auto" and is_small)
        if self._is_capacity(stop) and self._solve(stop):
            return
        if stop.method == "exact":
            return
        if stop.gap > 0:
            self.exact.bind(stop)
        for variant in variants(self._problem):
            if variant is not self.variant and self._is_settled():
                return
            if is_exhaustive:
                self._enumerate(variant, stop)
            else:
                self._evolve(variant, stop, seed)
            if self.is_late(stop) or is_near(self, stop):
                return
        self.is_complete = is_exhaustive

    def _is_for_sites(self, stop: Stop) -> bool:
        """Whether there are so many devices that sites are packed one by one."""
        is_free = not self.rules.must and self._problem.constraints.replicas is None
        is_asked = stop.method in {"auto", "exact"} and stop.max_refinements > 0
        is_rate = self._problem.objective in {Objective.THROUGHPUT, Objective.WAITING_TIME}
        is_large = len(self.devices) > MANY_DEVICES
        return is_large and is_free and is_asked and is_rate and self.aim is Scope.ANY

    def _pack_sites(self, stop: Stop) -> None:
        """Take the packings of all sites together: any roles, all MIXED, or none."""
        hierarchy = Hierarchy(self.candidates, self.devices)
        self.exact = hierarchy.exact
        for step, _ in enumerate(self.exact.solve(0.0, stop, self.teller.elapsed_s)):
            self.tell("program", step + 1, ())
        wanted = wanted_roles(self._problem)
        scopes = [wanted, (Role.MIXED,), (Role.PREFILL, Role.DECODE)]
        for number, roles in enumerate(dict.fromkeys(scopes)):
            if set(roles) <= set(wanted) and (number == 0 or not self.is_late(stop)):
                replicas = hierarchy.packed(roles)
                if replicas:
                    self.found.append(self.evaluator.outcome(replicas))
                    self.tell("site", number + 1, ())

    def _is_capacity(self, stop: Stop) -> bool:
        """Whether the exact method has a say: capacity is the objective, and the aim any plan."""
        is_asked = stop.method in {"auto", "exact"} and stop.max_refinements > 0
        is_throughput = self._problem.objective is Objective.THROUGHPUT
        if stop.method == "exact" and not is_throughput:
            raise InputError("method exact is for objective throughput.")
        return is_asked and is_throughput and self.aim is Scope.ANY

    def _solve(self, stop: Stop) -> bool:
        """Solve for capacity; whether nothing more is to be found."""
        known = max((o.traffic.capacity_per_s for o in self._allowed()), default=0.0)
        for step, found in enumerate(self.exact.solve(known, stop, self.teller.elapsed_s)):
            self.offer(found)
            self.tell("program", step + 1, self._leader(self.archive))
        num, is_good = len(self.devices), self.exact.gap <= _SMALL_GAP
        return (is_good and num > MAX_DEVICES) or (is_near(self, stop) and num > _MAX_THOROUGH)

    def offer(self, packings: Sequence[Roles]) -> None:
        """Judge *packings* in their roles, and in those that look best, and keep what is good."""
        for packing in dict.fromkeys(packings):
            groups, roles = zip(*packing, strict=True) if packing else ((), ())
            if groups and self.rules.allows(groups):
                self.archive.offer(self.chooser.given(groups, roles, Variant.RATE))
                self.archive.offer(self.chooser.best(groups, Variant.RATE))

    def best_key(self) -> Key | None:
        """Return the key of the best choice so far, links left out."""
        return next((choice.key for choice in self.archive.choices(self.aim)), None)

    def best(self, scope: Scope) -> Outcome | None:
        """Return the best outcome of *scope*, polished; of the aim also against the baselines.

        Of many devices, the adapted Splitwise is polished only where it is the aim: as an
        alternative it is not worth the time.
        """
        found = self.archive.best(scope, self.evaluator)
        is_quick = len(self.devices) <= MAX_DEVICES or scope is not Scope.ADAPTED
        if found is not None and (is_quick or scope is self.aim):
            found = polish(
                self.evaluator, found, scope, self.rules, lambda: self.is_late(self.stop)
            )
        if scope is self.aim and Role.MIXED in ROLES_OF[scope]:
            allowed = [*self._allowed(), *filter(self.rules.is_obeyed, self.found)]
            outcomes = [found, *allowed] if found is not None else allowed
            found = min(outcomes, key=self.evaluator.key, default=None)
        elif self.found:
            whole = [o for o in self.found if {c.role for c in o.replicas} <= {*ROLES_OF[scope]}]
            whole += [found] if found is not None else []
            found = min(whole, key=self.evaluator.key, default=None)
        if found is not None and self.evaluator.key(found)[0] >= IMPOSSIBLE:
            return None
        return found

    def has_plan(self) -> bool:
        """Whether any plan was found so far; it is not polished for that."""
        found = self.archive.best(self.aim, self.evaluator)
        outcomes = [*self._allowed(), *([found] if found is not None else [])]
        return any(self.evaluator.key(outcome)[0] < IMPOSSIBLE for outcome in outcomes)

    def ranked(self, num: int) -> list[Outcome]:
        """Return the best outcomes that differ in groups or roles, best first, at most *num*."""
        best = self.best(self.aim)
        if best is None or not self.rules.is_obeyed(best):
            return []
        found = {_shape(best): best}
        for choice in self.archive.choices(self.aim) if num > 1 else ():
            replicas = self.evaluator.place(choice.groups, choice.roles, choice.variant)
            if replicas is None:
                continue
            outcome = self.evaluator.outcome(replicas)
            shape, key = _shape(outcome), self.evaluator.key(outcome)
            known = found.get(shape)
            if key[0] < IMPOSSIBLE and (known is None or key < self.evaluator.key(known)):
                found[shape] = outcome
        others = sorted(found.values(), key=self.evaluator.key)
        return [best, *(o for o in others if o is not best and _shape(o) != _shape(best))][:num]

    @property
    def variant(self) -> Variant:
        """The kind of cut that was searched first."""
        return variants(self._problem)[0]

    def _is_settled(self) -> bool:
        """Whether the second kind of cut would hardly help, and many devices make it slow.

        Latency decides nothing while the best plan waits; rate nothing while it is stable.
        """
        kept = self.archive.choices(self.aim)
        if len(self.devices) <= _MAX_THOROUGH or not kept:
            return False
        is_late = kept[0].key[:2] > (0.0, 0.0)
        return kept[0].key[0] == 0 if self._problem.objective is Objective.LATENCY else is_late

    def _enumerate(self, variant: Variant, stop: Stop) -> None:
        available = {k: len(rows) for k, rows in self.candidates.rows.items()}
        every = [g for g in all_groups(available) if self.rules.allows_group(g)]
        groups: list[Group] = []
        self.teller.planned = len(every)
        for number, group in enumerate(every, start=1):
            groups += [group] if self.chooser.options(group, variant) else []
            self.tell("group", number, self._leader(self.archive))
        self.teller.planned = 0
        waiting: list[Roled] = []
        number, due = 0, 1  # the first ones soon, so that there is a best plan early on

        def judge(number: int) -> None:
            found = self.chooser.best_of(waiting, variant, self.archive.worst())
            self.archive.offer(found)
            waiting.clear()
            if self._is_worth_counting():
                self.teller.planned = sum(1 for _ in packings(groups, available))
            self.tell("packing", number, self._leader(self.archive))

        for number, packing in enumerate(packings(groups, available), start=1):
            rows = self.chooser.assignments(packing, variant)
            if self.rules.allows(packing) and rows is not None:
                waiting.append((packing, rows))
            elif self.rules.allows(packing):
                self.archive.offer(self.chooser.best(packing, variant))
            if number >= due or (rows is not None and len(rows) > _MANY):
                judge(number)
                due = number + min(number, _BATCH)
                if self.is_late(stop):
                    return
        judge(number)

    def _evolve(self, variant: Variant, stop: Stop, seed: int) -> None:
        """Evolve groupings, judged with little effort; then look closely at the best."""
        judge = QuickJudge(self, variant, stop)
        try:
            self.evolver(judge, stop, seed)
        finally:  # an interrupted search has finalists too
            self._take_finalists(judge.archive)
        if is_for_capacity(self, stop, self.archive):
            self.offer([best_packing(self.candidates, self.rules)])
        climb(self, variant, stop)

    def _take_finalists(self, archive: Archive) -> None:
        for scope in Scope:
            for choice in archive.choices(scope)[: 8 if scope is self.aim else 1]:
                parts = [useful(self.chooser, g, choice.variant) for g in choice.groups]
                packing = tuple(sorted(group for group in parts if group))
                mixed = tuple(g for g in packing if self._can_mix(g, choice.variant))
                for groups in dict.fromkeys((packing, mixed)):
                    if self.rules.allows(groups):
                        self.archive.offer(self.chooser.best(groups, choice.variant))

    def _can_mix(self, group: Group, variant: Variant) -> bool:
        return kernel.MIXED in self.chooser.options(group, variant)

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

    def _allowed(self) -> list[Outcome]:
        return [o for o in self.baselines.values() if self.rules.is_obeyed(o)]

    def _alone(self, candidate: Candidate) -> Outcome:
        return self.evaluator.outcome([candidate])

    def is_late(self, stop: Stop) -> bool:
        """Whether the time limit is over."""
        return stop.time_limit_s is not None and self.teller.elapsed_s > stop.time_limit_s

    def _is_worth_counting(self) -> bool:
        is_asked = self.teller.is_heard and not self.teller.planned
        return is_asked and self.teller.elapsed_s > _COUNT_AFTER_S

    def _leader(self, archive: Archive) -> Sequence[Choice]:
        return archive.choices(self.aim)[:1] if self.teller.is_heard else ()

    def tell(self, doing: str, number: int, leader: Sequence[Choice]) -> None:
        """Tell the state: what is tried, the how manieth, and the best choice so far, if any."""
        teller, judge = self.teller, self.evaluator
        if teller.is_heard:
            teller.doing, teller.done = doing, number
            unit = judge.ranking.wait_unit_s
            teller.tell(leader, judge.num_evaluations, unit, self.exact.limit)


def _shape(outcome: Outcome) -> tuple[tuple[Group, str], ...]:
    """Return who is grouped with whom, in which role, by device class."""
    return tuple(sorted((c.group, str(c.role)) for c in outcome.replicas))
