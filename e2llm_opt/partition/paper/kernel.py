"""The paper's dynamic program over a fixed order of devices (Alg. 1, DP_Pipe).

DP(i, k), the slowest stage when the first i layers lie on the first k devices:

    DP(i, 1) = L_1(0, i)
    DP(i, k) = min over j < i of max( DP(j, k-1), L_k(j, i), T(k-1, k) )

L_k(j, i) is the time of layers [j, i) on device k, infinite where they do not fit; T the link's.
The paper prints ``min`` for the inner ``max``; its text asks for the smallest slowest stage.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True, error_model="numpy")
def slowest_stage(cost: Floats, link: Floats) -> tuple[float, Ints]:
    """Least time of the slowest stage [s], and where each stage stops [K]; every device has layers.

    *cost* is L_k(j, i) at ``cost[k, j, i]`` [K, L+1, L+1]; *link* is T(k-1, k) at ``link[k]`` [K].
    Infinite where no cut fits. Of equally good cuts, the last stages are as long as possible.
    O(K · L²).
    """
    num, top = len(cost), cost.shape[1] - 1
    best = np.full((num, top + 1), np.inf)
    start = np.zeros((num, top + 1), np.int64)
    best[0] = cost[0, 0]
    for k in range(1, num):
        for i in range(k + 1, top + 1):
            for j in range(k, i):
                slowest = max(best[k - 1, j], cost[k, j, i], link[k])
                if slowest < best[k, i]:
                    best[k, i] = slowest
                    start[k, i] = j
    stops = np.zeros(num, np.int64)
    stops[num - 1] = top
    for k in range(num - 1, 0, -1):
        stops[k - 1] = start[k, stops[k]]
    return best[num - 1, top], stops


@njit(cache=True, error_model="numpy")
def best_master(cost: Floats, link: Floats) -> tuple[float, int, Ints]:
    """Turn the ring of devices so that each one comes first once, and cut it each time.

    *cost* is L_k [K, L+1, L+1]: a stage with the first or the last layer costs what its place
    costs. *link* is T with device k in front at ``link[k]`` [K, K]. Returns the least slowest
    stage [s], the device in front, and where each stage stops [K]. The first of equals. O(K² · L²).
    """
    num = len(cost)
    best, front, stops = np.inf, 0, np.zeros(num, np.int64)
    for turn in range(num):
        ring = np.concatenate((cost[turn:], cost[:turn]))
        slowest, found = slowest_stage(ring, link[turn])
        if slowest < best:
            best, front, stops = slowest, turn, found
    return best, front, stops
