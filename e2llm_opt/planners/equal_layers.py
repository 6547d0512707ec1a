"""One pipeline over all devices, the same number of layers each: what engines do when not told.

Source: the default of pipeline parallelism in vLLM, SGLang and the like, which divide the layers
evenly whatever the devices are. Engines differ in who gets the remainder (vLLM: the middle,
SGLang: the end); here the first stages get one layer more, so that the last one, with the head,
has least. The order is ours: devices sorted by their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.baselines.memory_proportional import cut_by_counts, has_legal_starts, shares
from e2llm_opt.planners.planner import Planner

if TYPE_CHECKING:
    from e2llm_opt.search.stop import Stop


class EqualLayers(Planner):
    """One MIXED replica over all devices."""

    NAME = "equal-layers"

    def run(self, stop: Stop, seed: int) -> None:  # noqa: ARG002 - nothing to stop, nothing random
        """Cut once."""
        devices, num_layers = self.search.devices, self.problem.model.num_layers
        if len(devices) > num_layers:
            self.reason = f"there are {len(devices)} devices and only {num_layers} layers"
            return
        cut = cut_by_counts(devices, shares([1.0] * len(devices), num_layers))
        if not has_legal_starts(self.costs, cut):
            self.reason = "the model may not be cut where equal shares would cut it"
            return
        self.keep_pipeline(cut)


PLANNER = EqualLayers
