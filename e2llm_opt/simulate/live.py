"""Replicas that come and go: they load, open, take requests, are drained, or are gone at once.

The event loop stops at every moment where something changes, and whenever a replica that is being
drained has become empty; what a change does is done here, between two of its runs.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.problem import Role
from e2llm_opt.simulate.arrays import BLOCK, CLOSED, DECODE, LEAVING, PREFILL, WAITING
from e2llm_opt.simulate.course import Course, Span, State
from e2llm_opt.simulate.lost import (
    NOWHERE,
    Lost,
    empty,
    forget,
    inside,
    leave,
    look_again,
    lose,
    on_the_way,
    stranded,
)
from e2llm_opt.simulate.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.simulate.arrays import Run
    from e2llm_opt.simulate.system import Actor
    from e2llm_opt.simulate.timeline import Moment, Timeline


_STEP = 100_000
"""Requests between two moments at which a run can be interrupted; a fraction of a second."""


def nowhere(actors: Sequence[Actor]) -> Actor:
    """Return what stands behind *actors* as the last row; no route leads there."""
    return replace(actors[0], role=Role.MIXED, slots=1)


class Live:
    """One run of replicas that come and go.

    Parameters
    ----------
    system
        All replicas that there ever are, all open, and :func:`nowhere`; changed by the run.
    actors
        The same replicas.
    costs
        Say how many bytes a replica loads.
    timeline
        What changes.
    """

    def __init__(
        self, system: Run, actors: Sequence[Actor], costs: Costs, timeline: Timeline
    ) -> None:
        self._w, self._actors, self._timeline = system, tuple(actors), timeline
        self._devices = [set(costs.units.devices(actor.cut)) for actor in actors]
        self._costs = costs
        self._weights = Weights(costs, actors, (timeline.load_bytes_per_s, timeline.start_s))
        num, total = len(actors), len(system.requests)
        self._states = [State.CLOSED] * num
        self._since = [-np.inf] * num
        self._wanted = timeline.begin
        self._gone: dict[int, float] = {}
        self._spans: list[Span] = []
        self._down: list[Span] = []
        self._arrival = system.requests["arrival"].copy()
        self._first_token = np.full(total, np.nan)
        self._first_join = np.full(total, np.nan)
        self._retries = np.zeros(total, np.int64)
        self._twice = np.zeros(total, np.int64)
        self._num = 0
        self._tick = count()
        self._ticks: dict[int, int] = {}
        self._later: list[tuple[float, int, int]] = []
        self._changed: list[float] = []
        system.replicas["face"] = CLOSED
        system.replicas["kv_tokens"][NOWHERE] = -1
        for r in timeline.begin:
            self._open(r, -np.inf)

    # ------------------------------------------------------------ the run

    def run(self, breathe: Callable[[int], None] | None) -> int:
        """Run to the end, and return how many requests arrived: all, unless interrupted."""
        from e2llm_opt.simulate.kernel import run  # noqa: PLC0415 - numba takes long to load

        w, moments = self._w, list(self._timeline.moments)
        total = len(w.requests)
        if breathe is not None:
            breathe(0)
        while True:
            change = min(
                moments[0].at_s if moments else np.inf, self._later[0][0] if self._later else np.inf
            )
            until = int(np.searchsorted(self._arrival[:total], change, side="left"))
            stop = change
            if breathe is not None and until > self._num + _STEP:
                until = self._num + _STEP
                stop = float(self._arrival[until])
            i, now = run(w, self._num, until, stop)
            self._num = int(i)
            if now < change:
                self._settle(now)  # also where it breathes: one may have become empty just then
                if breathe is not None and now == stop:
                    total = self._breathe(breathe, total)
            elif change == np.inf:
                return total
            else:
                self._change(change, moments)

    def _breathe(self, breathe: Callable[[int], None], total: int) -> int:
        """Return how many requests there are: no more where *breathe* is interrupted."""
        try:
            breathe(self._num)
        except KeyboardInterrupt:
            return self._num
        return total

    def _change(self, now: float, moments: list[Moment]) -> None:
        """Do all that happens at this moment."""
        while moments and moments[0].at_s == now:
            moment = moments.pop(0)
            self._changed.append(now)
            {"fail": self._fail, "recover": self._recover, "switch": self._switch}[moment.what](
                moment, now
            )
        while self._later and self._later[0][0] == now:
            _, tick, r = heapq.heappop(self._later)
            if self._states[r] is State.LOADING and self._ticks[r] == tick:
                self._set(r, State.OPEN, now)
                self._open(r, now)
        self._settle(now)

    def _settle(self, now: float) -> None:
        """Close what is drained, load what can be loaded, and route what waits for a replica."""
        while self._close_drained(now) or self._load(now) or self._route(now):
            pass  # what is closed frees devices, and what opens lets others be drained

    def _close_drained(self, now: float) -> bool:
        """Close what is drained; say whether anything was."""
        draining = [r for r, state in enumerate(self._states) if state is State.DRAINING]
        drained = [r for r in draining if self._is_drained(r, now)]
        for r in drained:
            self._close(r, now)
        return bool(drained)

    def _load(self, now: float) -> bool:
        """Begin to load what is wanted and can be; say whether anything opens at once."""
        opened = False
        for r in self._wanted:
            if self._states[r] is State.CLOSED and self._is_free(r):
                load_s = self._weights.load_s(r)
                self._set(r, State.LOADING, now)
                if load_s > 0:
                    self._look(r, now + load_s)
                else:
                    self._set(r, State.OPEN, now)
                    self._open(r, now)
                    opened = True
        return opened

    # ------------------------------------------------------------ moments

    def _fail(self, moment: Moment, now: float) -> None:
        (d,) = moment.rows
        self._gone[d] = now
        self._weights.forget([d])
        for r, state in enumerate(self._states):
            if d in self._devices[r] and state is not State.CLOSED:
                self._kill(r, now)
                self._weights.forget(self._devices[r])

    def _recover(self, moment: Moment, now: float) -> None:
        (d,) = moment.rows
        self._down.append(Span(row=d, state=State.DOWN, from_s=self._gone.pop(d), until_s=now))

    def _switch(self, moment: Moment, now: float) -> None:
        self._wanted = moment.rows
        if moment.shares is not None:
            num = len(self._actors)
            self._w.replicas["share"][:num] = moment.shares.replicas
            self._w.routes["share"][:num, :num] = moment.shares.routes
        for r, state in enumerate(self._states):
            if r in moment.rows:
                if state is State.DRAINING:
                    self._set(r, State.OPEN, now)
                    self._w.replicas[r]["leaves"] = 0
                    self._w.replicas[r]["face"] = self._w.replicas[r]["role"]
            elif state is State.LOADING:
                self._set(r, State.CLOSED, now)
                self._weights.forget(self._devices[r])
            elif state is State.OPEN and self._timeline.drains:
                self._set(r, State.DRAINING, now)
                a = self._w.replicas[r]
                a["leaves"], a["face"] = 1, LEAVING if a["role"] == DECODE else CLOSED
            elif state is State.OPEN:
                self._kill(r, now)
        self._level()

    # ------------------------------------------------------------ replicas

    def _open(self, r: int, now: float) -> None:
        """Let an empty replica take requests, and prompts leave that waited for a decoder."""
        w, a = self._w, self._w.replicas[r]
        a["face"], a["opened"], a["began"] = a["role"], now, now
        w.stages["free"][a["stage"] : a["next_stage"]] = max(now, 0.0)
        self._states[r], self._since[r] = State.OPEN, now
        self._weights.hold(r)
        if now > -np.inf:
            self._changed.append(now)
            self._level()
        for p in np.flatnonzero(w.replicas["role"] == PREFILL).tolist():
            look_again(w, p, now)

    def _close(self, r: int, now: float) -> None:
        self._set(r, State.CLOSED, now)
        self._w.replicas[r]["face"] = CLOSED
        empty(self._w, r)

    def _kill(self, r: int, now: float) -> None:
        """Lose what is inside replica *r*; it is routed anew when all changes are done."""
        self._lose(lose(self._w, r, now), now)
        self._close(r, now)

    def _lose(self, lost: Iterable[Lost], now: float) -> None:
        """Note what was lost, and what the user has of it."""
        for i, tokens in lost:
            q = self._w.requests[i]
            if np.isnan(self._first_token[i]) and q["first_token"] <= now:
                self._first_token[i] = q["first_token"]
            if np.isnan(self._first_join[i]):
                self._first_join[i] = q["join"]
            self._retries[i] += 1
            self._twice[i] += tokens
            forget(self._w, i)

    def _set(self, r: int, state: State, now: float) -> None:
        """Let replica *r* be in a new state, and keep the span of the last one."""
        if self._states[r] is not State.CLOSED and now > self._since[r]:
            last = self._states[r]
            self._spans.append(Span(row=r, state=last, from_s=self._since[r], until_s=now))
        self._states[r], self._since[r] = state, now

    def _look(self, r: int, at_s: float) -> None:
        """Come back to replica *r* at a later moment."""
        tick = next(self._tick)
        self._ticks[r] = tick
        heapq.heappush(self._later, (at_s, tick, r))

    def _is_free(self, r: int) -> bool:
        """Whether nobody else is on the devices of replica *r*, and all of them are there."""
        own = self._devices[r]
        others = (s for s, state in enumerate(self._states) if state is not State.CLOSED)
        return own.isdisjoint(self._gone) and all(own.isdisjoint(self._devices[s]) for s in others)

    def _is_drained(self, r: int, now: float) -> bool:
        """Whether nothing is left inside; prompts that no decoder takes are routed anew."""
        w = self._w
        if w.replicas[r]["pending"] > 0:
            return False
        if w.replicas[r]["role"] == PREFILL:
            self._lose(leave(w, r), now)
            there = [float(w.requests[i]["ready"]) for _, i in on_the_way(w, r)]
            if there:
                self._look(r, max(there))
            return not there
        return w.replicas[r]["role"] != DECODE or not self._is_needed(r)

    def _is_needed(self, r: int) -> bool:
        """Whether decoder *r* could take some prompt that is being drained, and no open one can."""
        w = self._w
        decoders = np.flatnonzero(w.replicas["face"] == DECODE)
        for p, state in enumerate(self._states):
            if state is State.DRAINING and w.replicas[p]["role"] == PREFILL:
                reached = decoders[w.routes["latency"][p, decoders] < np.inf]
                most = int(w.replicas["kv_tokens"][reached].max(initial=-1))
                prompts = w.requests[[*inside(w, p, WAITING), *stranded(w, p)]]
                needs = prompts["prompt_tokens"] + prompts["output_tokens"]
                own = w.replicas[r]["kv_tokens"] if w.routes["latency"][p, r] < np.inf else -1
                if bool(((prompts["decoder"] < 0) & (needs > most) & (needs <= own)).any()):
                    return True
        return False

    # ------------------------------------------------------------ requests

    def _level(self) -> None:
        """Let the routing ``plan`` count anew: nobody makes up for when it was not there."""
        self._w.replicas["served"] = 0.0
        self._w.routes["served"] = 0.0

    def _route(self, now: float) -> bool:
        """Route what no replica could take before, in the order of arrival.

        Prompts that look for a decoder again come first. Says whether a replica that is being
        drained became empty by that, before which it stops.
        """
        from e2llm_opt.simulate.kernel import run  # noqa: PLC0415 - numba takes long to load

        w, held = self._w, np.flatnonzero(self._w.requests["entry"][: self._num] < 0)
        w.requests["arrival"][held] = now
        self._note_next()
        before = self._empty()
        run(w._replace(order=held), 0, len(held), now)
        return not self._empty() <= before

    def _empty(self) -> set[int]:
        """Return the replicas that are being drained and have no more to do."""
        a = self._w.replicas
        return set(np.flatnonzero((a["leaves"] == 1) & (a["pending"] == 0)).tolist())

    def _note_next(self) -> None:
        """Note when something happens next, at each replica and in each block of them."""
        w, num = self._w, len(self._w.replicas)
        w.soonest[:num] = np.minimum(w.next_at[:num], w.next_at[num:])
        w.block_soonest[:] = w.soonest.reshape(-1, BLOCK).min(axis=1)

    # ------------------------------------------------------------ the answer

    def course(self, total: int) -> Course:
        """Return what became of everything; completes the requests, of which *total* arrived."""
        found = self._w.requests[:total]
        arrival = self._arrival[:total]
        unfinished = np.isnan(found["finish"])
        for i in np.flatnonzero(unfinished).tolist():
            forget(self._w, i)
        came, join = found["arrival"].copy(), found["join"].copy()
        found["wait_prefill"] += came - arrival
        for name, first in (("first_token", self._first_token), ("join", self._first_join)):
            earlier = first[:total]
            found[name] = np.where(np.isnan(earlier) | unfinished, found[name], earlier)
        found["arrival"] = arrival
        end = float(np.nanmax(found["finish"], initial=arrival[-1]))
        end = max([end, *(at for at in self._changed)])
        for r, state in enumerate(self._states):
            self._set(r, state, end)
        down = [
            Span(row=d, state=State.DOWN, from_s=at, until_s=end) for d, at in self._gone.items()
        ]
        return Course(
            costs=self._costs,
            actors=self._actors,
            retries=self._retries[:total],
            tokens_twice=self._twice[:total],
            unserved=unfinished & self._could_be_taken(found),
            came_s=came,
            join_s=join,
            spans=tuple(self._spans),
            down=(*self._down, *down),
            changed_s=(min(self._changed, default=np.inf), max(self._changed, default=-np.inf)),
        )

    def _could_be_taken(self, found: NDArray[np.void]) -> NDArray[np.bool_]:
        """Return whether some replica, were it there, could take a request [n]."""
        w = self._w
        tokens = found["prompt_tokens"] + found["output_tokens"]
        roles = w.replicas["role"]
        most = int(w.replicas["kv_tokens"][(roles != PREFILL) & (roles != DECODE)].max(initial=-1))
        could: NDArray[np.bool_] = tokens <= most
        for a, b in np.argwhere(w.routes["latency"] < np.inf).tolist():
            prompt, whole = w.replicas["kv_tokens"][[a, b]]
            could |= (found["prompt_tokens"] <= prompt) & (tokens <= whole)
        return could
