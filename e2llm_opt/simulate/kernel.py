"""The event loop: one event an admission, a completion, or a kink of the step time.

A decode batch whose members stay the same advances q rounds at once: round s takes r0 + slope s, so
q rounds take q r0 + slope q (q - 1) / 2. Requests join at the end of a round.
"""

import numpy as np
from numba import njit

from e2llm_opt.simulate.arrays import Records, Requests, State, System

PREFILL, DECODE, MIXED = 0, 1, 2
SHORTEST_WAIT, JSQ, WEIGHTED = 0, 1, 2
_PREFILLED, _ARRIVED, _READY, _RESUMED = 0, 1, 2, 3
_MANY = np.int64(1) << 60


@njit(cache=True, error_model="numpy")
def _push(s: State, at: float, kind: int, i: int, r: int) -> None:
    """Put an event into the heap; of equal times, the one pushed first comes first."""
    k = s.heap_size[0]
    number = s.heap_size[1]
    s.heap_size[0] += 1
    s.heap_size[1] += 1
    while k > 0 and s.heap_at[(k - 1) // 2] > at:
        s.heap_at[k], s.heap_what[k] = s.heap_at[(k - 1) // 2], s.heap_what[(k - 1) // 2]
        k = (k - 1) // 2
    s.heap_at[k] = at
    s.heap_what[k, 0], s.heap_what[k, 1], s.heap_what[k, 2], s.heap_what[k, 3] = kind, i, r, number


@njit(cache=True, error_model="numpy")
def _drop_first(s: State) -> None:
    """Take the first event out of the heap."""
    s.heap_size[0] -= 1
    last = s.heap_size[0]
    at, number = s.heap_at[last], s.heap_what[last, 3]
    k = 0
    while 2 * k + 1 < last:
        c = 2 * k + 1
        if c + 1 < last and _is_before(s, c + 1, s.heap_at[c], s.heap_what[c, 3]):
            c += 1
        if not _is_before(s, c, at, number):
            break
        s.heap_at[k], s.heap_what[k] = s.heap_at[c], s.heap_what[c]
        k = c
    s.heap_at[k], s.heap_what[k] = at, s.heap_what[last]


@njit(cache=True, error_model="numpy")
def _is_before(s: State, k: int, at: float, number: int) -> bool:
    """Whether event k of the heap comes before one at a time with a number."""
    return s.heap_at[k] < at or (s.heap_at[k] == at and s.heap_what[k, 3] < number)


@njit(cache=True, error_model="numpy")
def _queue(s: State, q: int, i: int) -> None:
    """Put request i at the end of queue q."""
    s.behind[i] = -1
    if s.head[q] < 0:
        s.head[q] = i
    else:
        s.behind[s.tail[q]] = i
    s.tail[q] = i
    s.length[q] += 1


@njit(cache=True, error_model="numpy")
def _unqueue(s: State, q: int) -> int:
    """Take the first request out of queue q."""
    i = s.head[q]
    s.head[q] = s.behind[i]
    s.length[q] -= 1
    return i


@njit(cache=True, error_model="numpy")
def _larger(a0: float, a1: float, b0: float, b1: float) -> tuple[float, float, float]:
    """Larger of two lines a0 + a1 x and b0 + b1 x from x = 0 on, and where the other passes it."""
    if b0 > a0 or (b0 == a0 and b1 > a1):
        a0, a1, b0, b1 = b0, b1, a0, a1
    return a0, a1, (a0 - b0) / (b1 - a1) if b1 > a1 else np.inf


@njit(cache=True, error_model="numpy")
def _round(p: System, s: State, q: Requests, r: int) -> tuple[float, float, float]:
    """Next round of replica r [s], its growth a round [s], and for how many more that holds."""
    n = s.busy[r]
    share = np.ceil(n / p.micro[r, n - 1]) / n
    kink = np.inf
    for w in range(len(p.window)):
        held, growing = 0.0, 0.0
        for k in range(n):
            context = q.prompt_tokens[s.member[r, k]] + s.step[r] - s.first_step[r, k]
            held += min(context, p.window[w])
            if context < p.window[w]:
                growing += 1.0
                kink = min(kink, float(p.window[w] - context))
        s.held_tokens[w], s.growing[w] = held * share, growing * share
    total0, total1, most0, most1 = 0.0, 0.0, 0.0, 0.0
    for stage in range(p.stages[r], p.stages[r + 1]):
        value, slope = p.fixed[stage, n - 1], 0.0
        for g in range(p.groups[stage], p.groups[stage + 1]):
            held, growing = s.held_tokens[p.window_of[g]], s.growing[p.window_of[g]]
            up0, up1, crossing = _larger(
                p.read[g, n - 1] + p.read_context[g] * held,
                p.read_context[g] * growing,
                p.work[g, n - 1] + p.work_context[g] * held,
                p.work_context[g] * growing,
            )
            kink = min(kink, crossing)
            value, slope = value + up0, slope + up1
        total0, total1 = total0 + value, total1 + slope
        most0, most1, crossing = _larger(most0, most1, value - p.hop_back[stage, n - 1], slope)
        kink = min(kink, crossing)
    m = float(p.micro[r, n - 1])
    value, slope, crossing = _larger(total0, total1, m * most0, m * most1)
    return value, slope, min(kink, crossing)


@njit(cache=True, error_model="numpy")
def _join(s: State, q: Requests, out: Records, r: int, i: int) -> None:
    """Let request i decode in replica r from now on, the end of a round."""
    k = s.busy[r]
    s.member[r, k] = i
    s.first_step[r, k] = s.step[r]
    s.last_step[r, k] = s.step[r] + q.output_tokens[i]
    s.busy[r] += 1
    out.join[i] = s.began[r]
    out.wait_decode[i] = s.began[r] - out.wait_decode[i]  # it held the time since which it waits


@njit(cache=True, error_model="numpy")
def _has_room(p: System, s: State, q: Requests, r: int) -> bool:
    """Whether the first request that waits at replica r can have its KV cache there; reserve it."""
    i = s.head[2 * r]
    if s.length[2 * r] == 0:
        return False
    tokens = q.prompt_tokens[i] + q.output_tokens[i]
    fits = s.kv_used[r] + tokens <= p.kv_tokens[r]
    if fits:
        s.kv_used[r] += tokens
    return fits


@njit(cache=True, error_model="numpy")
def _resume(p: System, s: State, q: Requests, out: Records, law: tuple[int, bool]) -> None:
    """Replica law[0] is between two rounds: let requests join, prefill, or plan the next rounds."""
    r, is_mean = law
    now = s.began[r]
    s.at[r] = np.inf
    if p.role[r] == DECODE:
        while s.busy[r] < p.slots[r] and _has_room(p, s, q, r):
            _join(s, q, out, r, _unqueue(s, 2 * r))
    else:
        while s.length[2 * r + 1] > 0:
            _join(s, q, out, r, _unqueue(s, 2 * r + 1))
        if s.held[r] < p.slots[r] and _has_room(p, s, q, r):
            i = _unqueue(s, 2 * r)
            s.held[r] += 1
            out.wait_prefill[i] = now - q.arrival[i]
            done = now + p.latency[r, q.prompt[i]]
            out.first_token[i] = out.wait_decode[i] = done
            s.paused_until[r] = now + p.pause[r, q.prompt[i]]
            _push(s, done, _READY, i, r)
            _push(s, s.paused_until[r], _RESUMED, i, r)
            return
    if s.busy[r] == 0:
        return
    least = _MANY
    for k in range(s.busy[r]):
        least = min(least, s.last_step[r, k] - s.step[r])
    if is_mean:
        s.first_s[r], s.slope_s[r] = p.tpot[r, s.busy[r] - 1], 0.0
    else:
        s.first_s[r], s.slope_s[r], kink = _round(p, s, q, r)
        if kink < least:
            least = int(np.floor(kink)) + 1
    s.rounds[r] = least
    s.at[r] = now + _time(s, r, least)


@njit(cache=True, error_model="numpy")
def _time(s: State, r: int, rounds: int) -> float:
    """Time of so many rounds of replica r from the last event on [s]."""
    return rounds * s.first_s[r] + s.slope_s[r] * (0.5 * rounds * (rounds - 1))


@njit(cache=True, error_model="numpy")
def _cut_short(s: State, r: int, now: float) -> None:
    """Stop replica r at the first end of a round that is not before *now*."""
    gone = now - s.began[r]
    a, b = 0.5 * s.slope_s[r], s.first_s[r] - 0.5 * s.slope_s[r]
    rounds = gone / b if a == 0.0 else 2.0 * gone / (b + np.sqrt(b * b + 4.0 * a * gone))
    k = min(max(np.int64(np.ceil(rounds)), 0), s.rounds[r])
    while k > 0 and _time(s, r, k - 1) >= gone:
        k -= 1
    while k < s.rounds[r] and _time(s, r, k) < gone:
        k += 1
    s.rounds[r] = k
    s.at[r] = s.began[r] + _time(s, r, k)


@njit(cache=True, error_model="numpy")
def _end_rounds(p: System, s: State, q: Requests, out: Records, law: tuple[int, bool]) -> None:
    """The planned rounds of replica law[0] are over: let requests that are finished go."""
    r = law[0]
    s.busy_s[r] += s.busy[r] * (s.at[r] - s.began[r])
    s.step[r] += s.rounds[r]
    s.began[r] = s.at[r]
    k = 0
    while k < s.busy[r]:
        if s.last_step[r, k] > s.step[r]:
            k += 1
            continue
        i = s.member[r, k]
        out.finish[i] = s.began[r]
        s.pending[r] -= q.output_tokens[i]
        s.kv_used[r] -= q.prompt_tokens[i] + q.output_tokens[i]
        s.busy[r] -= 1
        s.held[r] -= 1
        last = s.busy[r]
        s.member[r, k], s.first_step[r, k] = s.member[r, last], s.first_step[r, last]
        s.last_step[r, k] = s.last_step[r, last]
    _resume(p, s, q, out, law)


@njit(cache=True, error_model="numpy")
def _wake(
    p: System, s: State, q: Requests, out: Records, law: tuple[int, bool], now: float
) -> None:
    """Something has come to replica law[0]: it acts at the end of the round that runs."""
    r = law[0]
    if now < s.paused_until[r] or (s.busy[r] > 0 and s.at[r] == np.inf):
        return  # it prefills, and looks around when that is over
    if s.busy[r] == 0:
        s.began[r] = now
        _resume(p, s, q, out, law)
    elif (p.role[r] == DECODE and s.busy[r] < p.slots[r]) or (
        p.role[r] == MIXED and (s.length[2 * r + 1] > 0 or s.held[r] < p.slots[r])
    ):
        _cut_short(s, r, now)


@njit(cache=True, error_model="numpy")
def _prefilled_at(p: System, s: State, r: int, u: int, now: float) -> float:
    """Time at which PREFILL replica r would be done with a prompt; *stage_next* is then filled in.

    Chunk by chunk through the stages, each of which does one chunk at a time, first come first
    served; without overlap the whole replica does one prompt at a time.
    """
    first, last = p.stages[r], p.stages[r + 1]
    if not p.is_pipelined:
        s.stage_next[first] = max(now, s.stage_free[first]) + p.latency[r, u]
        return s.stage_next[first]
    done = now
    for j in range(first, last):
        s.stage_next[j] = s.stage_free[j]
    for _ in range(p.chunks[u]):
        done = now
        for j in range(first, last):
            done = max(done, s.stage_next[j]) + p.chunk_s[j, u]
            s.stage_next[j] = done
    return done


@njit(cache=True, error_model="numpy")
def _decode_wait(p: System, s: State, r: int) -> tuple[float, float]:
    """Expected wait for a slot of replica r, and the round with one request more [s]."""
    n = s.held[r] if p.role[r] == DECODE else s.held[r] + s.length[2 * r]
    step = p.tpot[r, min(n, p.slots[r] - 1)]
    if n < p.slots[r]:
        return 0.0, step
    return (n + 1 - p.slots[r]) / p.rate[r], step


@njit(cache=True, error_model="numpy")
def _decoder(p: System, s: State, entry: int, tokens: int, routing: int) -> int:
    """Choose the DECODE replica for what *entry* prefilled; -1 where none can hold it."""
    best, least, second = -1, np.inf, np.inf
    for r in range(len(p.role)):
        if p.role[r] != DECODE or tokens > p.kv_tokens[r] or p.kv_latency[entry, r] == np.inf:
            continue
        wait, step = _decode_wait(p, s, r)
        if routing == JSQ:
            wait, step = s.pending[r], 0.0
        elif routing == WEIGHTED:
            wait, step = (s.served_routes[entry, r] + 1.0) / p.route_share[entry, r], 0.0
        if best < 0 or wait < least or (wait == least and step < second):
            best, least, second = r, wait, step
    return best


@njit(cache=True, error_model="numpy")
def _entry(p: System, s: State, q: Requests, i: int, routing: int) -> int:
    """Choose the replica that prefills request i; -1 where no slot is long enough."""
    now, u = q.arrival[i], q.prompt[i]
    tokens = q.prompt_tokens[i] + q.output_tokens[i]
    best, least, second = -1, np.inf, np.inf
    for r in range(len(p.role)):
        wait, then = 0.0, p.latency[r, u]
        needed = q.prompt_tokens[i] if p.role[r] == PREFILL else tokens
        if p.role[r] == DECODE or needed > p.kv_tokens[r]:
            continue
        if p.role[r] == PREFILL:
            decoder = _decoder(p, s, r, tokens, routing)
            if decoder < 0:
                continue
            kv = p.kv_latency[r, decoder]
            for x in range(p.kv_busy.shape[2]):
                kv = max(kv, p.kv_latency[r, decoder] + _kv_busy(p, q, (r, decoder, x, i)))
            wait, step = _decode_wait(p, s, decoder)
            wait += _prefilled_at(p, s, r, u, now) - now - then + kv
            then += q.output_tokens[i] * step
        else:
            wait, step = _decode_wait(p, s, r)
            wait = max(wait, s.paused_until[r] - now + s.length[2 * r] * p.pause[r, u])
            then += q.output_tokens[i] * step
        if routing == JSQ:
            wait, then = s.pending[r], 0.0
        elif routing == WEIGHTED:
            wait, then = (s.served[r] + 1.0) / p.share[r], 0.0
        if best < 0 or wait < least or (wait == least and then < second):
            best, least, second = r, wait, then
    return best


@njit(cache=True, error_model="numpy")
def _kv_busy(p: System, q: Requests, where: tuple[int, int, int, int]) -> float:
    """Time for which request where[3]'s KV cache keeps resource where[2] of a route busy [s]."""
    busy = 0.0
    for w in range(len(p.window)):
        tokens = min(q.prompt_tokens[where[3]], p.window[w])
        busy += p.kv_busy[where[0], where[1], where[2], w] * tokens
    return busy


@njit(cache=True, error_model="numpy")
def _send(p: System, s: State, q: Requests, out: Records, i: int) -> None:
    """Send request i's KV cache to its decoder: over what it crosses, first come first served."""
    a, b, now = out.entry[i], out.decoder[i], out.first_token[i]
    start, moving = now, 0.0
    for x in range(p.kv_busy.shape[2]):
        busy = _kv_busy(p, q, (a, b, x, i))
        if busy > 0.0:
            start = max(start, s.link_free[x])
            moving = max(moving, busy)
    hidden = p.kv_hidden * p.latency[a, q.prompt[i]]
    exposed = max(p.kv_last[a, b] * moving, moving - hidden)
    for x in range(p.kv_busy.shape[2]):
        busy = _kv_busy(p, q, (a, b, x, i))
        if busy > 0.0:
            s.link_free[x] = start + busy * (exposed / moving)
            s.link_busy_s[x] += busy
    there = start + exposed + p.kv_latency[a, b]
    out.wait_kv[i] = there - now
    _push(s, there, _ARRIVED, i, b)


@njit(cache=True, error_model="numpy")
def _arrive(p: System, s: State, q: Requests, out: Records, i: int, how: tuple[int, bool]) -> None:
    """Give request i to a replica."""
    now, u = q.arrival[i], q.prompt[i]
    r = _entry(p, s, q, i, how[0])
    out.entry[i] = r
    if r < 0:
        return
    s.served[r] += 1.0
    s.pending[r] += q.prompt_tokens[i]
    if p.role[r] == MIXED:
        out.decoder[i] = r
        s.pending[r] += q.output_tokens[i]
        _queue(s, 2 * r, i)
        _wake(p, s, q, out, (r, how[1]), now)
        return
    done = _prefilled_at(p, s, r, u, now)
    for j in range(p.stages[r], p.stages[r + 1]):
        s.stage_free[j] = s.stage_next[j]
    out.first_token[i] = done
    out.wait_prefill[i] = done - now - p.latency[r, u]
    s.busy_s[r] += p.pause[r, u]
    if how[0] == JSQ:
        _assign(p, s, q, out, i, how[0])
    _push(s, done, _PREFILLED, i, r)


@njit(cache=True, error_model="numpy")
def _assign(p: System, s: State, q: Requests, out: Records, i: int, routing: int) -> None:
    """Choose the decoder of request i."""
    tokens = q.prompt_tokens[i] + q.output_tokens[i]
    b = _decoder(p, s, out.entry[i], tokens, routing)
    out.decoder[i] = b
    s.held[b] += 1
    s.pending[b] += q.output_tokens[i]
    s.served_routes[out.entry[i], b] += 1.0


@njit(cache=True, error_model="numpy")
def _happen(p: System, s: State, q: Requests, out: Records, how: tuple[int, bool]) -> None:
    """Deal with the first event of the heap."""
    now, kind, i, r = s.heap_at[0], s.heap_what[0, 0], s.heap_what[0, 1], s.heap_what[0, 2]
    _drop_first(s)
    law = (r, how[1])
    if kind == _PREFILLED:
        s.pending[r] -= q.prompt_tokens[i]
        if out.decoder[i] < 0:
            _assign(p, s, q, out, i, how[0])
        _send(p, s, q, out, i)
    elif kind == _ARRIVED:
        out.wait_decode[i] = now
        _queue(s, 2 * r, i)
        _wake(p, s, q, out, law, now)
    elif kind == _READY:
        s.pending[r] -= q.prompt_tokens[i]
        _queue(s, 2 * r + 1, i)
        _wake(p, s, q, out, law, now)
    elif s.paused_until[r] == now and s.at[r] == np.inf:
        s.began[r] = now
        _resume(p, s, q, out, law)


@njit(cache=True, error_model="numpy")
def run(p: System, s: State, q: Requests, out: Records, how: tuple[int, bool]) -> None:
    """Run all requests to their end; how = (routing, step times at the mean context).

    Of events at one time, ends of rounds come first, then what was planned first, then arrivals.
    """
    i = 0
    while True:
        r, soonest = 0, np.inf
        for k in range(len(p.role)):
            if s.at[k] < soonest:
                r, soonest = k, s.at[k]
        at = s.heap_at[0] if s.heap_size[0] > 0 else np.inf
        arrival = q.arrival[i] if i < len(q.arrival) else np.inf
        if soonest == np.inf and at == np.inf and arrival == np.inf:
            return
        if soonest <= at and soonest <= arrival:
            _end_rounds(p, s, q, out, (r, how[1]))
        elif at <= arrival:
            _happen(p, s, q, out, how)
        else:
            _arrive(p, s, q, out, i, how)
            i += 1
