"""Between what the figures of a plan lie: the same plan on faster and on slower devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from e2llm_opt.cost.costs import Costs
from e2llm_opt.plan.plan import Intervals
from e2llm_opt.search import assemble
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.evaluate import Evaluator
from e2llm_opt.speed import LIKELY

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Interval, Plan, Predicted, Replica, Stage
    from e2llm_opt.search.evaluate import Outcome

_Version: TypeAlias = "tuple[Predicted, dict[str, Replica]]"
"""What is predicted of a plan, and its replicas by their first device."""


def with_intervals(costs: Costs, outcome: Outcome, plan: Plan) -> Plan:
    """Return *plan*, the document of *outcome*, with an 80 % interval beside every time.

    All devices are taken to be fast, or slow, together: of a plan on several devices the interval
    holds the truth more often than eight times in ten. Groups, cuts, roles and slots stay; the
    requests go where they wait least, as they would on such devices.
    """
    fast, slow = (_version(costs, outcome, quantile) for quantile in LIKELY)
    return replace(
        plan,
        replicas=tuple(_replica(one, fast[1], slow[1]) for one in plan.replicas),
        predicted=replace(plan.predicted, intervals=_intervals(plan.predicted, fast[0], slow[0])),
    )


def _version(costs: Costs, outcome: Outcome, quantile: float) -> _Version:
    """Return the plan of *outcome* on devices of this quantile of their times."""
    shifted = Costs(replace(costs.problem, pessimistic=quantile))
    candidates = Candidates(shifted, range(len(shifted.problem.devices)))
    there = Evaluator(candidates).outcome([candidates.like(one) for one in outcome.replicas])
    replicas = assemble.replicas_of(shifted, there)
    return assemble.predicted_of(shifted, there), {r.stages[0].device: r for r in replicas}


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


def _replica(known: Replica, fast: dict[str, Replica], slow: dict[str, Replica]) -> Replica:
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
