"""docs/simulator.md once more as SimPy processes, chunk by chunk and token by token.

Written from the documentation alone; shares nothing with the package but the domain objects, and
takes layer times and hops from the plain oracles. Replicas are rows, times in seconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import simpy

from tests.simulate.times import Replica, Times

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from tests.oracles import Thing, World

    Process = Generator[simpy.Event, Any, None]


@dataclass(eq=False)
class Request:
    """One request and what became of it."""

    arrival: float
    prompt: int
    output: int
    entry: int = -1
    decoder: int = -1
    wait_prefill: float = math.nan
    wait_kv: float = 0.0
    wait_decode: float = math.nan
    first_token: float = math.nan
    ready: float = math.nan
    join: float = math.nan
    finish: float = math.nan
    steps: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt + self.output


# ---------------------------------------------------------------- replicas


class Prefiller:
    """A PREFILL replica: a worker a stage, prompts in the order of arrival."""

    def __init__(self, env: simpy.Environment, times: Times, replica: Replica) -> None:
        self.env, self.times, self.replica = env, times, replica
        self.is_pipelined = times.world.problem.runtime.is_pipelined
        self.stages = [simpy.Store(env) for _ in (replica.cut if self.is_pipelined else [0])]
        self.free = [0.0] * len(self.stages)
        self.pending: list[Request] = []
        for j in range(len(self.stages)):
            env.process(self._stage(j))

    def give(self, request: Request) -> simpy.Event:
        """Put the chunks before the first stage; the event is the first token."""
        done = self.env.event()
        done.callbacks.append(lambda _: self.pending.remove(request))
        self.free, _ = self._foresee(request.prompt)
        self.pending.append(request)
        chunks = self._chunks(request.prompt)
        for times in chunks[:-1]:
            self.stages[0].put((times, None))
        self.stages[0].put((chunks[-1], done))
        return done

    def _chunks(self, prompt: int) -> list[list[float]]:
        chunk = self.times.chunks(self.replica, prompt)
        num = self.times.world.num_chunks(prompt)
        return [chunk] * num if self.is_pipelined else [[num * sum(chunk)]]

    def _stage(self, j: int) -> Process:
        while True:
            times, done = yield self.stages[j].get()
            yield self.env.timeout(times[j])
            if j + 1 < len(self.stages):
                self.stages[j + 1].put((times, done))
            elif done is not None:
                done.succeed()

    def wait(self, prompt: int) -> float:
        """What the prompt would wait before and between stages, came it now."""
        _, end = self._foresee(prompt)
        return end - self.env.now - self.times.latency(self.replica, prompt)

    def _foresee(self, prompt: int) -> tuple[list[float], float]:
        free = list(self.free)
        at = self.env.now
        for times in self._chunks(prompt):
            at = self.env.now
            for j, time in enumerate(times):
                at = free[j] = max(at, free[j]) + time
        return free, at


class Decoder:
    """A DECODE or MIXED replica: one round after another."""

    def __init__(self, env: simpy.Environment, times: Times, replica: Replica) -> None:
        self.env, self.times, self.replica = env, times, replica
        self.is_mixed = replica.role == "MIXED"
        self.queue: deque[Request] = deque()
        self.prefilled: deque[Request] = deque()
        self.batch: list[Request] = []
        self.held: list[Request] = []
        self.coming: list[Request] = []  # sent here, KV cache not here yet
        self.sent: list[Request] = []  # all that are not finished
        self.paused_until = 0.0
        self.bell = env.event()
        self.busy_s = 0.0
        env.process(self._run())

    @property
    def room(self) -> int:
        return self.replica.slots * self.replica.max_context

    def give(self, request: Request) -> None:
        self.queue.append(request)
        self._ring()

    def _ring(self) -> None:
        if not self.bell.triggered:
            self.bell.succeed()

    def _admits(self) -> bool:
        if not self.queue or len(self.held) == self.replica.slots:
            return False
        return sum(r.tokens for r in self.held) + self.queue[0].tokens <= self.room

    def _join(self, request: Request) -> None:
        request.join = self.env.now
        request.wait_decode = self.env.now - request.ready
        self.batch.append(request)

    def _run(self) -> Process:
        while True:
            while self.prefilled:
                self._join(self.prefilled.popleft())
            if self._admits():
                request = self.queue.popleft()
                self.held.append(request)
                if self.is_mixed:
                    yield from self._pause(request)
                else:
                    self._join(request)
            elif self.batch:
                yield from self._round()
            else:
                self.bell = self.env.event()
                yield self.bell

    def _round(self) -> Process:
        round_s = self.times.round(self.replica, [r.prompt + r.steps for r in self.batch])
        self.busy_s += round_s * len(self.batch)
        yield self.env.timeout(round_s)
        for request in list(self.batch):
            request.steps += 1
            if request.steps == request.output:
                request.finish = self.env.now
                self.batch.remove(request)
                self.held.remove(request)
                self.sent.remove(request)

    def _pause(self, request: Request) -> Process:
        request.wait_prefill = self.env.now - request.arrival
        pause = self.times.pause(self.replica, request.prompt)
        self.paused_until = self.env.now + pause
        done = self.env.process(self._prefill(request))
        yield self.env.timeout(pause)
        if pause == self.times.latency(self.replica, request.prompt):
            yield done  # both at one moment

    def _prefill(self, request: Request) -> Process:
        yield self.env.timeout(self.times.latency(self.replica, request.prompt))
        request.first_token = request.ready = self.env.now
        self.prefilled.append(request)
        self._ring()

    @property
    def present(self) -> int:
        """Requests that are here or on their way here."""
        return len(self.held) + len(self.queue) + len(self.coming)

    def wait(self, prompt: int) -> float:
        """Return the expected wait of one more request."""
        surplus = self.present + 1 - self.replica.slots
        wait = surplus / self.times.rate(self.replica) if surplus > 0 else 0.0
        if self.is_mixed:
            left = max(self.paused_until - self.env.now, 0.0)
            pauses = len(self.queue) * self.times.pause(self.replica, prompt)
            wait = max(wait, left + pauses)
        return wait

    def next_round(self) -> float:
        n = min(self.present + 1, self.replica.slots)
        return self.times.best_round(self.replica, n)[1]


# ---------------------------------------------------------------- the whole


class Model:
    """Everything together; :meth:`run` fills in the requests."""

    def __init__(
        self,
        world: World,
        replicas: Sequence[Replica],
        *,
        routing: str = "shortest-wait",
        mean_context: bool = False,
        route_rates: Mapping[tuple[int, int], float] | None = None,
    ) -> None:
        self.env = simpy.Environment()
        self.replicas, self.routing = replicas, routing
        self.times = Times(world, mean_context)
        self.route_rates = route_rates or {}
        self.prefillers = {
            r: Prefiller(self.env, self.times, replica)
            for r, replica in enumerate(replicas)
            if replica.role == "PREFILL"
        }
        self.decoders = {
            r: Decoder(self.env, self.times, replica)
            for r, replica in enumerate(replicas)
            if replica.role != "PREFILL"
        }
        self.free_at: dict[Thing, float] = {}
        self.opened: dict[int, float] = {}
        self.served = dict.fromkeys(range(len(replicas)), 0)
        self.served_routes: dict[tuple[int, int], int] = {}

    def run(self, requests: Sequence[Request]) -> None:
        self.env.process(self._arrive(requests))
        self.env.run()

    def _arrive(self, requests: Sequence[Request]) -> Process:
        for request in requests:
            yield self.env.timeout(request.arrival - self.env.now)
            entry, decoder = self._choose(request)
            request.entry = entry
            if entry < 0:
                continue
            self.served[entry] += 1
            if entry in self.decoders:
                request.decoder = entry
                self.decoders[entry].sent.append(request)
                self.decoders[entry].give(request)
            else:
                self.env.process(self._disaggregated(request, decoder))

    def _disaggregated(self, request: Request, decoder: int) -> Process:
        prefiller = self.prefillers[request.entry]
        if decoder >= 0:
            self.decoders[decoder].sent.append(request)
        yield prefiller.give(request)
        request.first_token = self.env.now
        alone = self.times.latency(prefiller.replica, request.prompt)
        request.wait_prefill = request.first_token - request.arrival - alone
        if decoder < 0:
            decoder = self._decoder_for(request.entry, request, self.env.now)
            self.decoders[decoder].sent.append(request)
        request.decoder = decoder
        key = request.entry, decoder
        self.served_routes[key] = self.served_routes.get(key, 0) + 1
        target = self.decoders[decoder]
        target.coming.append(request)
        arrival, free = self._transfer(request, request.entry, decoder, self.env.now)
        self.free_at.update(free)
        request.wait_kv = arrival - self.env.now
        yield self.env.timeout(request.wait_kv)
        request.ready = self.env.now
        target.coming.remove(request)
        target.give(request)

    def _transfer(
        self, request: Request, source: int, target: int, done: float
    ) -> tuple[float, dict[Thing, float]]:
        """When a cache is there that is complete at *done*, and what is free again when."""
        prefill, decode = self.replicas[source], self.replicas[target]
        busy, latency, last = self.times.transfer(prefill, decode, request.prompt)
        if not self.times.world.problem.runtime.layerwise_kv:
            last = 0.0
        start = done - self.times.hidden(prefill, request.prompt)
        start = max(start, self.opened.get(target, 0.0))
        start = max([start, *(self.free_at.get(thing, 0.0) for thing in busy)])
        free = {thing: max(start + time, done + last * time) for thing, time in busy.items()}
        return max(free.values()) + latency, free

    # ------------------------------------------------------------ routing

    def _fitting(self, request: Request, role: str) -> list[int]:
        need = request.prompt if role == "PREFILL" else request.tokens
        return [
            r
            for r, own in enumerate(self.replicas)
            if own.role == role and need <= own.slots * own.max_context
        ]

    def _choose(self, request: Request) -> tuple[int, int]:
        """(entry, decoder); a decoder of -1 is chosen when the prefill is done."""
        choices = self._fitting(request, "MIXED")
        if self._fitting(request, "DECODE"):
            choices += self._fitting(request, "PREFILL")
        if not choices:
            return -1, -1
        choices.sort()
        if self.routing == "jsq":
            return self._fewest_pending(choices, request)
        if self.routing == "plan":
            return least(choices, lambda r: (self._lag(self.served[r], self.replicas[r].rate),)), -1
        return least(choices, lambda r: self._expected(r, request)), -1

    @staticmethod
    def _lag(served: int, rate: float) -> float:
        return (served + 1) / rate

    def _expected(self, r: int, request: Request) -> tuple[float, float]:
        """(wait, prefill and decoding) were the request given to replica r."""
        replica = self.replicas[r]
        alone = self.times.latency(replica, request.prompt)
        if r in self.decoders:
            target = self.decoders[r]
            return target.wait(request.prompt), alone + request.output * target.next_round()
        prefill = self.prefillers[r].wait(request.prompt)
        done = self.env.now + prefill + alone
        d = self._decoder_for(r, request, done)
        wait, step = self._expected_after(r, d, request, done)
        return prefill + wait, alone + step

    def _expected_after(
        self, entry: int, d: int, request: Request, done: float
    ) -> tuple[float, float]:
        """(KV transfer and wait at decoder d, decoding) after a prefill that is over at *done*."""
        arrival, _ = self._transfer(request, entry, d, done)
        target = self.decoders[d]
        return arrival - done + target.wait(request.prompt), request.output * target.next_round()

    def _decoder_for(self, entry: int, request: Request, done: float) -> int:
        choices = self._fitting(request, "DECODE")
        if self.routing == "plan":
            return least(
                choices,
                lambda d: (
                    self._lag(self.served_routes.get((entry, d), 0), self.route_rates[entry, d]),
                ),
            )
        return least(choices, lambda d: self._expected_after(entry, d, request, done))

    def _fewest_pending(self, choices: Sequence[int], request: Request) -> tuple[int, int]:
        def pending(r: int) -> float:
            if r in self.prefillers:
                return sum(q.prompt for q in self.prefillers[r].pending)
            total = sum(q.output for q in self.decoders[r].sent)
            if self.decoders[r].is_mixed:
                total += sum(q.prompt for q in self.decoders[r].sent if math.isnan(q.first_token))
            return total

        decoders = self._fitting(request, "DECODE")
        best = min(decoders, key=pending, default=-1)
        entry = min(
            choices, key=lambda r: pending(r) + (pending(best) if r in self.prefillers else 0)
        )
        return entry, best if entry in self.prefillers else entry


def least(choices: Sequence[int], key: Callable[[int], tuple[float, ...]]) -> int:
    """Return the first with the smallest key; times less than a nanosecond apart are equal."""
    best = -1
    values: tuple[float, ...] = (math.inf,)
    for choice in choices:
        mine = key(choice)
        for new, old in zip(mine, values, strict=False):
            if abs(new - old) > 1e-9:
                if new < old:
                    best, values = choice, mine
                break
    return best
