"""What the event loop works on: records of replicas, requests and links, and tables of times.

Index contract: R replicas, N slots of the one that has most, S stages of all replicas, G groups of
layers that are alike on one stage, W windows, X links, cards and buses, K parts of all KV routes,
U different prompt lengths, n requests. Times in seconds; whole numbers are int64.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = NDArray[Any]
"""An array of records."""
Row = Any
"""One of them."""

FACES = PREFILL, MIXED, DECODE, LEAVING, CLOSED = 0, 1, 2, 3, 4
"""What a router sees: the roles, a decoder that takes no arrivals, and what takes nothing."""
QUEUES = WAITING, COMING, PREFILLED = 0, 1, 2
"""Before prefill or decode; on the way or in prefill; prefilled."""
ROUTINGS = SHORTEST, JSQ, WEIGHTED = 0, 1, 2
BLOCK = 8
"""Replicas that are looked through one by one for the next event."""
TIE_S = 1e-9
"""Expected waits that differ by less are equal, so that rounding does not route [s]."""
MANY = np.int64(1) << 60
"""More rounds than there are."""


def _records(whole: str, real: str) -> np.dtype[np.void]:
    return np.dtype(
        [(name, np.int64) for name in whole.split()] + [(n, float) for n in real.split()]
    )


REPLICA = _records(
    # face: the role while it is open; slots: 0 for PREFILL; kv_tokens: of all slots together
    "role face slots kv_tokens "
    # its stages are [stage, next_stage); 1: the run stops when nothing is left inside
    "stage next_stage leaves "
    # requests that decode; all that decode or come to a slot; tokens reserved for those in slots
    "busy present kv_used "
    # rounds done; rounds until its next event; 1: decoding pauses for a prefill; 1: it must decide
    "step rounds is_paused is_between",
    # share: planned arrivals a second; rate: requests a second with all slots full
    "share rate "
    # time of the last event; the next round and its growth a round
    "began round growth "
    # until when it prefills; tokens waited for; requests so far; slot-seconds of work; since when
    "paused_until pending served busy_s opened "
    # as the router sees it: expected wait for a slot; the round with one request more
    "slot_wait next_round",
)
REQUEST = _records(
    # prompt: row of its length in [U]; behind: the next one in its queue; replicas -1: none (yet)
    "prompt prompt_tokens output_tokens entry decoder behind",
    # ready: since when it waits for a slot; join: since when it decodes
    "arrival wait_prefill wait_kv wait_decode first_token ready join finish",
)
SLOT = _records("request offset last_step", "")
"""In step s its request has *offset* + s tokens of context; it leaves after *last_step*."""
QUEUE = _records("head tail length", "")
STAGE = _records("group next_group", "free free_after")
"""Free from when on, now and after one prompt more; its groups are [group, next_group)."""
GROUP = _records("window", "read work")
"""Time to read, and to compute with, one token of context."""
WINDOW = _records("tokens", "held growing")
"""Scratch of one round: context of a micro-batch, and how many of its requests' contexts grow."""
LINK = _records("", "free busy_s")
ROUTE = _records("part next_part", "latency last share served")
"""KV parts [part, next_part); inf: no way; what the last layer is of a cache; planned, sent."""


class Run(NamedTuple):
    """Everything about one run."""

    replicas: Rows
    """REPLICA [R]."""
    requests: Rows
    """REQUEST [n]."""
    order: Ints
    """Requests in the order of arrival [n]."""
    slots: Rows
    """SLOT; the first *busy* of a replica are taken [R, N]."""
    queues: Rows
    """QUEUE, by :data:`QUEUES` [R, 3]."""
    stages: Rows
    """STAGE [S]."""
    links: Rows
    """LINK [X]."""
    next_at: Floats
    """Time of the next event of each replica, and of the first that is on its way there [2R]."""
    soonest: Floats
    """The earlier of the two of each replica; inf behind the last [R, up to whole blocks]."""
    block_soonest: Floats
    """The earliest of each BLOCK of replicas."""
    windows: Rows
    """WINDOW [W]."""
    groups: Rows
    """GROUP [G]."""
    micro: Ints
    """Micro-batches of n + 1 requests [R, N]."""
    tpot: Floats
    """Round of n + 1 requests at the mean context [R, N]."""
    fixed: Floats
    """What a stage takes for n + 1 requests whatever their context, without its hop back [S, N]."""
    hop_back: Floats
    """The hop back to the first stage [R, N]."""
    read: Floats
    """Reading weights for n + 1 requests [G, N]."""
    work: Floats
    """Computing for n + 1 requests, attention apart [G, N]."""
    chunks: Ints
    """Chunks of a prompt [U]."""
    chunk_s: Floats
    """One chunk on a stage, with its hop; without overlap all of it on the first [U, S]."""
    latency: Floats
    """Prefill of a prompt that is alone [U, R]."""
    pause: Floats
    """How long decode stops for it in a MIXED replica, or the next one in a PREFILL one [U, R]."""
    routes: Rows
    """ROUTE [R, R]."""
    part_link: Ints
    """What a part of a KV route crosses [K]."""
    part_s: Floats
    """How long a token of KV cache in each window keeps that busy [K, W]."""
    hidden: float
    """Share of the prefill latency during which a KV cache may already leave."""
    is_mean: bool
    """Rounds take as long as at the mean context."""
    routing: int
