"""When a search ends: evaluations, stagnation, time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from e2llm_opt.errors import InputError

DEFAULT_EVALUATIONS = 2400
DEFAULT_STAGNATION = 20


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
    method
        Of our own search: ``exhaustive``, ``ga``, or ``auto``: exhaustive up to 8 devices.
    """

    max_evaluations: int = DEFAULT_EVALUATIONS
    stagnation: int = DEFAULT_STAGNATION
    time_limit_s: float | None = None
    method: Literal["auto", "exhaustive", "ga"] = "auto"

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing."""
        if self.max_evaluations < 1 or self.stagnation < 1:
            raise InputError("max_evaluations and stagnation must be at least 1.")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise InputError(f"time_limit_s must be positive, got {self.time_limit_s}.")
        if self.method not in {"auto", "exhaustive", "ga"}:
            raise InputError(f"method must be auto, exhaustive or ga, got '{self.method}'.")
