"""Why the plan is as it is, what limits it, and what would help: sentences that were computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.plan.plan import OURS
from e2llm_opt.problem import Role
from e2llm_opt.search.alternatives import ALL_MIXED, BETTER, DISAGGREGATED
from e2llm_opt.search.assemble import hop_paths, in_order
from e2llm_opt.search.limits import SlotLimit, bound_of, holds_alone, hops_of, slots_of
from e2llm_opt.search.phrases import named, number_text, percent, size_text, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.plan.plan import Plan, Replica
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.limits import Slots

LEAST_GAIN = 0.05
"""A faster link is worth a sentence if it makes a token shorter by this share."""
LARGE_SHARE = 0.25
"""Share of the wait, or of a token, that is worth a sentence."""


def explain(costs: Costs, chosen: Outcome, plan: Plan, rank: int = 1) -> tuple[str, ...]:
    """Return three to six sentences about *plan*, which is *chosen* as a document.

    Why these groups, what other plans lose by, why these roles, what limits, what would help;
    the last two of the busiest replica.

    Parameters
    ----------
    costs, chosen
        The problem's costs, and the outcome.
    plan
        Complete but for these sentences.
    rank
        Its place among the plans that were asked for; 0: it is one of a front.
    """
    number = _focus(plan)
    replica, candidate = plan.replicas[number], chosen.replicas[in_order(costs, chosen)[number]]
    slots = None if replica.role == Role.PREFILL else slots_of(costs, candidate)
    helps = (
        *_link_help(costs, candidate, replica),
        *_transfer_help(plan),
        *_slot_help(costs, replica, slots),
    )
    return (
        _groups(costs, plan, rank),
        *_comparison(plan),
        _roles(costs, plan),
        _pace(costs, candidate, replica),
        *_slot_limit(costs, replica, slots),
        *helps[:1],
    )


def _focus(plan: Plan) -> int:
    """Return the number of the busiest replica; where nothing arrives, of the quickest."""
    scores = [
        (replica.utilisation, replica.role != Role.PREFILL, -replica.decode.tpot_s)
        for replica in plan.replicas
    ]
    return scores.index(max(scores))


# ------------------------------------------------------------------ groups and roles


def _groups(costs: Costs, plan: Plan, rank: int) -> str:
    pipelines = [replica for replica in plan.replicas if len(replica.stages) > 1]
    if not pipelines:
        names = [replica.stages[0].label for replica in plan.replicas]
        if any(replica.stages[0].tensor_parallel for replica in plan.replicas):
            return _joined(costs, plan)
        whole = "holds the whole model" if len(names) == 1 else "each hold the whole model"
        return f"Groups: {named(names)} {whole}, so no token crosses a link."
    replica = max(pipelines, key=lambda r: (r.utilisation, -plan.replicas.index(r)))
    names = [stage.label for stage in replica.stages]
    rows = {device.name: d for d, device in enumerate(costs.problem.devices)}
    alone = [costs.units.known(rows[name] for name in stage.devices) for stage in replica.stages]
    able = [name for name, d in zip(names, alone, strict=True) if holds_alone(costs, d)]
    if not able:
        return (
            f"Groups: {named(names)} share the model in {replica.id}, "
            f"because {'neither' if len(names) == 2 else 'none'} of them can hold it alone."  # noqa: PLR2004
        )
    whom = "each of them" if len(able) == len(names) else named(able)
    return (
        f"Groups: {named(names)} share the model in {replica.id}, though {whom} could hold it "
        f"alone; {_standing(plan, rank)}."
    )


def _joined(costs: Costs, plan: Plan) -> str:
    """Say which devices share every layer of a model, and whether they must."""
    rows = {device.name: d for d, device in enumerate(costs.problem.devices)}
    parts = []
    for replica in plan.replicas:
        stage = replica.stages[0]
        is_joint = bool(stage.tensor_parallel)
        why = "holds the whole model"
        if is_joint:
            can = "could" if holds_alone(costs, rows[stage.device]) else "could not"
            why = f"share every layer in {replica.id}, one of them {can} hold the model alone"
        parts.append(f"{named(list(stage.devices))} {why}")
    return f"Groups: {'; '.join(parts)}; no token crosses a network."


def _standing(plan: Plan, rank: int) -> str:
    if rank == 0:
        return "no plan is better in every objective of the front"
    if rank > 1:
        return f"this is number {rank} of the plans found"
    planner = _other_planner(plan)
    if planner is None:
        return "no other grouping that was tried is better"
    return f"planner {planner} groups them so"


def _other_planner(plan: Plan) -> str | None:
    """Return who made *plan*; None for our own search."""
    planner = str(plan.problem.options.get("planner", OURS))
    return None if planner == OURS else planner


def _comparison(plan: Plan) -> Iterator[str]:
    """Yield what plans that people would have tried lose by; roles have a sentence of their own."""
    others = [other for other in plan.alternatives if other.name not in {ALL_MIXED, DISAGGREGATED}]
    lost = "; ".join(f"{o.name}: {o.why_not}" for o in others if o.why_not != BETTER)
    if lost:
        yield f"Other plans lose: {lost}."
    better = [other.name for other in others if other.why_not == BETTER]
    if better:
        yield f"Better, but not what this planner looks at: {named(better)}."


def _roles(costs: Costs, plan: Plan) -> str:
    problem = costs.problem
    if problem.constraints.roles != "auto":
        return f"Roles: as asked for (constraints.roles: {problem.constraints.roles})."
    if not problem.runtime.has_disaggregation:
        engine = problem.runtime.name
        return f"Roles: all MIXED, because {engine} cannot move a KV cache between replicas."
    planner = _other_planner(plan)
    if planner is not None:
        return f"Roles: {_played(plan)}, as planner {planner} assigns them."
    return _chosen_roles(problem, plan)


def _played(plan: Plan) -> str:
    parts = []
    for role in (Role.PREFILL, Role.DECODE, Role.MIXED):
        ids = [replica.id for replica in plan.replicas if replica.role == role]
        parts += [f"{named(ids)} {role}"] if ids else []
    return ", ".join(parts)


def _chosen_roles(problem: Problem, plan: Plan) -> str:
    rivals = {alternative.name: alternative for alternative in plan.alternatives}
    if problem.constraints.replicas == 1:
        return "Roles: MIXED, because one replica must do both (constraints.replicas: 1)."
    if {replica.role for replica in plan.replicas} == {Role.MIXED}:
        rival = rivals.get(DISAGGREGATED)
        if rival is None:
            return "Roles: all MIXED; no plan with PREFILL and DECODE replicas was found."
        paying = rival.break_even_bandwidth_mbit_s
        more = "" if paying is None else f"; it would pay above {number_text(paying)} Mbit/s"
        return f"Roles: all MIXED; {DISAGGREGATED}: {rival.why_not}{more}."
    rival = rivals.get(ALL_MIXED)
    lost = "no plan" if rival is None else f"{ALL_MIXED}: {rival.why_not}"
    lost = f"{lost} with MIXED replicas alone was found" if rival is None else lost
    return f"Roles: {_played(plan)}; {lost}."


# ------------------------------------------------------------------ limits


def _pace(costs: Costs, candidate: Candidate, replica: Replica) -> str:
    begin, stages = f"{replica.id} is the busiest ({percent(replica.utilisation)});", "its slowest"
    if costs.problem.workload.rate_per_s == 0:
        begin, stages = f"in {replica.id}", "the slowest"
    is_prefill = replica.role == Role.PREFILL
    times = [s.prefill_time_s if is_prefill else s.decode_time_s for s in replica.stages]
    j = times.index(max(times))
    stage = replica.stages[j]
    what = "prompt" if is_prefill else "token"
    bound = bound_of(costs, candidate, j, is_prefill=is_prefill)
    if len(times) == 1:
        return (
            f"Limits: {begin} {stage.label} needs {time_text(times[0])} a {what}, mostly for "
            f"{bound}."
        )
    whole = sum(times) + sum(
        hop.prefill_time_s if is_prefill else hop.decode_time_s
        for hop in (s.next_hop for s in replica.stages)
        if hop is not None
    )
    start, stop = stage.layers
    return (
        f"Limits: {begin} {stages} stage is {stage.label} with layers [{start}, {stop}), "
        f"{time_text(times[j])} of the {time_text(whole)} that a {what} takes through all stages, "
        f"mostly for {bound}."
    )


def _slot_limit(costs: Costs, replica: Replica, slots: Slots | None) -> Iterator[str]:
    if slots is None:
        return
    problem = costs.problem
    why = {
        SlotLimit.ASKED: "workload.slots asks for it",
        SlotLimit.ENGINE: f"{problem.runtime.name} has no more (max_slots)",
        SlotLimit.MEMORY: "one more does not fit into the memory of "
        + named([" + ".join(costs.names(d)) for d, _ in slots.lacking] or ["-"]),
        SlotLimit.SPEED: f"one more would make streams too slow ({_floor(costs)})",
        SlotLimit.RATE: "one more would not serve more requests a second",
        SlotLimit.CONTEXT: "one more would shorten the longest request it can hold",
    }[slots.limit]
    yield f"Slots: {replica.id} has {replica.slots}, because {why}."


def _floor(costs: Costs) -> str:
    """Return the harder of the two speed limits, as it stands in the file."""
    workload = costs.problem.workload
    floor = 1 / workload.min_tokens_per_s if workload.min_tokens_per_s > 0 else float("inf")
    if workload.slo_tpot_s is not None and workload.slo_tpot_s < floor:
        return f"slo.tpot_s: {workload.slo_tpot_s:g}"
    return f"min_tokens_per_s: {workload.min_tokens_per_s:g}"


# ------------------------------------------------------------------ what would help


def _link_help(costs: Costs, candidate: Candidate, replica: Replica) -> Iterator[str]:
    if replica.role == Role.PREFILL or len(candidate.cut) == 1:
        return
    hops = hops_of(costs, candidate)
    j = int(hops.over_perfect_link_s.argmin())
    best = float(hops.over_perfect_link_s[j])
    here = replica.stages[j]
    if best < hops.round_s * (1 - LEAST_GAIN) and here.next_hop:
        batch = -(-candidate.slots // candidate.micro_batches)
        link = " and ".join(path.name for path in hop_paths(costs, candidate.cut, j, batch))
        yield (
            f"Would help: a faster link from {here.device} to {here.next_hop.device} (now {link}); "
            f"a perfect one would shorten a token of {replica.id} from "
            f"{time_text(hops.round_s)} to {time_text(best)}."
        )
    fixed = float(hops.engine_s.sum())
    if fixed > LARGE_SHARE * hops.round_s:
        yield (
            f"Would help: cheaper hops; hop_overhead_ms of {costs.problem.runtime.name} makes up "
            f"{time_text(fixed)} of the {time_text(hops.round_s)} of each token of {replica.id}."
        )


def _transfer_help(plan: Plan) -> Iterator[str]:
    wait = plan.predicted.waiting_time_s
    arriving = sum(
        replica.arrival_rate_per_s for replica in plan.replicas if replica.role != Role.DECODE
    )
    if not wait or not arriving:
        return
    moving = sum(route.rate_per_s * route.kv_transfer_s for route in plan.routes) / arriving
    if moving > LARGE_SHARE * wait:
        slow = max(plan.routes, key=lambda route: route.rate_per_s * route.kv_transfer_s)
        where = {replica.id: replica.stages for replica in plan.replicas}
        ends = [
            f"{named([stage.label for stage in where[name]])} ({name})"
            for name in (slow.prefill, slow.decode)
        ]
        yield (
            f"Would help: a faster link from {ends[0]} to {ends[1]}; moving KV caches makes up "
            f"{time_text(moving)} of the {time_text(wait)} that requests wait."
        )


def _slot_help(costs: Costs, replica: Replica, slots: Slots | None) -> Iterator[str]:
    if slots is None or not slots.would_pay:
        return
    gain = f"{replica.id} would serve more requests a second with one more slot"
    if slots.limit is SlotLimit.SPEED:
        yield f"Would help: a softer limit than {_floor(costs)}; {gain}."
        return
    parts = [_more(costs, row, lack) for row, lack in slots.lacking]
    yield f"Would help: {named(parts)}; {gain}."


def _more(costs: Costs, row: int, lack: float) -> str:
    """Say how much memory is missing, and where."""
    names = costs.names(row)
    where = names[0] if len(names) == 1 else f"each of {named(list(names))}"
    return f"{size_text(lack / len(names))} more on {where}"
