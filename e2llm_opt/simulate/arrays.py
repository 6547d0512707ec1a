"""What the event loop works on: the system, what arrives, what becomes of it, and its own state.

Index contract: R replicas, N slots of the one that has most, S stages of all replicas, G groups of
layers that are alike on one stage, W windows, X links, cards and buses, U different prompt lengths,
n requests. Times in seconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class System(NamedTuple):
    """What replicas do; nothing of it changes in a run."""

    role: Ints
    """PREFILL, DECODE or MIXED [R]."""
    slots: Ints
    """Requests decoded at once [R]; 0 for PREFILL."""
    kv_tokens: Ints
    """Tokens of KV cache that all slots together hold, one request if need be [R]."""
    stages: Ints
    """Its stages are ``[stages[r], stages[r + 1])`` [R+1]."""
    micro: Ints
    """Micro-batches of n + 1 requests [R, N]."""
    tpot: Floats
    """Round of n + 1 requests at the mean context [R, N]."""
    groups: Ints
    """Groups of stage s are ``[groups[s], groups[s + 1])`` [S+1]."""
    fixed: Floats
    """What a stage takes for n + 1 requests whatever their context, its hop included [S, N]."""
    hop_back: Floats
    """The part of *fixed* that is the hop back to the first stage [S, N]."""
    read: Floats
    """Reading weights, for n + 1 requests [G, N]."""
    read_context: Floats
    """Reading one token of KV cache [G]."""
    work: Floats
    """Computing for n + 1 requests, attention apart [G, N]."""
    work_context: Floats
    """Attention to one token of context [G]."""
    window_of: Ints
    """Window of a group [G]."""
    window: Ints
    """Tokens [W]."""
    is_pipelined: bool
    """Prompts overlap in a PREFILL replica."""
    chunks: Ints
    """Chunks of a prompt [U]."""
    chunk_s: Floats
    """One chunk on a stage, with its hop [S, U]."""
    latency: Floats
    """Prefill of a prompt that is alone [R, U]."""
    pause: Floats
    """How long decode stops for a prompt in a MIXED replica [R, U]."""
    kv_latency: Floats
    """Latency of a KV transfer [R, R]; inf where there is no way."""
    kv_busy: Floats
    """A token of KV cache in each window keeps resource x busy [R, R, X, W]."""
    kv_hidden: float
    """Share of the prefill latency behind which a KV transfer hides; 0: none of it."""
    kv_last: Floats
    """Least share of a KV transfer that is exposed where some hides [R, R]."""
    share: Floats
    """Planned rate of each replica as an entry [R] (WEIGHTED)."""
    route_share: Floats
    """Planned rate of each route [R, R] (WEIGHTED)."""
    rate: Floats
    """Requests a second with all slots full [R]."""


class Requests(NamedTuple):
    """What arrives, sorted by time."""

    arrival: Floats
    prompt: Ints
    """Row of the prompt's length in [U]."""
    prompt_tokens: Ints
    output_tokens: Ints


class Records(NamedTuple):
    """What became of each request [n]; NaN and -1 for what did not happen."""

    entry: Ints
    """Replica that prefilled it; -1: rejected, no slot is long enough."""
    decoder: Ints
    wait_prefill: Floats
    wait_kv: Floats
    wait_decode: Floats
    first_token: Floats
    join: Floats
    """Time at which it got its share of the decode rounds."""
    finish: Floats


class State(NamedTuple):
    """What changes; R replicas, N slots, n requests."""

    member: Ints
    """Request in each slot; the first busy[r] are taken [R, N]."""
    last_step: Ints
    """Step after which it is finished [R, N]."""
    first_step: Ints
    """Step at which it joined [R, N]."""
    busy: Ints
    """Requests that decode [R]."""
    held: Ints
    """Slots held, prefill and KV transfers included [R]."""
    kv_used: Ints
    """Tokens reserved for the requests in slots, prompts and whole answers [R]."""
    step: Ints
    """Rounds done [R]."""
    rounds: Ints
    """Rounds until the next event [R]."""
    began: Floats
    """Time of the last event [R]."""
    first_s: Floats
    """Next round [R]."""
    slope_s: Floats
    """Growth of a round a round [R]."""
    at: Floats
    """Time of the next event [R]; inf while nothing decodes."""
    paused_until: Floats
    """A MIXED replica prefills until then [R]."""
    head: Ints
    """First of each queue, 2 a replica: before prefill or decode; prefilled and not joined [2R]."""
    tail: Ints
    length: Ints
    """Of each queue [2R]."""
    behind: Ints
    """Next request in a queue [n]."""
    pending: Floats
    """Tokens waited for, of prompts and answers [R]."""
    stage_free: Floats
    """Time from which a stage is free [S]."""
    link_free: Floats
    """Time from which a resource is free [X]."""
    stage_next: Floats
    """The same after one prompt more: scratch of one decision [S]."""
    served: Floats
    """Requests that entered each replica so far [R]."""
    served_routes: Floats
    """Requests sent on each route so far [R, R]."""
    heap_at: Floats
    heap_what: Ints
    """Kind, request, replica, number of each event in the heap [n, 4]."""
    heap_size: Ints
    """Events in the heap, events ever [2]."""
    held_tokens: Floats
    """Context of the requests that decode, in each window: scratch of one round [W]."""
    growing: Floats
    """How many of these grow: scratch of one round [W]."""
    busy_s: Floats
    """Slot-seconds of decode, or seconds of prefill, of each replica [R]."""
    link_busy_s: Floats
    """Seconds that KV transfers kept each resource busy [X]."""
