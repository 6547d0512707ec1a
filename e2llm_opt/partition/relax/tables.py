"""What the kernel of the relaxation reads: flat arrays. N demands, K classes, L layers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Windows(NamedTuple):
    """Least times of stages for N demands."""

    stages: Floats
    """A middle, a first, a last stage of j layers or more, hop apart [N, 3, K, L+1] [s]."""
    single: Floats
    """All layers on one device; a layer in whatever stage; what the head adds [N, 3, K] [s]."""
    hop: Floats
    """From row to column, leaving out what depends on the order [N, K, K] [s]."""
    back: Floats
    """Least hop from the last to the first stage; counts in sums [N] [s]."""


class Loads(NamedTuple):
    """Slots and micro-batches to look at; a block of them first, then each of its members.

    In a block every number of slots has the same micro-batch size, ceil(slots / micro-batches).
    """

    most: Floats
    """Largest number of slots of an entry [N]."""
    least: Floats
    """Smallest number of slots of an entry [N]."""
    micro: Ints
    """Micro-batches [N]."""
    members: Ints
    """So many entries behind a block are its members; 0 for these [N]."""
    prompts: Ints
    """Row of the windows for a chunk of a prompt, with the memory of *least* slots [N]."""
    decoding: Ints
    """Row for a decode step, with that memory and batch [N]."""
    both: Ints
    """Row for a chunk and its share of the decode steps [N]."""


class Rules(NamedTuple):
    """What the engine and the workload make of the times."""

    output: float
    """Output tokens."""
    slowest: float
    """Slowest TPOT allowed, pauses counted [s]."""
    chunks: float
    """Chunks of a prompt."""
    is_pipelined: bool
    """Micro-batches and chunks overlap."""
    is_short: bool
    """Decode pauses for a prompt's occupancy, not for its latency."""
