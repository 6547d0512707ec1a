"""Between what the figures of a plan lie: the same plan on faster and on slower devices."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import Costs
from e2llm_opt.plan.plan import Intervals, LoadPoint
from e2llm_opt.search import assemble
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.evaluate import Evaluator
from e2llm_opt.speed import LIKELY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2llm_opt.plan.plan import Interval, Plan, Predicted, Replica, Stage
    from e2llm_opt.search.evaluate import Outcome

_LOADS = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97, 0.99)
"""Shares of the capacity at which the waiting time is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """A plan on faster or slower devices; replicas by their first device."""

    evaluator: Evaluator
    outcome: Outcome
    predicted: Predicted
    replicas: Mapping[str, Replica]


def with_intervals(evaluator: Evaluator, outcome: Outcome, plan: Plan) -> Plan:
    """Return *plan*, the document of *outcome*, with an 80 % interval beside every time.

    And with the waiting time at other arrival rates. All devices are taken to be fast, or slow,
    together: of a plan on several devices the interval holds the truth more often than eight times
    in ten. Groups, cuts, roles and slots stay; the requests go where they wait least, as they
    would on such devices.
    """
    fast, slow = (_version(evaluator.costs, outcome, quantile) for quantile in LIKELY)
    return replace(
        plan,
        replicas=tuple(_replica(one, fast.replicas, slow.replicas) for one in plan.replicas),
        predicted=replace(
            plan.predicted,
            intervals=_intervals(plan.predicted, fast.predicted, slow.predicted),
            load_curve=tuple(_load_curve(evaluator, outcome, (fast, slow))),
        ),
    )


def _version(costs: Costs, outcome: Outcome, quantile: float) -> _Version:
    """Return the plan of *outcome* on devices of this quantile of their times."""
    shifted = Costs(replace(costs.problem, pessimistic=quantile), costs.units.members)
    candidates = Candidates(shifted, range(len(shifted.problem.devices)))
    evaluator = Evaluator(candidates)
    there = evaluator.outcome([candidates.like(one) for one in outcome.replicas])
    return _Version(
        evaluator=evaluator,
        outcome=there,
        predicted=assemble.predicted_of(shifted, there),
        replicas={one.stages[0].device: one for one in assemble.replicas_of(shifted, there)},
    )


def _load_curve(
    evaluator: Evaluator, outcome: Outcome, others: Sequence[_Version]
) -> Iterator[LoadPoint]:
    capacity = outcome.traffic.capacity_per_s
    rates = [share * capacity for share in _LOADS] if 0 < capacity < math.inf else []
    waits = evaluator.waits_at(outcome, rates)
    versions = [waits, *(one.evaluator.waits_at(one.outcome, rates) for one in others)]
    for rate, own in zip(rates, zip(*versions, strict=True), strict=True):
        low, high = min(own), max(own)
        yield LoadPoint(
            rate_per_s=rate,
            waiting_time_s=own[0],
            waiting_time_interval_s=(low, high if high < math.inf else None),
        )


def _intervals(known: Predicted, fast: Predicted, slow: Predicted) -> Intervals:
    versions = known, fast, slow
    return Intervals(
        capacity_per_s=_around(*(one.capacity_per_s for one in versions)),
        waiting_time_s=_steady(*(one.waiting_time_s for one in versions)),
        ttft_s=_steady(*(one.ttft_s for one in versions)),
        tpot_s=_around(*(one.tpot_s for one in versions)),
        latency_s=_steady(*(one.latency_s for one in versions)),
    )


def _around(*values: float) -> Interval:
    """Return the least and the largest: another routing may be better on slower devices."""
    return min(values), max(values)


def _steady(*values: float | None) -> Interval | None:
    """Return the same of values that are None where there is no steady state."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return min(known), max(known) if len(known) == len(values) else None


def _replica(known: Replica, fast: Mapping[str, Replica], slow: Mapping[str, Replica]) -> Replica:
    first = known.stages[0].device
    versions = known, fast[first], slow[first]
    stages = zip(*(one.stages for one in versions), strict=True)
    return replace(
        known,
        stages=tuple(_stage(*own) for own in stages),
        prefill=replace(
            known.prefill,
            latency_interval_s=_around(*(one.prefill.latency_s for one in versions)),
        ),
        decode=replace(
            known.decode, tpot_interval_s=_around(*(one.decode.tpot_s for one in versions))
        ),
    )


def _stage(known: Stage, fast: Stage, slow: Stage) -> Stage:
    versions = known, fast, slow
    return replace(
        known,
        prefill_time_interval_s=_around(*(one.prefill_time_s for one in versions)),
        decode_time_interval_s=_around(*(one.decode_time_s for one in versions)),
    )
