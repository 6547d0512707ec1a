"""The E2LLM paper's own method: two chromosomes, its dynamic program, Eq. 4.

Source: E2LLM (arXiv 2606.03770), sections 3 and 4, Algorithms 1 and 2. Where the paper leaves a
gap, docs/algorithm.md says how it is filled. The method itself is in :mod:`e2llm_opt.search.paper`
and :mod:`e2llm_opt.partition.paper`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from e2llm_opt.planners import refusal
from e2llm_opt.planners.planner import Planner
from e2llm_opt.search.paper.search import PaperSearch
from e2llm_opt.search.roles import Scope

if TYPE_CHECKING:
    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop


class PaperPlanner(Planner):
    """The paper's genetic algorithm around the paper's program.

    Attributes
    ----------
    paper
        The method itself.
    """

    NAME = "e2llm-paper"

    def __init__(self, costs: Costs, progress: ProgressCallback | None = None) -> None:
        super().__init__(costs, progress)
        self.paper = PaperSearch(self.evaluator, self.search.rules, self.search.devices)

    def run(self, stop: Stop, seed: int) -> None:
        """Evolve groupings until *stop*."""
        self.reason = refusal.no_split(self.problem)
        if self.reason:
            return
        self.reason = (
            "it needs a PREFILL and a DECODE replica, each with the whole model on devices of its "
            "own, every stream fast enough, and a way for the KV cache between them"
        )
        self.search.teller.planned, number = stop.max_evaluations, itertools.count(1)

        def tell() -> None:
            is_heard = self.search.teller.is_heard
            self.tell("grouping", next(number), self.paper.choices(Scope.ANY) if is_heard else ())

        self.paper.run(stop, seed, tell=tell, is_late=lambda: self.search.is_late(stop))

    def ranked(self, num: int) -> list[Outcome]:
        """Return the outcomes of the groupings with the least Eq. 4."""
        return self.paper.ranked(num)

    def remarks(self, outcome: Outcome) -> tuple[str, ...]:
        """Return what the reader should know of the difference between the paper and us."""
        return self.paper.remarks(outcome)

    @property
    def idle_reason(self) -> str | None:
        """The paper groups every device."""
        return f"in the grouping that {self.NAME} chose, its group cannot be a replica"


PLANNER = PaperPlanner
