"""Our own search over groupings, roles and cuts, whatever is best; see docs/algorithm.md."""

from e2llm_opt.planners.planner import SearchPlanner


class OurPlanner(SearchPlanner):
    """The default."""

    NAME = "e2llm-opt"


PLANNER = OurPlanner
