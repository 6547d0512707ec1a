"""The event loop: one event an admission, a completion, or a kink of the step time.

A decode batch whose members stay the same advances q rounds at once: round s takes r0 + slope s, so
q rounds take q r0 + slope q (q - 1) / 2. Requests join at the end of a round.
"""

from typing import Any

import numpy as np
from numba import njit

from e2llm_opt.simulate.arrays import DECODE, JSQ, MIXED, PREFILL, SHORTEST_WAIT, WEIGHTED, Run

_WAITING, _COMING, _PREFILLED = 0, 1, 2
_MANY = np.int64(1) << 60
_TIE_S = 1e-9
"""Expected waits that differ by less are equal, so that rounding does not route [s]."""


@njit(cache=True, error_model="numpy")
def _queue(requests: Any, queue: Any, i: int) -> None:
    """Put request i into a queue: behind those that are ready before it, mostly the end."""
    ready = requests[i].ready
    if queue.length == 0 or requests[queue.tail].ready <= ready:
        before, behind = queue.tail, -1
        queue.tail = i
    else:
        before, behind = -1, queue.head
        while requests[behind].ready <= ready:
            before, behind = behind, requests[behind].behind
    requests[i].behind = behind
    if queue.length == 0 or before < 0:
        queue.head = i
    else:
        requests[before].behind = i
    queue.length += 1


@njit(cache=True, error_model="numpy")
def _unqueue(requests: Any, queue: Any) -> int:
    """Take the first request out of a queue."""
    i = queue.head
    queue.head = requests[i].behind
    queue.length -= 1
    return i


@njit(cache=True, error_model="numpy")
def _larger(a0: float, a1: float, b0: float, b1: float) -> tuple[float, float, float]:
    """Larger of two lines a0 + a1 x and b0 + b1 x from x = 0 on, and where the other passes it."""
    if b0 > a0 or (b0 == a0 and b1 > a1):
        a0, a1, b0, b1 = b0, b1, a0, a1
    return a0, a1, (a0 - b0) / (b1 - a1) if b1 > a1 else np.inf


@njit(cache=True, error_model="numpy")
def _contexts(windows: Any, slots: Any, step: int, num: int, micro: int) -> float:
    """Fill in the contexts of a micro-batch; return for how many rounds the same ones grow."""
    share = np.ceil(num / micro) / num
    kink = _MANY
    for v in range(len(windows)):
        window = windows[v]
        held, growing = 0, 0
        for k in range(num):
            left = window.tokens - slots[k].offset - step
            held += window.tokens - max(left, 0)
            if left > 0:
                growing += 1
                kink = min(kink, left)
        window.held, window.growing = held * share, growing * share
    return float(kink)


@njit(cache=True, error_model="numpy")
def _round(w: Run, r: int) -> tuple[float, float, float]:
    """Next round of replica r [s], its growth a round [s], and for how many more that holds."""
    a = w.replicas[r]
    n, m = a.busy - 1, w.micro[r, a.busy - 1]
    kink = _contexts(w.windows, w.slots[r], a.step, a.busy, m)
    total0, total1, most0, most1 = w.hop_back[r, n], 0.0, 0.0, 0.0
    for j in range(a.stage, a.next_stage):
        value, slope = w.fixed[j, n], 0.0
        for g in range(w.stages[j].group, w.stages[j].next_group):
            group = w.groups[g]
            window = w.windows[group.window]
            up0, up1, crossing = _larger(
                w.weights[g, n, 0] + group.read_context * window.held,
                group.read_context * window.growing,
                w.weights[g, n, 1] + group.work_context * window.held,
                group.work_context * window.growing,
            )
            kink = min(kink, crossing)
            value, slope = value + up0, slope + up1
        total0, total1 = total0 + value, total1 + slope
        most0, most1, crossing = _larger(most0, most1, value, slope)
        kink = min(kink, crossing)
    value, slope, crossing = _larger(total0, total1, m * most0, m * most1)
    return value, slope, min(kink, crossing)


@njit(cache=True, error_model="numpy")
def _time(a: Any, rounds: int) -> float:
    """Time of so many rounds of a replica from the last event on [s]."""
    return rounds * a.round + a.growth * (0.5 * rounds * (rounds - 1))


@njit(cache=True, error_model="numpy")
def _plan_rounds(w: Run, r: int) -> None:
    """Decode until the first request is finished, or the time of a round has a kink."""
    a = w.replicas[r]
    a.rounds = _MANY
    for k in range(a.busy):
        a.rounds = min(a.rounds, w.slots[r, k].last_step - a.step)
    if w.is_mean:
        a.round, a.growth = w.tpot[r, a.busy - 1], 0.0
    else:
        a.round, a.growth, kink = _round(w, r)
        if kink < a.rounds:
            a.rounds = int(np.floor(kink)) + 1
    w.next_at[r] = a.began + _time(a, a.rounds)


@njit(cache=True, error_model="numpy")
def _cut_short(w: Run, r: int, now: float) -> None:
    """Stop replica r at the first end of a round that is not before *now*."""
    a = w.replicas[r]
    gone = now - a.began
    half, b = 0.5 * a.growth, a.round - 0.5 * a.growth
    rounds = gone / b if half == 0.0 else 2.0 * gone / (b + np.sqrt(b * b + 4.0 * half * gone))
    k = min(max(np.int64(np.ceil(rounds)), 0), a.rounds)
    while k > 0 and _time(a, k - 1) >= gone:
        k -= 1
    while k < a.rounds and _time(a, k) < gone:
        k += 1
    a.rounds = k
    w.next_at[r] = a.began + _time(a, k)


@njit(cache=True, error_model="numpy")
def _join(w: Run, r: int, i: int) -> None:
    """Let request i decode in replica r from now on, the end of a round."""
    a, q = w.replicas[r], w.requests[i]
    slot = w.slots[r, a.busy]
    slot.request, slot.offset = i, q.prompt_tokens - a.step
    slot.last_step = a.step + q.output_tokens
    a.busy += 1
    q.join = a.began
    q.wait_decode = a.began - q.ready


@njit(cache=True, error_model="numpy")
def _resume(w: Run, r: int) -> None:
    """Replica r is between two rounds: let requests join, prefill, or plan the next rounds."""
    a, waiting, prefilled = w.replicas[r], w.queues[r, _WAITING], w.queues[r, _PREFILLED]
    is_mixed = a.role == MIXED
    w.next_at[r] = np.inf
    while prefilled.length > 0:
        _join(w, r, _unqueue(w.requests, prefilled))
    while waiting.length > 0 and a.busy + is_mixed * w.queues[r, _COMING].length < a.slots:
        q = w.requests[waiting.head]
        if a.kv_used + q.prompt_tokens + q.output_tokens > a.kv_tokens:
            break
        a.kv_used += q.prompt_tokens + q.output_tokens
        i = _unqueue(w.requests, waiting)
        if is_mixed:
            _pause(w, r, i)
            return
        _join(w, r, i)
    if a.busy > 0:
        _plan_rounds(w, r)


@njit(cache=True, error_model="numpy")
def _pause(w: Run, r: int, i: int) -> None:
    """Prefill request i in MIXED replica r, which stops decoding for a while."""
    a, q = w.replicas[r], w.requests[i]
    a.is_paused = 1
    a.paused_until = w.next_at[r] = a.began + w.pause[r, q.prompt]
    q.wait_prefill = a.began - q.arrival
    q.first_token = q.ready = a.began + w.latency[r, q.prompt]
    _come(w, r, i)


@njit(cache=True, error_model="numpy")
def _end(w: Run, r: int) -> None:
    """The planned rounds of replica r are over, or its pause: let finished requests go."""
    a = w.replicas[r]
    now = w.next_at[r]
    if a.is_paused:
        a.is_paused = a.rounds = 0
        while w.next_at[len(w.replicas) + r] <= now:
            _take(w, r)
    a.busy_s += a.busy * (now - a.began) * (a.rounds > 0)
    a.step += a.rounds
    a.began = now
    k = 0
    while k < a.busy:
        slot = w.slots[r, k]
        if slot.last_step > a.step:
            k += 1
            continue
        q, last = w.requests[slot.request], w.slots[r, a.busy - 1]
        q.finish = now
        a.pending -= q.output_tokens
        a.kv_used -= q.prompt_tokens + q.output_tokens
        a.busy -= 1
        slot.request, slot.offset, slot.last_step = last.request, last.offset, last.last_step
    _resume(w, r)


@njit(cache=True, error_model="numpy")
def _wake(w: Run, r: int, now: float) -> None:
    """Something has come to replica r: it acts at the end of the round that runs."""
    a = w.replicas[r]
    if a.is_paused:
        return  # it looks around when that is over
    if a.busy == 0:
        a.began = now
        _resume(w, r)
    elif a.busy < a.slots:
        _cut_short(w, r, now)


@njit(cache=True, error_model="numpy")
def _come(w: Run, r: int, i: int) -> None:
    """Request i is on its way to a slot of replica r: its KV cache, or its prefill."""
    queue = w.queues[r, _COMING]
    _queue(w.requests, queue, i)
    w.next_at[len(w.replicas) + r] = w.requests[queue.head].ready


@njit(cache=True, error_model="numpy")
def _take(w: Run, r: int) -> None:
    """The first request on its way to replica r is there."""
    queue = w.queues[r, _COMING]
    i = _unqueue(w.requests, queue)
    is_none = queue.length == 0
    w.next_at[len(w.replicas) + r] = np.inf if is_none else w.requests[queue.head].ready
    if w.replicas[r].role == MIXED:
        w.replicas[r].pending -= w.requests[i].prompt_tokens
        _queue(w.requests, w.queues[r, _PREFILLED], i)
    else:
        _queue(w.requests, w.queues[r, _WAITING], i)


@njit(cache=True, error_model="numpy")
def _prefilled_at(w: Run, r: int, u: int, now: float) -> float:
    """Time at which PREFILL replica r would be done with a prompt; *free_after* is then filled in.

    Chunk by chunk through the stages, each of which does one chunk at a time, first come first
    served. (Engines that do not overlap are one stage.)
    """
    first, last, done = w.replicas[r].stage, w.replicas[r].next_stage, now
    for j in range(first, last):
        w.stages[j].free_after = w.stages[j].free
    for _ in range(w.chunks[u]):
        done = now
        for j in range(first, last):
            done = max(done, w.stages[j].free_after) + w.chunk_s[j, u]
            w.stages[j].free_after = done
    return done


@njit(cache=True, error_model="numpy")
def _transfer(w: Run, i: int, pair: tuple[int, int], done: float, is_sent: bool) -> float:
    """Time at which a KV cache that is complete at *done* would be there; send it if *is_sent*."""
    q, route = w.requests[i], w.routes[pair]
    start, there = done - w.hidden * w.latency[pair[0], q.prompt], done
    for k in range(route.part, route.next_part):
        start = max(start, w.links[w.part_link[k]].free)
    for k in range(route.part, route.next_part):
        busy = 0.0
        for v in range(len(w.windows)):
            busy += w.part_s[k, v] * min(q.prompt_tokens, w.windows[v].tokens)
        end = max(start + busy, done + route.last * busy)
        there = max(there, end)
        if is_sent:
            w.links[w.part_link[k]].free = end
            w.links[w.part_link[k]].busy_s += busy
    return there + route.latency


@njit(cache=True, error_model="numpy")
def _end_prefill(w: Run, r: int) -> None:
    """PREFILL replica r is done with its first prompt: send the KV cache to a decoder."""
    queue, now = w.queues[r, _WAITING], w.next_at[r]
    i = _unqueue(w.requests, queue)
    q = w.requests[i]
    w.next_at[r] = w.requests[queue.head].first_token if queue.length > 0 else np.inf
    w.replicas[r].pending -= q.prompt_tokens
    if q.decoder < 0:
        _assign(w, r, _decoder(w, r, i, now)[0], i)
    q.ready = _transfer(w, i, (r, q.decoder), now, True)
    q.wait_kv = q.ready - now
    _come(w, q.decoder, i)


@njit(cache=True, error_model="numpy")
def _assign(w: Run, entry: int, b: int, i: int) -> None:
    """Replica b will decode request i."""
    w.requests[i].decoder = b
    w.replicas[b].pending += w.requests[i].output_tokens
    w.routes[entry, b].served += 1.0


@njit(cache=True, error_model="numpy")
def _slot_wait(w: Run, r: int) -> tuple[float, float]:
    """Expected wait for a slot of replica r, and the round with one request more [s]."""
    a, n = w.replicas[r], w.replicas[r].busy
    for k in range(3):
        n += w.queues[r, k].length
    return max(n + 1 - a.slots, 0) / a.rate, w.tpot[r, min(n, a.slots - 1)]


@njit(cache=True, error_model="numpy")
def _is_less(wait: float, then: float, least: float, second: float) -> bool:
    """Whether a wait is shorter than the least so far, or equal and what follows shorter."""
    return wait < least - _TIE_S or (wait <= least + _TIE_S and then < second - _TIE_S)


@njit(cache=True, error_model="numpy")
def _decoder(w: Run, entry: int, i: int, done: float) -> tuple[int, float, float]:
    """Choose who decodes what *entry* has prefilled at *done*, -1: nobody; its wait and decoding.

    With other routings than by wait, the wait stands for what they compare.
    """
    best, least, second = -1, np.inf, np.inf
    tokens = w.requests[i].prompt_tokens + w.requests[i].output_tokens
    for b in range(len(w.replicas)):
        a, route = w.replicas[b], w.routes[entry, b]
        if a.role != DECODE or tokens > a.kv_tokens or route.latency == np.inf:
            continue
        if w.routing == SHORTEST_WAIT:
            wait, step = _slot_wait(w, b)
            wait += _transfer(w, i, (entry, b), done, False) - done
            then = w.requests[i].output_tokens * step
        else:
            wait = a.pending if w.routing == JSQ else (route.served + 1.0) / route.share
            then = 0.0
        if _is_less(wait, then, least, second):
            best, least, second = b, wait, then
    return best, least, second


@njit(cache=True, error_model="numpy")
def _offer(w: Run, r: int, i: int) -> tuple[int, float, float]:
    """Decoder, wait, and prefill and decoding if replica r took request i now; decoder -1: no."""
    a, q, b = w.replicas[r], w.requests[i], r
    alone, wait, then = w.latency[r, q.prompt], 0.0, 0.0
    if a.role == PREFILL:
        done = _prefilled_at(w, r, q.prompt, q.arrival)
        b, wait, then = _decoder(w, r, i, done)
        wait += max(done - q.arrival - alone, 0.0) if w.routing == SHORTEST_WAIT else a.pending
    elif w.routing == SHORTEST_WAIT:
        wait, step = _slot_wait(w, r)
        ahead = w.queues[r, _WAITING].length * w.pause[r, q.prompt]
        wait = max(wait, ahead + max(a.paused_until - q.arrival, 0.0))
        then = q.output_tokens * step
    elif w.routing == JSQ:
        wait = a.pending
    return b, wait, then + alone


@njit(cache=True, error_model="numpy")
def _entry(w: Run, i: int) -> tuple[int, int]:
    """Choose the replica that prefills request i, and its decoder as it looks now; -1: none."""
    q, best, after, least, second = w.requests[i], -1, -1, np.inf, np.inf
    for r in range(len(w.replicas)):
        a = w.replicas[r]
        needed = q.prompt_tokens + (0 if a.role == PREFILL else q.output_tokens)
        if a.role == DECODE or needed > a.kv_tokens:
            continue
        b, wait, then = _offer(w, r, i)
        if w.routing != SHORTEST_WAIT:
            then = 0.0
        if w.routing == WEIGHTED:
            wait = (a.served + 1.0) / a.share
        if b >= 0 and _is_less(wait, then, least, second):
            best, after, least, second = r, b, wait, then
    return best, after


@njit(cache=True, error_model="numpy")
def _arrive(w: Run, i: int) -> None:
    """Give request i to a replica."""
    q = w.requests[i]
    r, b = _entry(w, i)
    q.entry = r
    if r < 0:
        return
    a = w.replicas[r]
    a.served += 1.0
    a.pending += q.prompt_tokens
    q.ready = q.arrival
    _queue(w.requests, w.queues[r, _WAITING], i)
    if a.role == MIXED:
        q.decoder = r
        a.pending += q.output_tokens
        _wake(w, r, q.arrival)
        return
    q.first_token = _prefilled_at(w, r, q.prompt, q.arrival)
    for j in range(a.stage, a.next_stage):
        w.stages[j].free = w.stages[j].free_after
    q.wait_prefill = max(q.first_token - q.arrival - w.latency[r, q.prompt], 0.0)
    a.busy_s += w.pause[r, q.prompt]
    w.next_at[r] = min(w.next_at[r], q.first_token)
    if w.routing == JSQ:
        _assign(w, r, b, i)


@njit(cache=True, error_model="numpy")
def run(w: Run) -> None:
    """Run all requests to their end; of events at one time, ends of rounds and prefills come first.

    Then comes what was on its way, then arrivals.
    """
    num, i = len(w.replicas), 0
    while True:
        first, soonest = 0, w.next_at[0]
        for k in range(1, 2 * num):
            if w.next_at[k] < soonest:
                first, soonest = k, w.next_at[k]
        arrival = w.requests[i].arrival if i < len(w.requests) else np.inf
        if soonest == np.inf and arrival == np.inf:
            return
        if soonest > arrival:
            _arrive(w, i)
            i += 1
        elif first >= num:
            _take(w, first - num)
            _wake(w, first - num, soonest)
        elif w.replicas[first].role == PREFILL:
            _end_prefill(w, first)
        else:
            _end(w, first)
