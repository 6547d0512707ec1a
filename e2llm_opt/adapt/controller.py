"""The brain of an orchestrator: what arrives is watched, and another plan taken where it pays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from e2llm_opt.adapt.regime import Estimator, Regime
from e2llm_opt.adapt.repertoire import Repertoire, shape_of
from e2llm_opt.adapt.worth import Judge, Worth
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import Plan
from e2llm_opt.simulate.cast import actors_of, costs_for
from e2llm_opt.simulate.changes import LOAD_BYTES_PER_S
from e2llm_opt.simulate.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.problem import Problem


_OTHER = 0.5
"""Share by which a rate or a length differs where a move is no longer the last word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """When a controller moves, and when it does not.

    Parameters
    ----------
    horizon_s
        How long a regime is taken to last: what a move saves is counted until then [s].
    least_requests, least_answers
        Requests of a new regime that are seen, and finished, before anything is decided.
    every_s
        How often plans are compared where nothing abrupt happens [s].
    least_change
        Share by which the rate or a mean length differs, or plans are not compared again.
    rest_s
        How long after a move no other one is made, unless the load changes abruptly or by half [s].
    gain_over_cost
        A move saves so many times what it costs, or it is not made.
    least_gain
        Share of the present wait that a move saves at least.
    roles_share
        Other roles on the same layers are taken where they save this share of what the best
        plan saves.
    replans
        Whether a plan is made for a load that is new, beside those of the repertoire; `decide` then
        takes as long as that, seconds for some devices.
    load_bytes_per_s, start_s
        What a replica takes to load, and to start, as in ``Changes``.
    """

    horizon_s: float = 3600.0
    least_requests: int = 20
    least_answers: int = 10
    every_s: float = 60.0
    least_change: float = 0.1
    rest_s: float = 600.0
    gain_over_cost: float = 2.0
    least_gain: float = 0.3
    roles_share: float = 0.9
    replans: bool = False
    load_bytes_per_s: float = LOAD_BYTES_PER_S
    start_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now.

    Parameters
    ----------
    action
        ``stay``; ``routing``: the same replicas, other routes; ``roles``: no layer moves; ``plan``.
    plan
        To run from now on, with its figures under the present load; the present one to stay.
    reason
        One sentence.
    regime
        The load as it is estimated.
    gain_s
        Waits of all requests until the horizon that the move is expected to save [s].
    cost_s
        Waits of all requests that the move itself causes [s].
    """

    action: Literal["stay", "routing", "roles", "plan"]
    plan: Plan
    reason: str
    regime: Regime
    gain_s: float = 0.0
    cost_s: float = 0.0


class _Move(NamedTuple):
    worth: Worth
    action: Literal["routing", "roles", "plan"]
    gain_s: float
    cost_s: float

    @property
    def net_s(self) -> float:
        return self.gain_s - self.cost_s


class Controller:
    """Watches requests and decides.

    Parameters
    ----------
    problem
        What the plans were made for.
    plan
        The one that runs.
    repertoire
        Plans to choose from; the running one, and other roles on its layers, are always among them.
    caution
        When it moves.

    Notes
    -----
    The same observations and questions give the same decisions. docs/adaptation.md says how.
    """

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        repertoire: Repertoire | None = None,
        caution: Caution | None = None,
    ) -> None:
        self.plan = plan
        self._problem, self._caution = problem, caution or Caution()
        self._plans = repertoire.plans if repertoire is not None else ()
        self._estimator = Estimator(Regime.of(problem))
        self._latency_s = plan.predicted.latency_s or 0.0
        self._asked_s = self._moved_s = -math.inf
        self._judged_changes = 0
        self._judged: Regime | None = None

    @property
    def regime(self) -> Regime:
        """The load as it is estimated."""
        return self._estimator.regime

    def observe(
        self, time_s: float, prompt_tokens: float, output_tokens: float | None = None
    ) -> None:
        """Take a request in that arrives; the length of its answer where it is known already.

        Raises
        ------
        InputError
            When requests are not in order, or have no tokens.
        """
        self._estimator.arrive(time_s, prompt_tokens)
        if output_tokens is not None:
            self.finished(output_tokens, time_s)

    def finished(self, output_tokens: float, arrived_s: float | None = None) -> None:
        """Take the length of an answer in, when it is known, and when its request came.

        Raises
        ------
        InputError
            When it has no token.
        """
        self._estimator.finish(output_tokens, arrived_s)

    def decide(self, time_s: float) -> Decision:
        """Say what to do at *time_s*; a plan that is to be run is taken to run from then on.

        Raises
        ------
        InputError
            When the time is not a number.
        """
        if not math.isfinite(time_s):
            raise InputError(f"the time must be finite, got {time_s:g}.")
        estimator, caution = self._estimator, self._caution
        if estimator.num < caution.least_requests:
            return self._stay("too few requests of this load have been seen to judge it")
        if estimator.num_answers < caution.least_answers:
            return self._stay("too few answers of this load are finished to judge it")
        is_new = estimator.num_changes > self._judged_changes
        is_other = self._judged is None or not self._judged.is_near(self.regime, _OTHER)
        if not (is_new or is_other) and time_s - self._moved_s < caution.rest_s:
            return self._stay("the last move was a moment ago")
        if not is_new and time_s - self._asked_s < caution.every_s:
            return self._stay("plans were compared a moment ago")
        self._asked_s, self._judged_changes = time_s, estimator.num_changes
        if self._judged is not None and self._judged.is_near(self.regime, caution.least_change):
            return self._stay("the load is nearly that under which plans were compared last")
        self._judged = self.regime
        if is_new and caution.replans:
            self._replan()
        decision = self._compare()
        if decision.action != "stay":
            self._moved_s = time_s
        return decision

    def _replan(self) -> None:
        """Make a plan for the load as it is now, one more to choose from."""
        from e2llm_opt.search.rank_by_simulation import Finals  # noqa: PLC0415 - numba takes long
        from e2llm_opt.solve import plan  # noqa: PLC0415 - the same

        found = plan(self.regime.problem(self._problem), finals=Finals(arrivals=()))
        if isinstance(found, Plan) and shape_of(found) not in map(shape_of, self._plans):
            self._plans = (*self._plans, found)

    def _stay(self, reason: str, gain_s: float = 0.0, cost_s: float = 0.0) -> Decision:
        return Decision(
            action="stay",
            plan=self.plan,
            reason=reason[0].upper() + reason[1:] + ".",
            regime=self.regime,
            gain_s=gain_s,
            cost_s=cost_s,
        )

    def _compare(self) -> Decision:
        regime, caution = self.regime, self._caution
        judge = Judge(self._problem, regime, caution.horizon_s)
        now = judge.at_any_speed().as_it_is(self.plan)
        wait_s = 0.5 * caution.horizon_s if now is None else now.wait_s
        moves = [
            move
            for worth in self._choices(judge)
            if (move := self._move(worth, now, wait_s, regime)) is not None
        ]
        if not moves:
            return self._stay(f"no plan is better at {regime}")
        best = max(moves, key=lambda move: move.net_s)
        small = [m for m in moves if m.action != "plan" and m.net_s > 0]
        lesser = max(small, key=lambda move: move.net_s, default=best)
        if lesser.net_s >= caution.roles_share * best.net_s:
            best = lesser
        if best.gain_s < caution.gain_over_cost * best.cost_s:
            why = f"a move would save {best.gain_s:.0f} s of waiting and cost {best.cost_s:.0f} s"
            return self._stay(why, best.gain_s, best.cost_s)
        saved = f"{wait_s:.3g} s of waiting become {best.worth.wait_s:.3g} s at {regime}"
        words = {
            "routing": "other routes",
            "roles": "other roles, no layer moves",
            "plan": "another plan",
        }
        self.plan, self._latency_s = best.worth.plan, best.worth.latency_s
        return Decision(
            action=best.action,
            plan=self.plan,
            reason=f"{words[best.action].capitalize()}: {saved}.",
            regime=regime,
            gain_s=best.gain_s,
            cost_s=best.cost_s,
        )

    def _choices(self, judge: Judge) -> list[Worth]:
        """Return other roles of the present replicas, and all plans, also in their best roles."""
        found = [judge.best_roles(self.plan)]
        for plan in self._plans:
            found += [judge.as_it_is(plan), judge.best_roles(plan)]
        return [one for one in found if one is not None]

    def _move(self, worth: Worth, now: Worth | None, wait_s: float, regime: Regime) -> _Move | None:
        """Return what a move to another plan saves and costs; None where it saves too little.

        While a replica is drained and loads, its share of the capacity is missing: what arrives for
        it waits half that time, and until the rest has been caught up with.
        """
        caution, same = self._caution, shape_of(worth.plan) == shape_of(self.plan)
        saved_s = wait_s - worth.wait_s
        least_s = max(caution.least_gain * wait_s, 0.01 * worth.latency_s)
        if saved_s <= least_s or (same and worth.plan.routes == self.plan.routes):
            return None
        action: Literal["routing", "roles", "plan"] = "plan"
        if same:
            action = "routing"
        elif _cuts(worth.plan) == _cuts(self.plan):
            action = "roles"
        missing, load_s = self._change(worth.plan)
        # what is inside was begun under the load before
        drain_s = max(self._latency_s, 0.0 if now is None else now.latency_s)
        out_s = drain_s + load_s if missing else 0.0
        spare = max(1.0 - regime.rate_per_s / max(worth.capacity_per_s, 1e-12), 0.05)
        cost_s = 0.5 * regime.rate_per_s * missing * out_s**2 / spare
        gain_s = saved_s * regime.rate_per_s * caution.horizon_s
        return _Move(worth, action, gain_s, cost_s)

    def _change(self, plan: Plan) -> tuple[float, float]:
        """Return the share of replicas that change, and the longest time that one loads [s]."""
        caution = self._caution
        costs = costs_for([self.plan, plan], self._problem)
        old, new = (actors_of(one, self._problem, costs) for one in (self.plan, plan))
        stay = {(a.role, a.cut, a.slots, a.spilled) for a in old}
        weights = Weights(costs, [*old, *new], (caution.load_bytes_per_s, caution.start_s))
        for r in range(len(old)):
            weights.hold(r)
        loads = [
            weights.load_s(len(old) + r)
            for r, a in enumerate(new)
            if (a.role, a.cut, a.slots, a.spilled) not in stay
        ]
        return len(loads) / len(new), max(loads, default=0.0)


def _cuts(plan: Plan) -> Sequence[object]:
    return sorted(tuple((s.devices, s.layers) for s in r.stages) for r in plan.replicas)
