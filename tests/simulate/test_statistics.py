"""Statistics of simulated requests against plain arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.simulate.statistics import attainment, spread, throughput, trend
from e2llm_opt.workload.workload import Lengths, Workload

TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


def by_hand(values: list[float], share: float) -> float:
    """The percentile that linear interpolation between order statistics gives."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@given(TIMES)
def test_spreads_are_what_a_person_computes(values: list[float]) -> None:
    found = spread(np.array(values))
    assert found.mean == pytest.approx(sum(values) / len(values))
    assert found.p50 == pytest.approx(by_hand(values, 0.5))
    assert found.p90 == pytest.approx(by_hand(values, 0.9))
    assert found.p99 == pytest.approx(by_hand(values, 0.99))


def test_nothing_has_no_spread() -> None:
    found = spread(np.array([]))
    assert (found.mean, found.p50, found.p90, found.p99) == (None, None, None, None)


def limits(**given: float) -> Workload:
    return Workload(prompt=Lengths(mean=10), output=Lengths(mean=10), **given)  # type: ignore[arg-type]


TTFT = np.array([1.0, 2.0, 3.0, 4.0])
TPOT = np.array([0.4, 0.3, 0.2, 0.1])


def test_each_limit_has_its_own_share() -> None:
    found = attainment(TTFT, TPOT, limits(slo_ttft_s=3.0, slo_tpot_s=0.3, min_tokens_per_s=5))
    assert (found.ttft, found.tpot, found.min_tokens_per_s) == (0.75, 0.75, 0.5)
    assert found.every == 0.25


def test_a_limit_that_is_not_given_is_not_met_by_anything() -> None:
    found = attainment(TTFT, TPOT, limits(slo_ttft_s=2.0))
    assert (found.ttft, found.tpot, found.min_tokens_per_s, found.every) == (0.5, None, None, 0.5)
    nothing = attainment(TTFT, TPOT, limits())
    assert nothing.every is None


def test_of_no_requests_no_share_meets_a_limit() -> None:
    found = attainment(TTFT[:0], TPOT[:0], limits(slo_ttft_s=2.0))
    assert (found.ttft, found.every) == (None, None)


def test_throughput_is_what_was_served_over_the_time() -> None:
    found = throughput(np.array([10, 20]), np.array([1, 5]), 4.0)
    assert found.requests_per_s == 0.5
    assert (found.prompt_tokens_per_s, found.output_tokens_per_s) == (7.5, 1.5)


def test_waits_that_grow_with_time_drift() -> None:
    waits = np.linspace(0, 100, 1000)
    found = trend(waits, 150.0)
    assert found.verdict == "drifting"
    assert found.first_half_s == pytest.approx(25, rel=0.01)
    assert found.second_half_s == pytest.approx(75, rel=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_waits_around_a_mean_are_stable(seed: int) -> None:
    waits = np.random.default_rng(seed).exponential(size=1000)
    assert trend(waits, 2.0).verdict == "stable"


def test_waits_that_fall_are_stable() -> None:
    assert trend(np.linspace(100, 0, 1000), 150.0).verdict == "stable"


def test_growth_that_nobody_notices_is_none() -> None:
    assert trend(np.linspace(0, 1e-3, 1000), 20.0).verdict == "stable"


@pytest.mark.parametrize("num", [0, 1, 2, 99])
def test_of_few_requests_nothing_is_said(num: int) -> None:
    assert trend(np.arange(num, dtype=np.float64), 1.0).verdict == "too short"
