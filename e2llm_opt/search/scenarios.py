"""Replicas judged in every scenario of a workload: one set of them, many loads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.evaluate import Evaluator
from e2llm_opt.search.variant import variants
from e2llm_opt.workload.scenarios import Risk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.evaluate import Outcome, Roled
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.variant import Variant
    from e2llm_opt.workload.workload import Workload

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Identity = tuple[tuple[object, ...], ...]


_NOTHING = [0.0] * 6
"""Figures of what cannot be."""


class _Followers(Candidates):
    """The replicas of another store, as they are in one scenario.

    Parameters
    ----------
    costs
        Of the scenario.
    leader
        The store that chooses cuts and slots.
    """

    def __init__(self, costs: Costs, leader: Candidates) -> None:
        super().__init__(costs, [d for rows in leader.rows.values() for d in rows])
        self.rows, self._leader = leader.rows, leader
        self._own = Candidates(costs, [d for rows in leader.rows.values() for d in rows])
        self._of: dict[int, tuple[Candidate, Candidate | None]] = {}

    def find(self, group: Group, role: Role, variant: Variant) -> Candidate | None:
        """Return the leader's replica; None where it is too slow in this scenario."""
        found = self._leader.find(group, role, variant)
        if found is None:
            return None
        if id(found) not in self._of:
            self._of[id(found)] = found, followed(self, found)  # kept, so that the id stays its own
        return self._of[id(found)][1]

    def alone(self, group: Group, role: Role) -> Candidate | None:
        """Return the best replica of *group* if this were the only scenario."""
        return self._own.find(group, role, variants(self.costs.problem)[0])


class ScenarioEvaluator(Evaluator):
    """Judges one set of replicas by its times in all scenarios; requests go where each load needs.

    Outcomes are those at the workload itself, which stands for all; keys are of all scenarios.

    Parameters
    ----------
    candidates, wait_unit_s
        As of :class:`Evaluator`; the problem's workload has scenarios.
    """

    def __init__(self, candidates: Candidates, wait_unit_s: float = 1e-3) -> None:
        super().__init__(candidates, wait_unit_s)
        problem = self.costs.problem
        self._workload = problem.workload
        workloads = map(self._workload.in_scenario, self._workload.scenarios)
        self._followers = [
            _Followers(costs_of(replace(problem, workload=own)), candidates) for own in workloads
        ]
        self._versions = [Evaluator(own, wait_unit_s) for own in self._followers]
        self._known: dict[Identity, Key] = {}

    def key(self, outcome: Outcome) -> Key:
        """Return what sorts plans, by the measure of their figures in all scenarios."""
        identity = tuple((c.role, c.cut, c.slots, c.spilled) for c in outcome.replicas)
        if identity not in self._known:
            there = self.in_scenarios(outcome)
            values = self._measured(
                np.array([[_NOTHING if one is None else one.values] for one in there])
            )[0]
            lacks = [
                (1.0, 1.0) if own is None else version.spare.lacks(own.replicas)
                for version, own in zip(self._versions, there, strict=True)
                if version.spare is not None
            ]
            self._known[identity] = self._key(
                values,
                outcome.replicas,
                (max(a for a, _ in lacks), max(b for _, b in lacks)) if lacks else None,
            )
        return self._known[identity]

    def in_scenarios(self, outcome: Outcome) -> list[Outcome | None]:
        """Return the replicas of *outcome* in each scenario; None where one is too slow."""
        found = []
        for store, version in zip(self._followers, self._versions, strict=True):
            there = [own for one in outcome.replicas if (own := followed(store, one)) is not None]
            is_whole = len(there) == len(outcome.replicas)
            found.append(version.outcome(there) if is_whole else None)
        return found

    def others(self, group: Group, role: Role) -> Iterator[Candidate]:
        """Yield what would be best in a single scenario."""
        for store in self._followers:
            own = store.alone(group, role)
            here = None if own is None else followed(self.candidates, own)
            if here is not None:
                yield here

    def better(self, replicas: Sequence[Candidate], than: Outcome) -> Outcome | None:
        """Return the outcome of *replicas* where its key is smaller than that of *than*."""
        outcome = self.outcome(replicas)
        return outcome if self.key(outcome) < self.key(than) else None

    def figures(self, sets: Sequence[Roled], variant: Variant) -> tuple[Floats, Floats | None]:
        """Return the measure of the figures [A, 6], and the most that is lacking anywhere."""
        return self._together([one.figures(sets, variant) for one in self._versions])

    def figures_given(
        self, ways: Sequence[Mapping[Role, Candidate]], codes: Ints
    ) -> tuple[Floats, Floats | None]:
        """Return the same of replicas given in each role."""
        found = []
        for store, version in zip(self._followers, self._versions, strict=True):
            there = [
                {role: own for role, one in roles.items() if (own := followed(store, one))}
                for roles in ways
            ]
            found.append(version.figures_given(there, codes))
        return self._together(found)

    def _together(
        self, found: Sequence[tuple[Floats, Floats | None]]
    ) -> tuple[Floats, Floats | None]:
        lacks = [lacking for _, lacking in found if lacking is not None]
        values = self._measured(np.stack([values for values, _ in found]))
        return values, np.max(lacks, axis=0) if lacks else None

    def _measured(self, values: Floats) -> Floats:
        """Return what the risk makes of figures in S scenarios [S, A, 6]: [A, 6].

        Times by the measure; TTFT the longest, as a service level holds always. Capacity is that
        of the workload itself at which the first scenario would have no steady state; where
        capacity is the objective, what the measure of its inverse comes to.
        """
        workload = self._workload
        found = measured(values, workload)
        found[:, kernel.TTFT] = values[:, :, kernel.TTFT].max(axis=0)
        capacity = values[:, :, kernel.CAPACITY]
        if self.costs.problem.objective is Objective.THROUGHPUT:
            least = 1.0 / measured(1.0 / np.maximum(capacity, 1e-300), workload)
        else:
            loads = np.array([one.rate_per_s for one in workload.scenarios])
            has_load = loads > 0 if workload.rate_per_s > 0 else np.zeros(len(loads), dtype=bool)
            scale = np.where(has_load, workload.rate_per_s / np.maximum(loads, 1e-300), 1.0)
            matters = has_load if has_load.any() else ~has_load
            least = (capacity * scale[:, None])[matters].min(axis=0)
        found[:, kernel.CAPACITY] = np.where((capacity > 0).all(axis=0), least, 0.0)
        return found


def followed(store: Candidates, other: Candidate) -> Candidate | None:
    """Return *other*, of another load, as it is in *store*; None: streams would be too slow."""
    if other.role is not Role.PREFILL:
        figures = store.figures.build(other.cut, other.slots, other.spilled)
        if not store.figures.is_legal(figures, other.role)[-1]:
            return None
    return store.like(other)


def evaluator_of(candidates: Candidates, wait_unit_s: float = 1e-3) -> Evaluator:
    """Return what judges *candidates*: in every scenario, where the workload has some."""
    has_scenarios = bool(candidates.costs.problem.workload.scenarios)
    return (ScenarioEvaluator if has_scenarios else Evaluator)(candidates, wait_unit_s)


def measured(values: Floats, workload: Workload) -> Floats:
    """Return what the workload's risk makes of values in its S scenarios [S, ...]: [...].

    CVaR is the mean of the worst, which have a weight of ``1 - cvar_level`` together. Source:
    Rockafellar and Uryasev, Optimization of conditional value-at-risk, 2000.
    """
    if workload.risk is Risk.WORST:
        worst: Floats = values.max(axis=0)
        return worst
    share = 1.0 if workload.risk is Risk.EXPECTED else 1.0 - workload.cvar_level
    weights = np.array([one.weight for one in workload.scenarios])
    order = np.argsort(-values, axis=0, kind="stable")
    falling = np.take_along_axis(values, order, axis=0)
    before = np.cumsum(weights[order], axis=0) / weights.sum()
    parts = np.clip(np.diff(np.minimum(before, share), axis=0, prepend=0.0), 0.0, None)
    total: Floats = (np.where(parts > 0, falling, 0.0) * parts).sum(axis=0) / share
    return total
