"""Our plan for a cell: many candidates simulated on its arrivals, ranked as the package does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction.contenders import (
    Contender,
    Means,
    contender_of,
    in_a_row,
    measured,
    searched,
)
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import PLANNERS, planner_named
from e2llm_opt.search.rank_by_simulation import Finals, rank_by_simulation

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt import Problem, Stop
    from e2llm_opt.search.evaluate import Evaluator, Outcome
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
    problem
        Under which all of it is simulated.
    ours
        Candidates of our own search.
    rivals
        The plan of every other planner that has one, by its name.
    """

    problem: Problem
    ours: tuple[Contender, ...]
    rivals: dict[str, Contender]

    def sifted(self, traces: Sequence[Trace], num: int = _NUM_FINALISTS) -> Field:
        """Return the field with our *num* best on a few *traces*."""
        if len(self.ours) <= num:
            return self
        best = _ranked(self.problem, self.ours, (), in_a_row(traces), 0)[:num]
        return replace(self, ours=tuple(contender_of(OURS, self.problem, one) for one in best))


def rivals_of(problem: Problem, stop: Stop) -> dict[str, Contender]:
    """Return the plan of every planner but ours, where it has one."""
    return {
        name: plan for name in PLANNERS if name != OURS for plan in searched(name, problem, 1, stop)
    }


def chosen(field: Field, traces: Sequence[Trace], warmup: int = 0) -> tuple[Contender, Means]:
    """Return our plan on *traces*, and its means.

    It is the package's own last word, :func:`~e2llm_opt.search.rank_by_simulation`: the mean wait
    decides, in units of a hundredth of a request's latency, then the latency; and what waits a
    millisecond longer than a rival's plan comes last.
    """
    whole = in_a_row(traces)
    best = _ranked(field.problem, field.ours, field.rivals.values(), whole, warmup)[0]
    plan = contender_of(OURS, field.problem, best)
    return plan, measured(plan, [whole], warmup)


def _ranked(
    problem: Problem,
    ours: Iterable[Contender],
    rivals: Iterable[Contender],
    arrivals: Trace,
    warmup: int,
) -> list[Outcome]:
    found = rank_by_simulation(
        _evaluator(problem),
        [one.outcome for one in ours if one.outcome is not None],
        Finals(arrivals=(arrivals,), warmup=warmup),
        rivals=[one.outcome for one in rivals if one.outcome is not None],
    )
    return [one.outcome for one in found]


@lru_cache(maxsize=8)
def _evaluator(problem: Problem) -> Evaluator:
    return planner_named(OURS)(costs_of(problem)).evaluator
