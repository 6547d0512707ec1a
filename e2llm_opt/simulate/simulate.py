"""Run a plan on arrivals and say what became of each request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from e2llm_opt.errors import InputError
from e2llm_opt.simulate.arrays import JSQ, SHORTEST, WEIGHTED
from e2llm_opt.simulate.cast import cast_of
from e2llm_opt.simulate.live import Live, nowhere
from e2llm_opt.simulate.system import Systems

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.inventory.network import Resource
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.simulate.arrays import Run
    from e2llm_opt.simulate.changes import Changes
    from e2llm_opt.simulate.course import Course
    from e2llm_opt.simulate.summary import Summary
    from e2llm_opt.simulate.system import Actor
    from e2llm_opt.simulate.timeline import Timeline
    from e2llm_opt.workload.trace import Trace

    Breathe = Callable[[int], None]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Routing = Literal["shortest-wait", "jsq", "plan"]
_ROUTINGS = {"shortest-wait": SHORTEST, "jsq": JSQ, "plan": WEIGHTED}
_STEP = 100_000
"""Requests between two moments at which a run can be interrupted; a fraction of a second."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulation:
    """What became of each request; rows are requests in the order of arrival [n].

    Parameters
    ----------
    arrivals
        What arrived.
    entry, decoder
        Rows of the replicas that prefilled and decoded it; -1: rejected, no slot is long enough.
    wait_prefill_s, wait_kv_s, wait_decode_s
        The three parts of the waiting time: before and between prefill stages, for the KV transfer
        as far as it is not hidden, before a decode slot and the end of a round [s].
    ttft_s, tpot_s, latency_s
        Time to first token, time in a decode slot / output tokens, arrival to last token [s].
    names
        Replicas.
    busy
        Share of the time that each replica worked: slots for those that decode.
    links
        Share of the time that KV transfers kept each link, card or bus busy.
    warmup
        First requests, left out of all statistics.
    course
        What changes of the replicas add; None where there were none.
    """

    arrivals: Trace
    entry: Ints
    decoder: Ints
    wait_prefill_s: Floats
    wait_kv_s: Floats
    wait_decode_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    latency_s: Floats
    names: tuple[str, ...]
    busy: tuple[float, ...]
    links: Mapping[Resource, float]
    warmup: int
    course: Course | None = None

    @property
    def waiting_time_s(self) -> Floats:
        """Time with nothing computed for a request [n] [s]; NaN where it was rejected."""
        return self.wait_prefill_s + self.wait_kv_s + self.wait_decode_s

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Requests that count: served, and after the warm-up [n]."""
        served: NDArray[np.bool_] = self.entry >= 0
        served[: self.warmup] = False
        return served

    @property
    def finish_s(self) -> Floats:
        """Time of the last token [n] [s]; NaN where it was rejected."""
        return self.arrivals.arrival_s + self.latency_s

    @property
    def join_s(self) -> Floats:
        """When it began to decode in the replica that finished it [n] [s]."""
        if self.course is not None:
            return self.course.join_s
        return self.finish_s - self.tpot_s * self.arrivals.output_tokens

    @property
    def came_s(self) -> Floats:
        """When it came to the replica that prefilled it in the end [n] [s]."""
        return self.arrivals.arrival_s if self.course is None else self.course.came_s

    @property
    def span_s(self) -> float:
        """From the first arrival to the last token [s]."""
        return max(self.end_s - float(self.arrivals.arrival_s[0]), 1e-300)

    @property
    def end_s(self) -> float:
        """Time of the last token, or of the last arrival where that is later [s]."""
        return float(np.nanmax(self.finish_s, initial=self.arrivals.arrival_s[-1]))

    def write_records(self, path: str | os.PathLike[str]) -> None:
        """Write one row a request to a ``.csv`` or ``.parquet`` file, times in seconds.

        Raises
        ------
        InputError
            When *path* cannot be written, or pyarrow is missing for Parquet.
        """
        from e2llm_opt.simulate.records import write_records  # noqa: PLC0415 - it imports this one

        write_records(self, path)

    def summary(self, plan: Plan, problem: Problem) -> Summary:
        """Return the figures of this run of *plan*, made for *problem*."""
        from e2llm_opt.simulate.summary import summarise  # noqa: PLC0415 - it imports this module

        return summarise(self, plan, problem)

    @property
    def num_rejected(self) -> int:
        """Requests that no slot is long enough for."""
        return int((self.entry < 0).sum()) - self.num_unserved

    @property
    def num_unserved(self) -> int:
        """Requests that waited for a replica until the end, and none came."""
        return 0 if self.course is None else int(self.course.unserved.sum())


def default_warmup(num_requests: int) -> int:
    """Return the warm-up where none is asked for: 5 % of the requests, none below 1000."""
    return num_requests // 20 if num_requests >= 1000 else 0  # noqa: PLR2004


def simulate(
    plan: Plan,
    problem: Problem,
    arrivals: Trace,
    *,
    routing: Routing = "shortest-wait",
    mean_context: bool = False,
    warmup: int = 0,
    breathe: Breathe | None = None,
    changes: Changes | None = None,
) -> Simulation:
    """Run *plan* on *arrivals*.

    Parameters
    ----------
    plan
        Made for *problem*.
    problem
        Gives the cost model; its arrival rate and length distributions are not used.
    arrivals
        Requests.
    routing
        ``shortest-wait``; ``jsq``: fewest pending tokens, prefill and decode chosen together at
        arrival, as Splitwise does; ``plan``: in proportion to the planned rates.
    mean_context
        Every round takes as long as at the workload's mean context: faster, and what the
        analytical formulas assume.
    warmup
        First requests that statistics leave out.
    breathe
        Called with the number of requests that have arrived, some times a second. Where it raises
        KeyboardInterrupt, no more arrive, and those that have are run to their end.
    changes
        Devices that fail and recover, and plans that take over from *plan*.

    Raises
    ------
    InputError
        When the plan names unknown devices, the routing is unknown, the warm-up leaves nothing, or
        changes make no sense.
    KeyboardInterrupt
        When *breathe* raises it before any request has arrived.

    Notes
    -----
    docs/simulator.md says what happens when.
    """
    if not 0 <= warmup < arrivals.num_requests:
        raise InputError(
            f"the warm-up must leave some of {arrivals.num_requests} requests, got {warmup}."
        )
    if changes is not None:
        changes.check(plan, problem)
    cast = cast_of(plan, problem, changes)
    return Simulator(cast.costs, arrivals).run(
        cast.actors,
        names=cast.names,
        route_rates=cast.route_rates,
        how=(routing, mean_context, warmup),
        breathe=breathe,
        timeline=cast.timeline,
    )


class Simulator:
    """Runs of one problem's replicas on the same arrivals; what runs share is made once.

    Parameters
    ----------
    costs
        Of the problem.
    arrivals
        Requests.
    """

    def __init__(self, costs: Costs, arrivals: Trace) -> None:
        self.arrivals = arrivals
        self._costs = costs
        self._systems = Systems(costs, arrivals)

    def run(
        self,
        actors: Sequence[Actor],
        *,
        names: tuple[str, ...] = (),
        route_rates: Mapping[tuple[int, int], float] | None = None,
        how: tuple[Routing, bool, int] = ("shortest-wait", False, 0),
        breathe: Breathe | None = None,
        timeline: Timeline | None = None,
    ) -> Simulation:
        """Run replicas, which need not be a plan; *how* is (routing, mean context, warm-up).

        With a *timeline* they come and go.

        The rest, and what is raised, is as :func:`simulate` has it.
        """
        routing, mean_context, warmup = how
        if routing not in _ROUTINGS:
            raise InputError(f"routing must be {', '.join(_ROUTINGS)}, got '{routing}'.")
        law = _ROUTINGS[routing], mean_context
        rows = actors if timeline is None else [*actors, nowhere(actors)]
        system, shared = self._systems.build(rows, route_rates, law)
        if timeline is None:
            num, course = _run(system, breathe), None
        else:
            live = Live(system, actors, self._costs, timeline)
            num = live.run(breathe)
            course = live.course(num)
        arrivals, found = self.arrivals.first(num), system.requests[:num]
        end = float(np.nanmax(found["finish"], initial=arrivals.arrival_s[-1]))
        span = max(end - float(arrivals.arrival_s[0]), 1e-300)
        slots = np.maximum(system.replicas["slots"], 1)
        busy = (system.replicas["busy_s"] / slots / span)[: len(actors)]
        links = {
            link: share * float(busy_s) / span
            for alike, busy_s in zip(shared, system.links["busy_s"], strict=False)
            for link, share in alike
        }
        return Simulation(
            arrivals=arrivals,
            entry=found["entry"],
            decoder=found["decoder"],
            wait_prefill_s=found["wait_prefill"],
            wait_kv_s=found["wait_kv"],
            wait_decode_s=found["wait_decode"],
            ttft_s=found["first_token"] - arrivals.arrival_s,
            tpot_s=(found["finish"] - found["join"]) / arrivals.output_tokens,
            latency_s=found["finish"] - arrivals.arrival_s,
            names=names or tuple(f"r{r}" for r in range(len(actors))),
            busy=tuple(busy.tolist()),
            links=links,
            warmup=warmup if warmup < num else 0,
            course=course,
        )


def _run(system: Run, breathe: Breathe | None) -> int:
    """Run *system* to its end and return the requests that arrived: all, unless interrupted."""
    from e2llm_opt.simulate.kernel import run  # noqa: PLC0415 - numba takes long to load

    total = len(system.requests)
    if breathe is None:
        run(system, 0, total, np.inf)
        return total
    for first in range(0, total, _STEP):
        try:
            breathe(first)
        except KeyboardInterrupt:
            if first == 0:
                raise
            run(system, first, first, np.inf)
            return first
        until = min(first + _STEP, total)
        stop = system.requests["arrival"][until] if until < total else np.inf
        run(system, first, until, stop)
    return total
