"""The last word on a few outcomes: simulated on the same arrivals, the best comes first."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.search.context import max_context
from e2llm_opt.simulate.simulate import default_warmup, run_actors
from e2llm_opt.simulate.system import Actor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidates import Candidate
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.simulate.simulate import Simulation
    from e2llm_opt.workload.trace import Trace

NUM_SIMULATED = 20
"""Candidates of a search that are simulated (DESIGN section 5)."""


class Simulated(NamedTuple):
    """An outcome with what a simulation says of it."""

    outcome: Outcome
    """As predicted by the formulas."""
    figures: Outcome
    """The same with simulated means; not stable stays not stable."""
    key: Key
    """Of the figures: the smaller, the better."""


def rank_by_simulation(
    evaluator: Evaluator, outcomes: Iterable[Outcome], arrivals: Trace
) -> list[Simulated]:
    """Simulate *outcomes* on *arrivals* and sort them by the objective, best first.

    Parameters
    ----------
    evaluator
        Compares figures, as in the search: by the objective, waits rounded to its unit.
    outcomes
        Candidates; equal ones are simulated once, and of equally good ones the first stays first.
    arrivals
        The same for all; the first 5 % of 1000 requests or more warm up.

    Notes
    -----
    Means are over the requests that every candidate can hold, so that none looks better for
    rejecting long ones. Where more arrives than the formulas say can be served, no mean of a run
    that ends says anything, and capacity decides as in the search.
    """
    different = list({_shape(outcome): outcome for outcome in reversed(list(outcomes))}.values())
    different.reverse()
    runs = [simulate_outcome(evaluator.costs, outcome, arrivals) for outcome in different]
    counts = _held_by_all(runs, arrivals)
    found = []
    for outcome, run in zip(different, runs, strict=True):
        figures = _with_means(outcome, run, counts)
        found.append(Simulated(outcome, figures, evaluator.key(figures)))
    return sorted(found, key=lambda one: one.key)


def simulate_outcome(costs: Costs, outcome: Outcome, arrivals: Trace) -> Simulation:
    """Run *outcome* on *arrivals*, requests going where they are expected to wait least."""
    rates = outcome.traffic.rates_per_s
    actors = [
        _actor(costs, replica, rate) for replica, rate in zip(outcome.replicas, rates, strict=True)
    ]
    return run_actors(costs, actors, arrivals)


def _actor(costs: Costs, replica: Candidate, rate_per_s: float) -> Actor:
    return Actor(
        role=replica.role,
        cut=replica.cut,
        slots=replica.slots,
        spilled=replica.spilled,
        max_context_tokens=max_context(costs, replica.cut, replica.slots, replica.spilled),
        rate_per_s=rate_per_s,
    )


def _held_by_all(runs: Sequence[Simulation], arrivals: Trace) -> np.ndarray:
    """Return the requests after the warm-up that every run served [n]."""
    counts = np.ones(arrivals.num_requests, dtype=bool)
    counts[: default_warmup(arrivals.num_requests)] = False
    for run in runs:
        counts &= run.entry >= 0
    return counts


def _with_means(outcome: Outcome, run: Simulation, counts: np.ndarray) -> Outcome:
    if not outcome.is_stable or not counts.any():
        return outcome
    return replace(
        outcome,
        waiting_time_s=float(run.waiting_time_s[counts].mean()),
        ttft_s=float(run.ttft_s[counts].mean()),
        tpot_s=float(run.tpot_s[counts].mean()),
        latency_s=float(run.latency_s[counts].mean()),
    )


def _shape(outcome: Outcome) -> frozenset[tuple[object, ...]]:
    """Return what makes two outcomes the same replicas."""
    return frozenset((c.role, c.cut, c.slots, c.spilled) for c in outcome.replicas)
