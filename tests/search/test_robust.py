"""The packing that serves most after its worst loss, against every packing there is."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from e2llm_opt.cost.costs import Costs
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.packing import Side, served
from e2llm_opt.search.robust import most_robust
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from tests.search.test_roles import cluster
from tests.search.test_survive import survives, surviving


def after_worst(gives: np.ndarray, taken: tuple[int, ...]) -> float:
    """Requests a second after the loss of any one replica; of nothing, nothing."""
    left = []
    for v, times in enumerate(taken):
        if times:
            rest = np.array(taken, dtype=float)
            rest[v] -= 1
            left.append(float((rest @ gives).min()))
    return min(left, default=0.0)


@pytest.mark.parametrize("seed", range(12))
def test_no_packing_serves_more_after_its_worst_loss(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [1, 1], [2, 0]], dtype=float)
    roles = [Role.PREFILL, Role.DECODE, Role.MIXED, Role.DECODE, Role.MIXED, Role.PREFILL]
    gives = served(rng.uniform(0.5, 3.0, len(roles)), roles)
    available = np.array([3.0, 3.0])
    side = Side(available=available, must=np.zeros(2), replicas=None)
    every = [
        taken
        for taken in product(*(range(4) for _ in roles))
        if (np.array(taken) @ counts <= available).all()
    ]
    most = max(after_worst(gives, taken) for taken in every)
    found = most_robust(counts, gives, side, (1, 10 * most))
    assert found is not None
    assert after_worst(gives, tuple(found.astype(int).tolist())) == pytest.approx(most)
    # At half that rate, the highest capacity of those that survive it.
    able = [taken for taken in every if after_worst(gives, taken) > 0.5 * most * (1 + 2e-6)]
    best = max(float((np.array(taken) @ gives).min()) for taken in able)
    found = most_robust(counts, gives, side, (1, 0.5 * most))
    assert found is not None
    assert float((found @ gives).min()) == pytest.approx(best)


def test_nothing_is_left_of_a_single_replica() -> None:
    side = Side(available=np.array([1.0]), must=np.zeros(1), replicas=None)
    gives = served(np.array([2.0]), [Role.MIXED])
    assert most_robust(np.array([[1.0]]), gives, side, (1, 0.1)) is None


def test_the_exact_method_ends_with_a_plan_that_survives() -> None:
    problem = replace(cluster(6, 5.8, seed=1), objective=Objective.THROUGHPUT)
    search = Search(Costs(surviving(problem, 1)))
    search.run(Stop(method="exact"), 0)
    found = search.best(Scope.ANY)
    assert found is not None
    assert survives(Search(Costs(problem)), found.replicas, 1)
    other = Search(Costs(surviving(problem, 1)))
    other.run(Stop(method="exhaustive"), 0)
    best = other.best(Scope.ANY)
    assert best is not None
    assert found.traffic.capacity_per_s >= 0.99 * best.traffic.capacity_per_s
