"""Our plans on common ground with other planners, held against all that its scorer could like."""

from itertools import combinations, permutations

import pytest

import e2llm_opt
from benchmarks import neutral
from e2llm_opt.check.check import check
from e2llm_opt.plan.plan import Plan

LAYERS = 32


def cuts(parts: int, layers: int = LAYERS) -> list[tuple[int, ...]]:
    """All ways to give each of some stages at least one layer."""
    walls = combinations(range(1, layers), parts - 1)
    return [tuple(b - a for a, b in zip((0, *w), (*w, layers), strict=True)) for w in walls]


def best_replicas(name: str, most_stages: int) -> dict[int, float]:
    """Best capacity by the scorer of each set of devices, as bits."""
    given = neutral.read(name)
    devices = [device["id"] for device in given["devices"]]
    found: dict[int, float] = {}
    for num in range(1, most_stages + 1):
        for rows in combinations(range(len(devices)), num):
            best = max(
                neutral.capacity(given, list(zip((devices[d] for d in order), cut, strict=True)))
                for order in permutations(rows)
                for cut in cuts(num)
            )
            if best > 0:
                found[sum(1 << d for d in rows)] = best
    return found


def best_packing(replicas: dict[int, float], num_devices: int) -> float:
    """Most requests a second of disjoint sets of devices."""
    value = [0.0] * (1 << num_devices)
    for used in range(1, 1 << num_devices):
        low = used & -used
        value[used] = value[used ^ low]
        for own, rate in replicas.items():
            if own & low and own & used == own:
                value[used] = max(value[used], rate + value[used ^ own])
    return value[-1]


@pytest.mark.parametrize(
    ("name", "most_stages"), [("edge4", 3), pytest.param("edge8", 3, marks=pytest.mark.slow)]
)
def test_no_plan_of_short_pipelines_scores_higher(name: str, most_stages: int) -> None:
    problem = neutral.problem(name)
    plan = e2llm_opt.plan(problem)
    assert isinstance(plan, Plan)
    best = best_packing(best_replicas(name, most_stages), len(problem.devices))
    assert neutral.score(name, plan) >= best * (1 - 1e-9)
    assert round(neutral.score(name, plan), 3) >= neutral.ANNEALING[name]
    assert check(plan, problem).valid
