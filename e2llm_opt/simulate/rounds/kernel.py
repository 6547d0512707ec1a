"""One round of decoding, how it grows from round to round, and until when it grows like that."""

from typing import Any

import numpy as np
from numba import njit

from e2llm_opt.simulate.arrays import Row, Run

# Handing over a run takes longer than what most functions do, so all are inlined; and one that
# returns early counts references to all arrays, so none does.
INNER: Any = {"error_model": "numpy", "forceinline": True, "no_cpython_wrapper": True}
"""Options of the functions of an event loop."""
MANY = np.int64(1) << 60


@njit(**INNER)
def _larger(a0: float, a1: float, b0: float, b1: float) -> tuple[float, float, float]:
    """Return the larger of the lines a0 + a1 x, b0 + b1 x at 0, and where the other passes it."""
    if b0 > a0 or (b0 == a0 and b1 > a1):
        a0, a1, b0, b1 = b0, b1, a0, a1
    return a0, a1, (a0 - b0) / (b1 - a1) if b1 > a1 else np.inf


@njit(**INNER)
def round_of(w: Run, r: int) -> tuple[float, float, float]:
    """Return the next round of r [s], its growth a round, and for how many more that holds."""
    a, kink = w.replicas[r], np.inf
    n, m = a.busy - 1, w.micro[r, a.busy - 1]
    share = np.ceil(a.busy / m) / a.busy  # of the requests, those of one micro-batch
    for v in range(len(w.windows)):
        window, held, growing, least = w.windows[v], 0, 0, MANY
        for k in range(a.busy):
            left = window.tokens - w.slots[r, k].offset - a.step
            held += window.tokens - max(left, 0)
            if left > 0:
                growing += 1
                least = min(least, left)
        window.held, window.growing, kink = held * share, growing * share, min(kink, float(least))
    total0, total1, most0, most1 = w.hop_back[r, n], 0.0, 0.0, 0.0
    for j in range(a.stage, a.next_stage):
        value, slope = w.fixed[j, n], 0.0
        for g in range(w.stages[j].group, w.stages[j].next_group):
            group = w.groups[g]
            held, growing = w.windows[group.window].held, w.windows[group.window].growing
            read, work = w.read[g, n] + group.read * held, w.work[g, n] + group.work * held
            up0, up1, crossing = _larger(read, group.read * growing, work, group.work * growing)
            kink = min(kink, crossing)
            value, slope = value + up0, slope + up1
        total0, total1 = total0 + value, total1 + slope
        most0, most1, crossing = _larger(most0, most1, value, slope)
        kink = min(kink, crossing)
    value, slope, crossing = _larger(total0, total1, m * most0, m * most1)
    return value, slope, min(kink, crossing)


@njit(**INNER)
def time_of(a: Row, rounds: int) -> float:
    """Return the time of so many rounds of a replica from the last event on [s]."""
    return rounds * a.round + a.growth * (0.5 * rounds * (rounds - 1))
