"""How much memory is missing, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.cut import position_of
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.partition.partition import Demand, best_cut, decode_demand
from e2llm_opt.plan.infeasible import DeviceNeed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut

_ALWAYS_FITS = 1e30
"""More than any device lacks [bytes]."""
_ONLY_LINKED = ((0.0, 1e-300),)
"""A hop that costs nothing where there is a path, and is impossible where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What one replica over all devices needs and what they have [bytes].

    Parameters
    ----------
    kv_cache_bytes
        All slots asked for (else one) at the context asked for.
    other_bytes
        Weights, and the engine's overhead on every device.
    usable_bytes
        Memory that may be planned on, over all devices.
    host_bytes
        Host RAM that spilled weights can use, over all devices.
    shortfall_bytes
        Total less usable; where the sum fits, the least excess on one device; else 0.
    devices
        What each device would hold in the cut with the least excess.
    is_held
        Some cut fits into memory.
    has_no_legal_cut
        Memory would do, but the allowed stage starts leave no cut.
    """

    kv_cache_bytes: int
    other_bytes: int
    usable_bytes: int
    host_bytes: int
    shortfall_bytes: int
    devices: tuple[DeviceNeed, ...]
    is_held: bool
    has_no_legal_cut: bool

    @property
    def total_bytes(self) -> int:
        """Everything that must be held [bytes]."""
        return self.kv_cache_bytes + self.other_bytes


def shortage_of(costs: Costs, devices: Sequence[int]) -> Shortage:
    """Return the shortage of one replica over *devices* (rows)."""
    problem = costs.problem
    slots = problem.workload.slots or 1
    kv = round(slots * problem.model.kv_bytes(problem.workload.context_tokens))
    other = round(_weights(costs, devices) + _overhead(costs, len(devices)))
    usable = round(sum(float(costs.tables.usable[d]) for d in devices))
    host = round(costs.most_spilled(devices))
    is_held = _is_held(costs, devices, slots)
    is_free = is_held or _is_held_freely(costs, devices, slots)
    cut = _least_excess(costs, tuple(devices), slots)
    needs = needs_of(costs, cut, slots)
    excess = max((needs.get(d, 0) - float(costs.tables.usable[d]) for d in devices), default=0.0)
    shortfall = 0
    if not is_held and not (is_free and problem.model.allowed_stage_starts is not None):
        shortfall = (
            kv + other - usable - host if kv + other > usable + host else max(round(excess), 0)
        )
    return Shortage(
        kv_cache_bytes=kv,
        other_bytes=other,
        usable_bytes=usable,
        host_bytes=host,
        shortfall_bytes=shortfall,
        devices=tuple(
            DeviceNeed(
                device=problem.devices[d].name,
                need_bytes=round(needs.get(d, 0.0)),
                have_bytes=round(float(costs.tables.usable[d])),
            )
            for d in sorted(devices)
        ),
        is_held=is_held,
        has_no_legal_cut=not is_held and is_free,
    )


def _weights(costs: Costs, devices: Sequence[int]) -> float:
    """Layers, head and, unless host RAM can hold it, embedding [bytes]."""
    model, runtime = costs.problem.model, costs.problem.runtime
    kinds = {costs.problem.devices[d].memory_kind for d in devices}
    in_host = runtime.embedding == "host" and kinds == {MemoryKind.DISCRETE}
    if in_host:
        return sum(model.layer_weight_bytes) + model.head_bytes
    return model.weight_bytes


def _overhead(costs: Costs, num_devices: int) -> float:
    fixed = costs.stage_fixed(0, 0).overhead_bytes
    return (num_devices - 1) * fixed + costs.stage_fixed(0, 3).overhead_bytes


def _is_held(costs: Costs, devices: Sequence[int], slots: int) -> bool:
    return best_cut(costs, tuple(devices), decode_demand(costs, slots, 1), "any") is not None


def _is_held_freely(costs: Costs, devices: Sequence[int], slots: int) -> bool:
    """Whether a cut would fit if a stage could start at any layer."""
    if costs.problem.model.allowed_stage_starts is None:
        return False
    facts = replace(costs.problem.facts, allowed_stage_starts=None)
    return _is_held(costs_of(replace(costs.problem, facts=facts)), devices, slots)


def _least_excess(costs: Costs, devices: tuple[int, ...], slots: int) -> Cut:
    """Return the cut whose fullest device exceeds its memory least: memory in place of time.

    Host RAM takes its share of every spillable layer here; :func:`needs_of` counts whole layers.
    """
    room = costs.room()
    highest = float(room.max())
    memory = costs.memory_prefix(slots)
    spillable = np.concatenate([[0.0], np.cumsum(costs.spill_rule.spillable)])
    host = costs.spill_rule.host[:, 0]
    share = np.minimum(host / max(float(spillable[-1]), 1.0), 1.0)
    demand = Demand(
        time=memory - share[:, None] * spillable,
        extra=highest - room,
        hops=_ONLY_LINKED,
        back=(0.0, 0.0),
        memory=np.tile(-_ALWAYS_FITS * np.arange(len(memory), dtype=np.float64), (len(room), 1)),
        penalty=np.zeros((len(room), len(memory) - 1)),
    )
    return best_cut(costs, devices, demand, "bottleneck") or ()


def needs_of(costs: Costs, cut: Cut, slots: int) -> dict[int, float]:
    """Return the bytes on each device of *cut*, less what its host RAM takes [bytes]."""
    memory = costs.memory_prefix(slots)
    found = {}
    for j, (d, start, stop) in enumerate(cut):
        position = position_of(cut, j)
        fixed = costs.stage_fixed(d, position)
        need = memory[stop] - memory[start] + fixed.tables_bytes + fixed.overhead_bytes
        found[d] = need - costs.spill_rule.most((d, start, stop), position)
    return {d: float(need) for d, need in found.items()}
