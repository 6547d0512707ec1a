"""What is different from the problem that a plan was made for, as far as the plan tells."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import Costs
from e2llm_opt.cost.pipeline import decode_stages, prefill
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.replan.answer import Difference
from e2llm_opt.search.assemble import problem_of
from e2llm_opt.search.standing import cuts_of
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from e2llm_opt.plan.plan import Plan, Replica
    from e2llm_opt.problem import Problem

_SAME = 1e-6
"""Numbers closer than that, relatively, are the same."""
_PLANNING = {"planner", "method", "seed", "islands", "tensor_parallel"}
"""Options that say how a plan was found, not for what; stages are never shared here."""
_OF_WEIGHTS = ("name", "layer_dense_bytes", "layer_routed_bytes", "embedding_bytes", "head_bytes")
"""Facts of a model that tell whether two have the same weights."""


def differences(plan: Plan, problem: Problem) -> tuple[Difference, ...]:
    """Return how *problem* differs from the one that *plan* was made for.

    Devices are matched by name. Of a device with layers a plan tells its memory, and how long it
    and its hops take; these are computed again with the workload of then. Of a device without
    layers it tells the name alone.
    """
    return (
        *_model(plan, problem),
        *_fleet(plan, problem),
        *_workload(plan, problem),
        *_options(plan, problem),
    )


def has_same_weights(plan: Plan, problem: Problem) -> bool:
    """Whether the layers that *plan* placed are those of the problem's model, in its format."""
    return not any(True for _ in _model(plan, problem))


def is_noise(found: tuple[Difference, ...], share: float) -> bool:
    """Whether nothing but numbers changed, and none of them by more than *share* of it."""
    return all(
        one.what in {"changed", "link", "workload"}
        and all(_distance(then, now) <= share for then, now in one.fields.values())
        for one in found
    )


def changed_devices(found: tuple[Difference, ...], share: float) -> frozenset[str]:
    """Return the names of devices that are new, or changed by more than *share*."""
    return frozenset(
        one.name
        for one in found
        if one.what == "new"
        or (
            one.what in {"changed", "link"}
            and any(_distance(then, now) > share for then, now in one.fields.values())
        )
    )


def _distance(then: Any, now: Any) -> float:  # noqa: ANN401 - any JSON value
    if isinstance(then, bool) or not isinstance(then, int | float):
        return 0.0 if then == now else float("inf")
    if not isinstance(now, int | float):
        return float("inf")
    if then == now:
        return 0.0
    return abs(now - then) / max(abs(then), 1e-300)


def _pairs(
    then: Mapping[str, Any], now: Mapping[str, Any], same: float = _SAME
) -> dict[str, tuple[Any, Any]]:
    return {
        key: (then.get(key), now.get(key))
        for key in {**then, **now}
        if _distance(then.get(key), now.get(key)) > same
    }


def _model(plan: Plan, problem: Problem) -> Iterator[Difference]:
    """Yield what makes the weights other ones: the model, its sizes, or their format."""
    now = {key: _frozen(value) for key, value in asdict(problem.model).items()}
    keys = [key for key in _OF_WEIGHTS if plan.problem.model.get(key) != now[key]]
    fields = {key: (plan.problem.model.get(key), now[key]) for key in keys if key == "name"}
    then = plan.problem.options.get("weights")
    if then != problem.weights:
        fields["weights"] = (then, problem.weights)
    elif keys and not fields:
        fields["sizes"] = ("of its layers", "others")
    if fields:
        yield Difference(what="model", name=problem.model.name, fields=fields)


def _frozen(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    return tuple(value) if isinstance(value, list | tuple) else value


def _fleet(plan: Plan, problem: Problem) -> Iterator[Difference]:
    names = [device.name for device in problem.devices]
    stages = [stage.device for replica in plan.replicas for stage in replica.stages]
    then = [*stages, *(one.device for one in plan.unused_devices)]
    yield from (Difference(what="gone", name=name) for name in then if name not in names)
    yield from (Difference(what="new", name=name) for name in names if name not in then)
    is_same = plan.problem.inventory_sha256 == inventory_sha256(problem.inventory)
    same_engine = plan.problem.runtime == problem.runtime.name
    if is_same or not same_engine or not has_same_weights(plan, problem):
        return
    quantile = plan.problem.options.get("pessimistic", problem.pessimistic)
    costs = Costs(
        replace(
            problem,
            workload=workload_of(plan),
            constraints=Constraints(),
            pessimistic=quantile,
        )
    )
    for replica, cut in zip(plan.replicas, cuts_of(costs, plan), strict=True):
        if cut:
            yield from _stages(costs, replica, cut)


def workload_of(plan: Plan) -> Workload:
    """Return the workload that *plan* was made for."""
    given = plan.problem.workload
    return Workload(
        prompt=Lengths(**given["prompt_tokens"]),
        output=Lengths(**given["output_tokens"]),
        rate_per_s=given["rate_per_s"],
        context_tokens=given["context_tokens"],
        slots=given["slots"],
        min_tokens_per_s=given["min_tokens_per_s"],
        slo_ttft_s=given["slo"]["ttft_s"],
        slo_tpot_s=given["slo"]["tpot_s"],
    )


def _stages(costs: Costs, replica: Replica, cut: Any) -> Iterator[Difference]:  # noqa: ANN401
    """Yield which devices and hops of a replica are others by their memory or speed."""
    batch = -(-replica.slots // replica.decode.micro_batches)
    first = prefill(costs, cut, costs.prompt_tokens, replica.spilled)
    decode_s, decode_hop_s = decode_stages(costs, cut, batch, replica.spilled)
    for j, stage in enumerate(replica.stages):
        then = {
            "memory_bytes": stage.memory_bytes.capacity,
            "prefill_time_s": stage.prefill_time_s,
            "decode_time_s": stage.decode_time_s,
        }
        now = {
            "memory_bytes": round(float(costs.tables.usable[cut[j][0]])),
            "prefill_time_s": float(first.stage_s[j]),
            "decode_time_s": float(decode_s[j]),
        }
        if fields := _pairs(then, now):
            yield Difference(what="changed", name=stage.device, fields=fields)
        if stage.next_hop is None:
            continue
        then = {
            "prefill_time_s": stage.next_hop.prefill_time_s,
            "decode_time_s": stage.next_hop.decode_time_s,
        }
        now = {
            "prefill_time_s": float(first.hop_s[j]),
            "decode_time_s": float(decode_hop_s[j]),
        }
        if fields := _pairs(then, now):
            fields["to"] = (stage.next_hop.device, stage.next_hop.device)
            yield Difference(what="link", name=stage.device, fields=fields)


def _workload(plan: Plan, problem: Problem) -> Iterator[Difference]:
    then, now = asdict(workload_of(plan)), asdict(problem.workload)
    for key in then:
        pair = (then[key], now[key])
        if isinstance(then[key], dict):
            fields = _pairs(*pair)
        else:
            fields = _pairs({key: pair[0]}, {key: pair[1]})
        if fields:
            yield Difference(what="workload", name=key, fields=fields)


def _options(plan: Plan, problem: Problem) -> Iterator[Difference]:
    now = problem_of(problem, "", "", 0, None)
    then = {k: v for k, v in plan.problem.options.items() if k not in {*_PLANNING, "weights"}}
    today = {k: v for k, v in now.options.items() if k in then}  # others it knew nothing of
    for key, pair in _pairs(
        {**then, "runtime": plan.problem.runtime}, {**today, "runtime": now.runtime}
    ).items():
        yield Difference(what="options", name=key, fields={key: pair})
