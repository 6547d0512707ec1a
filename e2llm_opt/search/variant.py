"""The kinds of cut that a replica may have."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from e2llm_opt.problem import Objective

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem


class Variant(StrEnum):
    """What a cut is best at."""

    RATE = "rate"
    """Requests a second with all slots full."""
    LATENCY = "latency"
    """One request alone."""
    CONTEXT = "context"
    """The longest request."""


def all_variants(problem: Problem) -> tuple[Variant, ...]:
    """Return the kinds of cut that can help at all."""
    if problem.objective is Objective.MAX_CONTEXT:
        return _for_context(problem)
    return (Variant.RATE, Variant.LATENCY)


def variants(problem: Problem) -> tuple[Variant, ...]:
    """Return the kinds of cut worth trying, the one that the objective wants first."""
    if problem.objective is Objective.MAX_CONTEXT:
        return _for_context(problem)
    if problem.objective is Objective.THROUGHPUT:
        return (Variant.RATE,)
    if problem.workload.rate_per_s == 0 or problem.objective is Objective.LATENCY:
        return (Variant.LATENCY, Variant.RATE)
    return (Variant.RATE, Variant.LATENCY)


def _for_context(problem: Problem) -> tuple[Variant, ...]:
    """Return the kinds of cut for long requests; more slots may be what losses leave stable."""
    has_losses = problem.constraints.survive > 0
    return (Variant.CONTEXT, Variant.RATE) if has_losses else (Variant.CONTEXT,)
