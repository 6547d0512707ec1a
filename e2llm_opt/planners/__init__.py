"""Ways to plan, behind one interface: our own search, and other people's for comparison."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from e2llm_opt.catalogue.names import UnknownNameError, nearest_keys
from e2llm_opt.plan.plan import OURS

if TYPE_CHECKING:
    from e2llm_opt.planners.planner import Planner

PLANNERS = (
    OURS,
    "e2llm-paper",
    "splitwise-adapted",
    "splitwise",
    "hexgen",
    "parallax",
    "edgeshard",
    "all-mixed",
    "best-single-device",
    "memory-proportional",
    "equal-layers",
)
"""Every planner, ours first; a test compares it with the folder."""


def planner_named(name: str) -> type[Planner]:
    """Return the planner *name*, of :data:`PLANNERS`.

    Raises
    ------
    InputError
        When there is none, with the nearest names.
    """
    if name not in PLANNERS:
        nearest = nearest_keys(name, {key: key for key in PLANNERS}) or PLANNERS
        raise UnknownNameError("planner", name, nearest)
    module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    found: type[Planner] = module.PLANNER
    return found
