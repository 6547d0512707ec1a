"""The E2LLM paper's baseline: our search, but PREFILL replicas no slower at prompts than DECODE.

Source: section 5 of E2LLM (arXiv 2606.03770), which compares itself with a Splitwise "adapted" to
its setting: its own planning, with the rule that prefill goes to machines at least as fast as
those that decode (in Splitwise, the newer GPUs read and the older ones write). Here the search,
the cost model and the objective are ours, so that the difference to our own plan is the rule and
nothing else; :mod:`e2llm_opt.search.adapted` has the exact reading. The number of replicas in each
role is free, as in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.planners import refusal
from e2llm_opt.planners.planner import SearchPlanner
from e2llm_opt.search.roles import Scope

if TYPE_CHECKING:
    from e2llm_opt.search.stop import Stop


class AdaptedSplitwise(SearchPlanner):
    """PREFILL and DECODE replicas under the rule."""

    NAME = "splitwise-adapted"
    AIM = Scope.ADAPTED

    def run(self, stop: Stop, seed: int) -> None:
        """Search, unless prefill and decode cannot be split."""
        self.reason = refusal.no_split(self.problem)
        if not self.reason:
            self.reason = (
                "it needs a PREFILL and a DECODE replica, the first at least as fast at prompts as "
                "the second would be, each with the whole model, fast enough and linked"
            )
            super().run(stop, seed)


PLANNER = AdaptedSplitwise
