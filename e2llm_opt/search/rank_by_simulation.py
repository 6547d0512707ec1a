"""The last word on a few outcomes: simulated on the same arrivals, the best comes first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.search.context import max_context
from e2llm_opt.search.evaluate import Evaluator
from e2llm_opt.simulate.simulate import Simulator, default_warmup
from e2llm_opt.simulate.system import Actor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidates import Candidate
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.simulate.simulate import Routing, Simulation
    from e2llm_opt.workload.trace import Trace


_FINE_S = 1e-3
"""Simulated waits compare with a rival's after rounding to this [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finals:
    """How the best candidates of a search are simulated, and which others take part.

    Parameters
    ----------
    arrivals
        What arrives; of several traces, all requests count alike. None at all: the formulas decide.
    rivals
        Planners whose plans are candidates, too; None: all.
    routing, mean_context, warmup
        Of every simulation; a warm-up of None is 5 % of the requests, none below 1000.
    """

    arrivals: tuple[Trace, ...]
    rivals: tuple[str, ...] | None = None
    routing: Routing = "shortest-wait"
    mean_context: bool = False
    warmup: int | None = None

    def warmup_of(self, arrivals: Trace) -> int:
        """Return how many of the first requests do not count."""
        return default_warmup(arrivals.num_requests) if self.warmup is None else self.warmup


class Simulated(NamedTuple):
    """An outcome with what a simulation says of it."""

    outcome: Outcome
    """As predicted by the formulas."""
    figures: Outcome
    """The same with simulated means."""
    key: Key
    """Of the figures: the smaller, the better."""


def rank_by_simulation(
    evaluator: Evaluator,
    outcomes: Iterable[Outcome],
    finals: Finals,
    *,
    rivals: Sequence[Outcome] = (),
    tell: Callable[[int], None] | None = None,
) -> list[Simulated]:
    """Simulate *outcomes* and sort them by the objective, best first.

    Parameters
    ----------
    evaluator
        Knows the objective, and the unit in which waits compare.
    outcomes
        Candidates; equal ones are simulated once, and of equally good ones the first stays first.
    finals
        What arrives, the same for all.
    rivals
        Further candidates. What is worse than one of them on the objective, waits in milliseconds,
        comes last, also where the unit hides the difference.
    tell
        Called with the number of the candidate that is simulated next, from 1 on.

    Notes
    -----
    Means are over the requests that every candidate can hold, so that none looks better for
    rejecting long ones. Requests that end have a mean wait, also where more of them arrive than
    can be served: then the objective goes by the simulation alone, and a candidate without a
    steady state is worse only where its requests wait longer.
    """
    # The arrivals are the load: scenarios have no say here.
    coarse = Evaluator(evaluator.candidates, evaluator.ranking.wait_unit_s)
    fine = Evaluator(evaluator.candidates, _FINE_S)
    every = [*outcomes, *rivals]
    different = list({_shape(outcome): outcome for outcome in reversed(every)}.values())
    different.reverse()
    simulators = [Simulator(evaluator.costs, arrivals) for arrivals in finals.arrivals]
    runs = []
    for number, outcome in enumerate(different, start=1):
        if tell is not None:
            tell(number)
        actors = actors_of_outcome(evaluator.costs, outcome)
        runs.append([_run(simulator, actors, finals) for simulator in simulators])
    counts = [_held_by_all(of_one) for of_one in zip(*runs, strict=True)]
    found = []
    for outcome, own in zip(different, runs, strict=True):
        figures = _with_means(outcome, own, counts)
        found.append(Simulated(outcome, figures, coarse.key(figures)))
    theirs = {_shape(rival) for rival in rivals}
    keys = [fine.key(one.figures)[:2] for one in found if _shape(one.outcome) in theirs]
    least = min(keys, default=(np.inf,))
    return sorted(found, key=lambda one: (fine.key(one.figures)[:2] > least, one.key))


def actors_of_outcome(costs: Costs, outcome: Outcome) -> list[Actor]:
    """Return the replicas of *outcome* as they run."""
    rates = outcome.traffic.rates_per_s
    return [
        _actor(costs, replica, rate) for replica, rate in zip(outcome.replicas, rates, strict=True)
    ]


def _actor(costs: Costs, replica: Candidate, rate_per_s: float) -> Actor:
    return Actor(
        role=replica.role,
        cut=replica.cut,
        slots=replica.slots,
        spilled=replica.spilled,
        max_context_tokens=max_context(costs, replica.cut, replica.slots, replica.spilled),
        rate_per_s=rate_per_s,
    )


def _run(simulator: Simulator, actors: Sequence[Actor], finals: Finals) -> Simulation:
    warmup = finals.warmup_of(simulator.arrivals)
    return simulator.run(actors, how=(finals.routing, finals.mean_context, warmup))


def _held_by_all(runs: Sequence[Simulation]) -> NDArray[np.bool_]:
    """Return the requests after the warm-up that every run served [n]."""
    held: NDArray[np.bool_] = np.logical_and.reduce([run.counted for run in runs])
    return held


def _with_means(
    outcome: Outcome, runs: Sequence[Simulation], counts: Sequence[NDArray[np.bool_]]
) -> Outcome:
    if not any(own.any() for own in counts):
        return outcome

    def mean(name: str) -> float:
        values = [getattr(run, name)[own] for run, own in zip(runs, counts, strict=True)]
        return float(np.concatenate(values).mean())

    return replace(
        outcome,
        waiting_time_s=mean("waiting_time_s"),
        ttft_s=mean("ttft_s"),
        tpot_s=mean("tpot_s"),
        latency_s=mean("latency_s"),
    )


def _shape(outcome: Outcome) -> frozenset[tuple[object, ...]]:
    """Return what makes two outcomes the same replicas."""
    return frozenset((c.role, c.cut, c.slots, c.spilled) for c in outcome.replicas)
