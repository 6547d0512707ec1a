"""Fleets that plans are changed on: what happens to them, and bytes counted from plans alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.problem import Problem
from e2llm_opt.runtime import runtime
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.replan.answer import Replan

NO_FINALS = Finals(arrivals=())
MB = 1e6


def fleet(
    memory_mb: Sequence[float], rate_per_s: float = 0.5, *, num_layers: int = 6, engine: str = ""
) -> Problem:
    """Return devices that are all linked; a layer weighs 100 MB: memory says how many fit."""
    machines = tuple(
        Device(
            name=f"d{i}",
            memory_bytes=own * MB,
            memory_bandwidth_bytes_per_s=50e9,
            fp16_flop_per_s=5e12,
        )
        for i, own in enumerate(memory_mb)
    )
    links = tuple(
        Link(
            ends=(one.name, other.name),
            forward_bytes_per_s=1e8,
            backward_bytes_per_s=1e8,
            latency_s=1e-4,
        )
        for one, other in combinations(machines, 2)
    )
    return Problem(
        inventory=Inventory(devices=machines, links=links),
        facts=ModelFacts(
            name="six",
            num_hidden_layers=num_layers,
            hidden_size=64,
            vocab_size=1000,
            layer_weight_bytes=100 * MB,
            kv_bytes_per_token=1e3,
            layer_flops_per_token=2e8,
            embedding_bytes=3 * MB,
            head_bytes=5 * MB,
        ),
        runtime=replace(runtime(engine or "generic"), overhead_bytes=0.0),
        workload=Workload(
            prompt=Lengths(mean=400), output=Lengths(mean=100), rate_per_s=rate_per_s
        ),
    )


def without(problem: Problem, *names: str) -> Problem:
    """Return *problem* after devices, and their links, have gone."""
    inventory = problem.inventory
    return replace(
        problem,
        inventory=Inventory(
            devices=tuple(d for d in inventory.devices if d.name not in names),
            links=tuple(one for one in inventory.links if not {*one.ends} & {*names}),
        ),
    )


def slower(problem: Problem, factor: float, *names: str) -> Problem:
    """Return *problem* with some devices (all, if none is named) slower by *factor*."""
    return problem.with_devices(
        replace(
            device,
            memory_bandwidth_bytes_per_s=device.memory_bandwidth_bytes_per_s / factor,
            fp16_flop_per_s=device.fp16_flop_per_s / factor,
        )
        if not names or device.name in names
        else device
        for device in problem.inventory.devices
    )


def at_rate(problem: Problem, rate_per_s: float) -> Problem:
    return replace(problem, workload=replace(problem.workload, rate_per_s=rate_per_s))


def shape(plan: Plan) -> set[tuple[object, ...]]:
    """Return who does what: all that a plan decides."""
    return {
        (own.role, own.slots, tuple((stage.device, stage.layers) for stage in own.stages))
        for own in plan.replicas
    }


def held(plan: Plan) -> dict[str, set[int | str]]:
    """Return the layers, by number, and tables that each device holds."""
    return {
        stage.device: {
            *range(*stage.layers),
            *(("embedding",) if stage.embedding else ()),
            *(("head",) if stage.head else ()),
        }
        for replica in plan.replicas
        for stage in replica.stages
    }


def bytes_to_get(old: Plan, new: Plan, problem: Problem) -> float:
    """Return what devices must get that they did not hold, counted layer by layer [bytes]."""
    model, before = problem.model, held(old)

    def weight(part: int | str) -> float:
        if isinstance(part, int):
            return model.layer_weight_bytes[part]
        return model.embedding_bytes if part == "embedding" else model.head_bytes

    total = 0.0
    for device, parts in held(new).items():
        own = before.get(device, set())
        missing = parts - own
        if model.is_tied and missing & {"embedding", "head"}:
            missing -= {"embedding", "head"}
            total += 0.0 if own & {"embedding", "head"} else model.head_bytes
        total += sum(map(weight, missing))
    return total


def moved(answer: Replan) -> float:
    return float(sum(move.num_bytes for move in answer.moves))
