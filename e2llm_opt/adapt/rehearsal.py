"""What comes next under a plan, tried out in the simulator before anything is moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy import special

from e2llm_opt.simulate.cast import Cast, cast_of, costs_for
from e2llm_opt.simulate.changes import Changes
from e2llm_opt.simulate.simulate import Simulator
from e2llm_opt.workload.arrivals import draw_lengths, whole_tokens
from e2llm_opt.workload.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.adapt.belief import Belief
    from e2llm_opt.adapt.caution import Caution
    from e2llm_opt.adapt.estimator import Request
    from e2llm_opt.adapt.regime import Regime
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.workload.workload import Lengths

    Floats = NDArray[np.float64]

BEFORE: Final = 200
"""Requests before now, and before the last move, that a rehearsal begins with; or more where older
ones are unfinished."""
FUTURE: Final = 1000
"""Most requests that are drawn; what is missing until the horizon waits as the last of them do."""


class Past(NamedTuple):
    """What has happened so far.

    Parameters
    ----------
    now_s
        [s]
    requests
        In the order of their arrival.
    plans
        (since when [s], plan), the first from ever; the last one runs, or will when its replicas
        have loaded.
    """

    now_s: float
    requests: Sequence[Request]
    plans: Sequence[tuple[float, Plan]]


class Rehearsal:
    """Runs what was seen of late, and then loads that are likely, under one plan or another.

    All plans are tried with the same requests, and those that run may be one of them.

    Parameters
    ----------
    problem
        What the plans were made for.
    past
        What has happened so far.
    belief
        What is known of the load.
    plans
        What may be tried.
    caution
        How many loads are tried, until when waits are counted, and what a move takes.
    """

    def __init__(
        self,
        problem: Problem,
        past: Past,
        belief: Belief,
        plans: Sequence[Plan],
        caution: Caution,
    ) -> None:
        self._problem, self._caution, self._belief = problem, caution, belief
        kept = _kept(past)
        self._num_past = len(kept)
        begin_s = kept[0].arrival_s if kept else past.now_s
        self._now_s = past.now_s - begin_s
        before = [plan for at_s, plan in past.plans if at_s <= begin_s]
        since = past.plans[len(before) :]
        self._first = before[-1]
        self._moves = [(at_s - begin_s, plan) for at_s, plan in since]
        self._regimes = belief.draw(caution.loads)
        seen = _Seen.of(kept)
        self._arrivals = [
            self._drawn(seen, begin_s, regime, seed) for seed, regime in enumerate(self._regimes)
        ]
        self._costs = costs_for([self._first, *(plan for _, plan in since), *plans], problem)
        self._simulators = [Simulator(self._costs, arrivals) for arrivals in self._arrivals]

    def waits(self, plan: Plan | None, loads: Sequence[int]) -> Floats:
        """Return the mean waits from now on if one of the plans takes over; None: none does.

        Parameters
        ----------
        plan
            One of those given.
        loads
            Which of the loads are tried.

        Returns
        -------
        Shape (loads,), a request that comes until the horizon; waits of those before, as far as
        they are not over yet, are added to them [s].
        """
        moves = self._moves if plan is None else [*self._moves, (self._now_s, plan)]
        changes = Changes(
            plans=moves,
            load_bytes_per_s=self._caution.load_bytes_per_s,
            start_s=self._caution.start_s,
        )
        cast = cast_of(self._first, self._problem, changes, self._costs)
        return np.array([self._wait(k, cast) for k in loads])

    def _wait(self, k: int, cast: Cast) -> float:
        arrivals = self._arrivals[k]
        run = self._simulators[k].run(
            cast.actors,
            route_rates=cast.route_rates,
            how=(self._caution.routing, False, 0),
            timeline=cast.timeline,
        )
        waits = np.nan_to_num(run.waiting_time_s, nan=self._caution.horizon_s)
        is_open = arrivals.arrival_s + waits > self._now_s
        num = max(self._caution.horizon_s * self._regimes[k].rate_per_s, 1.0)
        future = len(waits) - self._num_past
        last = waits[-max(future // 4, 1) :]
        return float(waits[is_open].sum() + max(num - future, 0.0) * last.mean()) / num

    def _drawn(self, seen: _Seen, begin_s: float, regime: Regime, seed: int) -> Trace:
        """Return requests of the past, the rest of their answers drawn, and of the future."""
        gaps, prompts, outputs, rest = (
            np.random.default_rng(s) for s in np.random.SeedSequence([11, seed]).spawn(4)
        )
        num = int(min(max(self._caution.horizon_s * regime.rate_per_s, 1.0), FUTURE))
        shape = 1.0 / min(max(self._belief.gaps_cv, 0.1), 5.0) ** 2
        gap = gaps.gamma(shape, 1.0 / (shape * regime.rate_per_s), num)
        whole = self._whole(seen, regime.output, rest.random(self._num_past))
        return Trace(
            arrival_s=np.concatenate([seen.arrival_s - begin_s, self._now_s + np.cumsum(gap)]),
            prompt_tokens=np.concatenate(
                [whole_tokens(seen.prompt_tokens), draw_lengths(regime.prompt, prompts, num)]
            ),
            output_tokens=np.concatenate(
                [whole_tokens(whole), draw_lengths(regime.output, outputs, num)]
            ),
        )

    def _whole(self, seen: _Seen, output: Lengths, drawn: Floats) -> Floats:
        """Return the answers of the past; what is unfinished is longer than what there is of it."""
        sigma = max(output.sigma, 1e-6)
        is_before = seen.arrival_s < self._belief.since_s
        middle = np.where(is_before, self._belief.log_before, np.log(output.mean) - sigma**2 / 2)
        z = (np.log(np.maximum(seen.written_tokens, 1.0)) - middle) / sigma
        above = -special.ndtri(np.maximum(special.ndtr(-z) * drawn, 1e-300))
        longer = np.maximum(np.exp(middle + sigma * above), seen.written_tokens + 1.0)
        return np.where(seen.is_finished, seen.written_tokens, longer)


class _Seen(NamedTuple):
    """Requests of the past as arrays [N], made once for all loads."""

    arrival_s: Floats
    prompt_tokens: Floats
    written_tokens: Floats
    is_finished: NDArray[np.bool_]

    @staticmethod
    def of(requests: Sequence[Request]) -> _Seen:
        """Return *requests* as arrays."""
        return _Seen(
            arrival_s=np.array([one.arrival_s for one in requests]),
            prompt_tokens=np.array([one.prompt_tokens for one in requests]),
            written_tokens=np.array([one.written_tokens for one in requests]),
            is_finished=np.array([one.is_finished for one in requests], np.bool_),
        )


def _kept(past: Past) -> Sequence[Request]:
    """Return the last requests: what is unfinished, and what the last move had to wait for."""
    requests, num = past.requests, len(past.requests)
    unfinished = next((k for k, one in enumerate(requests) if not one.is_finished), num)
    moved = sum(one.arrival_s < past.plans[-1][0] for one in requests) or num
    return requests[max(min(unfinished, num - BEFORE, moved - BEFORE), 0) :]
