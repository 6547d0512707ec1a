"""A replica as the search knows it: its devices by class, its cut and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.search.cut_figures import Spread

    Floats = NDArray[np.float64]

Group = tuple[int, ...]
"""A replica's devices as sorted class numbers, one entry a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A replica in one role: its cut, its slots and its figures.

    Parameters
    ----------
    group, role
        The devices by class, and the role.
    cut
        Stages (unit row, start, stop); the first devices of each class stand for all.
    degree
        Devices that serve each stage.
    slots
        Requests decoded at once; 1 for PREFILL.
    prefill_latency_s, occupancy_s
        A mean prompt [s].
    pause_s
        How long decode stops for a prompt [s].
    spread
        What prompts whose lengths vary do.
    tpot_s, usable
        Round with n + 1 requests [s]; share of the time that memory has room for them [slots].
    micro_batches
        Micro-batches with all slots full.
    spilled
        Layers of each stage whose feed-forward or expert weights lie in host RAM.
    max_context_tokens
        Longest request that all slots can hold; only where the objective asks for it, else 0.
    """

    group: Group
    role: Role
    cut: Cut
    slots: int
    prefill_latency_s: float
    occupancy_s: float
    pause_s: float
    spread: Spread
    tpot_s: Floats
    usable: Floats
    micro_batches: int
    spilled: Spilled
    degree: int = 1
    max_context_tokens: int = 0

    def service_rate(self, output_tokens: float) -> float:
        """Return requests a second with everything busy."""
        if self.role is Role.PREFILL:
            return 1.0 / self.occupancy_s
        pause = self.pause_s if self.role is Role.MIXED else 0.0
        return self.slots / (self.slots * pause + output_tokens * float(self.tpot_s[-1]))

    @property
    def num_devices(self) -> int:
        """Devices that hold layers."""
        return self.degree * len(self.cut)

    def devices(self, costs: Costs, like: Sequence[int]) -> list[int]:
        """Return this replica's device rows in the order of classes of *like*."""
        class_of, waiting = costs.classes.class_of, dict[int, list[int]]()
        for d in costs.units.devices(self.cut):
            waiting.setdefault(class_of[d], []).append(d)
        return [waiting[class_of[d]].pop(0) for d in like]
