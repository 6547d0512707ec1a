"""The packing that serves most after its worst loss: a start for plans that must survive one.

max s   with   s + k p_v y_v <= Σ p x,   s + k d_v y_v <= Σ d x,   x_v <= u_v y_v,

over columns v (group, role) taken x_v times, y_v whether at all, that give p prefills and d answers
a second each, MIXED ones both; k replicas are lost. Exact for one loss and without links; for more
it takes all lost replicas to be of one column. Where s reaches the rate, the capacity is maximised
with s at the rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.search.packing import silence

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.search.packing import Side

    Floats = NDArray[np.float64]

_MAX_NODES = 200
_SPARE = 1e-6
"""Share that is served beyond the rate after a loss: at the rate there is no steady state."""


def most_robust(
    counts: Floats, gives: Floats, side: Side, loss: tuple[int, float]
) -> Floats | None:
    """Return how often each column is taken [V]; None where nothing is left after any loss.

    Parameters
    ----------
    counts
        Devices of each class in each column [V, K].
    gives
        Prefills and answers a second of each column [V, 2].
    side
        What a plan must keep to.
    loss
        Replicas that are lost at once, and the rate that the others must serve [1/s].
    """
    num_lost, rate = loss
    unit = float(gives.max(initial=0.0)) or 1.0
    found = _solved(counts, gives / unit, side, num_lost, None)
    if found is None or found[0] <= 0:
        return None
    wanted = rate / unit * (1 + _SPARE)
    if found[0] > wanted:
        larger = _solved(counts, gives / unit, side, num_lost, wanted)
        found = found if larger is None else larger
    return found[1]


def _solved(
    counts: Floats, gives: Floats, side: Side, num_lost: int, wanted: float | None
) -> tuple[float, Floats] | None:
    """Maximise what is left (*wanted* None), or the capacity with so much left; value and x [V]."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array, eye_array, hstack, vstack  # noqa: PLC0415 - as above

    num = len(counts)
    with np.errstate(divide="ignore"):
        most = np.where(counts > 0, side.available // np.maximum(counts, 1), np.inf).min(axis=1)
    one = csr_array(np.ones((num, 1)))
    nothing = csr_array((num, 1))
    total = [
        csr_array(np.concatenate([[1.0, 0.0], -gives[:, phase], np.zeros(num)])[None])
        for phase in (0, 1)
    ]
    after = [
        hstack(
            [
                nothing,
                one,
                csr_array(np.tile(-gives[:, phase], (num, 1))),
                csr_array(np.diag(num_lost * gives[:, phase])),
            ]
        )
        for phase in (0, 1)
    ]
    taken = hstack([nothing, nothing, eye_array(num), csr_array(-np.diag(most))])
    ends = csr_array((counts.shape[1], 2))
    devices = hstack([ends, csr_array(counts.T), csr_array((counts.shape[1], num))])
    replicas = csr_array(np.concatenate([[0.0, 0.0], np.ones(num), np.zeros(num)])[None])
    asked = (0.0, np.inf) if side.replicas is None else (side.replicas, side.replicas)
    num_upper = 2 + 3 * num
    size = 2 + 2 * num
    cost = np.zeros(size)
    cost[1 if wanted is None else 0] = -1.0
    low = np.zeros(size)
    low[1] = wanted or 0.0
    high = np.concatenate([[np.inf, np.inf], most, np.ones(num)])
    with silence():
        found = milp(
            cost,
            constraints=LinearConstraint(
                vstack([*total, *after, taken, devices, replicas], format="csr"),
                np.concatenate([np.full(num_upper, -np.inf), side.must, [asked[0]]]),
                np.concatenate([np.zeros(num_upper), side.available, [asked[1]]]),
            ),
            integrality=np.concatenate([[0, 0], np.ones(2 * num)]),
            bounds=Bounds(low, high),
            options={"node_limit": _MAX_NODES},
        )
    if found.x is None:
        return None
    return -float(found.fun), np.rint(found.x[2 : 2 + num])
