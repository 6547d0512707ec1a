"""All multisets of device classes, the smallest first."""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_FEW = 3
"""Devices in a group: so few are listed class by class."""


def enumerated(available: Ints, most: int) -> tuple[list[tuple[int, ...]], int]:
    """Return all multisets of classes, size by size, *most* at most, and the largest size.

    Of sizes that would be too many nothing is returned.
    """
    found: list[tuple[int, ...]] = []
    total = int(available.sum())
    for size in range(1, total + 1):
        own = _of_size(available, size, most - len(found))
        if own is None:
            return found, size - 1
        found += own
    return found, total


def _of_size(available: Ints, size: int, most: int) -> list[tuple[int, ...]] | None:
    """Return the multisets of one size; None where there are more than *most*."""
    ways = np.zeros(size + 1)  # how many there are, class by class
    ways[0] = 1
    for count in available.tolist():
        ways = np.array([ways[max(0, n - count) : n + 1].sum() for n in range(size + 1)])
    if ways[size] > most:
        return None
    if size <= _FEW:  # of many classes, perhaps
        pairs = combinations_with_replacement(range(len(available)), size)
        return [one for one in pairs if all(one.count(k) <= available[k] for k in set(one))]
    found: list[tuple[int, ...]] = [()]
    for k, count in enumerate(available.tolist()):
        rest = int(available[k + 1 :].sum())
        found = [
            one + (k,) * n
            for one in found
            for n in range(min(count, size - len(one)) + 1)
            if len(one) + n + rest >= size
        ]
    return found
