"""What a running search tells about itself; nothing is printed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """State of a search.

    Parameters
    ----------
    evaluations
        Sets of replicas judged so far.
    elapsed_s
        Since the start [s].
    best
        The best plan so far, in a few words.
    """

    evaluations: int
    elapsed_s: float
    best: str


ProgressCallback = Callable[[Progress], None]
