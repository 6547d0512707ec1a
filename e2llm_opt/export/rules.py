"""What must hold in any plan, whatever the inventory: else there is nothing to export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from e2llm_opt.check.verdict import Violation
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.export.names import unprintable
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.plan.plan import Plan, Replica


_LARGEST = 1e18
"""Numbers of tokens and bytes beyond this are typing errors."""

_ROUNDING = 16
"""The three parts of a stage's memory are whole numbers each [bytes]."""


def num_layers(plan: Plan) -> int:
    """Return the layers of the plan's model; those that it covers where it does not say."""
    model: Mapping[str, Any] = plan.problem.model
    per_layer = model.get("layer_dense_bytes")
    if isinstance(per_layer, (tuple, list)) and per_layer:
        return len(per_layer)
    stated = model.get("num_hidden_layers")
    if isinstance(stated, int) and not isinstance(stated, bool) and stated > 0:
        return stated
    return max((stage.layers[1] for r in plan.replicas for stage in r.stages), default=0)


def broken_rules(plan: Plan) -> tuple[Violation, ...]:
    """Return what is wrong with a plan, as far as the plan alone can tell.

    With the inventory, :func:`e2llm_opt.check.check.check` finds more.
    """
    return tuple(_broken(plan))


def refuse_malformed(plan: Plan) -> None:
    """Refuse names that no file can hold, and facts that are not what they must be.

    The schema of a plan leaves ``problem.model``, ``.workload`` and ``.options`` open.

    Raises
    ------
    InputError
        With every fault.
    """
    faults = [*_unprintable(plan), *_mistyped(plan)]
    if faults:
        raise InputError(faults)


def _unprintable(plan: Plan) -> list[Fault]:
    names = {"problem.model.name": str(plan.problem.model.get("name", ""))}
    for i, replica in enumerate(plan.replicas):
        names[f"replicas[{i}].id"] = replica.id
        for j, stage in enumerate(replica.stages):
            at = f"replicas[{i}].stages[{j}]"
            names[f"{at}.device"] = stage.device
            for k, name in enumerate(stage.tensor_parallel):
                names[f"{at}.tensor_parallel[{k}]"] = name
    return [
        Fault(path=path, wrong="holds a character that no file can hold")
        for path, name in names.items()
        if unprintable(name)
    ]


def _mistyped(plan: Plan) -> Iterator[Fault]:
    asked = plan.problem
    length = asked.workload.get("output_tokens")
    mean = length.get("mean") if isinstance(length, Mapping) else length
    for path, value in (
        ("model.head_bytes", asked.model.get("head_bytes")),
        ("model.embedding_bytes", asked.model.get("embedding_bytes")),
        ("workload.output_tokens", mean),
    ):
        if value is not None and not _is_amount(value):
            yield Fault(path=f"problem.{path}", wrong=f"must be a number, got {value!r:.60}")
    routed = asked.model.get("layer_routed_bytes") or ()
    if not (isinstance(routed, (tuple, list)) and all(map(_is_amount, routed))):
        path = "problem.model.layer_routed_bytes"
        yield Fault(path=path, wrong="must be a list of numbers")
    context = asked.workload.get("context_tokens")
    if context is not None and not (_is_amount(context) and context == int(context) > 0):
        path = "problem.workload.context_tokens"
        yield Fault(path=path, wrong=f"must be a positive whole number, got {context!r:.60}")
    for part, key in (("model", "name"), ("options", "weights"), ("options", "kv_cache")):
        word = getattr(asked, part).get(key)
        if word is not None and not isinstance(word, str):
            yield Fault(path=f"problem.{part}.{key}", wrong=f"must be a text, got {word!r:.60}")


def _is_amount(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < _LARGEST  # type: ignore[operator] # a number, as just seen


def _broken(plan: Plan) -> Iterator[Violation]:
    if not plan.replicas:
        yield Violation(what="replicas", need="one or more", have="none")
    for name, times in Counter(replica.id for replica in plan.replicas).items():
        if times > 1:
            yield Violation(what=f"{name}: replicas of this id", need=1, have=times)
    devices = Counter(name for r in plan.replicas for s in r.stages for name in s.devices)
    for device, times in devices.items():
        if times > 1:
            yield Violation(what="stages on this device", need=1, have=times, device=device)
        elif not device:
            yield Violation(what="device of a stage", need="a name", have="none")
    for stage in (stage for replica in plan.replicas for stage in replica.stages):
        first = stage.devices[0]
        if first != stage.device:
            what = "first device of tensor_parallel"
            yield Violation(what=what, need=stage.device, have=first, device=stage.device)
    total = num_layers(plan)
    for replica in plan.replicas:
        yield from _broken_in(replica, total, plan.problem.model.get("allowed_stage_starts"))
    yield from _broken_routes(plan)


def _broken_in(replica: Replica, total: int, starts: object) -> Iterator[Violation]:
    name = replica.id
    if replica.role not in set(Role):
        yield Violation(what=f"{name}: role", need=", ".join(Role), have=replica.role)
    if replica.slots < 1:
        yield Violation(what=f"{name}: slots", need=1, have=replica.slots)
    if not replica.stages:
        yield Violation(what=f"{name}: stages", need="one or more", have="none")
        return
    begin = 0
    for stage in replica.stages:
        start, stop = stage.layers
        if start != begin or stop <= start:
            need, have = f"layers from {begin} on", f"[{start}, {stop})"
            what = f"{name}: layers without gap or overlap"
            yield Violation(what=what, need=need, have=have, device=stage.device)
        if isinstance(starts, (tuple, list)) and start > 0 and start not in starts:
            what = f"{name}: layer at which a stage may start"
            yield Violation(what=what, need="an allowed one", have=start, device=stage.device)
        held = stage.memory_bytes
        need_bytes = held.weights + held.kv_cache + held.overhead
        if held.free < 0 or need_bytes > held.capacity + _ROUNDING > _ROUNDING:
            need_bytes = max(need_bytes, held.capacity - held.free)
            what = f"{name}: memory"
            yield Violation(what=what, need=need_bytes, have=held.capacity, device=stage.device)
        begin = stop
    if begin != total:
        yield Violation(what=f"{name}: layers", need=total, have=begin)
    heads = sum(stage.head for stage in replica.stages)
    if heads > 1:
        yield Violation(what=f"{name}: stages that hold the head", need=1, have=heads)


def _broken_routes(plan: Plan) -> Iterator[Violation]:
    ids = {role: {r.id for r in plan.replicas if r.role == role} for role in Role}
    for route in plan.routes:
        if route.prefill not in ids[Role.PREFILL] or route.decode not in ids[Role.DECODE]:
            what = f"route {route.prefill} to {route.decode}"
            yield Violation(what=what, need="a PREFILL and a DECODE replica", have="none")
    for one, other in ((Role.PREFILL, Role.DECODE), (Role.DECODE, Role.PREFILL)):
        if ids[one] and not ids[other]:
            yield Violation(what=f"{other} replicas beside {one} ones", need=1, have=0)
