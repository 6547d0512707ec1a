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
    prefill_busy: Floats
    """Mean occupancy over the prompt lengths [R] [s]."""
    prefill_scv: Floats
    """Squared coefficient of variation of the occupancy [R]."""
    prefill_behind: Floats
    """What a prompt waits between stages right behind another one as PREFILL [R] [s]."""
    decode_slots: Ints
    """As DECODE [R]; 0 where impossible."""
    decode_tpot: Floats
    """Round with n + 1 requests as DECODE [R, N] [s]."""
    decode_usable: Floats
    """Share of the time that memory has room for n + 1 requests as DECODE [R, N]."""
    mixed_slots: Ints
    """As MIXED [R]; 0 where impossible."""
    mixed_tpot: Floats
    """Round with n + 1 requests as MIXED [R, N] [s]."""
    mixed_usable: Floats
    """Share of the time that memory has room for n + 1 requests as MIXED [R, N]."""
    mixed_pause: Floats
    """Decode stops so long for a mean prompt [R] [s]."""
    mixed_busy: Floats
    """Mean pause over the prompt lengths [R] [s]."""
    mixed_latency: Floats
    """Prefill latency as MIXED [R] [s]."""
    mixed_scv: Floats
    """Squared coefficient of variation of the pause [R]."""
    transfer: Floats
    """KV transfer from PREFILL replica to DECODE replica, as far as it is not hidden [R, R] [s]."""
    load: Floats
    """Arrival rate [1/s], mean output [tokens], squared cv of the output, and the mean
    of the shorter of two outputs over the mean output [4]."""


class Rounds(NamedTuple):
    """What the slots of a pool's replicas take, for a pool to be filled."""

    slots: Ints
    """0 where a replica is none of them [R]."""
    tpot: Floats
    """Round with n + 1 requests [R, N] [s]."""
    usable: Floats
    """Share of the time that memory has room for n + 1 requests [R, N]."""
    nominal: Floats
    """Each of n requests keeps the others waiting for so long, for a mean prompt [R] [s]."""
    pause: Floats
    """The same, mean over the prompt lengths [R] [s]."""
    more: Floats
    """What a request spends in its slot apart from that and from decoding [R] [s]."""


class Ladder(NamedTuple):
    """A pool's slots in the order in which a router fills them, as far as they matter [n <= c]."""

    who: Ints
    """Replica that takes each slot [n]."""
    step: Floats
    """What that adds to its rate [n] [1/s]."""
    rate: Floats
    """Rate of the whole pool with that many slots busy, mu [n] [1/s]."""
    half: Floats
    """Half of the round that runs in that replica when the slot is filled [n] [s]."""
    held: Floats
    """Slots that are empty for want of memory with n + 1 requests there [n]."""
    full: Floats
    """Rate of each replica with all its slots busy [R] [1/s]."""
    total: float
    """Their sum [1/s]."""
    num_slots: int
    """All slots of the pool, c."""
