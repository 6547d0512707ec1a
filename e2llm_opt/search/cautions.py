"""What the reader of a plan should be warned of, by name of device, link or setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.cost.pipeline import decode_stages
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.problem import Objective, Role
from e2llm_opt.provenance import Provenance
from e2llm_opt.search.assemble import hop_paths, in_order
from e2llm_opt.search.link_cautions import link_cautions, resource_label, slowest_resource
from e2llm_opt.search.phrases import named, percent, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Outcome

SLOW_HOPS = 0.25
"""Share of a round that hops may take before the plan warns."""
BUSY = 0.9
"""Share of the capacity above which small changes make long waits."""
FULL = 0.97
"""Share of a device's usable memory above which nothing else fits."""
MOVING = 0.5
"""Share of the wait that moving KV caches may make up."""


def cautions(costs: Costs, outcome: Outcome, plan: Plan) -> tuple[str, ...]:
    """Return warnings about *outcome*, which is *plan* as a document; the gravest first."""
    return (
        *_load(costs, outcome),
        *_levels(costs, outcome),
        *(line for c in outcome.replicas for line in _hops(costs, c)),
        *_transfers(costs, outcome, plan),
        *link_cautions(costs, outcome),
        *_context(costs),
        *_memory(plan),
        *_slots(costs, plan),
        *_alone(plan),
        *_inputs(costs, outcome),
    )


def _load(costs: Costs, outcome: Outcome) -> Iterator[str]:
    workload = costs.problem.workload
    capacity = outcome.traffic.capacity_per_s
    if workload.rate_per_s > 0 and not outcome.is_stable:
        yield (
            f"rate_per_s {workload.rate_per_s:g} is above the capacity of {capacity:.3g} "
            "requests/s: the queue grows without end"
        )
    elif workload.rate_per_s > BUSY * capacity:
        yield (
            f"rate_per_s {workload.rate_per_s:g} is {percent(workload.rate_per_s / capacity)} of "
            f"the capacity of {capacity:.3g} requests/s: a little more makes waits much longer"
        )
    if workload.rate_per_s == 0 and costs.problem.objective is Objective.WAITING_TIME:
        yield "no arrival rate was given (workload.rate_per_s): waits are 0 and latency decides"
    for resource in outcome.traffic.saturated:
        yield f"{resource_label(costs, resource)} limits the capacity"


def _levels(costs: Costs, outcome: Outcome) -> Iterator[str]:
    limit = costs.problem.workload.slo_ttft_s
    reached = outcome.ttft_s if outcome.is_stable else None
    if limit is not None and reached is not None and reached > limit:
        yield f"slo.ttft_s {limit:g} is missed: the mean TTFT is {reached:.3g} s"


def _hops(costs: Costs, candidate: Candidate) -> Iterator[str]:
    if len(candidate.cut) == 1 or candidate.role is Role.PREFILL:
        return
    batch = -(-candidate.slots // candidate.micro_batches)
    stage, hop = decode_stages(costs, candidate.cut, batch, candidate.spilled)
    share = float(hop.sum() / (stage + hop).sum())
    if share <= SLOW_HOPS:
        return
    j = int(hop.argmax())
    here = costs.names(candidate.cut[j][0])[0]
    there = costs.names(candidate.cut[(j + 1) % len(candidate.cut)][0])[0]
    paths = hop_paths(costs, candidate.cut, j, batch)
    latency = sum(path.latency_s for path in paths)
    name = " and ".join(path.name for path in paths)
    yield (
        f"link latency and hop costs take {share:.0%} of every token; the slowest hop is "
        f"{here} -> {there} over {name} ({1e3 * latency:.3g} ms link latency of "
        f"{1e3 * float(hop[j]):.3g} ms)"
    )


def _transfers(costs: Costs, outcome: Outcome, plan: Plan) -> Iterator[str]:
    """Yield the route on which moving KV caches is most of what requests wait for."""
    wait = plan.predicted.waiting_time_s
    ids = {r: plan.replicas[number].id for number, r in enumerate(in_order(costs, outcome))}
    for (i, j), (rate, move) in outcome.traffic.routes.items():
        resource = slowest_resource(costs, move)
        if wait and rate > 0 and move.exposed_s > MOVING * wait and resource is not None:
            yield (
                f"moving a KV cache from {ids[i]} to {ids[j]} takes {time_text(move.exposed_s)}, "
                f"requests wait {time_text(wait)} in all; {resource_label(costs, resource)} is "
                "what it waits for"
            )


def _context(costs: Costs) -> Iterator[str]:
    asked, facts = costs.problem.workload.context_tokens, costs.problem.facts
    if 0 < facts.max_position_embeddings < asked:
        yield (
            f"context_tokens {asked} is more than the {facts.max_position_embeddings} that "
            f"{facts.name} was made for"
        )


def _memory(plan: Plan) -> Iterator[str]:
    full = [
        name
        for replica in plan.replicas
        for stage in replica.stages
        for name in stage.devices
        if stage.memory_bytes.free < (1 - FULL) * stage.memory_bytes.capacity
    ]
    if full:
        yield (
            f"{named(full)} {'is' if len(full) == 1 else 'are'} more than {percent(FULL)} full; "
            "reserved_gib keeps memory free for other programs"
        )


def _slots(costs: Costs, plan: Plan) -> Iterator[str]:
    """Yield the replicas that have memory for more slots than the engine serves."""
    runtime = costs.problem.runtime
    if costs.problem.workload.slots is not None:
        return
    capped = [
        replica.id
        for replica in plan.replicas
        if replica.role != Role.PREFILL
        and replica.slots == runtime.max_slots
        and all(
            stage.memory_bytes.free * replica.slots > stage.memory_bytes.kv_cache
            for stage in replica.stages
        )
    ]
    if capped:
        yield (
            f"{named(capped)} could hold more requests than the {runtime.max_slots} slots that "
            f"{runtime.name} is taken to serve (max_slots)"
        )


def _alone(plan: Plan) -> Iterator[str]:
    """Yield roles that one replica plays alone."""
    roles = [replica.role for replica in plan.replicas]
    for replica in plan.replicas:
        if roles.count(replica.role) > 1 or (replica.role != Role.MIXED and Role.MIXED in roles):
            continue
        devices = [name for stage in replica.stages for name in stage.devices]
        fails = "one of its devices fails" if len(devices) > 1 else "its device fails"
        yield (
            f"{replica.id} is the only {replica.role} replica: nothing is served when {fails} "
            f"({named(devices)})"
        )


def _inputs(costs: Costs, outcome: Outcome) -> Iterator[str]:
    rows = [d for c in outcome.replicas for d in costs.units.devices(c.cut)]
    stated = costs.problem.inventory.devices
    used = [(costs.problem.devices[d], stated[d]) for d in rows]
    unmeasured = [one for one, _ in used if one.provenance is not Provenance.MEASURED]
    fitted = {one.name for one, own in used if one.prefill_efficiency != own.prefill_efficiency}
    alike = [device for device in unmeasured if device.name in fitted]
    others = [device for device in unmeasured if device.name not in fitted]
    if alike:
        yield (
            f"speeds of {_names(alike)} are those of such devices elsewhere; e2llm-opt calibrate "
            "fits them to yours"
        )
    if others:
        yield (
            f"speeds of {_names(others)} follow from specifications and efficiencies, not from "
            "measurements"
        )
    unknown = [device for device in unmeasured if device.provenance is Provenance.ASSUMED]
    if unknown:
        yield f"efficiency is a default for {_names(unknown)}, which no catalogue entry describes"
    boards = [device for device in unmeasured if device.memory_kind is MemoryKind.CPU]
    if boards:
        yield f"efficiency differs most from one CPU to the next: measure {_names(boards)}"


def _names(devices: list[Device]) -> str:
    return named(sorted(device.name for device in devices))
