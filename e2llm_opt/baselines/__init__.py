"""Plans that other planners would make, as seeds and for comparison."""

from e2llm_opt.baselines import memory_proportional, single_device

BASELINES = (single_device, memory_proportional)
"""Every baseline, in the order in which plans list them; a test compares it with the folder."""
