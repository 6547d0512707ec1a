"""Loads that a plan must stand one after the other, and how they count together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING

from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.workload.workload import Lengths


class Risk(StrEnum):
    """What of the times in all scenarios is to be small."""

    EXPECTED = "expected"
    """Their mean, by weight."""
    WORST = "worst"
    """The longest."""
    CVAR = "cvar"
    """The mean of the worst ones, by weight: conditional value at risk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One load that may come.

    Parameters
    ----------
    name
        Unique in its workload.
    weight
        How often it comes, compared with the others.
    rate_per_s
        Arrival rate [requests/s].
    prompt, output
        Length distributions [tokens].
    """

    name: str
    weight: float = 1.0
    rate_per_s: float
    prompt: Lengths
    output: Lengths

    def __post_init__(self) -> None:
        """Refuse impossible numbers."""
        if not math.isfinite(self.weight) or self.weight <= 0:
            raise InputError(f"The weight of '{self.name}' must be positive, got {self.weight:g}.")
        if not math.isfinite(self.rate_per_s) or self.rate_per_s < 0:
            wrong = f"rate_per_s of '{self.name}' must be zero or more, got {self.rate_per_s:g}."
            raise InputError(wrong)


def corners(ranges: Sequence[tuple[float, float]]) -> list[tuple[float, ...]]:
    """Return the middle of *ranges* and every combination of their ends, each once.

    >>> corners([(1, 3), (5, 5)])
    [(2.0, 5.0), (1, 5), (3, 5)]
    """
    middle = tuple((low + high) / 2 for low, high in ranges)
    return list(dict.fromkeys([middle, *product(*ranges)]))
