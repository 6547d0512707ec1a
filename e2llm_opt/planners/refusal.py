"""Why a planner finds no plan: because nobody does, or because of what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.pipeline import decode, decode_stages, prefill
from e2llm_opt.plan.infeasible import DeviceNeed, Infeasible, Suggestion
from e2llm_opt.plan.plan import OURS
from e2llm_opt.runtime import MixedPause
from e2llm_opt.search.changes import freed
from e2llm_opt.search.shortage import needs_of, shortage_of
from e2llm_opt.search.suggest import explain_infeasible
from e2llm_opt.search.trials import Trials
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.search import Search

FORBIDDEN = "its plan breaks the constraints, of which it knows nothing but exclude"
_MOST_NAMES = 5
"""Longer pipelines are not listed."""
IMPOSSIBLE = "its plan serves nothing: links, service levels or roles leave no way through it"


def explain(search: Search, planner: str, why: tuple[str, Cut | None], *, seed: int) -> Infeasible:
    """Return why *planner* found nothing with *search*.

    Where our own search finds a plan, that is the suggestion. Where it does not, the answer and
    its suggestions are those that it gives.

    Parameters
    ----------
    search
        Of the planner.
    planner
        Its name.
    why
        Its reason, and the cut that did not do, where there is one.
    seed
        Of our own search.
    """
    problem = search.evaluator.costs.problem
    if planner == OURS or not Trials(problem, search.teller, seed).is_feasible(problem):
        return explain_infeasible(search, seed=seed)
    costs = costs_of(freed(problem))
    shortage = shortage_of(costs, search.devices)
    reason, cut = why
    found = Infeasible(
        reason=f"planner {planner} finds no plan: {reason}",
        kv_cache_bytes=shortage.kv_cache_bytes,
        total_bytes=shortage.total_bytes,
        devices=shortage.devices,
        shortfall_bytes=shortage.shortfall_bytes,
        suggestions=(Suggestion(change=f"planner: {OURS}"),),
    )
    return found if cut is None else _with_needs(found, costs, cut)


def _with_needs(found: Infeasible, costs: Costs, cut: Cut) -> Infeasible:
    """Return *found* with what *cut* needs of each device, where that is more than it has."""
    devices = tuple(
        DeviceNeed(
            device=costs.problem.devices[d].name,
            need_bytes=round(need),
            have_bytes=round(float(costs.tables.usable[d])),
        )
        for d, need in sorted(needs_of(costs, cut, _slots(costs)).items())
    )
    excess = max(device.need_bytes - device.have_bytes for device in devices)
    return replace(found, devices=devices, shortfall_bytes=max(excess, 0))


def fault_of(costs: Costs, cut: Cut) -> str:
    """Return why no MIXED replica with *cut* can be: memory, a missing link, or speed."""
    names = [costs.problem.devices[d].name for d, _, _ in cut]
    excess = {
        d: need - float(costs.tables.usable[d])
        for d, need in needs_of(costs, cut, _slots(costs)).items()
    }
    d, start, stop = max(cut, key=lambda stage: excess[stage[0]])
    if excess[d] > 0:
        have = float(costs.tables.usable[d])
        return (
            f"it gives {costs.problem.devices[d].name} {stop - start} layers, which need "
            f"{(have + excess[d]) / GIB:.1f} GiB there with the KV cache of {_slots(costs)} "
            f"request{'s' if _slots(costs) > 1 else ''}; usable are {have / GIB:.1f} GiB"
        )
    slots = _slots(costs)
    _, hops = decode_stages(costs, cut, slots, costs.spilled(cut, slots))
    for name, following, hop in zip(names, [*names[1:], names[0]], hops, strict=True):
        if hop == np.inf:
            return f"its pipeline needs a way from {name} to {following}, and there is none"
    speed = 1 / _seconds_per_token(costs, cut, slots)
    whole = ", ".join(names) if len(names) <= _MOST_NAMES else f"of {len(names)} devices"
    return (
        f"its pipeline {whole} gives every stream {speed:.3g} tokens/s with {slots} "
        f"slot{'s' if slots > 1 else ''} and pauses for prompts, and "
        f"{1 / costs.problem.workload.slowest_tpot_s:.3g} are asked for"
    )


def _seconds_per_token(costs: Costs, cut: Cut, slots: int) -> float:
    """Return the time of a token with pauses for prompts counted [s]."""
    spilled = costs.spilled(cut, slots)
    figures = prefill(costs, cut, costs.prompt_tokens, spilled)
    is_short = costs.problem.runtime.mixed_pause is MixedPause.OCCUPANCY
    pause = figures.occupancy_s if is_short else figures.latency_s
    return (
        float(decode(costs, cut, slots, spilled).tpot_s[-1]) + slots * pause / costs.output_tokens
    )


def _slots(costs: Costs) -> int:
    return costs.problem.workload.slots or 1


def no_split(problem: Problem) -> str:
    """Return why PREFILL and DECODE replicas are out of the question; empty where they are not."""
    if not problem.runtime.has_disaggregation:
        return (
            f"it splits prefill and decode, but {problem.runtime.name} cannot move a KV cache from "
            "one replica to another; use a runtime that can (generic, vllm, sglang, exo), or say "
            "that yours can (runtime: {name: …, disaggregation: yes})"
        )
    if problem.constraints.roles == "mixed":
        return (
            "it splits prefill and decode, so constraints.roles cannot be mixed; use roles: auto "
            "or disaggregated"
        )
    return ""
