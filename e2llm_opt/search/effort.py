"""How much the heuristics spend on one group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is spent on one group.

    Parameters
    ----------
    max_states
        Device sets with more subsets are ordered heuristically.
    micro_batches
        Numbers of micro-batches whose batch is cut for; every cut is judged at all numbers.
    has_sums
        Cuts with the least sum are asked for too where engines overlap micro-batches.
    max_asked
        Numbers of slots that cuts are asked for.
    """

    max_states: int
    micro_batches: tuple[int, ...]
    has_sums: bool
    max_asked: int


FULL = Effort(
    max_states=512,
    micro_batches=(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64),
    has_sums=True,
    max_asked=64,
)
"""For few devices, and for the finalists of a long search."""
QUICK = Effort(max_states=48, micro_batches=(1, 2, 4, 8, 16, 32), has_sums=False, max_asked=6)
"""While the genetic algorithm runs over many devices."""
