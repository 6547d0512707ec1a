"""One pipeline over all devices, layers in proportion to memory, at least one each: as exo does.

Source: exo (github.com/exo-explore/exo, ``src/exo/master/placement_utils.py`` of 2026): layers go
by the share of available RAM, largest remainder, no node without a layer; neither speed nor links
nor the KV cache are asked. exo takes the smallest set of nodes whose RAM holds the weights; we
take all devices, as its users' home clusters do. The order is ours: devices sorted by their
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.baselines import memory_proportional
from e2llm_opt.planners.planner import Planner

if TYPE_CHECKING:
    from e2llm_opt.search.stop import Stop


class MemoryProportional(Planner):
    """One MIXED replica over all devices."""

    NAME = "memory-proportional"

    def run(self, stop: Stop, seed: int) -> None:  # noqa: ARG002 - nothing to stop, nothing random
        """Cut once."""
        for cut in memory_proportional.cuts(self.costs, self.search.devices):
            self.keep_pipeline(cut)
            return
        self.reason = (
            "there are more devices than layers, or the model may not be cut where it would cut"
        )


PLANNER = MemoryProportional
