"""Our plan for a cell: many candidates simulated on its arrivals, the least wait decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction.contenders import Contender, Means, measured, searched
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import PLANNERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt import Problem, Stop
    from e2llm_opt.workload.trace import Trace

ADAPTED: Final = "splitwise-adapted"
PAPER: Final = "e2llm-paper"
SPLITWISE: Final = "splitwise"
NUM_CANDIDATES: Final = 128
"""Plans of our search that are tried on a few runs."""
_NUM_FINALISTS = 20
"""Of these, so many are simulated on all runs, and every rival's plan."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """What planners propose for one problem.

    Parameters
    ----------
    ours
        Candidates of our own search.
    rivals
        The plan of every other planner that has one, by its name.
    """

    ours: tuple[Contender, ...]
    rivals: dict[str, Contender]

    def sifted(self, traces: Sequence[Trace], num: int = _NUM_FINALISTS) -> Field:
        """Return the field with our *num* best on a few *traces*, rivals' plans left aside."""
        known = {rival.shape for rival in self.rivals.values()}
        own = [one for one in different(self.ours) if one.shape not in known]
        if len(own) > num:
            waits = {one.shape: measured(one, traces)[:3] for one in own}
            own = sorted(own, key=lambda one: waits[one.shape])[:num]
        return replace(self, ours=tuple(own))


def rivals_of(problem: Problem, stop: Stop) -> dict[str, Contender]:
    """Return the plan of every planner but ours, where it has one."""
    return {
        name: plan for name in PLANNERS if name != OURS for plan in searched(name, problem, 1, stop)
    }


def chosen(field: Field, traces: Sequence[Trace], warmup: int = 0) -> tuple[Contender, Means]:
    """Return the plan of the least mean wait on *traces*, then of the least latency.

    Every rival's plan is a candidate, so that ours is never worse. A plan that rejects more than
    another is none.
    """
    plans = different((*field.rivals.values(), *field.ours))
    tried = [(one, measured(one, traces, warmup)) for one in plans]
    fewest = min(means.rejected for _, means in tried)
    plan, means = min(
        (pair for pair in tried if pair[1].rejected == fewest),
        key=lambda pair: (pair[1].wait_s, pair[1].latency_s),
    )
    return replace(plan, name=OURS), means


def different(contenders: Sequence[Contender]) -> list[Contender]:
    """Return *contenders* without those that are the same replicas as one before."""
    return list({one.shape: one for one in reversed(contenders)}.values())[::-1]
