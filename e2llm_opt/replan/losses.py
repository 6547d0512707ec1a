"""What requests lose: the time they wait, or what the objective counts, in request-seconds.

A second that one request loses is one request-second, whether it waits because the plan is slow or
because a replica is stopped while its weights move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.ranking import longest_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Evaluator, Outcome


class Stretch(NamedTuple):
    """A time in which the same replicas serve."""

    seconds: float
    capacity_per_s: float
    wait_s: float
    """Mean wait at that capacity; of no meaning above it [s]."""


class Losses:
    """Turns plans, and the way from one to the next, into request-seconds.

    Parameters
    ----------
    evaluator
        Of the problem.
    before
        The plan as it stands: what other objectives than time are measured against. None: nothing
        serves.
    horizon_s
        How long the new plan is taken to serve [s].
    """

    def __init__(self, evaluator: Evaluator, before: Outcome | None, horizon_s: float) -> None:
        self._evaluator, self.horizon_s = evaluator, horizon_s
        problem = evaluator.costs.problem
        self._objective = problem.objective
        busy = before.traffic.capacity_per_s if before is not None else 1.0
        self.rate_per_s = problem.workload.rate_per_s or busy
        """Requests that arrive; where no rate is given, as many as the plan can serve [1/s]."""
        self._needs_capacity = problem.workload.rate_per_s > 0
        self._reference_s = before.unloaded_latency_s if before is not None else 1.0
        self._reference = self._figure(before) if before is not None else 1.0

    def of(self, outcome: Outcome | None) -> float:
        """Return what requests lose within the horizon in *outcome* [request-seconds].

        Waiting time: rate · horizon · mean wait, which counts for at most half the horizon.
        Without a steady state every request is taken to wait that long, and the backlog that
        grows comes on top. Latency: the same with the time of a request that is alone. Throughput,
        context and cost: a request's latency, times what the objective minimises over what it is
        now.
        """
        rate, horizon = self.rate_per_s, self.horizon_s
        if outcome is None or outcome.traffic.capacity_per_s <= 0:
            return rate * horizon * horizon
        capacity = outcome.traffic.capacity_per_s
        is_late = self._objective is not Objective.THROUGHPUT and not outcome.is_stable
        if is_late and self._needs_capacity:
            short = min(max(rate - capacity, 0.0), rate)
            return (rate + short) * horizon * horizon / 2
        if self._objective is Objective.WAITING_TIME:
            return rate * horizon * min(outcome.waiting_time_s, horizon / 2)
        share = self._figure(outcome) / self._reference if self._reference > 0 else 1.0
        return rate * horizon * min(self._reference_s * share, horizon / 2)

    def _figure(self, outcome: Outcome) -> float:
        """Return what the objective minimises."""
        if self._objective is Objective.THROUGHPUT:
            return 1.0 / max(outcome.traffic.capacity_per_s, 1e-300)
        if self._objective is Objective.MAX_CONTEXT:
            return 1.0 / max(longest_request(outcome.replicas), 1.0)
        if self._objective is Objective.COST:
            return self._evaluator.ranking.size(c.group for c in outcome.replicas)[1]
        return outcome.unloaded_latency_s

    @property
    def least(self) -> float:
        """What is not worth counting: the unit in which waits are compared [request-seconds]."""
        return self.rate_per_s * self.horizon_s * self._evaluator.ranking.wait_unit_s

    def of_moving(self, way: Sequence[Stretch], after: Stretch) -> float:
        """Return what requests lose on the *way* beyond what they lose *after* it.

        Above capacity a backlog grows; it is served by what capacity is left later, at most until
        the horizon [request-seconds].
        """
        rate = self.rate_per_s if self._needs_capacity else 0.0
        lost, backlog = 0.0, 0.0
        for stretch in way:
            extra = max(_wait(stretch, rate) - _wait(after, rate), 0.0)
            lost += rate * stretch.seconds * extra
            area, backlog = _backlog(backlog, rate - stretch.capacity_per_s, stretch.seconds)
            lost += area
        rest = max(self.horizon_s - sum(stretch.seconds for stretch in way), 0.0)
        area, _ = _backlog(backlog, min(rate - after.capacity_per_s, 0.0), rest)
        return lost + area

    def in_flight(self, outcome: Outcome, replicas: Iterable[Candidate]) -> float:
        """Return how many requests are in *replicas* of *outcome* on the mean (Little's law).

        Waiting, in prefill or in a slot; a replica without a steady state is full.
        """
        output = self._evaluator.costs.output_tokens
        stopped = set(map(id, replicas))
        found = 0.0
        for replica, rate in zip(outcome.replicas, outcome.traffic.rates_per_s, strict=True):
            if id(replica) not in stopped:
                continue
            decoding = 0.0 if replica.role is Role.PREFILL else output * float(replica.tpot_s[-1])
            first = 0.0 if replica.role is Role.DECODE else replica.prefill_latency_s
            if not outcome.is_stable:
                found += replica.slots
                continue
            waiting = 0.0 if replica.role is Role.DECODE else outcome.waiting_time_s
            found += rate * (waiting + first + decoding)
        return found


def stretch_of(outcome: Outcome | None, seconds: float) -> Stretch:
    """Return *seconds* in which the replicas of *outcome* serve; None: none does."""
    if outcome is None:
        return Stretch(seconds, 0.0, 0.0)
    wait = outcome.waiting_time_s if outcome.is_stable else 0.0
    return Stretch(seconds, outcome.traffic.capacity_per_s, wait)


def _wait(stretch: Stretch, rate: float) -> float:
    return stretch.wait_s if stretch.capacity_per_s > rate else 0.0


def _backlog(backlog: float, growth: float, seconds: float) -> tuple[float, float]:
    """Return the area below a backlog that changes by *growth* a second, and what is left."""
    if seconds <= 0:
        return 0.0, backlog
    if growth < 0 and backlog + growth * seconds < 0:
        return backlog * backlog / (-2 * growth), 0.0
    return backlog * seconds + growth * seconds * seconds / 2, backlog + growth * seconds
