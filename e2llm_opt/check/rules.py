"""Rules that need no times: devices, layers, roles, constraints, memory, connections, slots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from e2llm_opt.check.constraint_rules import fixed_layer_rules, pin_rules
from e2llm_opt.check.formulas import embedding_stage, head_stage
from e2llm_opt.check.spill import WHOLE_BYTE, some
from e2llm_opt.check.verdict import Violation
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.check.given import GivenPlan, GivenReplica
    from e2llm_opt.check.pipeline import Pipeline
    from e2llm_opt.problem import Problem


def plan_rules(given: GivenPlan, problem: Problem) -> Iterator[Violation]:
    """Yield what is wrong with the plan as a whole."""
    digest = inventory_sha256(problem.inventory)
    if given.inventory_sha256 and given.inventory_sha256 != digest:
        yield Violation(
            what="plan was made for another inventory", need=digest, have=given.inventory_sha256
        )
    yield from _device_rules(given, problem)
    yield from _unused_rules(given, problem)
    yield from _role_rules(given, problem)
    yield from pin_rules(given, problem)
    yield from fixed_layer_rules(given, problem)
    wanted = problem.constraints.replicas
    if wanted is not None and wanted != len(given.replicas):
        yield Violation(what="constraints.replicas", need=wanted, have=len(given.replicas))


def layer_rules(replica: GivenReplica, problem: Problem) -> Iterator[Violation]:
    """Yield every gap, overlap and end that keeps a replica from being one whole model."""
    num_layers = problem.model.num_layers
    reached = 0
    for stage in replica.stages:
        if stage.start != reached:
            rule = "layers are left out" if stage.start > reached else "layers are held twice"
            what = f"{replica.id}: {rule} before or in {stage.layers}"
            yield Violation(what=what, device=stage.device, need=reached, have=stage.start)
        reached = stage.stop
    if reached != num_layers:
        rule = "layers are left out" if reached < num_layers else "layers beyond the model's"
        what = f"{replica.id}: {rule} at the end"
        yield Violation(what=what, device=replica.stages[-1].device, need=num_layers, have=reached)


def stage_rules(replica: GivenReplica, problem: Problem) -> Iterator[Violation]:
    """Yield stages that start or say something that they must not."""
    allowed = problem.model.allowed_stage_starts
    for stage in replica.stages:
        if allowed is not None and stage.start > 0 and stage.start not in allowed:
            yield Violation(
                what=f"{replica.id}: a stage must not start at this layer",
                device=stage.device,
                need=some(allowed),
                have=stage.start,
            )
    yield from _place_rules(replica, problem)


def slot_rules(replica: GivenReplica, problem: Problem) -> Iterator[Violation]:
    """Yield what is wrong with the stated slots."""
    slots, wanted = replica.slots, problem.workload.slots
    if slots is None:
        return
    if replica.role is Role.PREFILL:
        if slots > 1:
            what = f"{replica.id}: a PREFILL replica works on one request at a time"
            yield Violation(what=what, need=1, have=slots)
        return
    if slots < 1:
        yield Violation(what=f"{replica.id}: slots", need=1, have=slots)
    if slots > problem.runtime.max_slots:
        what = f"{replica.id}: slots over the engine's max_slots"
        yield Violation(what=what, need=problem.runtime.max_slots, have=slots)
    if wanted is not None and slots != wanted:
        yield Violation(what=f"{replica.id}: workload.slots", need=wanted, have=slots)


def memory_rules(name: str, pipeline: Pipeline, slots: int) -> Iterator[Violation]:
    """Yield every stage that holds more than its device, or the host RAM beside it, may."""
    context = pipeline.problem.workload.context_tokens
    for seat in pipeline.seats:
        held = pipeline.memory(seat, slots, context)
        num_spilled = len(seat.spilled)
        spilled = f", {num_spilled} layer{'s' * (num_spilled > 1)} spilled" if num_spilled else ""
        if pipeline.excess_bytes(seat, slots, context) > WHOLE_BYTE:
            yield Violation(
                what=f"{name}: memory exceeded: weights {held.weights} + KV cache "
                f"{held.kv_cache} + overhead {held.overhead} bytes{spilled}",
                device=seat.device.name,
                need=held.weights + held.kv_cache + held.overhead,
                have=held.capacity,
            )
        if pipeline.host_excess_bytes(seat) > WHOLE_BYTE:
            yield Violation(
                what=f"{name}: host RAM exceeded{spilled}",
                device=seat.device.name,
                need=held.host,
                have=round(seat.device.host_memory_bytes),
            )


def connection_rules(name: str, pipeline: Pipeline) -> Iterator[Violation]:
    """Yield every pair of neighbours without a way between them."""
    for source, target in pipeline.unconnected():
        yield Violation(
            what=f"{name}: no way from {source.name} to {target.name}",
            device=source.name,
            need=f"a way to {target.name}",
            have="none",
        )


def _device_rules(given: GivenPlan, problem: Problem) -> Iterator[Violation]:
    known = {device.name for device in problem.devices}
    uses = Counter(name for r in given.replicas for stage in r.stages for name in stage.devices)
    for name, times in uses.items():
        if name not in known:
            yield Violation(
                what="unknown device", device=name, need="a device of the inventory", have=name
            )
        if times > 1:
            yield Violation(what="device holds several stages", device=name, need=1, have=times)
        if name in problem.constraints.exclude:
            yield Violation(
                what="constraints.exclude", device=name, need="no layers", have="layers"
            )
    if problem.constraints.use_all_devices:
        for device in problem.devices:
            if device.name not in uses and device.name not in problem.constraints.exclude:
                yield Violation(
                    what="constraints.use_all_devices",
                    device=device.name,
                    need="layers",
                    have="no layers",
                )


def _unused_rules(given: GivenPlan, problem: Problem) -> Iterator[Violation]:
    """Where the plan lists its unused devices, the list must be right."""
    if given.unused_devices is None:
        return
    used = {name for r in given.replicas for stage in r.stages for name in stage.devices}
    idle = [d.name for d in problem.devices if d.name not in used]
    for name in given.unused_devices:
        if name not in idle:
            have = "layers" if name in used else "no such device"
            yield Violation(
                what="listed as unused", device=name, need="a device without layers", have=have
            )
    for name in idle:
        if name not in given.unused_devices:
            yield Violation(
                what="device without layers is not listed in unused_devices",
                device=name,
                need="its name and a reason",
                have="nothing",
            )


def _role_rules(given: GivenPlan, problem: Problem) -> Iterator[Violation]:
    counts = Counter(replica.role for replica in given.replicas)
    split = counts[Role.PREFILL] + counts[Role.DECODE]
    for role, other in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
        if counts[role] and not counts[other]:
            yield Violation(
                what=f"{role} replicas without a {other} replica", need=f"a {other}", have="none"
            )
    if split and not problem.runtime.has_disaggregation:
        yield Violation(
            what=f"{problem.runtime.name} cannot move a KV cache from PREFILL to DECODE",
            need="MIXED only",
            have=f"{split} PREFILL or DECODE",
        )
    wanted = problem.constraints.roles
    if wanted == "mixed" and split:
        yield Violation(what="constraints.roles: mixed", need="MIXED only", have=f"{split} others")
    if wanted == "disaggregated" and counts[Role.MIXED]:
        yield Violation(
            what="constraints.roles: disaggregated",
            need="PREFILL and DECODE only",
            have=f"{counts[Role.MIXED]} MIXED",
        )


def _place_rules(replica: GivenReplica, problem: Problem) -> Iterator[Violation]:
    """Embedding, head and next hop must be where the engine puts them, if the plan says where."""
    num_stages = len(replica.stages)
    head = head_stage(problem.runtime, num_stages)
    embedding = embedding_stage(problem.runtime, num_stages)
    for index, stage in enumerate(replica.stages):
        following = replica.stages[(index + 1) % num_stages].device
        if num_stages == 1:
            following = "none"
        claims = (
            ("embedding", str(index == embedding), _said(stage.embedding)),
            ("head", str(index == head), _said(stage.head)),
            ("next hop", following, stage.next_device),
        )
        for thing, need, have in claims:
            if have is not None and have != need:
                yield Violation(
                    what=f"{replica.id}: {thing} of stage {index}",
                    device=stage.device,
                    need=need,
                    have=have,
                )


def _said(flag: bool | None) -> str | None:  # noqa: FBT001 - a value, not a switch
    return None if flag is None else str(flag)
