"""Time of every stage [b, a) on every device, with as few layers spilled as memory needs.

Spilled are the layers whose feed-forward and expert weights are largest first, of equals the
later first, until the rest fits into the device; they must fit into its host RAM. Index contract:
K devices (one a class), L layers, positions MIDDLE, FIRST, LAST, ONLY = 0 … 3.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Stages(NamedTuple):
    """What one demand does to each layer, and what each device holds."""

    time: Floats
    """Prefix sums of layer times [K, L+1] [s]."""
    extra: Floats
    """Fixed time by position [K, 4] [s]."""
    memory: Floats
    """Prefix sums of layer bytes [K, L+1] [bytes]."""
    room: Floats
    """Device memory for layers by position [K, 4] [bytes]."""
    host: Floats
    """Host RAM for spilled weights by position [K, 4] [bytes]."""
    spillable: Floats
    """Bytes of each layer that may spill [L] [bytes]."""
    order: Ints
    """Layers in the order in which they spill [L]."""
    penalty: Floats
    """What a spilled layer takes longer [K, L] [s]."""
    num_layers: Ints
    """Exactly so many layers; -1 where free [K]."""


@njit(cache=True, error_model="numpy")
def first_spilled(p: Stages, k: int, start: int, stop: int) -> int:
    """Return how many entries of *order* must be looked at until ``[start, stop)`` fits on k.

    0 where nothing must spill, -1 where not even spilling helps.
    """
    position = (1 if start == 0 else 0) + (2 if stop == len(p.spillable) else 0)
    need = p.memory[k, stop] - p.memory[k, start] - p.room[k, position]
    if need <= 0.0:
        return 0
    spilled = 0.0
    for i in range(len(p.order)):
        if start <= p.order[i] < stop:
            spilled += p.spillable[p.order[i]]
            if spilled > p.host[k, position]:
                return -1
            if spilled >= need:
                return i + 1
    return -1


@njit(cache=True, error_model="numpy")
def stage_times(p: Stages) -> Floats:
    """Return the time of stage ``[b, a)`` on each device, its hop apart; inf where impossible.

    ``[K, L+1, L+1]``, a last; O(K L²), times the layers that spill.
    """
    num, top = len(p.time), len(p.spillable)
    times = np.empty((num, top + 1, top + 1))
    for k in range(num):
        for b in range(top + 1):
            for a in range(top + 1):
                times[k, b, a] = np.inf
                if a <= b or (p.num_layers[k] >= 0 and a - b != p.num_layers[k]):
                    continue
                looked_at = first_spilled(p, k, b, a)
                if looked_at < 0:
                    continue
                position = (1 if b == 0 else 0) + (2 if a == top else 0)
                penalty = 0.0
                for i in range(looked_at):
                    if b <= p.order[i] < a:
                        penalty += p.penalty[k, p.order[i]]
                times[k, b, a] = p.time[k, a] - p.time[k, b] + p.extra[k, position] + penalty
    return times
