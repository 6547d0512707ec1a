"""How long each step takes, the partitioner beside the same program in plain Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest

from benchmarks import inventories, plain
from e2llm_opt import Plan, Role, partition, plan
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.partition.partition import decode_demand
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.evaluate import ROLE_CODES, Evaluator
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_benchmark.fixture import BenchmarkFixture

    from e2llm_opt import Problem

    Criterion = Literal["bottleneck", "sum"]
    Who = Callable[[Problem, Criterion], float]

SLOTS = 8
MICRO_BATCHES = 4

PROBLEMS: dict[str, tuple[Callable[..., Problem], tuple[int, ...]]] = {
    "6 distinct": (inventories.distinct, (6,)),
    "8 distinct": (inventories.distinct, (8,)),
    "10 distinct": (inventories.distinct, (10,)),
    "12 distinct": (inventories.distinct, (12,)),
    "20 in 4 classes": (inventories.in_classes, (20, 4)),
    "6 unlike": (inventories.unlike, (6,)),
    "8 unlike": (inventories.unlike, (8,)),
    "10 unlike": (inventories.unlike, (10,)),
}
"""Devices: how to make the problem."""


def ours(problem: Problem, criterion: Criterion) -> float:
    """Return what :func:`e2llm_opt.partition` finds [s]."""
    rows = range(len(problem.devices))
    found = partition(
        problem, rows, Role.DECODE, slots=SLOTS, micro_batches=MICRO_BATCHES, criterion=criterion
    )
    assert found is not None
    return found.bottleneck_s if criterion == "bottleneck" else found.latency_s


def written_plainly(problem: Problem, criterion: Criterion) -> float:
    """Return the same from plain Python [s]."""
    costs = costs_of(problem)
    arrays = plain.Plain(costs, decode_demand(costs, SLOTS, SLOTS // MICRO_BATCHES))
    if criterion == "sum":
        return plain.least_sum(arrays)
    return plain.least_bottleneck(arrays, keeps_all=not costs.has_alike_layers)


def once(benchmark: BenchmarkFixture, who: Who, problem: Problem, criterion: Criterion) -> float:
    """Measure a single call: plain Python takes its time."""
    found: float = benchmark.pedantic(  # type: ignore[no-untyped-call]
        who, args=(problem, criterion), rounds=1
    )
    return found


def measure(benchmark: BenchmarkFixture, devices: str, criterion: Criterion, who: Who) -> None:
    build, size = PROBLEMS[devices]
    problem = build(*size)
    expected = ours(problem, criterion)  # compiles, and fills the cost tables
    benchmark.group = f"{criterion}, {devices} devices"
    if who is ours:
        found = benchmark(ours, problem, criterion)
    else:
        found = once(benchmark, who, problem, criterion)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("who", [ours, written_plainly], ids=["ours", "plain"])
@pytest.mark.parametrize("devices", ["8 distinct", "20 in 4 classes"])
def test_bottleneck_of_alike_layers(benchmark: BenchmarkFixture, devices: str, who: Who) -> None:
    measure(benchmark, devices, "bottleneck", who)


@pytest.mark.parametrize("devices", ["10 distinct", "12 distinct"])
def test_bottleneck_of_many_devices(benchmark: BenchmarkFixture, devices: str) -> None:
    measure(benchmark, devices, "bottleneck", ours)


@pytest.mark.parametrize("who", [ours, written_plainly], ids=["ours", "plain"])
def test_bottleneck_of_unlike_layers(benchmark: BenchmarkFixture, who: Who) -> None:
    measure(benchmark, "6 unlike", "bottleneck", who)


@pytest.mark.parametrize("devices", ["8 unlike", "10 unlike"])
def test_bottleneck_of_unlike_layers_and_many_devices(
    benchmark: BenchmarkFixture, devices: str
) -> None:
    measure(benchmark, devices, "bottleneck", ours)


@pytest.mark.parametrize("who", [ours, written_plainly], ids=["ours", "plain"])
def test_sum(benchmark: BenchmarkFixture, who: Who) -> None:
    measure(benchmark, "6 distinct", "sum", who)


@pytest.mark.parametrize("devices", ["8 distinct", "10 distinct", "12 distinct"])
def test_sum_of_many_devices(benchmark: BenchmarkFixture, devices: str) -> None:
    measure(benchmark, devices, "sum", ours)


def test_roles_of_seven_replicas(benchmark: BenchmarkFixture) -> None:
    """Queueing figures of all 3^7 assignments of roles, links left out."""
    costs = costs_of(inventories.testbed())
    evaluator = Evaluator(Candidates(costs, costs.classes.order))
    groups = [(costs.classes.class_of[d],) for d in costs.classes.order]
    codes = [ROLE_CODES[role] for role in Role]
    rows = np.array(np.meshgrid(*[codes] * len(groups))).reshape(len(groups), -1).T.copy()
    benchmark.group = f"roles, {len(rows)} assignments"
    figures, _ = benchmark(evaluator.screen, [(groups, rows)], Variant.RATE)
    assert figures.shape[0] == len(rows)
    assert (figures[:, 0] > 0).any()


@pytest.mark.parametrize("role", list(Role))
def test_best_replica_of_all_seven_devices(benchmark: BenchmarkFixture, role: Role) -> None:
    """Slots, micro-batches and cut of one device set, nothing remembered."""
    costs = costs_of(inventories.testbed())
    group = tuple(sorted(costs.classes.class_of))
    benchmark.group = f"one replica, {role}"

    def find() -> object:
        return Candidates(costs, costs.classes.order).find(group, role, Variant.RATE)

    assert benchmark(find) is not None


def test_plan_of_the_testbed(benchmark: BenchmarkFixture) -> None:
    """The whole search, exhaustive, in a process that has compiled everything."""
    problem = inventories.testbed()
    plan(problem)
    benchmark.group = "plan, testbed"
    answer = benchmark(plan, problem)
    assert isinstance(answer, Plan)
