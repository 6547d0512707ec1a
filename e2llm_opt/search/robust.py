"""What is said of a plan in every scenario of its workload, beside the plan for the mean load."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.plan.plan import Alternative, ScenarioCase, Scenarios
from e2llm_opt.search.phrases import time_text
from e2llm_opt.search.scenarios import measured
from e2llm_opt.workload.scenarios import Risk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.scenarios import ScenarioEvaluator
    from e2llm_opt.workload.workload import Workload

MEAN_PLAN = "plan for the mean load"
_WORDS = {
    Risk.EXPECTED: "on average over the scenarios",
    Risk.WORST: "in the worst scenario",
    Risk.CVAR: "on average over the worst scenarios",
}


def with_scenarios(
    evaluator: ScenarioEvaluator, outcome: Outcome, plan: Plan, mean: Outcome | None
) -> Plan:
    """Return *plan*, the document of *outcome*, with its figures in every scenario.

    Parameters
    ----------
    evaluator
        That judged it.
    outcome, plan
        What was chosen.
    mean
        What would be chosen for the mean load alone; None: nothing.
    """
    workload = evaluator.costs.problem.workload
    own = evaluator.in_scenarios(outcome)
    other = evaluator.in_scenarios(mean) if mean is not None else [None] * len(own)
    cases = tuple(
        ScenarioCase(
            name=one.name,
            weight=one.weight,
            rate_per_s=one.rate_per_s,
            prompt_tokens=one.prompt.mean,
            output_tokens=one.output.mean,
            capacity_per_s=0.0 if there is None else there.traffic.capacity_per_s,
            stable=there is not None and there.is_stable,
            waiting_time_s=_finite(_wait(there)),
            ttft_s=None if there is None else _finite(there.ttft_s),
            tpot_s=None if there is None else _finite(there.tpot_s),
            latency_s=None if there is None else _finite(there.latency_s),
            mean_plan_waiting_time_s=_finite(_wait(rival)),
        )
        for one, there, rival in zip(workload.scenarios, own, other, strict=True)
    )
    found = Scenarios(
        risk=workload.risk.value,
        cvar_level=workload.cvar_level,
        waiting_time_s=_finite(_measure(own, workload)),
        mean_plan_waiting_time_s=_finite(_measure(other, workload)),
        cases=cases,
    )
    is_same = mean is None or _cuts(mean) == _cuts(outcome)
    alternatives = plan.alternatives
    if mean is not None and not is_same:
        reason = worse_in_scenarios(evaluator, mean, outcome)
        alternatives = (*alternatives, _alternative(mean, reason))
    sentence = _sentence(found, workload, is_same=is_same)
    first, *others = plan.explain or ("",)
    return replace(
        plan,
        alternatives=alternatives,
        explain=(first, sentence, *others) if plan.explain else (sentence,),
        scenarios=found,
    )


def worse_in_scenarios(evaluator: ScenarioEvaluator, rival: Outcome, chosen: Outcome) -> str:
    """Return one sentence that says where *rival* is worse than *chosen* over all scenarios."""
    workload = evaluator.costs.problem.workload
    theirs, ours = evaluator.in_scenarios(rival), evaluator.in_scenarios(chosen)
    for scenario, there, own in zip(workload.scenarios, theirs, ours, strict=True):
        if there is None and own is not None:
            return f"streams are too slow in scenario {scenario.name}"
        if own is not None and own.is_stable and there is not None and not there.is_stable:
            most = there.traffic.capacity_per_s
            return (
                f"not stable in scenario {scenario.name}: {most:.3g} requests/s at most, "
                f"{scenario.rate_per_s:.3g} arrive"
            )
    later = _measure(theirs, workload) - _measure(ours, workload)
    if later >= 0.5 * evaluator.ranking.wait_unit_s:
        return f"requests wait {time_text(later)} longer {_WORDS[workload.risk]}"
    return "no better over all scenarios"


def _sentence(found: Scenarios, workload: Workload, *, is_same: bool) -> str:
    if found.waiting_time_s is None:
        names = ", ".join(one.name for one in found.cases if not one.stable)
        return f"Scenarios: no plan was found that keeps up in all; this one does not in {names}."
    said = f"Scenarios: requests wait {time_text(found.waiting_time_s)} {_WORDS[workload.risk]}"
    if is_same:
        return f"{said}; the plan for the mean load is the same."
    if found.mean_plan_waiting_time_s is None:
        return f"{said}; the plan for the mean load does not keep up in all of them."
    return f"{said}, with the plan for the mean load {time_text(found.mean_plan_waiting_time_s)}."


def _alternative(rival: Outcome, reason: str) -> Alternative:
    return Alternative(
        name=MEAN_PLAN,
        capacity_per_s=rival.traffic.capacity_per_s,
        waiting_time_s=_finite(rival.waiting_time_s),
        ttft_s=_finite(rival.ttft_s),
        tpot_s=rival.tpot_s,
        why_not=reason,
    )


def _measure(outcomes: Sequence[Outcome | None], workload: Workload) -> float:
    """Return what the risk makes of the waits [s]; inf where a scenario has no steady state."""
    return float(measured(np.array([_wait(one) for one in outcomes]), workload))


def _wait(outcome: Outcome | None) -> float:
    return math.inf if outcome is None else outcome.waiting_time_s


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cuts(outcome: Outcome) -> set[tuple[object, ...]]:
    return {(c.role, c.cut, c.slots) for c in outcome.replicas}
