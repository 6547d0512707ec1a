"""Plans that are compared, printed or searched, and what a simulation says of each."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from unittest import mock

import numpy as np

from benchmarks.reproduction import printed
from benchmarks.reproduction.setting import joined, later
from e2llm_opt.check.check import check
from e2llm_opt.check.complete import completed
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.pipeline import Decode, decode_stages
from e2llm_opt.planners import planner_named
from e2llm_opt.search.rank_by_simulation import actors_of_outcome
from e2llm_opt.search.stop import Stop
from e2llm_opt.simulate.cast import actors_of
from e2llm_opt.simulate.simulate import Simulator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt import Problem
    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.simulate.simulate import Routing, Simulation
    from e2llm_opt.simulate.system import Actor
    from e2llm_opt.workload.trace import Trace

OVERLOAD_PER_S: Final = 1e3
"""No plan serves so much, so that planners look for capacity."""
WHOLE: Final = Stop()
"""Searches end by themselves."""
_EMPTY_S: Final = 2e4
"""After so long the slowest plan has served its last request."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """Replicas as they run.

    Parameters
    ----------
    name
        Whose plan it is.
    problem
        Gives the cost model.
    actors
        The replicas.
    capacity_per_s
        By the formulas [requests/s].
    routing
        ``shortest-wait`` unless a planner's own routing is asked for.
    has_paper_batches
        As many micro-batches as stages, as the paper runs its pipelines, in place of the best.
    outcome
        As a search found it; None of a printed plan.
    """

    name: str
    problem: Problem
    actors: tuple[Actor, ...]
    capacity_per_s: float
    routing: Routing = "shortest-wait"
    has_paper_batches: bool = False
    outcome: Outcome | None = None

    def __str__(self) -> str:
        """Return the replicas: role, slots, devices with their layers (spilled ones)."""
        return "; ".join(sorted(map(self._said, self.actors)))

    def _said(self, actor: Actor) -> str:
        away = actor.spilled or ((),) * len(actor.cut)
        stages = []
        for (d, start, stop), spilled in zip(actor.cut, away, strict=True):
            layers = f"{stop - start}({len(spilled)})" if spilled else f"{stop - start}"
            stages.append(f"{self.problem.devices[d].name}:{layers}")
        slots = "" if actor.role == "PREFILL" else f"{actor.slots}"
        return f"{actor.role[0]}{slots} {{{', '.join(stages)}}}"


class Means(NamedTuple):
    """Means over the served requests of all runs; waits are as docs/simulator.md defines them."""

    wait_s: float
    ttft_s: float
    latency_s: float
    tokens_per_s: float
    """Of a stream, once it decodes [tokens/s]."""
    rejected: int = 0


def printed_plan(who: str, problem: Problem, data_set: str) -> Contender:
    """Return a plan of the paper's Tables III-VI with its own cuts, slots and spilled layers.

    The paper ran it, so that it breaks the floor of 15 tokens a second here and there is no
    reason to leave it out, and each slot holds what is planned for, whatever our memory rule says.
    """
    report = check(printed.document(who, data_set), problem)
    context = problem.workload.context_tokens
    actors = tuple(
        replace(actor, max_context_tokens=max(actor.max_context_tokens, context))
        for actor in actors_of(completed(report, problem), problem, costs_of(problem))
    )
    return Contender(
        name=who, problem=problem, actors=actors, capacity_per_s=report.capacity_per_s or 0.0
    )


@lru_cache(maxsize=512)
def searched(
    name: str, problem: Problem, num: int = 1, stop: Stop = WHOLE
) -> tuple[Contender, ...]:
    """Return up to *num* plans of a planner, best first by its own judgement; seed 0."""
    run = planner_named(name)(costs_of(problem))
    run.run(stop, 0)
    return tuple(contender_of(name, problem, outcome) for outcome in run.ranked(num))


def contender_of(name: str, problem: Problem, outcome: Outcome) -> Contender:
    """Return what a search of *problem* found."""
    return Contender(
        name=name,
        problem=problem,
        actors=tuple(actors_of_outcome(costs_of(problem), outcome)),
        capacity_per_s=outcome.traffic.capacity_per_s,
        outcome=outcome,
    )


def run(contender: Contender, arrivals: Trace, warmup: int = 0) -> Simulation:
    """Simulate one run."""
    how = (contender.routing, False, warmup)
    with _batches(contender):
        return Simulator(costs_of(contender.problem), arrivals).run(contender.actors, how=how)


def measured(contender: Contender, traces: Sequence[Trace], warmup: int = 0) -> Means:
    """Return means over all requests of all *traces*, the first *warmup* of all left out.

    The traces are one run: a simulation of 100 requests takes less time than its preparation.
    """
    return means_of(run(contender, in_a_row(traces), warmup))


def in_a_row(traces: Sequence[Trace]) -> Trace:
    """Return *traces* as one, with so long between them that nothing is left of the one before."""
    whole = traces[0]
    for trace in traces[1:]:
        whole = joined(whole, later(trace, float(whole.arrival_s[-1]) + _EMPTY_S))
    return whole


def means_of(one: Simulation) -> Means:
    """Return means over the requests of a run that count."""
    counts = one.counted
    return Means(
        wait_s=float(one.waiting_time_s[counts].mean()),
        ttft_s=float(one.ttft_s[counts].mean()),
        latency_s=float(one.latency_s[counts].mean()),
        tokens_per_s=float((1 / one.tpot_s[counts]).mean()),
        rejected=one.num_rejected,
    )


@contextmanager
def _batches(contender: Contender) -> Iterator[None]:
    """Let the simulator cut batches as the paper does, where that is asked for."""
    if not contender.has_paper_batches:
        yield
        return
    with mock.patch("e2llm_opt.simulate.system.decode", _paper_rounds):
        yield


def _paper_rounds(costs: Costs, cut: Cut, slots: int, spilled: Spilled = ()) -> Decode:
    """Return rounds of 1 … *slots* requests with as many micro-batches as stages.

    Section 3 of the paper: with M batches in flight in M stages a token takes M times the slowest
    stage.
    """
    rounds, counts = np.empty(slots), np.ones(slots, dtype=np.int64)
    for n in range(1, slots + 1):
        m = min(len(cut), n)
        stage, hop = decode_stages(costs, cut, -(-n // m), spilled)
        busy = stage + hop
        busy[-1] = stage[-1]  # the hop back keeps no stage busy
        rounds[n - 1] = max(float((stage + hop).sum()), m * float(busy.max()))
        counts[n - 1] = m
    return Decode(rounds, counts)
