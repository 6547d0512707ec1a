"""The paper's genetic algorithm (Alg. 2): thin pymoo classes around its operators.

P citizens a generation; two parents chosen by rank among the elites and the present generation,
crossed, mutated; the Q best ever stay as elites. The paper gives neither P nor Q.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from pymoo.algorithms.soo.nonconvex.ga import GA
from pymoo.core.crossover import Crossover
from pymoo.core.mutation import Mutation
from pymoo.core.population import Population
from pymoo.core.problem import ElementwiseProblem
from pymoo.core.selection import Selection
from pymoo.core.survival import Survival

from e2llm_opt.search.paper.operators import (
    MUTATION_PROBABILITY,
    Genome,
    crossover,
    mutate,
    random_genome,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.random import Generator
    from numpy.typing import NDArray

    from e2llm_opt.search.stop import Stop

    Ints = NDArray[np.int64]

POPULATION = 80
"""Citizens a generation, the paper's P."""
NUM_ELITES = 8
"""Different groupings kept as the best so far, the paper's Q."""
_LEAST_GAIN = 1e-6
"""Relative improvement that ends stagnation."""


def evolve(
    num_devices: int,
    judge: Callable[[Genome], float],
    identity: Callable[[Genome], object],
    *,
    stop: Stop,
    seed: int,
    is_late: Callable[[], bool],
) -> None:
    """Search groupings until *stop*; whatever *judge* sees is its own to keep.

    Parameters
    ----------
    num_devices
        Devices in every order.
    judge
        Genome -> what is to be minimised; finite.
    identity
        Genome -> equal for genomes that are one grouping.
    stop
        Limits.
    seed
        Of the random numbers.
    is_late
        Whether time is up.
    """
    rng = np.random.default_rng(seed)
    start = [_row(random_genome(num_devices, rng)) for _ in range(POPULATION)]
    algorithm = GA(
        pop_size=POPULATION,
        sampling=np.array(start),
        selection=_ByRank(),
        crossover=_OrderCrossover(),
        mutation=_PaperMutation(prob=MUTATION_PROBABILITY),
        survival=_Elites(identity),
        eliminate_duplicates=False,
        advance_after_initial_infill=True,
    )
    algorithm.setup(_Grouping(num_devices, judge), seed=seed, termination=("n_gen", 10**9))
    best, since, evaluations = 1e300, 0, 0
    while since < stop.stagnation and evaluations < stop.max_evaluations:
        citizens = algorithm.ask()
        algorithm.evaluator.eval(algorithm.problem, citizens)
        algorithm.tell(infills=citizens)
        evaluations += len(citizens)
        reached = float(citizens.get("F").min())
        since = 0 if reached < best - _LEAST_GAIN * abs(best) else since + 1
        best = min(best, reached)
        if is_late():
            return


def _row(genome: Genome) -> Ints:
    """Return the order, then the sizes, filled up with zeros."""
    rest = [0] * (len(genome.order) - len(genome.sizes))
    return np.array([*genome.order, *genome.sizes, *rest], dtype=np.int64)


def _genome(row: Ints) -> Genome:
    order, sizes = np.split(row.astype(np.int64), 2)
    return Genome(order.tolist(), sizes[sizes > 0].tolist())


class _Grouping(ElementwiseProblem):  # type: ignore[misc]  # pymoo has no types
    def __init__(self, num_devices: int, judge: Callable[[Genome], float]) -> None:
        super().__init__(n_var=2 * num_devices, n_obj=1, xl=0, xu=num_devices, vtype=int)
        self._judge = judge

    def _evaluate(self, x: Ints, out: dict[str, Any], *_: object, **__: object) -> None:
        out["F"] = self._judge(_genome(x))


class _ByRank(Selection):  # type: ignore[misc]  # pymoo has no types
    """Roulette by rank: Eq. 4 may be negative, and infinite, so it cannot be a weight itself."""

    def _do(
        self,
        _: object,
        pop: Any,  # noqa: ANN401 - pymoo has no types
        n_select: int,
        n_parents: int,
        *__: object,
        random_state: Generator,
        **___: object,
    ) -> Ints:
        weight = np.empty(len(pop))
        weight[np.argsort(pop.get("F")[:, 0], kind="stable")] = np.arange(len(pop), 0, -1)
        return random_state.choice(len(pop), (n_select, n_parents), p=weight / weight.sum())


class _OrderCrossover(Crossover):  # type: ignore[misc]  # pymoo has no types
    def __init__(self) -> None:
        super().__init__(n_parents=2, n_offsprings=1, prob=1.0)

    def _do(self, _: object, x: Ints, *__: object, random_state: Generator, **___: object) -> Ints:
        pairs = zip(x[0], x[1], strict=True)
        children = [crossover(_genome(a), _genome(b), random_state) for a, b in pairs]
        return np.array([[_row(child) for child in children]])


class _PaperMutation(Mutation):  # type: ignore[misc]  # pymoo has no types
    def _do(self, _: object, x: Ints, *__: object, random_state: Generator, **___: object) -> Ints:
        return np.array([_row(mutate(_genome(row), random_state)) for row in x])


class _Elites(Survival):  # type: ignore[misc]  # pymoo has no types
    """The newest generation, and the best groupings ever as far as they are not in it."""

    def __init__(self, identity: Callable[[Genome], object]) -> None:
        super().__init__(filter_infeasible=False)
        self._identity = identity

    def _do(
        self,
        _: object,
        pop: Any,  # noqa: ANN401 - pymoo has no types
        *__: object,
        n_survive: int,
        **___: object,
    ) -> Any:  # noqa: ANN401 - pymoo has no types
        children = pop[-n_survive:]
        present = {id(child) for child in children}
        elites: dict[object, Any] = {}
        for one in sorted(pop, key=lambda citizen: float(citizen.F[0])):
            elites.setdefault(self._identity(_genome(one.X)), one)
            if len(elites) == NUM_ELITES:
                break
        older = [one for one in elites.values() if id(one) not in present]
        return Population.merge(Population.create(*older), children)
