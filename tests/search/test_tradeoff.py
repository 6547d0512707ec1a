"""The search for a front against every grouping in every role; its geometry by definition."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt.cost.costs import Costs
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.losses import lost_capacity, lost_shares
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.search.tradeoff.aim import WAITS, Aim
from e2llm_opt.search.tradeoff.aims import asked_aims
from e2llm_opt.search.tradeoff.evolve import hypervolume
from e2llm_opt.search.tradeoff.geometry import (
    conflicts,
    covered,
    efficient,
    ends,
    knee,
    spread_out,
)
from e2llm_opt.search.tradeoff.tradeoff import Tradeoff
from tests.search.test_brute_force import outcomes
from tests.strategies import problems
from tests.worlds import worlds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.evaluate import Outcome

    Floats = NDArray[np.float64]

EXHAUSTIVE, GENETIC = Stop(method="exhaustive"), Stop(method="ga", max_evaluations=400)
ALL = tuple(Aim)


def searched(problem: Problem, stop: Stop, names: tuple[str, ...] | None = None) -> Tradeoff:
    tradeoff = Tradeoff(Search(Costs(problem)), asked_aims(problem, names), 30, None)
    tradeoff.run(stop, 0)
    return tradeoff


def priced(problem: Problem) -> Problem:
    """Return the problem with a price and a power for all devices, not about the context."""
    machines = tuple(
        replace(d, power_w=d.power_w or 50.0, cost_per_hour=d.cost_per_hour or 0.05)
        for d in problem.devices
    )
    is_context = problem.objective is Objective.MAX_CONTEXT
    return replace(
        problem,
        inventory=replace(problem.inventory, devices=machines),
        objective=Objective.WAITING_TIME if is_context else problem.objective,
    )


def values_of(tradeoff: Tradeoff, outcome: Outcome) -> list[float]:
    """Return what is minimised, from the outcome alone; rounded as the design says."""
    evaluator = tradeoff.search.evaluator
    problem, unit = evaluator.costs.problem, evaluator.ranking.wait_unit_s
    machines = [problem.devices[d] for replica in outcome.replicas for d, _, _ in replica.cut]
    lost = lost_capacity(evaluator, outcome)

    def digits(value: float) -> float:
        return float(f"{value:.15e}") if value in {0.0, np.inf} else ten_digits(value)

    found = {
        Aim.WAITING_TIME: round(outcome.waiting_time_s / unit) if outcome.is_stable else np.inf,
        Aim.TTFT: digits(outcome.ttft_s),
        Aim.TPOT: digits(outcome.tpot_s),
        Aim.LATENCY: digits(outcome.latency_s),
        Aim.CAPACITY: digits(1.0 / outcome.traffic.capacity_per_s),
        Aim.COST_PER_HOUR: round(sum(d.cost_per_hour or 0.0 for d in machines), 9),
        Aim.POWER_W: round(sum(d.power_w or 0.0 for d in machines), 6),
        Aim.DEVICES: len(machines),
        Aim.LOST_CAPACITY: round(lost * 100),
    }
    return [float(found[aim]) for aim in tradeoff.archive.aims.names]


def ten_digits(value: float) -> float:
    """Return a number with ten binary digits behind the first."""
    exponent = np.floor(np.log2(value))
    return float(np.floor(value / 2.0**exponent * 1024 + 0.5) / 1024 * 2.0**exponent)


def dominates(one: list[float], other: list[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


def compare(problem: Problem, stop: Stop, names: tuple[str, ...] | None) -> None:
    """Nothing with one kind of cut beats the front, and that is made of plans that there are."""
    tradeoff = searched(problem, stop, names)
    is_stable = tradeoff.archive.aims.is_stable
    every = list(outcomes(tradeoff.search))
    judged = [(o, own) for o, own in every if o.is_stable is is_stable]
    assert is_stable or not any(o.is_stable for o, _ in every)
    front = [values_of(tradeoff, one.outcome) for one in tradeoff.archive.members()]
    assert not any(dominates(one, other) for one, other in product(front, front))
    assert len({tuple(point) for point in front}) == len(front)
    known = [values_of(tradeoff, o) for o, _ in judged]
    allowed = filter(tradeoff.search.rules.is_obeyed, tradeoff.search.baselines.values())
    known += [values_of(tradeoff, o) for o in allowed if o.is_stable is is_stable]
    assert all(point in known for point in front)
    for (_, is_uniform), point in zip(judged, known, strict=False):
        if is_uniform:
            assert any(one == point or dominates(one, point) for one in front), point


@settings(max_examples=10)
@given(problems(max_devices=3, max_layers=5, is_constrained=True).map(priced))
def test_up_to_three_devices_the_front_is_that_of_all_plans(problem: Problem) -> None:
    compare(problem, EXHAUSTIVE, None)


@pytest.mark.slow
@given(problems(max_devices=4, max_layers=5, is_constrained=True).map(priced))
def test_up_to_four_devices_the_front_is_that_of_all_plans(problem: Problem) -> None:
    compare(problem, EXHAUSTIVE, None)


@pytest.mark.slow
@settings(max_examples=8)
@given(
    problems(min_devices=2, max_devices=4, max_layers=4, is_linked=True).map(priced),
    st.lists(st.sampled_from(ALL), min_size=2, max_size=4, unique=True),
)
def test_the_genetic_algorithms_find_all_of_a_small_front(
    problem: Problem, aims: list[Aim]
) -> None:
    compare(problem, GENETIC, tuple(map(str, aims)))


def test_above_capacity_the_capacity_stands_for_the_wait() -> None:
    problem = next(iter(worlds(num_worlds=1)))
    busy = replace(problem, workload=replace(problem.workload, rate_per_s=1e6))
    tradeoff = searched(busy, EXHAUSTIVE)
    assert not tradeoff.archive.aims.is_stable
    assert tradeoff.archive.aims.names == (Aim.CAPACITY, Aim.DEVICES, Aim.LOST_CAPACITY)
    assert len(tradeoff.archive) > 1
    best = Search(Costs(busy))
    best.run(EXHAUSTIVE, 0)
    most = best.ranked(1)[0].traffic.capacity_per_s
    values = [one.values[0] for one in tradeoff.archive.members()]
    assert min(values) == pytest.approx(1 / most, rel=1e-3)  # ten binary digits


def test_what_is_stable_is_found_where_the_seeds_were_not() -> None:
    """A search that starts from nothing stable ends with the stable plan it meets."""
    problem = next(iter(worlds(num_worlds=1)))
    tradeoff = Tradeoff(Search(Costs(problem)), asked_aims(problem, None), 30, None)
    tradeoff._begin(is_stable=False)
    search = Search(Costs(problem))
    search.run(EXHAUSTIVE, 0)
    assert not tradeoff.archive.offer(search.ranked(1)[0])
    assert tradeoff.archive.refused is not None
    assert not set(WAITS) & set(tradeoff.archive.aims.names)


# ---------------------------------------------------------------- what a failure takes away


def left_after(rates: list[float], roles: list[Role], gone: int) -> float:
    """Return the capacity without one replica, its partners idle where none is left."""
    of = dict.fromkeys(Role, 0.0)
    for i, (rate, role) in enumerate(zip(rates, roles, strict=True)):
        of[role] += 0.0 if i == gone else rate
    return of[Role.MIXED] + min(of[Role.PREFILL], of[Role.DECODE])


@given(
    st.lists(st.tuples(st.sampled_from(list(Role)), st.floats(0.01, 10.0)), min_size=1, max_size=6)
)
def test_the_loss_is_that_of_the_worst_replica(replicas: list[tuple[Role, float]]) -> None:
    roles, rates = [role for role, _ in replicas], [rate for _, rate in replicas]
    whole = left_after(rates, roles, -1)
    if whole <= 0:
        return
    worst = min(left_after(rates, roles, i) for i in range(len(rates)))
    codes = np.array([[{Role.PREFILL: 1, Role.DECODE: 2, Role.MIXED: 3}[r] for r in roles]])
    found = lost_shares(np.array([rates]), codes)[0]
    assert found == pytest.approx(1.0 - worst / whole, abs=1e-9)


@given(problems(min_devices=2, max_devices=4, max_layers=4, is_linked=True))
def test_the_loss_is_the_capacity_without_the_replica_of_any_device(problem: Problem) -> None:
    search = Search(Costs(problem))
    for outcome, _ in list(outcomes(search))[:20]:
        whole = outcome.traffic.capacity_per_s
        left = []
        for i in range(len(outcome.replicas)):
            rest = [one for k, one in enumerate(outcome.replicas) if k != i]
            if {one.role for one in rest} == {Role.PREFILL, Role.DECODE, Role.MIXED} or {
                one.role for one in rest
            } in ({Role.PREFILL, Role.DECODE}, {Role.MIXED}):
                left.append(search.evaluator.outcome(rest).traffic.capacity_per_s)
            else:
                rest = [one for one in rest if one.role is Role.MIXED]
                left.append(search.evaluator.outcome(rest).traffic.capacity_per_s if rest else 0.0)
        assert lost_capacity(search.evaluator, outcome) == pytest.approx(1 - min(left) / whole)


# ---------------------------------------------------------------- geometry

points = st.lists(
    st.lists(st.integers(0, 6).map(float), min_size=3, max_size=3), min_size=1, max_size=30
)


@given(points)
def test_efficient_points_are_those_that_none_dominates(rows: list[list[float]]) -> None:
    found = [rows[i] for i in efficient(np.array(rows))]
    wanted = {tuple(one) for one in rows if not any(dominates(other, one) for other in rows)}
    assert {tuple(one) for one in found} == wanted
    assert len(found) == len(wanted)
    assert found == sorted(found)


@given(points, points)
def test_covered_is_no_better_in_anything(rows: list[list[float]], by: list[list[float]]) -> None:
    wanted = [any(one == other or dominates(other, one) for other in by) for one in rows]
    assert covered(np.array(rows), np.array(by)).tolist() == wanted


@given(points, st.integers(2, 12))
def test_thinning_keeps_the_ends_and_no_two_that_are_closer_than_those_left_out(
    rows: list[list[float]], num: int
) -> None:
    front = np.unique(np.array(rows), axis=0)
    kept = ends(front)
    found = spread_out(front, num, kept)
    assert len(found) == min(num, len(front))
    assert found == sorted(set(found))
    assert len(kept) > num or set(kept) <= set(found)
    for column in range(3):
        assert len(kept) > num or front[found, column].min() == front[:, column].min()


def test_the_knee_is_farthest_below_the_line_through_the_ends() -> None:
    curve = np.array([[0.0, 10.0], [1.0, 4.0], [2.0, 3.0], [6.0, 1.0], [10.0, 0.0]])
    line = np.array([1.0, 1.0]) / np.sqrt(2)
    distance = 10.0 / np.sqrt(2) - curve @ line
    assert knee(curve) == int(distance.argmax()) == 1


def test_the_knee_does_not_depend_on_units() -> None:
    curve = np.array([[0.0, 10.0], [1.0, 4.0], [2.0, 3.0], [6.0, 1.0], [10.0, 0.0]])
    assert knee(curve * [1e-3, 1e6]) == knee(curve)


@given(points)
def test_objectives_conflict_where_two_points_trade_them(rows: list[list[float]]) -> None:
    found = conflicts(np.array(rows))
    for i, j in product(range(3), range(3)):
        wanted = any(a[i] < b[i] and a[j] > b[j] for a, b in product(rows, rows))
        assert found[i, j] == wanted


@given(points)
def test_the_hypervolume_is_the_share_of_boxes_that_are_dominated(rows: list[list[float]]) -> None:
    worst = np.full(3, 7.0)
    cells = product(range(7), repeat=3)
    inside = sum(
        any(all(p <= c for p, c in zip(r, cell, strict=True)) for r in rows) for cell in cells
    )
    assert hypervolume(np.array(rows), worst) == pytest.approx(inside / 343)
