"""Queues of requests in order of time, and which replica is next."""

import numpy as np
from numba import njit

from e2llm_opt.simulate.arrays import BLOCK, Row, Run
from e2llm_opt.simulate.rounds.kernel import INNER


@njit(**INNER)
def enqueue(requests: Row, queue: Row, i: int) -> None:
    """Put request i into a queue: behind those that are ready before it, mostly the end."""
    ready = requests[i].ready
    if queue.length == 0:
        queue.head = queue.tail = i
    elif requests[queue.tail].ready <= ready:
        requests[queue.tail].behind = i
        queue.tail = i
    elif requests[queue.head].ready > ready:
        requests[i].behind, queue.head = queue.head, i
    else:
        k = queue.head
        while requests[requests[k].behind].ready <= ready:
            k = requests[k].behind
        requests[i].behind, requests[k].behind = requests[k].behind, i
    queue.length += 1


@njit(**INNER)
def dequeue(requests: Row, queue: Row) -> int:
    """Take the first request out of a queue."""
    i = queue.head
    queue.head = requests[i].behind
    queue.length -= 1
    return i


@njit(**INNER)
def note_next(w: Run, r: int) -> None:
    """Note when something happens next at replica r, and in its block of replicas."""
    w.soonest[r] = min(w.next_at[r], w.next_at[len(w.replicas) + r])
    block = r // BLOCK
    w.block_soonest[block] = np.inf
    for k in range(block * BLOCK, min((block + 1) * BLOCK, len(w.replicas))):
        w.block_soonest[block] = min(w.block_soonest[block], w.soonest[k])


@njit(**INNER)
def next_of(w: Run) -> int:
    """Return the first of the replicas where something happens next."""
    block = 0
    for k in range(1, len(w.block_soonest)):
        if w.block_soonest[k] < w.block_soonest[block]:
            block = k
    r = block * BLOCK
    while w.soonest[r] != w.block_soonest[block]:
        r += 1
    return r
