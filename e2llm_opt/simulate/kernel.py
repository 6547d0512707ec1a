"""The event loop: one event an admission, a completion, or a kink of the step time.

A decode batch whose members stay the same advances q rounds at once: round s takes r0 + slope s, so
q rounds take q r0 + slope q (q - 1) / 2. Requests join at the end of a round.
"""

from typing import Any

import numpy as np
from numba import njit

from e2llm_opt.simulate.arrays import BLOCK, FACES, MANY, QUEUES, ROUTINGS, TIE_S, Row, Run

PREFILL, MIXED, DECODE, LEAVING, _ = FACES
WAITING, COMING, PREFILLED = QUEUES
SHORTEST, JSQ, WEIGHTED = ROUTINGS
# Handing over a run takes longer than what most functions do, so all are inlined; and one that
# returns early counts references to all arrays, so none does.
_INNER: Any = {"error_model": "numpy", "forceinline": True, "no_cpython_wrapper": True}


@njit(**_INNER)
def _enqueue(requests: Row, queue: Row, i: int) -> None:
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


@njit(**_INNER)
def _dequeue(requests: Row, queue: Row) -> int:
    """Take the first request out of a queue."""
    i = queue.head
    queue.head = requests[i].behind
    queue.length -= 1
    return i


@njit(**_INNER)
def _larger(a0: float, a1: float, b0: float, b1: float) -> tuple[float, float, float]:
    """Return the larger of the lines a0 + a1 x, b0 + b1 x at 0, and where the other passes it."""
    if b0 > a0 or (b0 == a0 and b1 > a1):
        a0, a1, b0, b1 = b0, b1, a0, a1
    return a0, a1, (a0 - b0) / (b1 - a1) if b1 > a1 else np.inf


@njit(**_INNER)
def _round(w: Run, r: int) -> tuple[float, float, float]:
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


@njit(**_INNER)
def _time(a: Row, rounds: int) -> float:
    """Return the time of so many rounds of a replica from the last event on [s]."""
    return rounds * a.round + a.growth * (0.5 * rounds * (rounds - 1))


@njit(**_INNER)
def _plan_rounds(w: Run, r: int) -> None:
    """Decode until the first request is finished, or the time of a round has a kink."""
    a = w.replicas[r]
    a.rounds = MANY
    for k in range(a.busy):
        a.rounds = min(a.rounds, w.slots[r, k].last_step - a.step)
    if w.is_mean:
        a.round, a.growth = w.tpot[r, a.busy - 1], 0.0
    else:
        a.round, a.growth, kink = _round(w, r)
        if kink < a.rounds:
            a.rounds = int(np.floor(kink)) + 1
    w.next_at[r] = a.began + _time(a, a.rounds)


@njit(**_INNER)
def _count(w: Run, r: int, change: int) -> None:
    """Count a request that comes to a slot of replica r, or goes, and note what the router sees."""
    a = w.replicas[r]
    a.present += change
    a.slot_wait = max(a.present + 1 - a.slots, 0) / a.rate
    a.next_round = w.tpot[r, min(a.present, a.slots - 1)]


@njit(**_INNER)
def _cut_short(w: Run, r: int, now: float) -> None:
    """Stop replica r at the first end of a round that is not before *now*."""
    a = w.replicas[r]
    gone, half, b = now - a.began, 0.5 * a.growth, a.round - 0.5 * a.growth
    rounds = gone / b if half == 0.0 else 2.0 * gone / (b + np.sqrt(b * b + 4.0 * half * gone))
    k = min(max(np.int64(rounds) - 1, 0), a.rounds)
    while k < a.rounds and _time(a, k) < gone:
        k += 1
    a.rounds = k
    w.next_at[r] = a.began + _time(a, k)


@njit(**_INNER)
def _join(w: Run, r: int, i: int) -> None:
    """Let request i decode in replica r from now on, the end of a round."""
    a, q = w.replicas[r], w.requests[i]
    slot = w.slots[r, a.busy]
    slot.request, slot.offset = i, q.prompt_tokens - a.step
    slot.last_step = a.step + q.output_tokens
    a.busy += 1
    q.join, q.wait_decode = a.began, a.began - q.ready


@njit(**_INNER)
def _resume(w: Run, r: int) -> None:
    """Let requests join, prefill, or plan the next rounds: replica r is between two rounds."""
    a, waiting, prefilled = w.replicas[r], w.queues[r, WAITING], w.queues[r, PREFILLED]
    is_mixed = a.role == MIXED
    w.next_at[r], a.is_between = np.inf, 0
    while prefilled.length > 0:
        _join(w, r, _dequeue(w.requests, prefilled))
    while waiting.length > 0 and a.busy + is_mixed * w.queues[r, COMING].length < a.slots:
        q = w.requests[waiting.head]
        if a.kv_used + q.prompt_tokens + q.output_tokens > a.kv_tokens:
            break
        a.kv_used += q.prompt_tokens + q.output_tokens
        i = _dequeue(w.requests, waiting)
        if is_mixed:
            _pause(w, r, i)
            return
        _join(w, r, i)
    if a.busy > 0:
        _plan_rounds(w, r)


@njit(**_INNER)
def _pause(w: Run, r: int, i: int) -> None:
    """Prefill request i in MIXED replica r, which stops decoding for a while."""
    a, q = w.replicas[r], w.requests[i]
    a.is_paused = 1
    a.paused_until = w.next_at[r] = a.began + w.pause[q.prompt, r]
    q.wait_prefill = a.began - q.arrival
    q.first_token = q.ready = a.began + w.latency[q.prompt, r]
    _come(w, r, i)


@njit(**_INNER)
def _end(w: Run, r: int) -> None:
    """Let requests go that are finished, where planned rounds of replica r are over, or a pause."""
    a, now = w.replicas[r], w.next_at[r]
    if a.is_paused:
        while w.next_at[len(w.replicas) + r] <= now:
            _take(w, r)
        a.is_paused = a.rounds = 0
        a.began = now  # slots are idle in a pause
    a.busy_s += a.busy * (now - a.began)
    a.step, a.began = a.step + a.rounds, now
    for k in range(a.busy - 1, -1, -1):
        if w.slots[r, k].last_step == a.step:
            q = w.requests[w.slots[r, k].request]
            q.finish = now
            a.pending -= q.output_tokens
            a.kv_used -= q.prompt_tokens + q.output_tokens
            a.busy -= 1
            w.slots[r, k] = w.slots[r, a.busy]
            _count(w, r, -1)
    a.is_between = 1


@njit(**_INNER)
def _wake(w: Run, r: int, now: float) -> None:
    """Let replica r see what has come: now, or when the round that runs or its pause is over."""
    a = w.replicas[r]
    if a.busy == 0 and not a.is_paused:
        a.began, a.is_between = now, 1
    elif a.busy < a.slots and not a.is_paused:
        _cut_short(w, r, now)


@njit(**_INNER)
def _come(w: Run, r: int, i: int) -> None:
    """Wait for request i, on its way to a slot of replica r: for its KV cache, or its prefill."""
    queue = w.queues[r, COMING]
    _enqueue(w.requests, queue, i)
    w.next_at[len(w.replicas) + r] = w.requests[queue.head].ready


@njit(**_INNER)
def _take(w: Run, r: int) -> None:
    """Let the first request that is on its way to replica r be there."""
    a, queue, line = w.replicas[r], w.queues[r, COMING], w.queues[r, WAITING]
    i = _dequeue(w.requests, queue)
    if a.role == MIXED:
        a.pending -= w.requests[i].prompt_tokens
        line = w.queues[r, PREFILLED]
    _enqueue(w.requests, line, i)
    w.next_at[len(w.replicas) + r] = w.requests[queue.head].ready if queue.length > 0 else np.inf
    _wake(w, r, w.requests[i].ready)


@njit(**_INNER)
def _prefilled_at(w: Run, r: int, u: int, now: float) -> float:
    """Return when PREFILL replica r would be done with a prompt; fills in *free_after*."""
    first, last, done = w.replicas[r].stage, w.replicas[r].next_stage, now
    for j in range(first, last):
        w.stages[j].free_after = w.stages[j].free
    for _ in range(w.chunks[u]):
        done = now
        for j in range(first, last):
            done = max(done, w.stages[j].free_after) + w.chunk_s[u, j]
            w.stages[j].free_after = done
    return done


@njit(**_INNER)
def _busy(w: Run, k: int, prompt_tokens: int) -> float:
    """Return how long part k of a KV route is busy with a prompt's cache."""
    total = 0.0
    for v in range(len(w.windows)):
        total += w.part_s[k, v] * min(prompt_tokens, w.windows[v].tokens)
    return total


@njit(**_INNER)
def _leaves(w: Run, q: Row, pair: tuple[int, int], done: float) -> float:
    """Return when a KV cache that is complete at *done* begins to leave."""
    route, start = w.routes[pair], done - w.hidden * w.latency[q.prompt, pair[0]]
    start = max(start, w.replicas[pair[1]].opened)
    for k in range(route.part, route.next_part):
        start = max(start, w.links[w.part_link[k]].free)
    return start


@njit(**_INNER)
def _there_at(w: Run, q: Row, pair: tuple[int, int], done: float) -> float:
    """Return when a KV cache that is complete at *done* would be there."""
    route, start, there = w.routes[pair], _leaves(w, q, pair, done), done
    for k in range(route.part, route.next_part):
        busy = _busy(w, k, q.prompt_tokens)
        there = max(there, start + busy, done + route.last * busy)
    return there + route.latency


@njit(**_INNER)
def _send(w: Run, q: Row, pair: tuple[int, int], done: float) -> None:
    """Send a KV cache that is complete at *done*."""
    route, start = w.routes[pair], _leaves(w, q, pair, done)
    q.ready = _there_at(w, q, pair, done)
    q.wait_kv = q.ready - q.first_token
    for k in range(route.part, route.next_part):
        link, busy = w.links[w.part_link[k]], _busy(w, k, q.prompt_tokens)
        link.free = max(start + busy, done + route.last * busy)
        link.busy_s += busy


@njit(**_INNER)
def _end_prefill(w: Run, r: int) -> int:
    """Send a KV cache to a decoder, returned: PREFILL replica r is done with its first prompt."""
    queue, now, face = w.queues[r, WAITING], w.next_at[r], DECODE
    i = _dequeue(w.requests, queue)
    q = w.requests[i]
    w.next_at[r] = max(w.requests[queue.head].first_token, now) if queue.length > 0 else np.inf
    w.replicas[r].pending -= q.prompt_tokens
    while q.decoder < 0 and face <= LEAVING:  # one that is leaving: where no other can
        _assign(w, r, _decoder(w, r, i, now, face)[0], i)
        face += 1
    _send(w, q, (r, q.decoder), now)
    _count(w, q.decoder, 1)
    _come(w, q.decoder, i)
    return q.decoder


@njit(**_INNER)
def _assign(w: Run, entry: int, b: int, i: int) -> None:
    """Let replica b decode request i; -1: the last one, which is nobody."""
    w.requests[i].decoder = b
    w.replicas[b].pending += w.requests[i].output_tokens
    w.routes[entry, b].served += 1.0


@njit(**_INNER)
def _is_less(wait: float, then: float, least: float, second: float) -> bool:
    """Return whether a wait is shorter than the least so far, or equal and what follows is."""
    return wait < least - TIE_S or (wait <= least + TIE_S and then < second - TIE_S)


@njit(**_INNER)
def _decoder(w: Run, entry: int, i: int, done: float, face: int) -> tuple[int, float, float]:
    """Choose the decoder of a *face* for what *entry* prefills until *done*, its wait, decoding."""
    best, least, second, q = -1, np.inf, np.inf, w.requests[i]
    tokens = q.prompt_tokens + q.output_tokens
    for b in range(len(w.replicas)):
        a, route = w.replicas[b], w.routes[entry, b]
        if a.face != face or tokens > a.kv_tokens or route.latency == np.inf:
            continue
        wait, then = a.pending, 0.0
        if w.routing == SHORTEST:
            wait, then = a.slot_wait, q.output_tokens * a.next_round
            if wait > least + TIE_S:
                continue
            wait += _there_at(w, q, (entry, b), done) - done
        elif w.routing == WEIGHTED:
            wait = (route.served + 1.0) / route.share
        if _is_less(wait, then, least, second):
            best, least, second = b, wait, then
    return best, least, second


@njit(**_INNER)
def _entry(w: Run, i: int) -> tuple[int, int]:
    """Choose the replica that prefills request i, and its decoder as it looks now; -1: none."""
    q, best, after, least, second = w.requests[i], -1, -1, np.inf, np.inf
    for r in range(len(w.replicas)):
        a, b, is_prefill = w.replicas[r], r, w.replicas[r].face == PREFILL
        if a.face >= DECODE or q.prompt_tokens + q.output_tokens * (not is_prefill) > a.kv_tokens:
            continue
        wait, then, late = a.pending, 0.0, 0.0
        if is_prefill:
            done = _prefilled_at(w, r, q.prompt, q.arrival)
            late = max(done - q.arrival - w.latency[q.prompt, r], 0.0)
            if w.routing == SHORTEST and late > least + TIE_S:
                continue
            b, wait, then = _decoder(w, r, i, done, DECODE)
            wait += a.pending * (w.routing == JSQ)
        elif w.routing == SHORTEST:
            ahead = w.queues[r, WAITING].length * w.pause[q.prompt, r]
            wait = max(a.slot_wait, ahead + max(a.paused_until - q.arrival, 0.0))
            then = q.output_tokens * a.next_round
        if w.routing == SHORTEST:
            wait += late
            then += w.latency[q.prompt, r]
        elif w.routing == WEIGHTED:
            wait = (a.served + 1.0) / a.share
        if b >= 0 and _is_less(wait, then, least, second):
            best, after, least, second = r, b, wait, then
    return best, after


@njit(**_INNER)
def _arrive(w: Run, i: int, r: int, b: int) -> None:
    """Give request i to replica r, and with the routing JSQ to decoder b."""
    a, q = w.replicas[r], w.requests[i]
    q.entry, q.ready = r, q.arrival
    a.served += 1.0
    a.pending += q.prompt_tokens
    _enqueue(w.requests, w.queues[r, WAITING], i)
    if a.role == MIXED:
        q.decoder = r
        a.pending += q.output_tokens
        _count(w, r, 1)
        _wake(w, r, q.arrival)
    else:
        _prefill(w, r, i)
    if w.routing == JSQ and b != r:
        _assign(w, r, b, i)


@njit(**_INNER)
def _prefill(w: Run, r: int, i: int) -> None:
    """Let request i follow the others through the stages of PREFILL replica r."""
    a, q = w.replicas[r], w.requests[i]
    q.first_token = _prefilled_at(w, r, q.prompt, q.arrival)
    for j in range(a.stage, a.next_stage):
        w.stages[j].free = w.stages[j].free_after
    q.wait_prefill = max(q.first_token - q.arrival - w.latency[q.prompt, r], 0.0)
    a.busy_s += w.pause[q.prompt, r]
    w.next_at[r] = min(w.next_at[r], q.first_token)


@njit(**_INNER)
def _note_next(w: Run, r: int) -> None:
    """Note when something happens next at replica r, and in its block of replicas."""
    first, soonest = r // BLOCK * BLOCK, np.inf
    w.soonest[r] = min(w.next_at[r], w.next_at[len(w.replicas) + r])
    for k in range(first, first + BLOCK):
        soonest = min(soonest, w.soonest[k])
    w.block_soonest[r // BLOCK] = soonest


@njit(cache=True, error_model="numpy")
def run(w: Run, first: int, until: int, stop: float) -> tuple[np.int64, float]:
    """Run from the arrival of request *first* to that of *until*, or to *stop*.

    At one time, ends of rounds and prefills come before arrivals. Returns how many have arrived
    and the time, at most *stop*: that at which a replica that leaves has become empty. All that
    happens until then is done, but for arrivals at this time.
    """
    num, i = len(w.replicas), np.int64(first)  # a literal would compile everything twice
    while True:
        r, b = np.argmin(w.block_soonest) * BLOCK, -1
        soonest = w.block_soonest[r // BLOCK]
        while w.soonest[r] != soonest:
            r += 1
        arrival = w.requests[w.order[i]].arrival if i < until else stop
        if i == until and (soonest > stop or soonest == np.inf):
            return i, stop
        if soonest > arrival:
            r, b = _entry(w, w.order[i])
            if r >= 0:
                _arrive(w, w.order[i], r, b)
            i += 1
        elif w.next_at[num + r] < w.next_at[r]:
            _take(w, r)
        elif w.replicas[r].role == PREFILL:
            b = _end_prefill(w, r)
        else:
            _end(w, r)
        if r >= 0 and w.replicas[r].is_between:
            _resume(w, r)
        if r >= 0:
            _note_next(w, r)
        if b >= 0:
            _note_next(w, b)
        if r >= 0 and w.replicas[r].leaves and w.replicas[r].pending == 0:
            until, stop = int(i), soonest  # and what else happens at this moment
