"""Why there is no plan, and which changes would make one: each verified by solving again."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.inventory.network import graph
from e2llm_opt.plan.infeasible import Infeasible, Suggestion
from e2llm_opt.problem import Objective
from e2llm_opt.search.changes import changes, freed, lower_rate
from e2llm_opt.search.price import fragile
from e2llm_opt.search.progress import Interruption
from e2llm_opt.search.shortage import Shortage, shortage_of
from e2llm_opt.search.trials import Trials
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.search import Search

_NAMED = 4
"""Devices that are named one by one."""
_UNKNOWN = "no plan was found"
_INTERRUPTED = " (interrupted: not every change was tried)"


def explain_infeasible(search: Search, *, seed: int) -> Infeasible:
    """Return why *search* found nothing, and the verified changes that would help.

    See :mod:`e2llm_opt.search.changes` for what is tried, the cheapest first.
    """
    problem = search.evaluator.costs.problem
    shortage = shortage_of(costs_of(freed(problem)), search.devices)
    trials = Trials(problem, search.teller, seed)
    reason, suggestions = _UNKNOWN, []
    with Interruption() as interruption:
        reason, rate_per_s = fragile(search)
        reason = reason or _reason(search, shortage, trials)
        first = lower_rate(problem, rate_per_s)
        for text, changed in chain(first, changes(problem, shortage, trials)):
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
                f"the next one, and the last stage a way back to the first{_apart(problem)}"
            )
        return (
            f"not enough memory where it is needed: {parts}; {usable} "
            "are usable in all, but no connected devices hold whole layers that add up"
            f"{_apart(problem)}"
        )
    free = replace(workload, min_tokens_per_s=0.0, slo_tpot_s=None)
    if trials.is_feasible(replace(problem, workload=free)):
        return (
            f"too slow: no replica gives every stream {1 / workload.slowest_tpot_s:.3g} tokens/s "
            f"with {slots} slot{'s' if slots > 1 else ''} (min_tokens_per_s, slo.tpot_s)"
        )
    return f"the constraints cannot be met: {_constraints(problem)}"


def _apart(problem: Problem) -> str:
    """Return which devices no link joins to the most others; nothing where all are joined."""
    import networkx as nx  # noqa: PLC0415 - costs 0.1 s

    inventory = problem.inventory
    hosts = {device.host for device in inventory.devices}
    parts = [part & hosts for part in nx.weakly_connected_components(graph(inventory))]
    parts = sorted((part for part in parts if part), key=lambda part: (-len(part), min(part)))
    names = [d.name for part in parts[1:] for d in inventory.devices if d.host in part]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"; no link joins {', '.join(names[:_NAMED])}{more} to the others (links)"


def _constraints(problem: Problem) -> str:
    constraints = problem.constraints
    words = []
    if constraints.replicas is not None:
        words.append(f"replicas: {constraints.replicas}")
    if constraints.use_all_devices:
        words.append("use_all_devices: true")
    for name, devices in constraints.pins.items():
        words.append(f"pin: {name}: {', '.join(devices)}")
    if constraints.fixed_layers:
        held = ", ".join(f"{name}: {num}" for name, num in constraints.fixed_layers.items())
        words.append(f"layers: {held}")
    if problem.objective is Objective.COST and problem.workload.slo_ttft_s is not None:
        words.append(f"slo.ttft_s: {problem.workload.slo_ttft_s:g} (hard for objective: cost)")
    if constraints.survive:
        words.append(f"survive: {constraints.survive}")
    if constraints.roles != "auto":
        words.append(f"roles: {constraints.roles} (PREFILL and DECODE need two replicas)")
    return ", ".join(words) or "unknown"
