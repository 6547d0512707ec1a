"""A simulation in figures: what the report prints and the JSON answer holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from e2llm_opt.simulate import statistics
from e2llm_opt.simulate.cast import actors_of, costs_for
from e2llm_opt.simulate.usage import usage_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.simulate.course import Course, DeviceSpan
    from e2llm_opt.simulate.simulate import Simulation
    from e2llm_opt.simulate.statistics import Attainment, Spread, Throughput, Trend
    from e2llm_opt.simulate.usage import DeviceUse, LinkUse, ReplicaUse

TIMES: Final = (
    *("waiting_time_s", "wait_prefill_s", "wait_kv_s", "wait_decode_s"),
    *("ttft_s", "tpot_s", "latency_s"),
)
"""Times of a request, by their names in the answer."""
SIMULATION_SCHEMA: Final = "e2llm-opt/simulation/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Requests: all, those of the warm-up, those in the statistics, and those without an answer.

    ``rejected``: no slot can hold it; ``unserved``: it waited in vain for a replica to open.
    """

    simulated: int
    warmup: int
    counted: int
    rejected: int
    unserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What arrived: mean rate [1/s], from the first to the last [s], mean lengths [tokens]."""

    rate_per_s: float
    span_s: float
    prompt_tokens: float
    output_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What changes of the replicas cost: requests begun anew, tokens lost, mean waits [s].

    ``during`` is from the first change to the last, a replica's opening included; a request
    belongs to where it arrived. None where none did.
    """

    from_s: float | None
    until_s: float | None
    requests_retried: int
    retries: int
    tokens_twice: int
    wait_before_s: float | None
    wait_during_s: float | None
    wait_after_s: float | None
    timeline: tuple[DeviceSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A simulation in figures; fields are named and nested as in JSON."""

    schema: Literal["e2llm-opt/simulation/v1"] = SIMULATION_SCHEMA
    requests: Counts
    arrivals: Arrived
    waiting_time_s: Spread
    wait_prefill_s: Spread
    wait_kv_s: Spread
    wait_decode_s: Spread
    ttft_s: Spread
    tpot_s: Spread
    latency_s: Spread
    slo: Attainment
    throughput: Throughput
    trend: Trend
    replicas: tuple[ReplicaUse, ...]
    devices: tuple[DeviceUse, ...]
    links: tuple[LinkUse, ...]
    changes: Disturbance | None

    def to_dict(self) -> dict[str, Any]:
        """Return the answer of ``e2llm-opt simulate --json``."""
        return asdict(self)


def spreads_of(simulation: Simulation) -> dict[str, Spread]:
    """Return the spread of each time over the requests that count, by its name in the answer."""
    counted = simulation.counted
    return {name: statistics.spread(getattr(simulation, name)[counted]) for name in TIMES}


def summarise(simulation: Simulation, plan: Plan, problem: Problem) -> Summary:
    """Return the figures of *simulation*, a run of *plan*, made for *problem*.

    Times and service levels are those of served requests after the warm-up; throughput,
    utilisation and queues are those of the whole run.
    """
    counted, arrivals = simulation.counted, simulation.arrivals
    served = simulation.entry >= 0
    spreads = spreads_of(simulation)
    course = simulation.course
    costs = costs_for([plan], problem) if course is None else course.costs
    actors = actors_of(plan, problem, costs) if course is None else course.actors
    usage = usage_of(costs, actors, simulation)
    return Summary(
        requests=Counts(
            simulated=arrivals.num_requests,
            warmup=simulation.warmup,
            counted=int(counted.sum()),
            rejected=simulation.num_rejected,
            unserved=simulation.num_unserved,
        ),
        arrivals=Arrived(
            rate_per_s=arrivals.rate_per_s,
            span_s=float(arrivals.arrival_s[-1] - arrivals.arrival_s[0]),
            prompt_tokens=float(arrivals.prompt_tokens.mean()),
            output_tokens=float(arrivals.output_tokens.mean()),
        ),
        waiting_time_s=spreads["waiting_time_s"],
        wait_prefill_s=spreads["wait_prefill_s"],
        wait_kv_s=spreads["wait_kv_s"],
        wait_decode_s=spreads["wait_decode_s"],
        ttft_s=spreads["ttft_s"],
        tpot_s=spreads["tpot_s"],
        latency_s=spreads["latency_s"],
        slo=statistics.attainment(
            simulation.ttft_s[counted], simulation.tpot_s[counted], problem.workload
        ),
        throughput=statistics.throughput(
            arrivals.prompt_tokens[served], arrivals.output_tokens[served], simulation.span_s
        ),
        trend=statistics.trend(
            simulation.waiting_time_s[counted], spreads["latency_s"].mean or 0.0
        ),
        replicas=usage.replicas,
        devices=usage.devices,
        links=usage.links,
        changes=None if course is None else _disturbance(simulation, course, problem),
    )


def _disturbance(simulation: Simulation, course: Course, problem: Problem) -> Disturbance:
    arrival_s, counted = simulation.arrivals.arrival_s, simulation.counted
    first, last = course.changed_s
    begin_s = min(0.0, float(arrival_s[0]))
    names = [device.name for device in problem.devices], simulation.names

    def mean(where: NDArray[np.bool_]) -> float | None:
        return statistics.spread(simulation.waiting_time_s[counted & where]).mean

    return Disturbance(
        from_s=first if first <= last else None,
        until_s=last if first <= last else None,
        requests_retried=int((course.retries > 0).sum()),
        retries=int(course.retries.sum()),
        tokens_twice=int(course.tokens_twice.sum()),
        wait_before_s=mean(arrival_s < first),
        wait_during_s=mean((arrival_s >= first) & (arrival_s <= last)),
        wait_after_s=mean((arrival_s > last) & (arrival_s >= first)),
        timeline=course.devices(names, begin_s, max(simulation.end_s, last)),
    )
