"""What one failing device takes away: the capacity that is left when requests are only re-routed.

A device that fails takes its replica with it, since every other stage waits for its layers. The
other replicas keep their roles. Lost is 1 - (what is left after the worst failure) / capacity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.search.spare import remaining

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.search.evaluate import Evaluator, Outcome

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def lost_capacity(evaluator: Evaluator, outcome: Outcome) -> float:
    """Return the share of the capacity of *outcome* that its worst device takes along, 0 to 1.

    Links included. Replicas that are alike are tried once.
    """
    whole = outcome.traffic.capacity_per_s
    if whole <= 0:
        return 1.0
    left, tried = whole, set()
    for i, replica in enumerate(outcome.replicas):
        name = (replica.role, replica.slots, evaluator.kind(replica.cut))
        if name not in tried:
            tried.add(name)
            rest = remaining(outcome.replicas, {i})
            found = evaluator.outcome(rest).traffic.capacity_per_s if rest else 0.0
            left = min(left, found)
    return 1.0 - left / whole


def lost_shares(rates_per_s: Floats, codes: Ints) -> Floats:
    """Return the same for many assignments of roles at once, links left out [A].

    Parameters
    ----------
    rates_per_s
        Of each replica in the role it has, everything busy [A, R] [1/s].
    codes
        Role codes [A, R].
    """
    own = [np.where(codes == code, rates_per_s, 0.0) for code in (kernel.PREFILL, kernel.DECODE)]
    both = np.where(codes == kernel.MIXED, rates_per_s, 0.0)
    first, second, mixed = (part.sum(axis=1, keepdims=True) for part in (*own, both))
    whole = np.minimum(first, second) + mixed
    left = np.minimum(first - own[0], second - own[1]) + mixed - both
    least = np.maximum(left, 0.0).min(axis=1)
    # What rounding leaves of a sum is no replica.
    return np.asarray(np.clip(1.0 - least / np.maximum(whole[:, 0], 1e-300), 0.0, 1.0))
