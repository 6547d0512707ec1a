"""What is asked of the testbed: the paper's data sets, arrivals, and the cost of a hop."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks import inventories
from benchmarks.reproduction import printed
from e2llm_opt import Lengths, Problem
from e2llm_opt.units import MS
from e2llm_opt.workload.arrivals import draw_arrivals
from e2llm_opt.workload.trace import Trace

if TYPE_CHECKING:
    from e2llm_opt.workload.arrivals import Pattern
    from e2llm_opt.workload.workload import Workload

HOPS_MS: Final = (0.3, 5.0, 20.0)
"""The engine's fixed cost a hop; the link's 0.3 ms come on top."""
PATTERNS: Final[tuple[Pattern, ...]] = ("fixed", "poisson")
CELLS: Final = tuple((name, period) for name in printed.LENGTHS for period in printed.PERIODS_S)
"""Data set and period of each of the eight cells, in the paper's order."""
FLOOR_PER_S: Final = 15.0
"""Tokens a second that every searched plan must give each stream, as the paper plans."""
_STEP_TOKENS = 256


@cache
def testbed() -> Problem:
    """Return the paper's testbed as the example has it."""
    floor = {"min_tokens_per_s": FLOOR_PER_S}
    return Problem.load(inventories.EXAMPLES / "e2llm-testbed.yaml", workload=floor)


def problem_of(data_set: str, hop_ms: float, rate_per_s: float) -> Problem:
    """Return the testbed under a data set of the paper.

    Lengths vary as the package assumes where only means are known (lognormal, cv 0.5); a slot is
    planned to hold a mean request, rounded up to a multiple of 256 tokens, as in the example.
    """
    prompt, output = printed.LENGTHS[data_set]
    context = -(-(prompt + output) // _STEP_TOKENS) * _STEP_TOKENS
    workload = replace(
        testbed().workload,
        prompt=Lengths(mean=prompt),
        output=Lengths(mean=output),
        context_tokens=context,
        rate_per_s=rate_per_s,
    )
    return with_workload(workload, hop_ms)


def with_workload(workload: Workload, hop_ms: float) -> Problem:
    """Return the testbed under any *workload*."""
    runtime = replace(testbed().runtime, hop_overhead_s=hop_ms * MS)
    return replace(testbed(), workload=workload, runtime=runtime)


def at_rate(problem: Problem, rate_per_s: float) -> Problem:
    """Return *problem* with other arrivals a second."""
    return replace(problem, workload=replace(problem.workload, rate_per_s=rate_per_s))


def arrivals_of(problem: Problem, num: int, pattern: Pattern, seeds: range) -> list[Trace]:
    """Return *num* requests a seed at the problem's rate; the same lengths in every pattern."""
    return [draw_arrivals(problem.workload, num, pattern=pattern, seed=seed) for seed in seeds]


def later(trace: Trace, start_s: float) -> Trace:
    """Return *trace* with its first request at *start_s*."""
    return replace(trace, arrival_s=trace.arrival_s - trace.arrival_s[0] + start_s)


def joined(first: Trace, second: Trace) -> Trace:
    """Return both one after the other."""
    names = ("arrival_s", "prompt_tokens", "output_tokens")
    parts = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names}
    return Trace(**parts)
