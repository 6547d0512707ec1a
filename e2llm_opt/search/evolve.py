"""The genetic algorithm over groupings: thin classes around our operators; pymoo stays here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pymoo.algorithms.soo.nonconvex.ga import GA
from pymoo.core.crossover import Crossover
from pymoo.core.duplicate import DuplicateElimination
from pymoo.core.mutation import Mutation
from pymoo.core.problem import ElementwiseProblem

from e2llm_opt.search.operators import (
    OPERATORS,
    canonical,
    crossover,
    mutate,
    random_labels,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray
    from pymoo.core.individual import Individual

    from e2llm_opt.search.operators import Operator
    from e2llm_opt.search.stop import Stop

    Labels = NDArray[np.int64]

POPULATION = 40
MUTATION_PROBABILITY = 0.8
MAX_TRIES = 10
"""Matings for one generation: a few devices in classes have hardly so many different groupings."""
_LEAST_GAIN = 1e-6
"""Relative improvement that ends stagnation."""


class _Grouping(ElementwiseProblem):  # type: ignore[misc]  # pymoo has no types
    def __init__(self, num_devices: int, judge: Callable[[Labels], float]) -> None:
        super().__init__(n_var=num_devices, n_obj=1, xl=-1, xu=num_devices, vtype=int)
        self._judge = judge

    def _evaluate(self, x: Labels, out: dict[str, Any], *_: object, **__: object) -> None:
        out["F"] = self._judge(canonical(x.astype(np.int64)))


class GroupCrossover(Crossover):  # type: ignore[misc]  # pymoo has no types
    """Children inherit whole groups: :func:`e2llm_opt.search.operators.crossover`."""

    def __init__(self) -> None:
        super().__init__(n_parents=2, n_offsprings=2)

    def _do(
        self, _: object, x: Labels, *__: object, random_state: Generator, **___: object
    ) -> Labels:
        out = np.empty_like(x)
        for k in range(x.shape[1]):
            mother, father = x[0, k].astype(np.int64), x[1, k].astype(np.int64)
            out[0, k] = crossover(mother, father, random_state)
            out[1, k] = crossover(father, mother, random_state)
        return out


class GroupMutation(Mutation):  # type: ignore[misc]  # pymoo has no types
    """A small change of a grouping, one of *operators* at random."""

    def __init__(self, operators: Sequence[Operator] = OPERATORS) -> None:
        super().__init__(prob=MUTATION_PROBABILITY)
        self._operators = operators

    def _do(
        self, _: object, x: Labels, *__: object, random_state: Generator, **___: object
    ) -> Labels:
        rows = [mutate(row.astype(np.int64), random_state, self._operators) for row in x]
        return np.array(rows)


class SameGrouping(DuplicateElimination):  # type: ignore[misc]  # pymoo has no types
    """Duplicates up to relabelling: equal groupings by device class."""

    def __init__(self, identity: Callable[[Labels], object]) -> None:
        super().__init__()
        self._identity = identity
        self._known: dict[bytes, object] = {}

    def _do(
        self,
        pop: Iterable[Individual],
        other: Iterable[Individual] | None,
        is_duplicate: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        known = set() if other is None else {self._of(one) for one in other}
        for i, one in enumerate(pop):
            name = self._of(one)
            is_duplicate[i] = name in known
            if other is None:
                known.add(name)
        return is_duplicate

    def _of(self, one: Individual) -> object:
        labels = canonical(one.X.astype(np.int64))
        key = labels.tobytes()
        if key not in self._known:
            self._known[key] = self._identity(labels)
        return self._known[key]


def evolve(
    seeds: Sequence[Labels],
    judge: Callable[[Labels], float],
    identity: Callable[[Labels], object],
    *,
    stop: Stop,
    seed: int,
    is_late: Callable[[], bool],
    between: Callable[[], None],
) -> list[Labels]:
    """Search groupings until *stop*; whatever *judge* sees is its own to keep.

    Parameters
    ----------
    seeds
        Groupings to start from, one label a device; random ones fill the population.
    judge
        Labels -> what is to be minimised; called once for each new grouping.
    identity
        Labels -> equal for groupings that are one up to relabelling.
    stop
        Limits.
    seed
        Of the random numbers.
    is_late
        Whether time is up.
    between
        Called after every generation.

    Returns
    -------
    list of labels
        The last population, best first.
    """
    num_devices = len(seeds[0])
    rng = np.random.default_rng(seed)
    start = [canonical(labels) for labels in seeds]
    start += [random_labels(num_devices, rng) for _ in range(max(0, POPULATION - len(start)))]
    algorithm = GA(
        pop_size=POPULATION,
        sampling=np.array(start),
        crossover=GroupCrossover(),
        mutation=GroupMutation(),
        eliminate_duplicates=SameGrouping(identity),
    )
    algorithm.mating.n_max_iterations = MAX_TRIES
    algorithm.setup(_Grouping(num_devices, judge), seed=seed, termination=("n_gen", 10**9))
    best, since, evaluations = 1e300, 0, 0
    while algorithm.has_next():
        population = algorithm.ask()
        if population is None or len(population) == 0:
            break
        algorithm.evaluator.eval(algorithm.problem, population)
        evaluations += len(population)
        algorithm.tell(infills=population)
        reached = float(population.get("F").min())
        since = 0 if reached < best - _LEAST_GAIN * abs(best) else since + 1
        best = min(best, reached)
        between()
        if evaluations >= stop.max_evaluations or since >= stop.stagnation or is_late():
            break
    last = algorithm.pop
    order = np.argsort(last.get("F")[:, 0], kind="stable")
    return [canonical(last[i].X.astype(np.int64)) for i in order]
