"""A small problem, plans written by hand for it, and requests."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.check.check import check
from e2llm_opt.check.complete import completed
from e2llm_opt.problem import Problem
from e2llm_opt.workload.trace import Trace

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan

ROOT = Path(__file__).parents[2]
Stages = tuple[tuple[str, int, int], ...]
ON_DESKTOP: Stages = (("desktop", 0, 28),)
ON_MAC: Stages = (("mac-mini", 0, 28),)
ON_BOTH: Stages = (("desktop", 0, 14), ("mac-mini", 14, 28))


@cache
def problem() -> Problem:
    """Return the home lab with a model of 28 layers that each of two devices holds."""
    return Problem.load(
        ROOT / "examples" / "homelab.yaml",
        runtime="vllm",
        model="llama-3.2-3b",
        workload={"rate_per_s": 0.5, "slots": 2, "slo": {"ttft_s": 2.0, "tpot_s": 0.2}},
    )


def plan(*replicas: tuple[str, Stages], longest: int | None = None) -> Plan:
    """Return a plan of replicas (role, stages), completed by the checker.

    *longest* makes their slots smaller than memory does [tokens].
    """
    given = {
        "replicas": [
            {"role": role, "stages": [{"device": d, "layers": [a, b]} for d, a, b in stages]}
            for role, stages in replicas
        ]
    }
    report = check(given, problem())
    assert report.valid, report.violations
    found = completed(report, problem())
    if longest is None:
        return found
    shorter = tuple(replace(r, max_context_tokens=longest) for r in found.replicas)
    return replace(found, replicas=shorter)


def trace(*requests: tuple[float, int, int]) -> Trace:
    """Return requests (arrival [s], prompt, answer [tokens])."""
    arrival, prompt, output = zip(*requests, strict=True)
    return Trace(
        arrival_s=np.array(arrival, dtype=np.float64),
        prompt_tokens=np.array(prompt, dtype=np.int64),
        output_tokens=np.array(output, dtype=np.int64),
    )
