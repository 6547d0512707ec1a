"""A simulation in figures: what the report prints and the JSON answer holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.simulate import statistics
from e2llm_opt.simulate.cast import actors_of
from e2llm_opt.simulate.usage import usage_of

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
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
    """Requests: all, those of the warm-up, those in the statistics, those no slot can hold."""

    simulated: int
    warmup: int
    counted: int
    rejected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What arrived: mean rate [1/s], from the first to the last [s], mean lengths [tokens]."""

    rate_per_s: float
    span_s: float
    prompt_tokens: float
    output_tokens: float


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
    usage = usage_of(costs_of(problem), actors_of(plan, problem), simulation)
    return Summary(
        requests=Counts(
            simulated=arrivals.num_requests,
            warmup=simulation.warmup,
            counted=int(counted.sum()),
            rejected=simulation.num_rejected,
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
    )
