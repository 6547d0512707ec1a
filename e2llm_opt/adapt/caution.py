"""When a controller moves, and when it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.simulate.changes import LOAD_BYTES_PER_S

if TYPE_CHECKING:
    from e2llm_opt.simulate.simulate import Routing


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """When a controller moves, and when it does not.

    Parameters
    ----------
    horizon_s
        How long a regime is taken to last: what a move saves is counted until then [s].
    least_requests
        Requests of a new regime that are seen before anything is decided. Plans are compared again
        when there are twice as many, and so on.
    every_s
        How often plans are compared where nothing abrupt happens [s].
    least_change
        Share by which the rate or a mean length differs, or plans are not compared again.
    least_gain
        Share of the waits until the horizon that a move saves at least, its own costs included.
    loads
        Loads that are likely after what was seen, in which plans are tried.
    replans
        Whether a plan is made for a load that is new, beside those of the repertoire; `decide` then
        takes as long as that, seconds for some devices.
    routing
        How requests are routed, as ``simulate`` has it; only with ``plan`` do other routes matter.
    load_bytes_per_s, start_s
        What a replica takes to load, and to start, as in ``Changes``.
    """

    horizon_s: float = 3600.0
    least_requests: int = 16
    every_s: float = 60.0
    least_change: float = 0.1
    least_gain: float = 0.3
    loads: int = 8
    replans: bool = False
    routing: Routing = "shortest-wait"
    load_bytes_per_s: float = LOAD_BYTES_PER_S
    start_s: float = 0.0
