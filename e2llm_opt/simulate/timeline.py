"""What changes in a run, and when: rows of devices and replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


class Shares(NamedTuple):
    """Planned requests a second, for the routing ``plan``."""

    replicas: Floats
    """[R]"""
    routes: Floats
    """[R, R]"""


class Moment(NamedTuple):
    """What changes at one time."""

    at_s: float
    what: Literal["fail", "recover", "switch"]
    rows: tuple[int, ...]
    """The device that fails or recovers, or the replicas of the plan that begins."""
    shares: Shares | None = None
    """Of the plan that begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All that changes, in order.

    Parameters
    ----------
    begin
        Replicas that are open from the start.
    moments
        What changes, sorted by time.
    drains
        Whether a replica that a plan has no more finishes what is inside.
    load_bytes_per_s, start_s
        What a replica takes to load, and to start on top of that.
    """

    begin: tuple[int, ...]
    moments: tuple[Moment, ...]
    drains: bool
    load_bytes_per_s: float
    start_s: float
