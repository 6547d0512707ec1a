"""The best plan in which every replica does both phases: our search, without disaggregation.

What people run who put one load balancer in front of several unequal servers. The groupings, cuts
and slots are searched as ours are; only the roles are fixed. It is the yardstick for whether
splitting the phases pays at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.planners.planner import SearchPlanner
from e2llm_opt.search.roles import Scope

if TYPE_CHECKING:
    from e2llm_opt.search.stop import Stop


class AllMixed(SearchPlanner):
    """Only MIXED replicas."""

    NAME = "all-mixed"
    AIM = Scope.MIXED

    def run(self, stop: Stop, seed: int) -> None:
        """Search, unless the constraints ask for something else."""
        if self.problem.constraints.roles == "disaggregated":
            self.reason = "all its replicas are MIXED, so constraints.roles cannot be disaggregated"
            return
        self.reason = "no grouping into MIXED replicas is fast enough and obeys the constraints"
        super().run(stop, seed)


PLANNER = AllMixed
