"""What the reports claim of a right answer: one function a kind, each returning what we answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import Plan
from e2llm_opt.search.alternatives import ALL_MIXED, DISAGGREGATED
from e2llm_opt.units import GIB, MS

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = Plan | Infeasible
Claim = dict[str, Any]


def violated(claim: Claim, answer: Answer) -> str:
    """Return what is wrong with *answer*, or an empty text; an unknown kind is a KeyError."""
    got = _ANSWERS[claim["kind"]](answer, claim)
    if isinstance(got, float | int):
        assert claim.keys() & {"eq", "min", "max"}, "this claim claims nothing"
        low, high = _bounds(claim)
        is_right = low <= got <= high
    else:
        is_right = got <= set(claim["values"]) if "values" in claim else not got
    return "" if is_right else f"{claim}: got {got}"


def _bounds(claim: Claim) -> tuple[float, float]:
    if "eq" in claim:
        return claim["eq"], claim["eq"]
    return claim.get("min", -math.inf), claim.get("max", math.inf)


def layers_by_device(plan: Plan) -> dict[str, int]:
    """Return the layers on each device used."""
    return {
        stage.device: stage.layers[1] - stage.layers[0]
        for replica in plan.replicas
        for stage in replica.stages
    }


def suggested_context(answer: Infeasible) -> int:
    """Return the context that is said to be feasible; 0 where none is suggested."""
    for suggestion in answer.suggestions:
        key, value = suggestion.change.split(": ")
        if key == "context_tokens":
            return int(value)
    return 0


def capacities(plan: Plan) -> dict[str, float]:
    """Return the capacity of the best plan with MIXED replicas only and of the best without."""
    found = {other.name: other.capacity_per_s for other in plan.alternatives}
    own = DISAGGREGATED if plan.replicas[0].role != "MIXED" else ALL_MIXED
    return {**found, own: plan.predicted.capacity_per_s}


def _plan(answer: Answer) -> Plan:
    assert isinstance(answer, Plan), answer
    return answer


def _infeasible(answer: Answer) -> Infeasible:
    assert isinstance(answer, Infeasible), answer.summary()
    return answer


def _layers_on(answer: Answer, claim: Claim) -> float:
    return layers_by_device(_plan(answer)).get(claim["device"], 0)


def _stages(answer: Answer, _: Claim) -> float:
    return sum(len(replica.stages) for replica in _plan(answer).replicas)


def _replicas(answer: Answer, _: Claim) -> float:
    return len(_plan(answer).replicas)


def _kv_total_gb(answer: Answer, _: Claim) -> float:
    if isinstance(answer, Infeasible):
        return answer.kv_cache_bytes / GIB
    stages = [stage for replica in answer.replicas for stage in replica.stages]
    return sum(stage.memory_bytes.kv_cache for stage in stages) / GIB


def _shortfall_gb(answer: Answer, _: Claim) -> float:
    return _infeasible(answer).shortfall_bytes / GIB


def _suggested_max_context(answer: Answer, _: Claim) -> float:
    return suggested_context(_infeasible(answer))


def _tpot_ms(answer: Answer, _: Claim) -> float:
    return _plan(answer).predicted.tpot_s / MS


def _tokens_per_s(answer: Answer, _: Claim) -> float:
    return sum(replica.decode.tokens_per_s for replica in _plan(answer).replicas)


def _stage_starts(answer: Answer, _: Claim) -> set[int]:
    return {stage.layers[0] for replica in _plan(answer).replicas for stage in replica.stages}


def _other_links(answer: Answer, claim: Claim) -> set[str]:
    hops = [stage.next_hop for replica in _plan(answer).replicas for stage in replica.stages]
    assert all(hops), "a replica has one stage, and no hop"
    return {hop.link for hop in hops if hop is not None} - {claim["name"]}


def _role_count(answer: Answer, claim: Claim) -> float:
    return [replica.role for replica in _plan(answer).replicas].count(claim["role"])


def _forbidden_roles(answer: Answer, claim: Claim) -> set[str]:
    return {replica.role for replica in _plan(answer).replicas} & set(claim["roles"])


def _prefill_share(answer: Answer, _: Claim) -> float:
    return _plan(answer).predicted.prefill_share_of_work


def _capacity_ratio_vs_mixed(answer: Answer, _: Claim) -> float:
    found = capacities(_plan(answer))
    return found[DISAGGREGATED] / found[ALL_MIXED]


_ANSWERS: dict[str, Callable[[Answer, Claim], float | set[int] | set[str]]] = {
    "layers_on": _layers_on,
    "stages": _stages,
    "replicas": _replicas,
    "kv_total_gb": _kv_total_gb,
    "shortfall_gb": _shortfall_gb,
    "suggested_max_context": _suggested_max_context,
    "tpot_ms": _tpot_ms,
    "tokens_per_s": _tokens_per_s,
    "stage_starts_in": _stage_starts,
    "every_hop_link": _other_links,
    "role_count": _role_count,
    "role_not_in": _forbidden_roles,
    "prefill_share": _prefill_share,
    "capacity_ratio_vs_mixed": _capacity_ratio_vs_mixed,
}
