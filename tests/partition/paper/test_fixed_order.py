"""The paper's dynamic program: against all cuts of its order, and against its misprint."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.cost.costs import Costs
from e2llm_opt.partition.paper.fixed_order import fixed_order_cut
from e2llm_opt.partition.paper.kernel import best_master, slowest_stage
from e2llm_opt.partition.partition import decode_demand, prefill_demand
from tests.oracles import World
from tests.strategies import problems
from tests.worlds import worlds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.problem import Problem
    from tests.oracles import Cut

    Floats = NDArray[np.float64]

NEVER = math.inf


def spans(num_stages: int, num_layers: int) -> Iterator[list[tuple[int, int]]]:
    """Yield every cut of the layers into so many stages, none of them empty."""
    for bounds in combinations(range(1, num_layers), num_stages - 1):
        yield list(pairwise((0, *bounds, num_layers)))


def worst(cost: Floats, link: Floats, cut: list[tuple[int, int]]) -> float:
    """Slowest stage or link of one cut."""
    return float(max(*(cost[k, b, a] for k, (b, a) in enumerate(cut)), *link[1:], 0.0))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Return costs [K, L+1, L+1] that nothing relates to each other, and links [K]."""
    num, top = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    value = st.sampled_from((1.0, 2.0, 3.0, 5.0, 8.0, 0.5, NEVER))
    cost = [draw(value) for _ in range(num * (top + 1) ** 2)]
    link = [draw(st.sampled_from((0.1, 4.0, NEVER))) for _ in range(num)]
    return np.array(cost).reshape(num, top + 1, top + 1), np.array(link)


@given(tables())
def test_the_program_finds_the_smallest_slowest_stage_of_all_cuts(
    table: tuple[Floats, Floats],
) -> None:
    cost, link = table
    num, top = len(cost), cost.shape[1] - 1
    least = min((worst(cost, link, cut) for cut in spans(num, top)), default=NEVER)
    for run in (slowest_stage, getattr(slowest_stage, "py_func", slowest_stage)):
        found, stops = run(cost, link)
        assert found == least
        if found < NEVER:
            cut = list(pairwise((0, *stops.tolist())))
            assert all(b < a for b, a in cut)
            assert cut[-1][1] == top
            assert worst(cost, link, cut) == least


def random_tables(seed: int) -> tuple[Floats, Floats]:
    """Return costs [K, L+1, L+1] and links [K, K]: whole numbers, so that many are equal."""
    rng = np.random.default_rng(seed)
    num, top = rng.integers(1, 5), rng.integers(1, 7)
    cost = rng.choice([1.0, 2.0, 3.0, 5.0, 9.0, NEVER], (num, top + 1, top + 1))
    return cost, rng.choice([0.1, 2.0, 4.0, NEVER], (num, num), p=[0.4, 0.3, 0.2, 0.1])


def test_every_stage_stops_where_the_smallest_slowest_stage_needs_it() -> None:
    for seed in range(200):
        cost, links = random_tables(seed)
        num, top = len(cost), cost.shape[1] - 1
        least = min((worst(cost, links[0], cut) for cut in spans(num, top)), default=NEVER)
        found, stops = slowest_stage(cost, links[0])
        assert found == least
        if found < NEVER:
            cut = list(pairwise((0, *stops.tolist())))
            assert cut in list(spans(num, top))
            assert worst(cost, links[0], cut) == least


def test_the_first_of_the_best_masters_is_taken() -> None:
    for seed in range(200):
        cost, links = random_tables(seed)
        turns = [
            slowest_stage(np.roll(cost, -turn, axis=0), links[turn])[0] for turn in range(len(cost))
        ]
        least, front, stops = best_master(cost, links)
        assert least == min(turns)
        assert front == (turns.index(least) if least < NEVER else 0)
        if least < NEVER:
            ring = np.roll(cost, -front, axis=0)
            assert worst(ring, links[front], list(pairwise((0, *stops.tolist())))) == least


def as_printed(cost: Floats, link: Floats) -> float:
    """Return Eq. 1 to the letter: the least of everything in sight."""
    num, top = len(cost), cost.shape[1] - 1
    best = np.full((num, top + 1), NEVER)
    best[0] = cost[0, 0]
    for k in range(1, num):
        for i in range(k + 1, top + 1):
            for j in range(k, i):
                best[k, i] = min(best[k, i], best[k - 1, j], cost[k, j, i], link[k])
    return float(best[num - 1, top])


def test_the_inner_minimum_that_the_paper_prints_is_not_what_we_compute() -> None:
    """Two devices, one second a layer each, three layers, a link of 0.1 s.

    Some stage has two layers, so nothing is faster than 2 s. Printed is the least of a stage, what
    came before it, and the link: 0.1 s, which no pipeline reaches.
    """
    layers = np.arange(4.0)
    one = np.where(layers[:, None] < layers, layers - layers[:, None], NEVER)
    cost, link = np.array([one, one]), np.array([0.0, 0.1])
    assert as_printed(cost, link) == 0.1
    assert slowest_stage(cost, link)[0] == 2.0


# ---------------------------------------------------------------- on problems


def turned(rows: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the ring of devices with each one at the front once."""
    for i in range(len(rows)):
        yield (*rows[i:], *rows[:i])


def value(world: World, cut: Cut, role: str, slots: int) -> float:
    """Slowest stage or link, by the formulas of the design page."""
    times = world.times(cut, role, slots, min(len(cut), slots))
    if not world.fits(cut, slots) or not all(math.isfinite(hop) for _, hop in times):
        return NEVER
    return max(*(stage for stage, _ in times), *(hop for _, hop in times[:-1]), 0.0)


def legal_cuts(problem: Problem, rows: Sequence[int]) -> Iterator[Cut]:
    allowed = problem.model.allowed_stage_starts
    for order in turned(rows):
        for cut in spans(len(order), problem.model.num_layers):
            if allowed is None or all(b == 0 or b in allowed for b, _ in cut):
                yield tuple((d, b, a) for d, (b, a) in zip(order, cut, strict=True))


@pytest.mark.parametrize("role", ["PREFILL", "DECODE"])
@pytest.mark.parametrize("starts", [None, (3, 5), (4,), ()])
def test_the_paper_cuts_only_where_a_stage_may_start(
    starts: tuple[int, ...] | None, role: str
) -> None:
    for problem in worlds(num_worlds=4, num_devices=3, num_layers=6):
        limited = replace(problem, facts=replace(problem.facts, allowed_stage_starts=starts))
        compare(limited, (0, 2, 1), role, 2 if role == "DECODE" else 1)
        compare(limited, (1, 0), role, 2 if role == "DECODE" else 1)


def test_a_pipeline_needs_a_way_back_to_decode() -> None:
    """Of a, b, c each reaches the next one, but b and c have no way to a: a ring of none."""
    (problem,) = worlds(num_worlds=1, num_devices=3, num_layers=6)
    ends = [link for link in problem.inventory.links if link.ends != ("d0", "d2")]
    inventory = replace(problem.inventory, links=tuple(ends))
    for topology in ("ring", "star"):
        line = replace(
            problem, inventory=inventory, runtime=replace(problem.runtime, topology=topology)
        )
        for role, slots in (("PREFILL", 1), ("DECODE", 2)):
            for rows in ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1), (0, 2), (1,)):
                compare(line, rows, role, slots)


@given(problems(max_devices=4, max_layers=6), st.sampled_from(["PREFILL", "DECODE"]), st.data())
def test_no_master_and_no_cut_of_the_order_is_better(
    problem: Problem, role: str, data: st.DataObject
) -> None:
    slots = 1 if role == "PREFILL" else data.draw(st.integers(1, problem.runtime.max_slots))
    num_devices = len(problem.devices)
    rows = data.draw(st.permutations(range(num_devices)))[: data.draw(st.integers(1, num_devices))]
    compare(problem, rows, role, slots)


def compare(problem: Problem, rows: Sequence[int], role: str, slots: int) -> None:
    costs, world = Costs(problem), World(problem)
    batch = -(-slots // min(len(rows), slots))
    demand = prefill_demand(costs) if role == "PREFILL" else decode_demand(costs, slots, batch)
    found = fixed_order_cut(costs, rows, demand)
    least = min(
        (value(world, cut, role, slots) for cut in legal_cuts(problem, rows)), default=NEVER
    )
    if found is None:
        assert least == NEVER
        return
    assert found.slowest_s == pytest.approx(least, rel=1e-9)
    assert value(world, found.stages, role, slots) == pytest.approx(least, rel=1e-9)
    assert found.stages in list(legal_cuts(problem, rows))
    assert found.forward_pass_s == len(rows) * found.slowest_s
