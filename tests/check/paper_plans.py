"""The plans that the E2LLM paper prints (Tables III-VI), as a person would write them.

The testbed is ``examples/e2llm-testbed.yaml``, whose two cards may spill to host RAM.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from e2llm_opt.problem import Problem
from e2llm_opt.workload.workload import Lengths
from tests.check.small import replica

TESTBED = Path(__file__).parents[2] / "examples" / "e2llm-testbed.yaml"
_TOKENS = {"extended": (576, 588), "custom": (2284, 1004)}
"""Mean prompt and output."""


def _replica(role: str, slots: int, *stages: tuple[str, int]) -> dict[str, Any]:
    """Return a replica of devices with so many layers each, the master first."""
    written, start = [], 0
    for name, num_layers in stages:
        written.append({"device": name, "layers": [start, start + num_layers]})
        start += num_layers
    return replica(role, *written, slots=slots)


_M1_PAIR = _replica("DECODE", 2, ("m1-b", 10), ("m1-a", 14))
_CARDS = _replica("DECODE", 10, ("rtx-5070", 17), ("rtx-3060m", 7))
_MAX_AND_M1 = _replica("DECODE", 6, ("m2max-a", 17), ("m1-b", 7))

_PLANS = {
    ("e2llm", "extended"): [
        _M1_PAIR,
        _replica("DECODE", 5, ("m2max-b", 24)),
        _replica("DECODE", 5, ("m2max-a", 24)),
        _CARDS,
        _replica("PREFILL", 1, ("orin", 24)),
    ],
    ("e2llm", "custom"): [
        _M1_PAIR,
        _replica("DECODE", 1, ("orin", 24)),
        _replica("DECODE", 5, ("m2max-a", 24)),
        _CARDS,
        _replica("PREFILL", 1, ("m2max-b", 24)),
    ],
    ("splitwise", "extended"): [
        _MAX_AND_M1,
        _replica("DECODE", 2, ("rtx-3060m", 24)),
        _replica("DECODE", 9, ("rtx-5070", 16), ("m2max-b", 6), ("m1-a", 2)),
        _replica("PREFILL", 1, ("orin", 24)),
    ],
    ("splitwise", "custom"): [
        _MAX_AND_M1,
        _replica("DECODE", 1, ("orin", 24)),
        _replica("DECODE", 9, ("rtx-5070", 16), ("rtx-3060m", 6), ("m1-a", 2)),
        _replica("PREFILL", 1, ("m2max-b", 24)),
    ],
}


def paper_plan(planner: str, dataset: str) -> dict[str, Any]:
    """Return the plan document of *planner* (e2llm, splitwise) for *dataset*, to be changed."""
    return {"replicas": deepcopy(_PLANS[planner, dataset])}


def paper_testbed(dataset: str, *, min_tokens_per_s: float = 0.0, hop_s: float = 0.0) -> Problem:
    """Return the testbed under *dataset* (extended, custom).

    Parameters
    ----------
    dataset
        Decides the lengths; a slot holds a mean prompt with its whole output.
    min_tokens_per_s
        The paper plans with 15, which some of its own plans miss.
    hop_s
        The engine's fixed cost a hop, beside the link's 0.3 ms [s].
    """
    asked = Problem.load(TESTBED)
    prompt, output = _TOKENS[dataset]
    return replace(
        asked,
        runtime=replace(asked.runtime, hop_overhead_s=hop_s),
        workload=replace(
            asked.workload,
            prompt=Lengths(mean=prompt),
            output=Lengths(mean=output),
            context_tokens=prompt + output,
            min_tokens_per_s=min_tokens_per_s,
        ),
    )
