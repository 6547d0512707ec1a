"""The plans that lost, and why; the devices that stay without layers, and why."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.baselines import memory_proportional, single_device
from e2llm_opt.plan.plan import Alternative, UnusedDevice
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.in_scenarios import worse_in_scenarios
from e2llm_opt.search.phrases import time_text
from e2llm_opt.search.price import WITHOUT, why_fragile
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.scenarios import ScenarioEvaluator
from e2llm_opt.units import MBIT_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.search import Search

ALL_MIXED = "all MIXED"
DISAGGREGATED = "best disaggregated"
ADAPTED = "adapted Splitwise"
BETTER = "better, but not among the plans that this planner looks at"
"""Of a rival that our own search would have chosen."""
WORSE_SIMULATED = "better by the formulas, but not when simulated"
"""Of a rival that only they would have chosen."""
TRADED = "better by the objective, and worse by others that the front is about"
"""Of a rival of one of a front's plans."""
_NOTHING_S = 1e-6
"""A wait that no faster link is bought for [s]."""
_EQUAL = 1e-7
"""Relative differences below this decide nothing."""


def alternatives_of(
    search: Search, chosen: Outcome, *, better: str = BETTER
) -> tuple[Alternative, ...]:
    """Return the baselines and the best of the other scopes that are not the plan itself.

    *better* is why one lost that is better by the formulas: a simulation chose, or many objectives.
    """
    rivals: dict[str, Outcome | None] = {
        single_device.NAME: search.baselines.get(single_device.NAME),
        ALL_MIXED: search.best(Scope.MIXED),
        DISAGGREGATED: search.best(Scope.DISAGGREGATED),
        memory_proportional.NAME: search.baselines.get(memory_proportional.NAME),
        ADAPTED: search.best(Scope.ADAPTED),
        WITHOUT.format(search.evaluator.costs.problem.constraints.survive): search.free,
    }
    mixed = rivals[ALL_MIXED]
    found = []
    for name, rival in rivals.items():
        if rival is not None and _identity(rival) != _identity(chosen):
            reason = why_not(search, rival, chosen)
            reason = better if reason == BETTER else reason
            found.append(_alternative(name, rival, reason, mixed))
    return tuple(found)


def why_not(search: Search, rival: Outcome, chosen: Outcome) -> str:
    """Return one sentence that says where *rival* is worse than *chosen*."""
    if not search.rules.is_obeyed(rival):
        return "excluded by the constraints"
    if search.evaluator.key(rival) < search.evaluator.key(chosen):
        return BETTER
    if isinstance(search.evaluator, ScenarioEvaluator):
        return worse_in_scenarios(search.evaluator, rival, chosen)
    as_good = "as good"
    if rival.num_devices > chosen.num_devices:
        as_good += ", but it needs more devices"
    return next(chain(_unfit(search, rival, chosen), _comparisons(search, rival, chosen)), as_good)


def _unfit(search: Search, rival: Outcome, chosen: Outcome) -> Iterator[str]:
    """Yield what keeps *rival* from being an answer where *chosen* is one."""
    lost = why_fragile(search.evaluator, rival)
    if lost:
        yield lost
    if chosen.is_stable and not rival.is_stable:
        capacity = rival.traffic.capacity_per_s
        rate = search.evaluator.costs.problem.workload.rate_per_s
        yield f"not stable: {capacity:.3g} requests/s at most, {rate:.3g} arrive"


def _comparisons(search: Search, rival: Outcome, chosen: Outcome) -> Iterator[str]:
    """Yield what is worse, in the order in which plans are compared."""
    objective = search.evaluator.costs.problem.objective
    less = 1 - rival.traffic.capacity_per_s / chosen.traffic.capacity_per_s
    if (objective is Objective.THROUGHPUT or not chosen.is_stable) and less > _EQUAL:
        yield f"{less * 100:.2g} % less capacity"
    more = rival.unloaded_latency_s / chosen.unloaded_latency_s - 1
    if objective is Objective.LATENCY and more > _EQUAL:
        yield f"one request alone takes {more * 100:.2g} % longer"
    if not chosen.is_stable:
        return
    unit = search.evaluator.ranking.wait_unit_s
    if np.rint(rival.waiting_time_s / unit) > np.rint(chosen.waiting_time_s / unit):
        yield f"requests wait {time_text(rival.waiting_time_s - chosen.waiting_time_s)} longer"
    later = rival.latency_s - chosen.latency_s
    if later > _EQUAL * chosen.latency_s:
        yield f"no shorter wait, and requests take {time_text(later)} longer"


def unused_devices(
    search: Search, chosen: Outcome, idle_reason: str | None
) -> tuple[UnusedDevice, ...]:
    """Return the devices without layers, in the order of the inventory.

    *idle_reason* is why a device that could hold layers has none; None: our search saw no use.
    """
    costs = search.evaluator.costs
    used = {d for c in chosen.replicas for d in costs.units.devices(c.cut)}
    return tuple(
        UnusedDevice(device=device.name, reason=_reason(search, d, idle_reason))
        for d, device in enumerate(costs.problem.devices)
        if d not in used
    )


def _reason(search: Search, d: int, idle_reason: str | None) -> str:
    costs = search.evaluator.costs
    problem = costs.problem
    if problem.devices[d].name in problem.constraints.exclude:
        return "excluded by constraints.exclude"
    num_layers = problem.model.num_layers
    most = _most_layers(costs, d)
    if most <= 0:
        return "not even one layer with its KV cache fits into its memory"
    if most < num_layers and not costs.ways.is_linked(d):
        return f"holds {most} of {num_layers} layers and no link leads to another device"
    group = (costs.classes.class_of[d],)
    words = "no replica with it makes the plan better"
    if idle_reason is not None:
        words = idle_reason
    elif search.candidates.find(group, Role.MIXED, search.variant) is not None:
        return "a replica of its own would not make the plan better"
    return words if most >= num_layers else f"holds {most} of {num_layers} layers; {words}"


def _most_layers(costs: Costs, d: int) -> int:
    """Return how many of the first layers device d can hold, spilling what may."""
    held = costs.memory_prefix(costs.problem.workload.slots or 1)
    for most in range(len(held) - 1, 0, -1):
        spilled = costs.spill_rule.most((d, 0, most), 0)
        if held[most] - spilled <= costs.room()[d, 0]:
            return most
    return 0


def _identity(outcome: Outcome) -> list[tuple[object, ...]]:
    return sorted((str(c.role), c.cut, c.slots) for c in outcome.replicas)


def _alternative(name: str, rival: Outcome, reason: str, mixed: Outcome | None) -> Alternative:
    routes = list(rival.traffic.routes.values())
    num_bytes = transfer = None
    if routes:
        weights = [max(rate, 1e-300) for rate, _ in routes]
        num_bytes = round(max(move.num_bytes for _, move in routes))
        transfer = float(np.average([move.exposed_s for _, move in routes], weights=weights))
    return Alternative(
        name=name,
        capacity_per_s=rival.traffic.capacity_per_s,
        waiting_time_s=rival.waiting_time_s if rival.is_stable else None,
        ttft_s=rival.ttft_s if rival.is_stable else None,
        tpot_s=rival.tpot_s,
        why_not=reason,
        kv_bytes=num_bytes,
        kv_transfer_s=transfer,
        break_even_bandwidth_mbit_s=_break_even(rival, mixed, num_bytes, transfer),
    )


def _break_even(
    rival: Outcome, mixed: Outcome | None, num_bytes: int | None, transfer: float | None
) -> float | None:
    """Bandwidth at which moving the KV cache costs what all MIXED waits longer elsewhere.

    None where no bandwidth is enough, or where one of the two has no steady state.
    """
    if mixed is None or num_bytes is None or transfer is None:
        return None
    if not (rival.is_stable and mixed.is_stable):
        return None
    spare = mixed.waiting_time_s - (rival.waiting_time_s - transfer)
    return num_bytes / spare / MBIT_PER_S if spare > _NOTHING_S else None
