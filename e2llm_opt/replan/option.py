"""What one step reaches: a plan, the way there, and what both are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.replan.spoken import role_changes_of

if TYPE_CHECKING:
    from e2llm_opt.replan.terms import ReplanTerms, StepName
    from e2llm_opt.replan.today import Today
    from e2llm_opt.replan.way import Way
    from e2llm_opt.search.evaluate import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """What one step reaches.

    Parameters
    ----------
    step
        Its name.
    outcome, way
        The plan, and the way there.
    gain
        What requests lose less in it than in the plan as it stands [request-seconds].
    role_changes
        Replicas that keep their layers and change their role or slots.
    """

    step: StepName
    outcome: Outcome
    way: Way
    gain: float
    role_changes: int

    @property
    def net(self) -> float:
        """Gain less price [request-seconds]."""
        return self.gain - self.way.lost


def option_of(today: Today, terms: ReplanTerms, step: StepName, outcome: Outcome) -> Option:
    """Return what *step* reaches with *outcome*."""
    limit = terms.max_downtime_s
    changes = role_changes_of(today.evaluator.costs, today.standing, outcome)
    return Option(
        step=step,
        outcome=outcome,
        way=today.ways.to(outcome, float("inf") if limit is None else limit),
        gain=today.loss - today.losses.of(outcome),
        role_changes=len(changes),
    )
