"""From the best outcome to the plan document: stages, memory, figures, routes."""

from __future__ import annotations

from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.pipeline import bottleneck, decode_stages, prefill
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.plan.plan import (
    DecodeFigures,
    NextHop,
    PlanProblem,
    Predicted,
    PrefillFigures,
    Replica,
    Route,
    Stage,
    StageMemory,
)
from e2llm_opt.problem import Role
from e2llm_opt.search.context import max_context

if TYPE_CHECKING:
    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.inventory.network import Path
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidates import Candidate
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.workload.workload import Workload

_ROLE_ORDER = {role: i for i, role in enumerate(Role)}


def in_order(costs: Costs, outcome: Outcome) -> list[int]:
    """Return the outcome's replicas as indices: by role, then by the canonical device order."""
    place = {d: i for i, d in enumerate(costs.classes.order)}
    replicas = outcome.replicas
    return sorted(
        range(len(replicas)),
        key=lambda r: (_ROLE_ORDER[replicas[r].role], [place[d] for d, _, _ in replicas[r].cut]),
    )


def replicas_of(costs: Costs, outcome: Outcome) -> tuple[Replica, ...]:
    """Return the plan's replicas, r0 first."""
    names = _names(costs, outcome)
    return tuple(
        _replica(costs, names[r], outcome.replicas[r], outcome.traffic.rates_per_s[r])
        for r in in_order(costs, outcome)
    )


def _names(costs: Costs, outcome: Outcome) -> dict[int, str]:
    """Return the name of each replica: that of its pin, else r0, r1 … as they are free."""
    constraints = costs.problem.constraints
    free = (name for i in count() if (name := f"r{i}") not in constraints.pins)
    names = {}
    for r in in_order(costs, outcome):
        devices = [costs.problem.devices[d].name for d, _, _ in outcome.replicas[r].cut]
        pins = {constraints.pinned[name] for name in devices if name in constraints.pinned}
        names[r] = min(pins) if pins else next(free)
    return names


def routes_of(costs: Costs, outcome: Outcome) -> tuple[Route, ...]:
    """Return the routes that carry requests, in the order of their replicas."""
    order = in_order(costs, outcome)
    name = _names(costs, outcome)
    found = []
    for i, j in sorted(
        outcome.traffic.routes, key=lambda p: (order.index(p[0]), order.index(p[1]))
    ):
        rate, move = outcome.traffic.routes[i, j]
        found.append(
            Route(
                prefill=name[i],
                decode=name[j],
                rate_per_s=rate if costs.problem.workload.rate_per_s > 0 else 0.0,
                kv_transfer_s=move.exposed_s,
                kv_bytes=round(move.num_bytes),
            )
        )
    return tuple(found)


def predicted_of(costs: Costs, outcome: Outcome) -> Predicted:
    """Return what is predicted of the whole plan."""
    devices = [costs.problem.devices[d] for c in outcome.replicas for d, _, _ in c.cut]
    powers = [device.power_w for device in devices if device.power_w is not None]
    prices = [device.cost_per_hour for device in devices if device.cost_per_hour is not None]
    is_stable = outcome.is_stable
    return Predicted(
        capacity_per_s=outcome.traffic.capacity_per_s,
        stable=is_stable,
        waiting_time_s=outcome.waiting_time_s if is_stable else None,
        ttft_s=outcome.ttft_s if is_stable else None,
        tpot_s=outcome.tpot_s,
        latency_s=outcome.latency_s if is_stable else None,
        prefill_share_of_work=prefill_share(costs, outcome),
        power_w=sum(powers) if len(powers) == len(devices) else None,
        cost_per_hour=sum(prices) if len(prices) == len(devices) else None,
    )


def prefill_share(costs: Costs, outcome: Outcome) -> float:
    """Return prefill latency / (prefill latency + output · TPOT at full slots).

    Means over the replicas that do each phase, weighted by their requests.
    """
    rates = np.maximum(np.array(outcome.traffic.rates_per_s), 1e-300)
    first = np.array([c.role is not Role.DECODE for c in outcome.replicas])
    second = np.array([c.role is not Role.PREFILL for c in outcome.replicas])
    latency = np.array([c.prefill_latency_s for c in outcome.replicas])
    full = np.array([float(c.tpot_s[-1]) for c in outcome.replicas]) * costs.output_tokens
    prompt = float(np.average(latency[first], weights=rates[first]))
    answer = float(np.average(full[second], weights=rates[second]))
    return prompt / (prompt + answer)


def problem_of(
    problem: Problem, planner: str, method: str, seed: int, islands: int | None
) -> PlanProblem:
    """Return what was asked of which planner, resolved; *islands* only where there are some."""
    workload = problem.workload
    return PlanProblem(
        inventory_sha256=inventory_sha256(problem.inventory),
        model=_plain(asdict(problem.model)),
        workload={
            "rate_per_s": workload.rate_per_s,
            "prompt_tokens": asdict(workload.prompt),
            "output_tokens": asdict(workload.output),
            "context_tokens": workload.context_tokens,
            "slots": workload.slots,
            "min_tokens_per_s": workload.min_tokens_per_s,
            "slo": {"ttft_s": workload.slo_ttft_s, "tpot_s": workload.slo_tpot_s},
            **_scenarios(workload),
        },
        runtime=problem.runtime.name,
        options={
            "objective": str(problem.objective),
            "roles": problem.constraints.roles,
            "replicas": problem.constraints.replicas,
            "use_all_devices": problem.constraints.use_all_devices,
            "exclude": list(problem.constraints.exclude),
            "pin": {name: list(devices) for name, devices in problem.constraints.pins.items()},
            "layers": problem.constraints.fixed_layers,
            "weights": problem.weights,
            "kv_cache": problem.kv_cache,
            "pessimistic": problem.pessimistic,
            "mixed_pause": str(problem.runtime.mixed_pause),
            "planner": planner,
            "method": method,
            "seed": seed,
            **({} if islands is None else {"islands": islands}),
        },
    )


def _scenarios(workload: Workload) -> dict[str, Any]:
    """Return the scenarios and the risk, where there are some."""
    if not workload.scenarios:
        return {}
    found = [
        {
            "name": one.name,
            "weight": one.weight,
            "rate_per_s": one.rate_per_s,
            "prompt_tokens": asdict(one.prompt),
            "output_tokens": asdict(one.output),
        }
        for one in workload.scenarios
    ]
    return {"scenarios": found, "risk": str(workload.risk), "cvar_level": workload.cvar_level}


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Tuples to lists, infinite windows to None, as JSON has them."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _replica(costs: Costs, name: str, candidate: Candidate, rate: float) -> Replica:
    figures = prefill(costs, candidate.cut, costs.prompt_tokens, candidate.spilled)
    batch = -(-candidate.slots // candidate.micro_batches)
    stage, hop = decode_stages(costs, candidate.cut, batch, candidate.spilled)
    round_s = float(candidate.tpot_s[-1])
    service = candidate.service_rate(costs.output_tokens)
    rate = rate if costs.problem.workload.rate_per_s > 0 else 0.0
    return Replica(
        id=name,
        role=str(candidate.role),
        slots=candidate.slots,
        arrival_rate_per_s=rate,
        service_rate_per_s=service,
        utilisation=rate / service,
        stages=tuple(
            _stage(costs, candidate, j, (figures.stage_s, figures.hop_s), (stage, hop))
            for j in range(len(candidate.cut))
        ),
        prefill=PrefillFigures(
            tokens_per_s=costs.prompt_tokens / figures.occupancy_s,
            latency_s=figures.latency_s,
            bottleneck_s=figures.occupancy_s,
        ),
        decode=DecodeFigures(
            tokens_per_s=candidate.slots / round_s,
            tpot_s=round_s,
            bottleneck_s=bottleneck(stage, hop),
            tokens_per_s_per_stream=1.0 / round_s,
            micro_batches=candidate.micro_batches,
        ),
        max_context_tokens=max_context(costs, candidate.cut, candidate.slots, candidate.spilled),
    )


_Times = tuple[np.ndarray, np.ndarray]


def _stage(costs: Costs, candidate: Candidate, j: int, first: _Times, second: _Times) -> Stage:
    """Stage j; *first* and *second* are stage and hop times of prefill and decode."""
    d, start, stop = candidate.cut[j]
    fixed = costs.stage_fixed(d, position_of(candidate.cut, j))
    next_hop = None
    if len(candidate.cut) > 1:
        next_hop = NextHop(
            device=costs.problem.devices[candidate.cut[(j + 1) % len(candidate.cut)][0]].name,
            link=_link_name(costs, candidate, j),
            prefill_time_s=float(first[1][j]),
            decode_time_s=float(second[1][j]),
        )
    return Stage(
        device=costs.problem.devices[d].name,
        layers=(start, stop),
        embedding=fixed.has_embedding,
        head=fixed.has_head,
        spilled_layers=candidate.spilled[j],
        memory_bytes=_memory(costs, candidate, j),
        prefill_time_s=float(first[0][j]),
        decode_time_s=float(second[0][j]),
        next_hop=next_hop,
    )


def _memory(costs: Costs, candidate: Candidate, j: int) -> StageMemory:
    d, start, stop = candidate.cut[j]
    fixed = costs.stage_fixed(d, position_of(candidate.cut, j))
    weights, kv = costs.memory_prefix(0), costs.kv_prefix(costs.problem.workload.context_tokens)
    spilled = sum(float(costs.spill_rule.spillable[layer]) for layer in candidate.spilled[j])
    held = weights[stop] - weights[start] + fixed.tables_bytes - spilled
    cache = candidate.slots * (kv[stop] - kv[start])
    capacity = float(costs.tables.usable[d])
    return StageMemory(
        weights=round(held),
        kv_cache=round(cache),
        overhead=round(fixed.overhead_bytes),
        free=round(capacity - held - cache - fixed.overhead_bytes),
        capacity=round(capacity),
        host=round(fixed.host_bytes + spilled),
    )


def _link_name(costs: Costs, candidate: Candidate, j: int) -> str:
    paths = hop_paths(costs, candidate.cut, j, -(-candidate.slots // candidate.micro_batches))
    return ", then ".join(path.name for path in paths)


def hop_paths(costs: Costs, cut: Cut, j: int, batch: int) -> list[Path]:
    """Return the paths of the hop that leaves stage j when decoding *batch* requests at once."""
    is_last = j == len(cut) - 1
    num_bytes = costs.return_bytes(batch) if is_last else costs.forward_bytes(batch)
    anchor = costs.anchor(cut[0][0], cut[-1][0])
    return costs.legs(cut[j][0], cut[(j + 1) % len(cut)][0], num_bytes, anchor)
