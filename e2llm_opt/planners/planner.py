"""What a planner is: one run of one method on one problem, ending in ordinary outcomes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from e2llm_opt.planners import refusal
from e2llm_opt.search.ranking import FRAGILE, IMPOSSIBLE
from e2llm_opt.search.roles import Choice, Scope
from e2llm_opt.search.search import Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.problem import Role
    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop
    from e2llm_opt.search.variant import Variant


class Planner(ABC):
    """One run of one method on one problem.

    Parameters
    ----------
    costs
        Of the problem.
    progress
        Told how far it is; may be None.

    Attributes
    ----------
    search
        Devices, rules, candidates and the evaluator, which judges every planner's plans alike.
    found
        Outcomes that are possible and obey the constraints, as :meth:`keep` took them.
    reason
        Why nothing was found, where nothing was.
    refused
        The cut that did not do, where *reason* is about one.
    """

    NAME: ClassVar[str]
    AIM: ClassVar[Scope] = Scope.ANY

    def __init__(self, costs: Costs, progress: ProgressCallback | None = None) -> None:
        self.costs = costs
        self.problem = costs.problem
        self.search = Search(costs, progress, self.AIM)
        self.evaluator = self.search.evaluator
        self.candidates = self.search.candidates
        self.found: list[Outcome] = []
        self.reason = ""
        self.refused: Cut | None = None

    @abstractmethod
    def run(self, stop: Stop, seed: int) -> None:
        """Look for plans until *stop*; whatever was found until an interrupt stays found."""

    def ranked(self, num: int) -> list[Outcome]:
        """Return the outcomes found, best first, at most *num*."""
        return sorted(self.found, key=self.evaluator.key)[:num]

    def remarks(self, outcome: Outcome) -> tuple[str, ...]:  # noqa: ARG002 - others have some
        """Return what this planner itself has to say about *outcome*."""
        return ()

    @property
    def idle_reason(self) -> str | None:
        """Why a device that could hold layers has none; None: as our search says it."""
        return f"planner {self.NAME} leaves it out"

    def explain(self, seed: int) -> Infeasible:
        """Return why there is no plan, and what would help."""
        return refusal.explain(self.search, self.NAME, (self.reason, self.refused), seed=seed)

    def keep(self, replicas: Sequence[Candidate]) -> bool:
        """Judge *replicas* and keep them where they are possible and allowed."""
        outcome = self.evaluator.outcome(replicas)
        if self.evaluator.key(outcome)[0] >= IMPOSSIBLE:
            self.reason = refusal.IMPOSSIBLE
        elif self.evaluator.key(outcome)[0] >= FRAGILE or not self.search.rules.is_obeyed(outcome):
            self.reason = refusal.FORBIDDEN
        else:
            self.found.append(outcome)
            return True
        return False

    def keep_pipeline(self, cut: Cut) -> bool:
        """Keep one MIXED replica with *cut*, with as many slots as it holds fast enough."""
        replica = self.candidates.at_cut(cut)
        if replica is None:
            self.reason, self.refused = refusal.fault_of(self.costs, cut), cut
            return False
        return self.keep([replica])

    def keep_packing(
        self, groups: Sequence[Group], roles: Sequence[Role | None], variant: Variant
    ) -> bool:
        """Keep *groups* on disjoint devices in *roles*; None: its devices idle."""
        placed = self.evaluator.place(groups, roles, variant)
        return placed is not None and self.keep(placed)

    def tell(self, doing: str, number: int, leader: Sequence[Choice] = ()) -> None:
        """Tell the state: what is tried, the how manieth, and the best choice so far, if any."""
        self.search.tell(doing, number, leader)


class SearchPlanner(Planner):
    """Our own search for the best plan of one scope."""

    def run(self, stop: Stop, seed: int) -> None:
        """Search groupings until *stop*."""
        self.search.run(stop, seed)

    def ranked(self, num: int) -> list[Outcome]:
        """Return the best outcomes that differ in groups or roles, best first."""
        return self.search.ranked(num)

    @property
    def idle_reason(self) -> str | None:
        """None: our search says it."""
        return None
