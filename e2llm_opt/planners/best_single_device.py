"""Everything on the one device that does it best; what most people should try first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.baselines import single_device
from e2llm_opt.planners.planner import Planner

if TYPE_CHECKING:
    from e2llm_opt.search.stop import Stop


class BestSingleDevice(Planner):
    """One MIXED replica on one device."""

    NAME = "best-single-device"

    def run(self, stop: Stop, seed: int) -> None:  # noqa: ARG002 - nothing to stop, nothing random
        """Judge the whole model on each device."""
        refused = [
            cut
            for cut in single_device.cuts(self.costs, self.search.devices)
            if not self.keep_pipeline(cut)
        ]
        if not self.found and len(refused) > 1:
            self.refused = None
            self.reason = (
                "no device alone holds the whole model with a request's KV cache, fast enough and "
                "as the constraints ask"
            )


PLANNER = BestSingleDevice
