"""A replica that is gone: its requests leave the event loop, with what had been computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.simulate.arrays import COMING, DECODE, MIXED, PREFILL, PREFILLED, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from e2llm_opt.simulate.arrays import Row, Run


NOWHERE = -1
"""The last row of a run whose replicas come and go: no replica, but where KV caches are on their
way to that no decoder takes."""


class Lost(NamedTuple):
    """A request that a replica lost, and the tokens that had been computed there and before."""

    request: int
    tokens: int


def inside(w: Run, r: int, queue: int) -> list[int]:
    """Return the requests in a queue of replica *r*, the first one first."""
    found, i = [], int(w.queues[r, queue]["head"])
    for _ in range(int(w.queues[r, queue]["length"])):
        found.append(i)
        i = int(w.requests[i]["behind"])
    return found


def on_the_way(w: Run, r: int) -> list[tuple[int, int]]:
    """Return (decoder, request) of the KV caches on their way from PREFILL replica *r*."""
    decoders = np.flatnonzero(w.replicas["role"] == DECODE).tolist()
    return [(b, i) for b in decoders for i in inside(w, b, COMING) if w.requests[i]["entry"] == r]


def stranded(w: Run, r: int) -> list[int]:
    """Return prompts that PREFILL replica *r* is done with, and that no decoder could take."""
    return [i for i in inside(w, NOWHERE, COMING) if w.requests[i]["entry"] == r]


def lose(w: Run, r: int, now: float) -> list[Lost]:
    """Empty replica *r* as it is at *now*, and return what was inside.

    KV caches on their way to or from it are lost, too; links are free again when the last of
    the others that cross them is there. Whoever calls this notes when something happens next.
    """
    a, lost = w.replicas[r], list[Lost]()
    freed: set[tuple[int, int]] = set()
    if a["role"] == PREFILL:
        prompts = inside(w, r, WAITING)
        lost += [Lost(i, _prefilled(w, r, i, now)) for i in prompts]
        lost += leave(w, r)
        _unbook(w, r, prompts, now)
        for i in prompts:
            if w.requests[i]["decoder"] >= 0:
                w.replicas[w.requests[i]["decoder"]]["pending"] -= w.requests[i]["output_tokens"]
        for b, i in on_the_way(w, r):
            lost.append(Lost(i, int(w.requests[i]["prompt_tokens"])))
            _turn_away(w, b, i)
            freed.add((r, b))
    else:
        is_mixed = a["role"] == MIXED
        if a["busy"] > 0 and not a["is_paused"]:
            a["busy_s"] += a["busy"] * (now - a["began"])
        steps = int(a["step"]) + (0 if a["is_paused"] else _rounds(a, now))
        for slot in w.slots[r, : a["busy"]]:
            q = w.requests[slot["request"]]
            done = steps - int(slot["last_step"]) + int(q["output_tokens"])
            lost.append(Lost(int(slot["request"]), int(q["prompt_tokens"]) + done))
        for i in inside(w, r, COMING):
            lost.append(Lost(i, _prefilled(w, r, i, now) if is_mixed else _prompt(w, i)))
            freed.add((int(w.requests[i]["entry"]), r))
        lost += [Lost(i, 0 if is_mixed else _prompt(w, i)) for i in inside(w, r, WAITING)]
        lost += [Lost(i, _prompt(w, i)) for i in inside(w, r, PREFILLED)]
        _forget_decoder(w, r)
    empty(w, r)
    _free_links(w, freed if a["role"] != MIXED else (), now)
    return lost


def forget(w: Run, i: int) -> None:
    """Let request *i* be as if it had not been routed."""
    q = w.requests[i]
    q["entry"] = q["decoder"] = -1
    q["wait_kv"] = 0.0
    for name in ("wait_prefill", "wait_decode", "first_token", "join"):
        q[name] = np.nan


def leave(w: Run, r: int) -> list[Lost]:
    """Let prompts out of PREFILL replica *r* that are done and have no decoder."""
    gone = stranded(w, r)
    if gone:
        _line_up(w, NOWHERE, COMING, [i for i in inside(w, NOWHERE, COMING) if i not in gone])
    return [Lost(i, _prompt(w, i)) for i in gone]


def look_again(w: Run, r: int, now: float) -> None:
    """Let prompts of PREFILL replica *r* that are done look for a decoder, before all others."""
    done, rest = [i for i, _ in leave(w, r)], inside(w, r, WAITING)
    if not done:
        return
    _line_up(w, r, WAITING, [*done, *rest])
    w.replicas[r]["pending"] += w.requests["prompt_tokens"][done].sum()
    w.next_at[r] = now


def _line_up(w: Run, r: int, queue: int, requests: list[int]) -> None:
    """Let a queue of replica *r* consist of these requests."""
    own = w.queues[r, queue]
    own["length"] = len(requests)
    for k, behind in zip(requests, [*requests[1:], -1], strict=False):
        w.requests[k]["behind"] = behind
    if requests:
        own["head"], own["tail"] = requests[0], requests[-1]


def empty(w: Run, r: int) -> None:
    """Let replica *r* have nothing inside."""
    a = w.replicas[r]
    for name in ("busy", "kv_used", "step", "rounds", "is_paused", "is_between", "leaves"):
        a[name] = 0
    for name in ("paused_until", "pending"):
        a[name] = 0.0
    w.queues[r]["length"] = 0
    w.next_at[[r, len(w.replicas) + r]] = np.inf
    _recount(w, r, 0)


def _prompt(w: Run, i: int) -> int:
    return int(w.requests[i]["prompt_tokens"])


def _prefilled(w: Run, r: int, i: int, now: float) -> int:
    """Return the tokens of a prompt that are computed: by the share of its time that is over."""
    q = w.requests[i]
    latency = float(w.latency[q["prompt"], r])
    over = 1.0 - (float(q["first_token"]) - now) / latency if latency > 0 else 1.0
    return int(_prompt(w, i) * min(max(over, 0.0), 1.0))


def _rounds(a: Row, now: float) -> int:
    """Return the rounds that a replica has finished since its last event."""
    done = np.arange(int(a["rounds"]) + 1, dtype=np.float64)
    ends = done * a["round"] + a["growth"] * (0.5 * done * (done - 1))
    return max(int(np.searchsorted(ends, now - a["began"], side="right")) - 1, 0)


def _unbook(w: Run, r: int, prompts: list[int], now: float) -> None:
    """Take back the work that PREFILL replica *r* had counted and will not do."""
    if prompts:
        booked = float(w.pause[w.requests["prompt"][prompts], r].sum())
        left = float(w.requests[prompts[-1]]["first_token"]) - now
        w.replicas[r]["busy_s"] -= min(booked, max(left, 0.0))


def _turn_away(w: Run, b: int, i: int) -> None:
    """Expect request *i* no more, whose KV cache was on its way to decoder *b*."""
    left = [k for k in inside(w, b, COMING) if k != i]
    _line_up(w, b, COMING, left)
    soonest = float(w.requests[left[0]]["ready"]) if left else np.inf
    w.next_at[len(w.replicas) + b] = soonest
    w.replicas[b]["pending"] -= w.requests[i]["output_tokens"]
    _recount(w, b, int(w.replicas[b]["present"]) - 1)


def _forget_decoder(w: Run, r: int) -> None:
    """Let prompts that were to be decoded in replica *r* look for another when they are done."""
    for p in np.flatnonzero(w.replicas["role"] == PREFILL).tolist():
        for i in inside(w, p, WAITING):
            if w.requests[i]["decoder"] == r:
                w.requests[i]["decoder"] = -1


def _recount(w: Run, r: int, present: int) -> None:
    """Note what the router sees of replica *r*, as the event loop does."""
    a = w.replicas[r]
    a["present"] = present
    a["slot_wait"] = max(present + 1 - int(a["slots"]), 0) / a["rate"]
    a["next_round"] = w.tpot[r, max(min(present, int(a["slots"]) - 1), 0)]


def _free_links(w: Run, freed: Iterable[tuple[int, int]], now: float) -> None:
    """Free links of routes from lost transfers, up to the last of the others that cross them."""
    links = {int(x) for pair in freed for x in _links(w, pair)}
    until = dict.fromkeys(links, now)
    for b in np.flatnonzero(w.replicas["role"] == DECODE).tolist() if links else ():
        for i in inside(w, b, COMING):
            pair = int(w.requests[i]["entry"]), b
            there = float(w.requests[i]["ready"] - w.routes[pair]["latency"])
            for x in links.intersection(_links(w, pair)):
                until[x] = max(until[x], there)
    for x in links:
        w.links[x]["free"] = min(float(w.links[x]["free"]), until[x])


def _links(w: Run, pair: tuple[int, int]) -> list[int]:
    route = w.routes[pair]
    found: list[int] = w.part_link[route["part"] : route["next_part"]].tolist()
    return found
