"""What plans are worth in a regime, by the cost model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Problem, Role
from e2llm_opt.search import assemble
from e2llm_opt.search.search import Search
from e2llm_opt.search.standing import Standing, cuts_of

if TYPE_CHECKING:
    from e2llm_opt.adapt.regime import Regime
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.search.evaluate import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A plan in a regime.

    Parameters
    ----------
    plan
        With the figures that it has there.
    wait_s
        Mean wait of the requests that arrive until the horizon [s].
    capacity_per_s
        Requests a second that it can serve.
    latency_s
        Mean latency of a request alone, prefill and decoding [s].
    """

    plan: Plan
    wait_s: float
    capacity_per_s: float
    latency_s: float


class Judge:
    """Judges plans in one regime.

    Parameters
    ----------
    problem
        What the plans were made for, under any load.
    regime
        The load that counts.
    horizon_s
        How far ahead waits are counted: of a plan that is overloaded they grow until then.
    """

    def __init__(self, problem: Problem, regime: Regime, horizon_s: float) -> None:
        self._problem = regime.problem(problem)
        self._costs = costs_of(self._problem)
        self._evaluator = Search(self._costs).evaluator
        self._horizon_s = horizon_s

    def as_it_is(self, plan: Plan) -> Worth | None:
        """Return the worth of *plan* with its roles and slots; None where it breaks a limit."""
        cuts = cuts_of(self._costs, plan)
        found = [
            self._evaluator.candidates.at_cut(
                cut, Role(replica.role), replica.slots, replica.spilled
            )
            for cut, replica in zip(cuts, plan.replicas, strict=True)
        ]
        whole = [
            one
            for one, replica in zip(found, plan.replicas, strict=True)
            if one is not None and (one.slots == replica.slots or replica.role == Role.PREFILL)
        ]
        if len(whole) < len(found):
            return None
        outcome = self._evaluator.outcome(whole)
        return self._worth(plan, outcome)

    def best_roles(self, plan: Plan) -> Worth | None:
        """Return the replicas of *plan* in their best roles, with the slots that serve most."""
        outcome = Standing(self._evaluator, cuts_of(self._costs, plan)).best()
        if outcome is None:
            return None
        return self._worth(plan, outcome)

    def _worth(self, plan: Plan, outcome: Outcome) -> Worth:
        rate, capacity = self._problem.workload.rate_per_s, outcome.traffic.capacity_per_s
        # at most what piles up until the horizon if nothing more than the capacity is served
        piled_s = 0.5 * self._horizon_s * max(1.0 - capacity / rate, 0.0) if rate > 0 else 0.0
        wait_s = outcome.waiting_time_s if outcome.is_stable else piled_s
        other = replace(
            plan,
            replicas=assemble.replicas_of(self._costs, outcome),
            routes=assemble.routes_of(self._costs, outcome),
            predicted=assemble.predicted_of(self._costs, outcome),
            alternatives=(),
            explain=(),
            warnings=(),
        )
        return Worth(
            plan=other,
            wait_s=min(wait_s, 0.5 * self._horizon_s),
            capacity_per_s=capacity,
            latency_s=outcome.unloaded_latency_s,
        )
