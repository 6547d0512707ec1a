"""The paper's method from start to end: evolve groupings by Eq. 4, then an ordinary outcome."""

from __future__ import annotations

import math
from bisect import insort
from typing import TYPE_CHECKING, NamedTuple

from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.atlas import moved
from e2llm_opt.search.paper.fitness import best_roles
from e2llm_opt.search.paper.replicas import PaperReplicas
from e2llm_opt.search.ranking import FRAGILE
from e2llm_opt.search.roles import Choice, Scope
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.paper.operators import Genome
    from e2llm_opt.search.rules import Rules
    from e2llm_opt.search.stop import Stop

_UNFIT = 1e18
"""Stands for an infinite Eq. 4: the genetic algorithm wants numbers."""
_NUM_KEPT = 32


class Citizen(NamedTuple):
    """A grouping with its best roles; sorts by Eq. 4, then by fewer devices."""

    extra_wait_s: float
    """Eq. 4 [s]."""
    num_devices: int
    groups: tuple[Group, ...]
    roles: tuple[Role, ...]


class PaperSearch:
    """One run of the paper's method for one problem.

    Parameters
    ----------
    evaluator
        Judges the answer, and holds the candidates. Nothing of it decides the search.
    rules
        The constraints.
    devices
        Rows that may be used, in the canonical order.
    """

    def __init__(self, evaluator: Evaluator, rules: Rules, devices: list[int]) -> None:
        self._evaluator = evaluator
        self._costs = evaluator.costs
        self._rules = rules
        self._devices = devices
        self._replicas = PaperReplicas(evaluator.candidates)
        self._known: dict[tuple[Group, ...], float] = {}
        self._kept: list[Citizen] = []
        self._shown: Choice | None = None

    @property
    def extra_wait_s(self) -> float:
        """Eq. 4 of the best grouping so far; infinite without any [s]."""
        return self._kept[0].extra_wait_s if self._kept else math.inf

    def choices(self, scope: Scope) -> tuple[Choice, ...]:
        """Return the best grouping so far with its key, as :class:`Archive` does with many."""
        if scope is not Scope.ANY or not self._kept:
            return ()
        best = self._kept[0]
        if self._shown is None or self._shown.groups != best.groups:
            key = self._evaluator.key(self._evaluator.outcome(self._placed(best)))
            self._shown = Choice(
                key=key, groups=best.groups, roles=best.roles, variant=Variant.RATE
            )
        return (self._shown,)

    def run(
        self, stop: Stop, seed: int, *, tell: Callable[[], None], is_late: Callable[[], bool]
    ) -> None:
        """Evolve groupings until *stop*, calling *tell* after each."""
        from e2llm_opt.search.paper.evolve import evolve  # noqa: PLC0415 - pymoo takes long to load

        def worth(genome: Genome) -> float:
            grouping = self._grouping(genome)
            if grouping not in self._known:
                is_over = bool(self._kept) and is_late()  # any plan is better than none
                self._known[grouping] = _UNFIT if is_over else self._judge(grouping)
            self._evaluator.num_evaluations += 1
            tell()
            return self._known[grouping]

        evolve(len(self._devices), worth, self._grouping, stop=stop, seed=seed, is_late=is_late)

    def ranked(self, num: int) -> list[Outcome]:
        """Return the outcomes of the groupings with the least Eq. 4, at most *num*.

        Groupings that are impossible after all are left out: the paper takes for granted that a
        KV cache can move from every device to every other one.
        """
        found: list[Outcome] = []
        for citizen in self._kept:
            if len(found) == num:
                break
            outcome = self._evaluator.outcome(self._placed(citizen))
            if self._evaluator.key(outcome)[0] < FRAGILE:
                found.append(outcome)
        return found

    def remarks(self, outcome: Outcome) -> tuple[str, ...]:
        """Return what the reader should know of the difference between the paper and us."""
        return (*self._other_objective(), *self._fewer_slots(outcome))

    def _other_objective(self) -> tuple[str, ...]:
        objective = self._costs.problem.objective
        if objective in {Objective.WAITING_TIME, Objective.THROUGHPUT}:
            return ()
        return (f"this planner minimises the paper's Eq. 4, whatever the objective {objective}",)

    def _fewer_slots(self, outcome: Outcome) -> tuple[str, ...]:
        lines = []
        for replica in outcome.replicas:
            asked = self._replicas.find(replica.group).slots
            if replica.role is Role.DECODE and replica.slots < asked:
                first = self._costs.problem.devices[replica.cut[0][0]].name
                lines.append(
                    f"the replica that starts on {first} has {replica.slots} slots in place of the "
                    f"paper's {asked}: with more, some stream would be slower than allowed once "
                    "every stage and hop counts"
                )
        return tuple(lines)

    def _grouping(self, genome: Genome) -> tuple[Group, ...]:
        """Return the groups as sorted classes: equal for groupings that are one up to names."""
        class_of = self._costs.classes.class_of
        groups = [sorted(class_of[self._devices[i]] for i in group) for group in genome.groups()]
        return tuple(sorted(tuple(group) for group in groups))

    def _judge(self, grouping: tuple[Group, ...]) -> float:
        """Return Eq. 4 of *grouping* and keep it if it is among the best."""
        groups = tuple(group for group in grouping if self._replicas.find(group).is_usable)
        if not self._rules.allows(groups):
            return _UNFIT
        found = best_roles(
            [self._replicas.find(group) for group in groups], self._costs.problem.workload
        )
        if not found.roles:
            return _UNFIT
        num_devices = sum(len(group) for group in groups)
        citizen = Citizen(found.extra_wait_s, num_devices, groups, found.roles)
        if citizen not in self._kept:  # groupings that differ in idle devices only are one
            insort(self._kept, citizen)
            del self._kept[_NUM_KEPT:]
        return found.extra_wait_s

    def _placed(self, citizen: Citizen) -> list[Candidate]:
        """Return the replicas on disjoint devices."""
        candidates = self._evaluator.candidates
        waiting = {k: list(rows) for k, rows in candidates.rows.items()}
        placed = []
        for group, role in zip(citizen.groups, citizen.roles, strict=True):
            replica = self._replicas.find(group).in_role(role)
            rows = [waiting[k].pop(0) for k in group]
            if replica is not None:  # roles are given to replicas that can play them
                there = moved(candidates.costs, replica, candidates.concrete(group), rows)
                placed += [] if there is None else [there]
        return placed
