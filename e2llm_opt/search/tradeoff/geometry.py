"""Points of which the smaller is better: domination, spread, and the knee."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]


def efficient(points: Floats) -> NDArray[np.int64]:
    """Return the rows of *points* [N, M] that no other one dominates, one of each kind of equals.

    In the order of their values.
    """
    _, first = np.unique(points, axis=0, return_index=True)
    rest, found = points[first], []
    alive = np.arange(len(first))
    while len(alive):  # the first in order of values is dominated by none behind it
        best = alive[0]
        found.append(int(first[best]))
        alive = alive[1:][~(rest[best] <= rest[alive[1:]]).all(axis=1)]
    return np.array(found, dtype=np.int64)


def covered(points: Floats, by: Floats) -> Bools:
    """Return which *points* [N, M] are no better in anything than one of *by* [K, M]."""
    found = np.zeros(len(points), dtype=bool)
    for other in by:
        found |= (other <= points).all(axis=1)
    return found


def normalised(points: Floats) -> Floats:
    """Return *points* [N, M] between the best (0) and the worst (1) of each objective.

    An objective that is the same in all of them is 0.
    """
    low, high = points.min(axis=0), points.max(axis=0)
    return np.asarray((points - low) / np.where(high > low, high - low, 1.0))


def ends(points: Floats) -> list[int]:
    """Return the rows with the best value of each objective, the best elsewhere of equals."""
    scaled = normalised(points)
    found = [
        int(np.lexsort((scaled.sum(axis=1), scaled[:, column]))[0])
        for column in range(points.shape[1])
    ]
    return list(dict.fromkeys(found))


def knee(points: Floats) -> int:
    """Return the row of *points* [N, M] that is farthest below the plane through the ends.

    Objectives are normalised, so that the ends are the unit vectors, and the plane is where their
    sum is 1: the farthest point has the least sum. With two objectives this is the largest
    distance from the line through both ends. Of equals the first.

    Notes
    -----
    I. Das, On characterizing the "knee" of the Pareto curve based on normal-boundary
    intersection, Structural Optimization 18 (1999).
    """
    return int(normalised(points).sum(axis=1).round(12).argmin())


def spread_out(points: Floats, num: int, kept: Sequence[int]) -> list[int]:
    """Return *num* rows of *points* [N, M] that lie far apart, those *kept* among them; sorted.

    One after the other the row farthest from all chosen before it, in normalised objectives
    (T. Gonzalez, Clustering to minimize the maximum intercluster distance, 1985).
    """
    if len(points) <= num:
        return list(range(len(points)))
    scaled = normalised(points)
    chosen = list(dict.fromkeys(kept))[:num]
    far = np.full(len(points), np.inf)
    for row in chosen:
        far = np.minimum(far, np.linalg.norm(scaled - scaled[row], axis=1))
    while len(chosen) < num:
        row = int(far.round(12).argmax())
        chosen.append(row)
        far = np.minimum(far, np.linalg.norm(scaled - scaled[row], axis=1))
    return sorted(chosen)


def conflicts(points: Floats) -> Bools:
    """Return which pairs of objectives trade against each other [M, M].

    They do where some point is better in one and worse in the other than some other point.
    """
    num = points.shape[1]
    found = np.zeros((num, num), dtype=bool)
    for i in range(num):
        for j in range(i):
            gain = np.sign(points[:, None, i] - points[None, :, i])
            loss = np.sign(points[:, None, j] - points[None, :, j])
            found[i, j] = found[j, i] = bool((gain * loss < 0).any())
    return found
