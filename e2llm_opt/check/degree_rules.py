"""Whether the devices that serve one stage together may do that: who, how many, and with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.check.formulas import kv_heads
from e2llm_opt.check.verdict import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.check.given import GivenReplica, GivenStage
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.problem import Problem

_ALLOWED = (2, 4, 8)
_NUMBERS = (
    "memory_bytes",
    "reserved_bytes",
    "memory_bandwidth_bytes_per_s",
    "fp16_flop_per_s",
    "prefill_efficiency",
    "decode_efficiency",
    "layer_overhead_s",
    "memory_kind",
    "host_bus_bytes_per_s",
    "host_memory_bytes",
    "host_bandwidth_bytes_per_s",
    "bus_bytes_per_s",
    "power_w",
    "cost_per_hour",
)
"""In what the devices of a stage must be equal."""


def degree_rules(replica: GivenReplica, problem: Problem) -> Iterator[Violation]:
    """Yield what is wrong with the devices of each stage of a replica."""
    devices = {device.name: device for device in problem.devices}
    numbers = [len(stage.devices) for stage in replica.stages]
    wanted = problem.constraints.tensor_parallel
    for stage, number in zip(replica.stages, numbers, strict=True):
        if isinstance(wanted, int) and number != wanted:
            what = f"{replica.id}: constraints.tensor_parallel"
            yield Violation(what=what, device=stage.device, need=wanted, have=number)
        if number > 1:
            yield from _engine_rules(replica, stage, problem)
            yield from _head_rules(replica, stage, problem)
            own = [devices[name] for name in stage.devices if name in devices]
            yield from _alike_rules(replica, own, problem)
    if len(set(numbers)) > 1:
        what = f"{replica.id}: stages with unlike numbers of devices"
        have = ", ".join(map(str, numbers))
        yield Violation(what=what, need=f"{numbers[0]} each", have=have)


def _engine_rules(
    replica: GivenReplica, stage: GivenStage, problem: Problem
) -> Iterator[Violation]:
    engine, number = problem.runtime, len(stage.devices)
    wanted = problem.constraints.tensor_parallel
    if engine.tensor_parallel == "no":
        what = f"{replica.id}: {engine.name} cannot run one stage on several devices"
        yield Violation(what=what, device=stage.device, need=1, have=number)
    elif wanted == "off" or (wanted == "auto" and engine.tensor_parallel == "asked"):
        what = f"{replica.id}: constraints.tensor_parallel asks for one device a stage"
        yield Violation(what=what, device=stage.device, need=1, have=number)
    if engine.tensor_parallel == "replica" and len(replica.stages) > 1:
        what = f"{replica.id}: {engine.name} shares layers over all devices of a replica or none"
        yield Violation(what=what, device=stage.device, need=1, have=len(replica.stages))
    if stage.spilled_layers:
        what = f"{replica.id}: spilled layers on several devices of one stage"
        yield Violation(what=what, device=stage.device, need=0, have=len(stage.spilled_layers))


def _head_rules(replica: GivenReplica, stage: GivenStage, problem: Problem) -> Iterator[Violation]:
    number, facts = len(stage.devices), problem.facts
    if number not in _ALLOWED:
        what = f"{replica.id}: devices of one stage"
        yield Violation(what=what, device=stage.device, need="1, 2, 4 or 8", have=number)
        return
    if facts.num_attention_heads == 0:
        what = f"{replica.id}: a stage would share attention heads, which the model does not say"
        yield Violation(what=what, device=stage.device, need=1, have=number)
        return
    kept = kv_heads(problem)
    parts = {
        "attention heads": facts.num_attention_heads,
        "key heads of linear attention": facts.linear_num_key_heads,
        "value heads of linear attention": facts.linear_num_value_heads,
    }
    if problem.runtime.tensor_parallel == "replica":
        parts = {"hidden size": facts.hidden_size, "KV heads": kept}
    for name, total in parts.items():
        if total % number != 0:
            what = f"{replica.id}: {name} that the devices of a stage cannot share"
            yield Violation(what=what, device=stage.device, need=f"{total} by {number}", have=total)
    if kept % number != 0 and number % kept != 0:
        what = f"{replica.id}: KV heads that the devices of a stage cannot share"
        yield Violation(what=what, device=stage.device, need=f"{kept} by {number}", have=kept)


def _alike_rules(
    replica: GivenReplica, devices: Sequence[Device], problem: Problem
) -> Iterator[Violation]:
    for other in devices[1:]:
        first = devices[0]
        if other.host != first.host:
            what = f"{replica.id}: devices of one stage on different hosts"
            yield Violation(what=what, device=other.name, need=first.host, have=other.host)
            continue
        for name, one, own in _differences(first, other, problem):
            what = f"{replica.id}: unlike devices in one stage: {name}"
            yield Violation(what=what, device=other.name, need=one, have=own)


def _differences(first: Device, other: Device, problem: Problem) -> Iterator[tuple[str, Any, Any]]:
    """Yield in what two devices of a host differ, what constraints say of them included."""
    for name in _NUMBERS:
        one, own = getattr(first, name), getattr(other, name)
        if one != own:
            yield name, one, own
    limits = problem.constraints
    for name, said in (("constraints.pin", limits.pinned), ("constraints.layers", limits.layers)):
        known = dict(said)
        if known.get(first.name) != known.get(other.name):
            yield name, known.get(first.name, "nothing"), known.get(other.name, "nothing")
    where = problem.inventory.endpoint
    inside = [link.ends for link in problem.inventory.links if len(set(map(where, link.ends))) == 1]
    for device in (first, other):
        if any(device.name in ends for ends in inside):
            yield "a link of its own inside the host", "none", device.name
