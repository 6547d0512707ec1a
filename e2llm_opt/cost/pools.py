"""Replicas as the queueing kernel sees them: what each would do in each role, and their slots.

R replicas, N slots of the replica that has most.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Pool(NamedTuple):
    """What each replica would do in each role, and the load."""

    occupancy: Floats
    """Time between prompts as PREFILL [R] [s]; inf where the role is impossible."""
    prefill_latency: Floats
    """As PREFILL [R] [s]."""
    prefill_scv: Floats
    """Squared coefficient of variation of the occupancy [R]."""
    decode_slots: Ints
    """As DECODE [R]; 0 where impossible."""
    decode_tpot: Floats
    """Round with n + 1 requests as DECODE [R, N] [s]."""
    mixed_slots: Ints
    """As MIXED [R]; 0 where impossible."""
    mixed_tpot: Floats
    """Round with n + 1 requests as MIXED [R, N] [s]."""
    mixed_pause: Floats
    """Decode stops so long for a prompt [R] [s]."""
    mixed_latency: Floats
    """Prefill latency as MIXED [R] [s]."""
    mixed_scv: Floats
    """Squared coefficient of variation of the pause [R]."""
    transfer: Floats
    """KV transfer from PREFILL replica to DECODE replica, as far as it is not hidden [R, R] [s]."""
    load: Floats
    """Arrival rate [1/s], mean output [tokens], squared cv of the output [3]."""


class Ladder(NamedTuple):
    """A pool's slots in the order in which a router fills them, as far as they matter [n <= c]."""

    who: Ints
    """Replica that takes each slot [n]."""
    step: Floats
    """What that adds to its rate [n] [1/s]."""
    rate: Floats
    """Rate of the whole pool with that many slots busy, mu [n] [1/s]."""
    full: Floats
    """Rate of each replica with all its slots busy [R] [1/s]."""
    total: float
    """Their sum [1/s]."""
    num_slots: int
    """All slots of the pool, c."""
