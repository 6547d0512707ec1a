"""What plans do in a regime, by the cost model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Problem, Role
from e2llm_opt.search import assemble
from e2llm_opt.search.search import Search
from e2llm_opt.search.standing import Standing, as_planned, cuts_of

if TYPE_CHECKING:
    from e2llm_opt.adapt.regime import Regime
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.search.evaluate import Outcome


class Judge:
    """Judges plans in one regime.

    Parameters
    ----------
    problem
        What the plans were made for, under any load.
    regime
        The load that counts.
    """

    def __init__(self, problem: Problem, regime: Regime) -> None:
        self._costs = costs_of(regime.problem(problem))
        self._evaluator = Search(self._costs).evaluator

    def as_it_is(self, plan: Plan) -> Plan | None:
        """Return *plan* with its roles and slots, and its figures here; None: it breaks a limit."""
        found = as_planned(self._evaluator.candidates, plan, cuts_of(self._costs, plan))
        whole = [
            one
            for one, replica in zip(found, plan.replicas, strict=True)
            if one is not None and (one.slots == replica.slots or replica.role == Role.PREFILL)
        ]
        if len(whole) < len(found):
            return None
        return self._with_figures(plan, self._evaluator.outcome(whole))

    def best_roles(self, plan: Plan) -> Plan | None:
        """Return the replicas of *plan* in their best roles, with the slots that serve most."""
        outcome = Standing(self._evaluator, cuts_of(self._costs, plan)).best()
        return None if outcome is None else self._with_figures(plan, outcome)

    def _with_figures(self, plan: Plan, outcome: Outcome) -> Plan:
        return replace(
            plan,
            replicas=assemble.replicas_of(self._costs, outcome),
            routes=assemble.routes_of(self._costs, outcome),
            predicted=assemble.predicted_of(self._costs, outcome),
            alternatives=(),
            explain=(),
            warnings=(),
        )
