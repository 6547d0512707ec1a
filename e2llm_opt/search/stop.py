"""When a search ends: evaluations, stagnation, time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from e2llm_opt.errors import InputError

DEFAULT_EVALUATIONS = 2400
DEFAULT_STAGNATION = 20
DEFAULT_REFINEMENTS = 400
METHODS = ("auto", "exact", "exhaustive", "ga")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Limits of a search.

    Parameters
    ----------
    max_evaluations
        Groupings that the genetic algorithm evaluates.
    stagnation
        Generations without improvement after which it ends.
    time_limit_s
        Wall-clock limit [s]; None: none. With one, equal runs may give unequal plans.
    gap
        Ends once the plan is proven to be within this share of the best.
    max_refinements
        Replicas that are made exact; 0: neither the exact method nor a bound.
    method
        Of our own search: ``exact`` (throughput only), ``exhaustive``, ``ga``, or ``auto``: exact
        for throughput, else exhaustive up to 8 devices.
    """

    max_evaluations: int = DEFAULT_EVALUATIONS
    stagnation: int = DEFAULT_STAGNATION
    time_limit_s: float | None = None
    method: Literal["auto", "exact", "exhaustive", "ga"] = "auto"
    gap: float = 0.0
    max_refinements: int = DEFAULT_REFINEMENTS

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing."""
        if self.max_evaluations < 1 or self.stagnation < 1:
            raise InputError("max_evaluations and stagnation must be at least 1.")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise InputError(f"time_limit_s must be positive, got {self.time_limit_s}.")
        if self.method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}, got '{self.method}'.")
        if not 0 <= self.gap < 1:
            raise InputError(f"gap must be at least 0 and below 1, got {self.gap}.")
        if self.max_refinements < 0:
            raise InputError(f"max_refinements must not be negative, got {self.max_refinements}.")
