"""NSGA-II and NSGA-III over groupings: thin classes around our operators; pymoo stays here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from pymoo.algorithms.moo.nsga2 import NSGA2
from pymoo.algorithms.moo.nsga3 import NSGA3
from pymoo.core.population import Population
from pymoo.core.problem import Problem
from pymoo.indicators.hv import HV
from pymoo.util.ref_dirs import get_reference_directions

from e2llm_opt.search.evolve import (
    MAX_TRIES,
    POPULATION,
    GroupCrossover,
    GroupMutation,
    SameGrouping,
)
from e2llm_opt.search.operators import OPERATORS, call_up, canonical, leave_out, random_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from pymoo.core.algorithm import Algorithm

    from e2llm_opt.search.stop import Stop
    from e2llm_opt.search.tradeoff.judge import Verdict

    Floats = NDArray[np.float64]
    Labels = NDArray[np.int64]

_MOST_CROWDED = 3
"""Objectives up to which crowding keeps a population apart (NSGA-II); beyond, directions do."""
_MOST_DIRECTIONS = 60
_FAR = 1e30
"""Every objective of what is no plan: only how far it is from one counts."""
TRADE_OPERATORS = (*OPERATORS, leave_out, call_up)
"""Mutations: those of the search for one plan, and whole groups in and out of use."""


def evolve(
    seeds: Sequence[Labels],
    judge: Callable[[Labels], Verdict],
    identity: Callable[[Labels], object],
    *,
    stop: Stop,
    seed: int,
    is_late: Callable[[], bool],
    num_changes: Callable[[], int],
) -> None:
    """Search groupings for a front until *stop*; whatever *judge* sees is its own to keep.

    A grouping is in the population once for each point of its verdict: different roles of the
    same groups may be good at different things.

    Parameters
    ----------
    seeds
        Groupings to start from, one label a device; random ones fill the population.
    judge
        Labels -> objectives to be minimised, of several role assignments; called once for each
        new grouping.
    identity
        Labels -> equal for groupings that are one up to relabelling.
    stop
        Limits; stagnation is of the front.
    seed
        Of the random numbers.
    is_late
        Whether time is up.
    num_changes
        How often the front has changed so far.
    """
    num_devices = len(seeds[0])
    rng = np.random.default_rng(seed)
    start = [canonical(labels) for labels in seeds]
    start += [random_labels(num_devices, rng) for _ in range(max(0, POPULATION - len(start)))]
    algorithm: Algorithm | None = None
    evaluations, since, seen = 0, 0, -1
    while evaluations < stop.max_evaluations and since < stop.stagnation and not is_late():
        if algorithm is None:
            first = {identity(labels): labels for labels in reversed(start)}
            genomes = list(reversed(first.values()))
        else:
            population = algorithm.ask()
            genomes = [] if population is None else list(population.get("X").astype(np.int64))
        genomes = [canonical(x) for x in genomes[: stop.max_evaluations - evaluations]]
        if not genomes:
            return
        verdicts = [judge(labels) for labels in genomes]
        evaluations += len(genomes)
        if algorithm is None:
            algorithm = _algorithm(genomes, verdicts, identity, seed)
        else:
            algorithm.tell(infills=_population(genomes, verdicts))
        since = 0 if num_changes() != seen else since + 1
        seen = num_changes()


def hypervolume(points: Floats, worst: Floats) -> float:
    """Return the share of the box from 0 to *worst* [M] that *points* [N, M] dominate."""
    inside = points / np.where(worst > 0, worst, 1.0)
    inside = inside[(inside <= 1.0).all(axis=1)]
    return float(HV(ref_point=np.ones(points.shape[1]))(inside)) if len(inside) else 0.0


def _algorithm(
    genomes: Sequence[Labels],
    verdicts: Sequence[Verdict],
    identity: Callable[[Labels], object],
    seed: int,
) -> Algorithm:
    """Return NSGA-II, or with more than three objectives NSGA-III, with its first population."""
    num = verdicts[0].points.shape[1]
    operators = {
        "sampling": np.array(genomes),
        "crossover": GroupCrossover(),
        "mutation": GroupMutation(TRADE_OPERATORS),
        "eliminate_duplicates": SameGrouping(identity),
    }
    if num <= _MOST_CROWDED:
        algorithm = NSGA2(pop_size=POPULATION, **operators)
    else:
        steps = max(p for p in range(1, 13) if math.comb(p + num - 1, num - 1) <= _MOST_DIRECTIONS)
        directions = get_reference_directions("das-dennis", num, n_partitions=steps)
        algorithm = NSGA3(directions, pop_size=max(POPULATION, len(directions)), **operators)
    algorithm.mating.n_max_iterations = MAX_TRIES
    space = Problem(
        n_var=len(genomes[0]), n_obj=num, n_ieq_constr=1, xl=-1, xu=len(genomes[0]), vtype=int
    )
    algorithm.setup(space, seed=seed, termination=("n_gen", 10**9))
    algorithm.ask()
    algorithm.tell(infills=_population(genomes, verdicts))
    return algorithm


def _population(genomes: Sequence[Labels], verdicts: Sequence[Verdict]) -> Population:
    """Return the judged genomes, each once for every point of its verdict."""
    rows, points, amiss = [], [], []
    for labels, verdict in zip(genomes, verdicts, strict=True):
        own = verdict.points if len(verdict.points) else np.full((1, verdict.points.shape[1]), _FAR)
        rows += [labels] * len(own)
        points += list(own)
        amiss += [[verdict.amiss]] * len(own)
    return Population.new("X", np.array(rows), "F", np.array(points), "G", np.array(amiss))
