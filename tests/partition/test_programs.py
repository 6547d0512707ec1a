"""The dynamic programs against every sequence of stages, on numbers that nothing relates."""

from __future__ import annotations

import math
from itertools import combinations, pairwise, product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from e2llm_opt.partition import kernel
from e2llm_opt.partition.kernel import ALL, INTERVAL, LEAST, NO_LIMIT, Inner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

Random = np.random.Generator
Stages = tuple[tuple[int, int, int], ...]
"""(class, start, stop) in pipeline order."""
NEVER = math.inf


# ---------------------------------------------------------------- inner problems


def wild(rng: Random, *, is_ordered: bool = False) -> Inner:
    """Return classes whose stages cost whole numbers at random, so that many are equal."""
    num, top = int(rng.integers(1, 6 if is_ordered else 4)), int(rng.integers(1, 6))
    shape = (num, top + 1, top + 1)
    times = rng.choice([1.0, 2.0, 3.0, 5.0, 8.0, NEVER], shape, p=[0.2, 0.2, 0.2, 0.15, 0.15, 0.1])
    return inner(rng, times, top, is_ordered=is_ordered)


def regular(rng: Random, *, is_even: bool, is_alike: bool, is_ordered: bool = False) -> Inner:
    """Return classes whose stages take the sum of their layers, and as many as fit.

    *is_even*: every hop takes as long; *is_alike*: so does every layer, and each may be a start.
    """
    num, top = int(rng.integers(1, 6 if is_ordered else 4)), int(rng.integers(1, 8))
    layers = np.ones(top) if is_alike else rng.choice([1.0, 2.0, 6.0], top)
    heavy = np.ones(top) if is_alike else rng.choice([1.0, 2.0, 3.0], top)
    speed = rng.choice([1.0, 2.0, 3.0], num)
    prefix = speed[:, None] * np.concatenate(([0.0], np.cumsum(layers)))
    bytes_before = np.concatenate(([0.0], np.cumsum(heavy)))
    room = rng.choice([2.0, 3.0, 5.0, 20.0], num)
    middle = rng.choice([0.0, 0.0, 2.0], num)
    first, last = rng.choice([0.0, 1.0, 4.0], (2, num))
    smaller = rng.choice([0.0, 1.0], (2, num))
    times = np.full((num, top + 1, top + 1), NEVER)
    for k, b, a in product(range(num), range(top), range(1, top + 1)):
        ends = (b == 0, a == top)
        need = bytes_before[a] - bytes_before[b] + smaller[:, k] @ ends
        if b < a and need <= room[k]:
            times[k, b, a] = prefix[k, a] - prefix[k, b] + middle[k] + ends[0] * first[k]
            times[k, b, a] += ends[1] * last[k]
    found = inner(rng, times, top, is_ordered=is_ordered, has_all_starts=is_alike)
    found = found._replace(prefix=prefix, middle=middle, is_additive=np.ones(num, np.bool_))
    if is_even:
        return found._replace(hop=np.full((num, num), rng.choice([0.0, 1.0])))
    return found


def inner(
    rng: Random,
    times: NDArray[np.float64],
    top: int,
    *,
    is_ordered: bool,
    has_all_starts: bool = False,
) -> Inner:
    num = len(times)
    available = np.ones(num, np.int64) if is_ordered else rng.integers(1, 3, num)
    pin = rng.choice([-1, -1, *range(num)], 2)
    if is_ordered:
        pin = np.array([rng.choice([-1, num - 1]), rng.choice([-1, 0])])
    for k in pin[pin >= 0]:
        available[k] = 1
    back = rng.choice([0.0, 1.0, 4.0, NEVER], (num, num), p=[0.4, 0.2, 0.2, 0.2])
    if pin[1] < 0:
        back[:] = rng.choice([0.0, 3.0])
    starts = np.ones(top + 1, np.bool_) if has_all_starts else rng.random(top + 1) < 0.8
    starts[0], starts[top] = True, has_all_starts
    places = np.flatnonzero(starts)
    return Inner(
        available=available,
        must=rng.integers(0, available + 1) * (rng.random(num) < 0.3),
        times=times,
        prefix=np.zeros((num, top + 1)),
        middle=np.zeros(num),
        is_additive=np.zeros(num, np.bool_),
        hop=rng.choice([0.0, 1.0, 2.0, 6.0, NEVER], (num, num), p=[0.3, 0.3, 0.2, 0.1, 0.1]),
        back=back,
        starts=starts,
        after=np.array([min([*places[places >= b], top + 1]) for b in range(top + 1)]),
        before=np.array([max([0, *places[places < b]]) for b in range(top + 1)]),
        pin=pin,
        is_ordered=is_ordered,
        latest=np.full((num, num, top + 1), top),
    )


# ---------------------------------------------------------------- every sequence of stages


def sequences(p: Inner) -> Iterator[Stages]:
    """Yield every legal cut: who may serve, in which order, is first, is last, must serve."""
    num, top = len(p.available), len(p.starts) - 1
    starts = [b for b in range(1, top) if p.starts[b]]
    for length in range(1, min(len(starts) + 1, int(p.available.sum())) + 1):
        anyone = product(range(num), repeat=length)
        for who in combinations(reversed(range(num)), length) if p.is_ordered else anyone:
            used = np.bincount(who, minlength=num)
            if (used > p.available).any() or (used < p.must).any():
                continue
            if p.pin[0] not in {-1, who[0]} or p.pin[1] not in {-1, who[-1]}:
                continue
            for bounds in combinations(starts, length - 1):
                yield tuple(
                    (g, b, a) for g, (b, a) in zip(who, pairwise((0, *bounds, top)), strict=True)
                )


def costs(p: Inner, stages: Stages) -> list[float]:
    """Return each stage with its hop to the next one."""
    hops = [p.hop[g, f] for (g, _, _), (f, _, _) in pairwise(stages)] + [0.0]
    return [float(p.times[g, b, a] + hop) for (g, b, a), hop in zip(stages, hops, strict=True)]


def way_back(p: Inner, stages: Stages) -> float:
    return float(p.back[stages[-1][0], stages[0][0]]) if len(stages) > 1 else 0.0


def least_slowest(p: Inner) -> float:
    return min(
        (
            max(costs(p, stages))
            for stages in sequences(p)
            if p.pin[1] < 0 or way_back(p, stages) < NEVER
        ),
        default=NEVER,
    )


def least_total(p: Inner, limit: float) -> float:
    totals = (
        sum(costs(p, stages)) + way_back(p, stages)
        for stages in sequences(p)
        if max(costs(p, stages)) <= limit
    )
    return min(totals, default=NEVER)


def tuples(rows: NDArray[np.int64]) -> Stages:
    return tuple((g, b, a) for g, b, a in rows.tolist())


def check_bottleneck(p: Inner, keeps: int) -> None:
    best = least_slowest(p)
    value, rows = kernel.least_bottleneck(p, keeps, 0.0)
    assert value == pytest.approx(best, rel=1e-9)
    if best == NEVER:
        assert len(rows) == 0
        return
    assert tuples(rows) in set(sequences(p))
    assert max(costs(p, tuples(rows))) == value
    assert kernel.costliest(p, rows) == value


def check_cover(p: Inner, limit: float, keeps: int) -> None:
    best = least_slowest(p)
    is_covered, blocked, rows = kernel.cover(p, limit, keeps)
    assert is_covered == (best <= limit)
    if is_covered:
        assert tuples(rows) in set(sequences(p))
        assert max(costs(p, tuples(rows))) <= limit
    else:
        assert limit < blocked <= best
        assert len(rows) == 0


def check_sum(p: Inner, limit: float) -> None:
    best = least_total(p, limit)
    value, rows = kernel.least_sum(p, limit)
    assert value == pytest.approx(best, rel=1e-9)
    if best == NEVER:
        assert len(rows) == 0
        return
    stages = tuples(rows)
    assert stages in set(sequences(p))
    assert max(costs(p, stages)) <= limit
    assert sum(costs(p, stages)) + way_back(p, stages) == pytest.approx(best, rel=1e-9)


# ---------------------------------------------------------------- claims

SEEDS = range(150)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_whatever_stages_cost_the_slowest_one_is_as_fast_as_can_be(is_ordered: bool) -> None:
    for seed in SEEDS:
        p = wild(np.random.default_rng(seed), is_ordered=is_ordered)
        check_bottleneck(p, ALL)
        for limit in (0.5, 1.0, 3.0, 5.0, NO_LIMIT):
            check_cover(p, limit, ALL)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_whatever_stages_cost_the_sum_is_the_least_within_a_limit(is_ordered: bool) -> None:
    for seed in range(500 if is_ordered else 150):
        p = wild(np.random.default_rng(seed), is_ordered=is_ordered)
        for limit in (2.0, 4.0, NEVER):
            check_sum(p, limit)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_where_stages_take_the_sum_of_their_layers_a_window_finds_the_least_sum(
    is_ordered: bool,
) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        p = regular(rng, is_even=False, is_alike=False, is_ordered=is_ordered)
        for limit in (5.0, 9.0, NEVER):
            check_sum(p, limit)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_where_all_hops_are_equal_the_least_start_is_enough(is_ordered: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        p = regular(rng, is_even=True, is_alike=False, is_ordered=is_ordered)
        p = p._replace(must=np.zeros_like(p.must))
        check_bottleneck(p, LEAST)
        for limit in (2.0, 6.0, 9.0, NO_LIMIT):
            check_cover(p, limit, LEAST)


@pytest.mark.parametrize("is_ordered", [False, True])
def test_where_all_layers_are_alike_an_interval_of_starts_is_enough(is_ordered: bool) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        p = regular(rng, is_even=False, is_alike=True, is_ordered=is_ordered)
        check_bottleneck(p, INTERVAL)
        for limit in (2.0, 4.0, 7.0, NO_LIMIT):
            check_cover(p, limit, INTERVAL)


def test_a_window_over_all_stops_finds_the_least() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        p = regular(rng, is_even=True, is_alike=False)
        g, top = 0, 12
        prefix = np.cumsum(rng.choice([0.0, 1.0, 3.0, 8.0], (1, top + 1)), axis=1)
        p = p._replace(prefix=prefix, starts=rng.random(top + 1) < 0.8)
        value = rng.choice([1.0, 5.0, 9.0, 14.0, 20.0, NEVER], top + 1)
        before = rng.choice([9.0, 20.0, NEVER], top + 1)
        latest = np.minimum(np.maximum.accumulate(np.arange(top + 1) + rng.integers(0, 5)), top - 1)
        latest = np.maximum(latest - rng.integers(0, 2, top + 1).cumsum() // 3, np.arange(top + 1))
        latest = np.maximum.accumulate(latest)
        found = before.copy()
        kernel._extend(p, value, found, g, 0, latest)
        for b in range(1, top - 1):
            stops = range(b + 1, int(latest[b]) + 1 if p.starts[b] else 0)
            costs = [value[a] + prefix[g, a] - prefix[g, b] for a in stops if a < top]
            least = min(costs, default=NEVER) + p.middle[g] + p.hop[g, 0]
            assert found[b] == pytest.approx(min(before[b], least), rel=1e-12)
