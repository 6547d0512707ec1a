"""Why there is no plan, and which changes would make one: each verified by solving again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.partition.partition import best_cut, decode_demand
from e2llm_opt.plan.infeasible import Infeasible, Suggestion
from e2llm_opt.search.progress import Interruption
from e2llm_opt.search.shortage import Shortage, shortage_of
from e2llm_opt.search.trials import Trials
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.search import Search

_CONTEXT_STEP = 256
_GGUF = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "iq4_xs", "q3_k_m", "q2_k")
_LADDERS = {
    "vllm": ("fp8", "awq"),
    "sglang": ("fp8", "awq"),
    "parallax": ("fp8", "awq"),
    "petals": ("int8", "nf4"),
    "exo": ("mlx_8bit", "mlx_6bit", "mlx_4bit", "mlx_3bit"),
}
"""Weight formats that an engine's users go down, the best first; GGUF's for all others."""
_UNKNOWN = "no plan was found"
_INTERRUPTED = " (interrupted: not every change was tried)"


def explain_infeasible(search: Search, *, seed: int) -> Infeasible:
    """Return why *search* found nothing, and the verified changes that would help.

    Suggested are, where they help: a smaller context (the largest feasible one, rounded down to
    256 tokens), fewer slots, smaller weights, a lower speed floor, a constraint less.
    """
    problem = search.evaluator.costs.problem
    shortage = shortage_of(costs_of(_free(problem)), search.devices)
    trials = Trials(problem, search.teller, seed)
    reason, suggestions = _UNKNOWN, []
    with Interruption() as interruption:
        reason = _reason(search, shortage, trials)
        for text, changed in _changes(search, shortage, trials):
            if trials.is_feasible(changed):
                suggestions.append(Suggestion(change=text))
                trials.num_found += 1
    return Infeasible(
        reason=reason + (_INTERRUPTED if interruption.happened else ""),
        kv_cache_bytes=shortage.kv_cache_bytes,
        total_bytes=shortage.total_bytes,
        devices=shortage.devices,
        shortfall_bytes=shortage.shortfall_bytes,
        suggestions=tuple(suggestions),
    )


def _reason(search: Search, shortage: Shortage, trials: Trials) -> str:
    problem = search.evaluator.costs.problem
    workload = problem.workload
    slots = workload.slots or 1
    if shortage.has_no_legal_cut:
        return (
            "no legal cut: no set of devices can hold the stages that allowed_stage_starts "
            f"{list(problem.model.allowed_stage_starts or ())} leaves"
        )
    if not shortage.is_held:
        parts = (
            f"weights and engine buffers {shortage.other_bytes / GIB:.1f} GiB, KV cache of "
            f"{slots} slot{'s' if slots > 1 else ''} x {workload.context_tokens} tokens context "
            f"{shortage.kv_cache_bytes / GIB:.1f} GiB"
        )
        usable = f"{shortage.usable_bytes / GIB:.1f} GiB"
        if shortage.host_bytes:
            usable += f" and {shortage.host_bytes / GIB:.1f} GiB of host RAM"
        if shortage.total_bytes > shortage.usable_bytes + shortage.host_bytes:
            return f"not enough memory: {parts}; usable are {usable}"
        if shortage.shortfall_bytes == 0:
            return (
                f"no connected devices can hold the model ({parts}): every stage needs a link to "
                "the next one, and the last stage a way back to the first"
            )
        return (
            f"not enough memory where it is needed: {parts}; {usable} "
            "are usable in all, but no connected devices hold whole layers that add up"
        )
    free = replace(workload, min_tokens_per_s=0.0, slo_tpot_s=None)
    if trials.is_feasible(replace(problem, workload=free)):
        return (
            f"too slow: no replica gives every stream {1 / workload.slowest_tpot_s:.3g} tokens/s "
            f"with {slots} slot{'s' if slots > 1 else ''} (min_tokens_per_s, slo.tpot_s)"
        )
    return f"the constraints cannot be met: {_constraints(problem)}"


def _free(problem: Problem) -> Problem:
    """Return *problem* without the constraint that keeps a device from being left out."""
    return replace(problem, constraints=replace(problem.constraints, use_all_devices=False))


def _constraints(problem: Problem) -> str:
    constraints = problem.constraints
    words = []
    if constraints.replicas is not None:
        words.append(f"replicas: {constraints.replicas}")
    if constraints.use_all_devices:
        words.append("use_all_devices: true")
    if constraints.roles != "auto":
        words.append(f"roles: {constraints.roles} (PREFILL and DECODE need two replicas)")
    return ", ".join(words) or "unknown"


def _changes(search: Search, shortage: Shortage, trials: Trials) -> Iterator[tuple[str, Problem]]:
    problem = search.evaluator.costs.problem
    workload, constraints = problem.workload, problem.constraints
    if not shortage.is_held and not shortage.has_no_legal_cut:
        tokens = _largest_context(search)
        if tokens >= _CONTEXT_STEP:
            smaller = replace(workload, context_tokens=tokens)
            yield f"context_tokens: {tokens}", replace(problem, workload=smaller)
    yield from _smaller_weights(problem, trials)
    if workload.slots is not None and workload.slots > 1:
        for slots in range(workload.slots - 1, 0, -1):
            changed = replace(problem, workload=replace(workload, slots=slots))
            if trials.is_feasible(changed):
                yield f"slots: {slots}", changed
                break
    if shortage.is_held and workload.slowest_tpot_s < float("inf"):
        yield from _lower_floor(problem, trials)
    if constraints.replicas is not None:
        free = replace(constraints, replicas=None)
        yield "constraints.replicas: leave it out", replace(problem, constraints=free)
    if constraints.use_all_devices:
        free = replace(constraints, use_all_devices=False)
        yield "constraints.use_all_devices: false", replace(problem, constraints=free)
    if constraints.roles == "disaggregated":
        free = replace(constraints, roles="auto")
        yield "constraints.roles: auto", replace(problem, constraints=free)


def _largest_context(search: Search) -> int:
    """Largest multiple of 256 tokens whose KV cache some cut of all devices holds; 0 if none."""
    problem = _free(search.evaluator.costs.problem)
    low, high = 0, -(-problem.workload.context_tokens // _CONTEXT_STEP)
    slots = problem.workload.slots or 1
    while high - low > 1:
        middle = (low + high) // 2
        workload = replace(problem.workload, context_tokens=middle * _CONTEXT_STEP)
        costs = costs_of(replace(problem, workload=workload))
        demand = decode_demand(costs, slots, 1)
        is_held = best_cut(costs, tuple(search.devices), demand, "any") is not None
        low, high = (middle, high) if is_held else (low, middle)
    return low * _CONTEXT_STEP


def _smaller_weights(problem: Problem, trials: Trials) -> Iterator[tuple[str, Problem]]:
    """Yield the first format down the engine's ladder that is feasible."""
    if problem.facts.layer_weight_bytes is not None:
        return
    for name in _LADDERS.get(problem.runtime.name, _GGUF):
        try:
            changed = replace(problem, weights=name)
        except InputError:  # pragma: no cover - every name of the ladders is in the catalogue
            continue
        if changed.model.weight_bytes < problem.model.weight_bytes and trials.is_feasible(changed):
            yield f"weights: {name}", changed
            return


def _lower_floor(problem: Problem, trials: Trials) -> Iterator[tuple[str, Problem]]:
    """Yield the highest speed floor that is feasible, to two digits, where it is the limit."""
    workload = problem.workload
    low, high = 0.0, 1 / workload.slowest_tpot_s
    for _ in range(12):
        middle = (low + high) / 2
        slower = replace(workload, min_tokens_per_s=middle, slo_tpot_s=None)
        if trials.is_feasible(replace(problem, workload=slower)):
            low = middle
        else:
            high = middle
    digits = 10.0 ** (1 - math.floor(math.log10(low))) if low > 0 else 1.0
    speed = math.floor(low * digits) / digits
    if speed > 0:
        slower = replace(workload, min_tokens_per_s=speed, slo_tpot_s=None)
        yield f"min_tokens_per_s: {speed:g}", replace(problem, workload=slower)
