"""The brain of an orchestrator: what arrives is watched, and another plan taken where it pays."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from e2llm_opt.adapt.belief import belief_of
from e2llm_opt.adapt.caution import Caution
from e2llm_opt.adapt.estimator import Estimator
from e2llm_opt.adapt.judge import Judge
from e2llm_opt.adapt.regime import Regime
from e2llm_opt.adapt.rehearsal import Past, Rehearsal
from e2llm_opt.adapt.repertoire import Repertoire, shape_of
from e2llm_opt.adapt.stream import LEAST
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.adapt.belief import Belief
    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]

Action = Literal["stay", "routing", "roles", "plan"]

FINAL: Final = 5
"""Plans that are tried in all loads: the best of those that were tried in fewer."""
_WORDS: Final = {
    "routing": "other routes",
    "roles": "other roles, no layer moves",
    "plan": "another plan",
}


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
        What the move is expected to save, draining and loading included: waits of all requests
        until the horizon, added up; to stay: of the best move, which is too little [s].
    """

    action: Action
    plan: Plan
    reason: str
    regime: Regime
    gain_s: float = 0.0


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
        self._problem, self._caution = problem, caution or Caution()
        self._plans = repertoire.plans if repertoire is not None else ()
        self._ran: list[tuple[float, Plan]] = [(-math.inf, plan)]
        self._estimator = Estimator(Regime.of(problem))
        self._asked_s = -math.inf
        self._num_changes, self._next_num = 0, LEAST
        self._judged: Regime | None = None

    @property
    def plan(self) -> Plan:
        """The one that runs, or is to."""
        return self._ran[-1][1]

    @property
    def regime(self) -> Regime:
        """The load as it is estimated."""
        return belief_of(self._estimator).regime

    def observe(
        self, time_s: float, prompt_tokens: float, output_tokens: float | None = None
    ) -> int:
        """Take a request in that arrives; the length of its answer where it is known already.

        Returns
        -------
        Its number, for `progress` and `finished`.

        Raises
        ------
        InputError
            When requests are not in order, or have no tokens.
        """
        number = self._estimator.arrive(time_s, prompt_tokens)
        if output_tokens is not None:
            self.finished(number, output_tokens)
        return number

    def progress(self, number: int, written_tokens: float) -> None:
        """Take in how many tokens there are of an answer that is being written.

        Nothing has to be said of it, but then long answers are known only when they are finished.

        Raises
        ------
        InputError
            When no such request was observed.
        """
        self._estimator.progress(number, written_tokens)

    def finished(self, number: int, output_tokens: float) -> None:
        """Take the length of an answer in, when it is known.

        Raises
        ------
        InputError
            When no such request was observed, or the answer has no token.
        """
        self._estimator.finish(number, output_tokens)

    def decide(self, time_s: float) -> Decision:
        """Say what to do at *time_s*; a plan that is to be run is taken to run from then on.

        Raises
        ------
        InputError
            When the time is not a number, or before that of a request or a move.
        """
        if not math.isfinite(time_s):
            raise InputError(f"the time must be finite, got {time_s:g}.")
        estimator, caution = self._estimator, self._caution
        last_s = max(estimator.last_s, self._ran[-1][0])
        if time_s < last_s:
            raise InputError(f"questions must come in order: {time_s:g} s after {last_s:g} s.")
        belief = belief_of(estimator)
        regime = belief.regime
        if time_s == self._ran[-1][0]:
            return self._stay("a plan was taken at this moment", regime)
        if estimator.num_changes > self._num_changes:
            self._num_changes, self._next_num = estimator.num_changes, caution.least_requests
        if estimator.num < caution.least_requests:
            return self._stay("too few requests of this load have been seen to judge it", regime)
        is_learning = self._next_num <= estimator.num
        if not is_learning and time_s - self._asked_s < caution.every_s:
            return self._stay("plans were compared a moment ago", regime)
        self._asked_s = time_s
        is_same = self._judged is not None and self._judged.is_near(regime, caution.least_change)
        if is_same and not is_learning:
            return self._stay(
                "the load is nearly that under which plans were compared last", regime
            )
        self._judged = regime
        while self._next_num <= estimator.num:
            self._next_num *= 2
        return self._compare(time_s, belief)

    def _stay(self, reason: str, regime: Regime, gain_s: float = 0.0) -> Decision:
        return Decision(
            action="stay",
            plan=self.plan,
            reason=reason[0].upper() + reason[1:] + ".",
            regime=regime,
            gain_s=gain_s,
        )

    def _compare(self, time_s: float, belief: Belief) -> Decision:
        """Try what could be run from now on, and take the best of it where that saves enough."""
        caution, regime = self._caution, belief.regime
        choices = self._choices(regime)
        if not choices:
            return self._stay(f"no other plan serves {regime}", regime)
        rehearsal = Rehearsal(
            self._problem,
            Past(time_s, self._estimator.requests, self._ran),
            belief,
            choices,
            caution,
        )
        least_s = max(0.01 * (self.plan.predicted.latency_s or 0.0), 1e-6)
        waits = [(one, np.zeros(0)) for one in choices]
        known, most = 0, len(waits)
        while known < caution.loads:
            loads = range(known, min(max(2 * known, 2), caution.loads))
            waits = [(one, np.append(own, rehearsal.waits(one, loads))) for one, own in waits]
            waits.sort(key=lambda pair: _typical(pair[1], least_s))
            known, most = loads.stop, max(most // 3, FINAL)
            waits = waits[:most]
        best, wait_s = waits[0][0], _typical(waits[0][1], least_s)
        stays_s = _typical(rehearsal.waits(None, range(caution.loads)), least_s)
        gain_s = max(stays_s - wait_s, 0.0) * regime.rate_per_s * caution.horizon_s
        means = f"{stays_s:.3g} s of waiting become {wait_s:.3g} s at {regime}"
        if stays_s - wait_s <= max(caution.least_gain * stays_s, least_s):
            return self._stay(f"no plan is so much better: {means}", regime, gain_s)
        action = _action(best, self.plan)
        self._ran.append((time_s, best))
        return Decision(
            action=action,
            plan=self.plan,
            reason=f"{_WORDS[action].capitalize()}: {means}.",
            regime=regime,
            gain_s=gain_s,
        )

    def _choices(self, regime: Regime) -> list[Plan]:
        """Return other routes and roles of what runs, and all plans, also in their best roles."""
        judge = Judge(self._problem, regime)
        found = [judge.as_it_is(self.plan), judge.best_roles(self.plan)]
        for plan in (*self._plans, *self._replanned(regime)):
            found += [judge.as_it_is(plan), judge.best_roles(plan)]
        different = {self._runs(one): one for one in found if one is not None}
        different.pop(self._runs(self.plan), None)
        return list(different.values())

    def _runs(self, plan: Plan) -> object:
        """Return what plans have in common between which there is nothing to choose."""
        if self._caution.routing != "plan":
            return shape_of(plan)
        what = {r.id: (r.role, *((s.devices, s.layers) for s in r.stages)) for r in plan.replicas}
        whole = sum(r.arrival_rate_per_s for r in plan.replicas) or 1.0
        shares: dict[object, float] = {
            what[r.id]: r.arrival_rate_per_s / whole for r in plan.replicas
        }
        for one in plan.routes:
            shares[what[one.prefill], what[one.decode]] = one.rate_per_s / whole
        return shape_of(plan), frozenset((way, round(own, 2)) for way, own in shares.items())

    def _replanned(self, regime: Regime) -> Sequence[Plan]:
        """Return a plan for the load as it is now."""
        if not self._caution.replans:
            return ()
        from e2llm_opt.search.rank_by_simulation import Finals  # noqa: PLC0415 - numba takes long
        from e2llm_opt.solve import plan  # noqa: PLC0415 - the same

        found = plan(regime.problem(self._problem), finals=Finals(arrivals=()))
        return (found,) if isinstance(found, Plan) else ()


def _typical(waits: Floats, least_s: float) -> float:
    """Return the geometric mean: no load counts for all, and nothing below a least wait."""
    return float(np.exp(np.log(waits + least_s).mean())) - least_s


def _action(new: Plan, old: Plan) -> Action:
    if shape_of(new) == shape_of(old):
        return "routing"
    return "roles" if _cuts(new) == _cuts(old) else "plan"


def _cuts(plan: Plan) -> Sequence[object]:
    return sorted(tuple((s.devices, s.layers) for s in r.stages) for r in plan.replicas)
