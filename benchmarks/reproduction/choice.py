"""Our plan for a cell: many candidates, simulated on the cell's arrivals, the least wait decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction.contenders import Contender, Means, measured, searched
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import PLANNERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt import Problem
    from e2llm_opt.workload.trace import Trace

ADAPTED: Final = "splitwise-adapted"
PAPER: Final = "e2llm-paper"
SPLITWISE: Final = "splitwise"
NUM_CANDIDATES: Final = 256
"""Plans of our search that are tried on a first run."""
_NUM_FINALISTS = 24
"""Of these, so many are simulated on all runs, and every rival's plan."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """Everything that planners propose for one problem.

    Parameters
    ----------
    ours
        Candidates of our own search, best first.
    rivals
        The plan of every other planner that has one, by its name.
    """

    ours: tuple[Contender, ...]
    rivals: dict[str, Contender]

    def with_more(self, others: Iterable[Contender]) -> Field:
        """Return the field with more candidates of ours."""
        return replace(self, ours=(*self.ours, *others))


def field_of(problem: Problem, num: int = NUM_CANDIDATES) -> Field:
    """Return what every planner proposes for *problem*."""
    found = {name: searched(name, problem) for name in PLANNERS if name != OURS}
    rivals = {name: plans[0] for name, plans in found.items() if plans}
    return Field(ours=tuple(searched(OURS, problem, num)), rivals=rivals)


def chosen(field: Field, traces: Sequence[Trace], warmup: int = 0) -> tuple[Contender, Means]:
    """Return the plan of the least mean wait on *traces*, then of the least latency.

    Every rival's plan is a candidate, so that ours is never worse.
    """
    rivals = _different(field.rivals.values())
    own = [one for one in _different(field.ours) if one.shape not in {r.shape for r in rivals}]
    if len(own) > _NUM_FINALISTS:
        first = {id(one): measured(one, traces[:1], warmup)[:3] for one in own}
        own = sorted(own, key=lambda one: first[id(one)])[:_NUM_FINALISTS]
    tried = [(one, measured(one, traces, warmup)) for one in (*rivals, *own)]
    fewest = min(means.rejected for _, means in tried)
    best = min(
        (pair for pair in tried if pair[1].rejected == fewest),
        key=lambda pair: (pair[1].wait_s, pair[1].latency_s),
    )
    return replace(best[0], name=OURS), best[1]


def _different(contenders: Iterable[Contender]) -> list[Contender]:
    """Return *contenders* without those that are the same replicas as one before."""
    return list({one.shape: one for one in reversed(list(contenders))}.values())[::-1]
