"""docs/simulator.md once more, replicas that come and go: on top of the plain SimPy model.

What a replica loses is begun anew as another attempt; the lost one runs on without any effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulate.simpy_model import Decoder, Model, Prefiller, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import simpy

    from tests.oracles import World
    from tests.simulate.simpy_model import Process
    from tests.simulate.times import Replica


T = TypeVar("T")


@dataclass(frozen=True)
class Moment:
    """A device fails or recovers, or the replicas in *rows* are those of the plan from then on."""

    at: float
    what: str
    rows: tuple[int, ...]


@dataclass(eq=False)
class Attempt(Request):
    """One try of a request."""

    number: int = 0
    phase: str = "prefill"
    there: float = math.inf
    is_lost: bool = False


@dataclass
class Fate:
    """What became of a request over all its attempts."""

    attempts: list[Attempt] = field(default_factory=list)
    retries: int = 0
    twice: int = 0
    first_token: float = math.nan
    first_join: float = math.nan


class LiveModel(Model):
    """Everything together; :meth:`live` returns the fates."""

    def __init__(
        self,
        world: World,
        replicas: Sequence[Replica],
        *,
        begin: Sequence[int],
        moments: Sequence[Moment],
        drains: bool,
        start_s: float,
        **how: Any,
    ) -> None:
        super().__init__(world, replicas, **how)
        self.moments, self.drains, self.start_s = (
            sorted(moments, key=lambda m: m.at),
            drains,
            start_s,
        )
        self.state = {r: "open" if r in begin else "closed" for r in range(len(replicas))}
        self.loaded_at: dict[int, float] = {}
        self.wanted = list(begin)
        self.down: set[int] = set()
        self.due: list[Moment] = []
        self.done: list[Attempt] = []
        self.held: list[int] = []
        self.num_opened = 0
        self.stranded: dict[int, list[Attempt]] = {r: [] for r in self.prefillers}
        self.fallback = False

    def live(self, requests: Sequence[Request]) -> list[Fate]:
        self.requests = requests
        self.fates = [Fate() for _ in requests]
        for moment in self.moments:
            self._note(moment.at, self.due, moment)
        for number, request in enumerate(requests):
            self._note(request.arrival, self.held, number)
        while self.env.peek() < math.inf:
            self.env.step()
            self._finish_moment()
            self._settle()
        return self.fates

    def _note(self, at: float, notes: list[T], value: T) -> None:
        """Let *value* be among the notes when its time has come, which is not rounded."""
        self.env.timeout(at).callbacks.append(lambda _: notes.append(value))

    def _finish_moment(self) -> None:
        while self.done or self.env.peek() <= self.env.now:
            if self.env.peek() <= self.env.now:
                self.env.step()
                continue
            for attempt in sorted(self.done, key=lambda own: own.entry):
                if not self._send(attempt, was_assigned=attempt.decoder >= 0):
                    self.stranded[attempt.entry].append(attempt)
            self.done.clear()

    # ------------------------------------------------------------ moments

    def _fail(self, rows: tuple[int, ...]) -> None:
        self.down.update(rows)
        for r, replica in enumerate(self.replicas):
            if rows[0] in {d for d, _, _ in replica.cut}:
                self._kill(r)

    def _recover(self, rows: tuple[int, ...]) -> None:
        self.down.difference_update(rows)

    def _switch(self, rows: tuple[int, ...]) -> None:
        self.wanted = list(rows)
        for r, state in self.state.items():
            if r in rows and state == "draining":
                self.state[r] = "open"
            elif r not in rows and state == "loading":
                self.state[r] = "closed"
            elif r not in rows and state == "open":
                if self.drains:
                    self.state[r] = "draining"
                else:
                    self._kill(r)
        self._level()

    def _level(self) -> None:
        self.served = dict.fromkeys(self.served, 0)
        self.served_routes = {}

    def _settle(self) -> None:
        """Change what is to be changed, and then route: all else of this moment is over."""
        for moment in self.due:
            getattr(self, f"_{moment.what}")(moment.rows)
        self.due.clear()
        while self._change() or self._place_next():
            self._finish_moment()  # what that starts, the next one must see

    def _change(self) -> bool:
        num = self.num_opened
        loaded = [r for r, state in self.state.items() if state == "loading"]
        self._open(r for r in loaded if self.loaded_at[r] <= self.env.now)
        has_changed = self.num_opened > num
        while self._close_drained() or self._load():
            has_changed = True
        if self.num_opened > num:
            self._look_again()
        return has_changed

    def _close_drained(self) -> bool:
        drained = [r for r, s in self.state.items() if s == "draining" and self._is_drained(r)]
        self.state.update(dict.fromkeys(drained, "closed"))
        return bool(drained)

    def _load(self) -> bool:
        free = []
        for r in self.wanted:
            if self.state[r] == "closed" and self._is_free(r):
                free.append(r)
                self.state[r] = "loading"
                self.loaded_at[r] = self.env.now + self.start_s
                if self.start_s > 0:
                    self.env.timeout(self.start_s)
        if self.start_s == 0:
            self._open(free)
        return bool(free)

    def _open(self, rows: Iterable[int]) -> None:
        for r in rows:
            self.state[r], self.opened[r] = "open", self.env.now
            self.num_opened += 1
            replica = self.replicas[r]
            if replica.role == "PREFILL":
                self.prefillers[r] = Prefiller(self.env, self.times, replica)
            else:
                self.decoders[r] = Decoder(self.env, self.times, replica)
            self._level()

    def _is_free(self, r: int) -> bool:
        own = {d for d, _, _ in self.replicas[r].cut}
        busy = {
            d
            for s, other in enumerate(self.replicas)
            if self.state[s] != "closed"
            for d, _, _ in other.cut
        }
        return not own & (self.down | busy)

    def _is_drained(self, r: int) -> bool:
        inside = list(self._inside(r))
        if self.replicas[r].role == "PREFILL" and all(
            a.phase in {"stranded", "moving"} for a in inside
        ):
            for attempt in list(self.stranded[r]):
                self._lose(attempt, attempt.prompt)
            self.stranded[r] = []
            inside = list(self._inside(r))
        if inside or self.replicas[r].role != "DECODE":
            return not inside
        assigned = [a for a in self._running() if a.decoder == r]
        return not assigned and not any(self._needs(r, a) for a in self._running())

    def _needs(self, r: int, attempt: Attempt) -> bool:
        """Whether decoder r is the last hope of a prompt that is being drained."""
        if attempt.phase not in {"prefill", "stranded"} or attempt.decoder >= 0:
            return False
        if (
            self.replicas[attempt.entry].role != "PREFILL"
            or self.state[attempt.entry] != "draining"
        ):
            return False
        own = self.replicas[r].slots * self.replicas[r].max_context
        return attempt.tokens <= own and not self._fitting(attempt, "DECODE")

    # ------------------------------------------------------------ attempts

    def _running(self) -> Iterator[Attempt]:
        for fate in self.fates:
            if fate.attempts and not fate.attempts[-1].is_lost:
                attempt = fate.attempts[-1]
                if math.isnan(attempt.finish):
                    yield attempt

    def _inside(self, r: int) -> Iterator[Attempt]:
        """Requests and KV caches on their way that are lost with replica r."""
        for attempt in self._running():
            if self.replicas[attempt.entry].role == "MIXED" or attempt.phase in {
                "prefill",
                "stranded",
            }:
                is_in = attempt.entry == r
            elif attempt.phase == "moving":
                is_in = r in {attempt.entry, attempt.decoder}
            else:
                is_in = attempt.decoder == r
            if is_in:
                yield attempt

    def _kill(self, r: int) -> None:
        if self.state[r] == "closed":
            return
        lost = list(self._inside(r))
        moved = [a for a in lost if a.phase == "moving"]
        for attempt in lost:
            self._lose(attempt, self._computed(attempt))
        for attempt in moved:
            if attempt.decoder != r:
                self.decoders[attempt.decoder].coming.remove(attempt)
                self.decoders[attempt.decoder].sent.remove(attempt)
        for attempt in lost:
            if attempt.phase == "prefill" and attempt.decoder not in {-1, r}:
                self.decoders[attempt.decoder].sent.remove(attempt)
        if r in self.stranded:
            self.stranded[r] = []
        for attempt in self._running():
            if attempt.decoder == r and attempt.phase == "prefill":
                attempt.decoder = -1
        self._free({(a.entry, a.decoder) for a in moved})
        self.state[r] = "closed"

    def _lose(self, attempt: Attempt, tokens: int) -> None:
        fate = self.fates[attempt.number]
        attempt.is_lost = True
        fate.retries += 1
        fate.twice += tokens
        if math.isnan(fate.first_token) and attempt.first_token <= self.env.now:
            fate.first_token = attempt.first_token
        if math.isnan(fate.first_join):
            fate.first_join = attempt.join
        self.held.append(attempt.number)

    def _computed(self, attempt: Attempt) -> int:
        replica = self.replicas[attempt.entry]
        if attempt.first_token <= self.env.now:
            return attempt.prompt + attempt.steps
        alone = self.times.latency(replica, attempt.prompt)
        end = attempt.there
        if replica.role == "MIXED":
            if math.isnan(attempt.wait_prefill):
                return 0
            end = attempt.arrival + attempt.wait_prefill + alone
        share = 1 - (end - self.env.now) / alone
        return int(attempt.prompt * min(max(share, 0.0), 1.0))

    def _free(self, pairs: set[tuple[int, int]]) -> None:
        """Free what lost transfers had booked, up to the last of the others that cross it."""
        things = {x for pair in pairs for x in self._things(pair)}
        for thing in things:
            until = self.env.now
            for attempt in self._running():
                pair = attempt.entry, attempt.decoder
                if attempt.phase == "moving" and thing in self._things(pair):
                    latency = self.times.transfer(
                        self.replicas[pair[0]], self.replicas[pair[1]], attempt.prompt
                    )[1]
                    until = max(until, attempt.there - latency)
            self.free_at[thing] = min(self.free_at.get(thing, 0.0), until)

    def _things(self, pair: tuple[int, int]) -> Mapping[Any, float]:
        return self.times.transfer(self.replicas[pair[0]], self.replicas[pair[1]], 1)[0]

    # ------------------------------------------------------------ routing

    def _fitting(self, request: Request, role: str) -> list[int]:
        wanted = "draining" if self.fallback else "open"
        return [r for r in super()._fitting(request, role) if self.state[r] == wanted]

    def _decoder_for(self, entry: int, request: Request, done: float) -> int:
        if self.routing != "jsq":
            return super()._decoder_for(entry, request, done)
        # the one that was chosen at the arrival is gone
        decoders = self._fitting(request, "DECODE")
        sent = {d: sum(q.output for q in self.decoders[d].sent) for d in decoders}
        return min(decoders, key=sent.__getitem__, default=-1)

    def _place_next(self) -> bool:
        return any(self._place(number) for number in sorted(self.held))

    def _place(self, number: int) -> bool:
        entry, decoder = self._choose(self.requests[number])
        if entry < 0:
            return False
        self.held.remove(number)
        self.served[entry] += 1
        own = self.requests[number]
        attempt = Attempt(own.arrival, own.prompt, own.output, number=number, entry=entry)
        self.fates[number].attempts.append(attempt)
        if entry in self.decoders:
            attempt.decoder = entry
            self.decoders[entry].sent.append(attempt)
            self.decoders[entry].give(attempt)
        else:
            if decoder >= 0:
                attempt.decoder = decoder
                self.decoders[decoder].sent.append(attempt)
            done = self.prefillers[entry].give(attempt)  # now: the next one must see it
            attempt.there = max(self.prefillers[entry].free)
            self.env.process(self._two_steps(attempt, done))
        return True

    def _two_steps(self, attempt: Attempt, done: simpy.Event) -> Process:
        prefiller = self.prefillers[attempt.entry]
        yield done
        if attempt.is_lost:
            return
        attempt.first_token = self.env.now
        alone = self.times.latency(prefiller.replica, attempt.prompt)
        attempt.wait_prefill = attempt.first_token - attempt.arrival - alone
        attempt.phase = "stranded"
        self.done.append(attempt)

    def _send(self, attempt: Attempt, *, was_assigned: bool) -> bool:
        if not was_assigned:
            attempt.decoder = self._decoder_for(attempt.entry, attempt, self.env.now)
            if attempt.decoder < 0:
                self.fallback = True
                attempt.decoder = self._decoder_for(attempt.entry, attempt, self.env.now)
                self.fallback = False
            if attempt.decoder < 0:
                return False
            self.decoders[attempt.decoder].sent.append(attempt)
        key = attempt.entry, attempt.decoder
        self.served_routes[key] = self.served_routes.get(key, 0) + 1
        self.decoders[attempt.decoder].coming.append(attempt)
        attempt.there, free = self._transfer(attempt, *key, self.env.now)
        self.free_at.update(free)
        attempt.phase = "moving"
        attempt.wait_kv = attempt.there - attempt.first_token
        self.env.process(self._move(attempt))
        return True

    def _move(self, attempt: Attempt) -> Process:
        yield self.env.timeout(attempt.there - self.env.now)
        if attempt.is_lost:
            return
        attempt.ready, attempt.phase = self.env.now, "there"
        self.decoders[attempt.decoder].coming.remove(attempt)
        self.decoders[attempt.decoder].give(attempt)

    def _look_again(self) -> None:
        for r in sorted(self.stranded):
            self.stranded[r] = [
                a for a in self.stranded[r] if not self._send(a, was_assigned=False)
            ]
