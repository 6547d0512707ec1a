"""Estimates against closed forms; changes are found soon, and none is where there is none."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from e2llm_opt import InputError, Lengths, Regime
from e2llm_opt.adapt.estimator import KNOWN, Estimator
from e2llm_opt.adapt.stream import LEAST, MEMORY, PRIOR, Stream

START = Lengths(mean=500.0, cv=0.5)


def lognormal(mean: float, cv: float, num: int, seed: int) -> np.ndarray:
    sigma = math.sqrt(math.log1p(cv**2))
    rng = np.random.default_rng(seed)
    drawn: np.ndarray = mean * np.exp(sigma * rng.standard_normal(num) - sigma**2 / 2)
    return drawn


@given(st.lists(st.floats(300.0, 800.0), max_size=100))
def test_the_mean_is_that_of_all_and_of_ten_as_expected(values: list[float]) -> None:
    stream = Stream("lengths", START)
    for value in values:
        assert not stream.add(value)
    expected = (PRIOR * START.mean + sum(values)) / (PRIOR + len(values))
    assert stream.mean == pytest.approx(expected)


def test_beyond_its_memory_a_mean_forgets_exponentially() -> None:
    stream = Stream("lengths", Lengths(mean=100.0, cv=0.5))
    for _ in range(MEMORY - PRIOR):
        stream.add(100.0)
    steps = 40
    for _ in range(steps):
        stream.add(101.0)
    assert stream.mean == pytest.approx(101.0 - (1 - 1 / MEMORY) ** steps)


@pytest.mark.parametrize("cv", [0.2, 0.5, 1.0])
def test_the_cv_is_that_of_what_is_drawn(cv: float) -> None:
    stream = Stream("lengths", Lengths(mean=500.0, cv=0.5))
    found = []
    for value in lognormal(500.0, cv, 4000, 1):
        stream.add(value)
        found.append(stream.cv)
    assert np.mean(found[1000:]) == pytest.approx(cv, rel=0.1)


def test_the_ratios_are_those_of_the_densities() -> None:
    """Normal logarithms one sigma up or down; exponential gaps half as long again, or less."""
    lengths, gaps = Stream("lengths", START), Stream("gaps", Lengths(mean=2.0, cv=1.0))
    sigma, mean = START.sigma, math.log(START.mean) - START.sigma**2 / 2

    def normal(x: float, centre: float) -> float:
        return -((x - centre) ** 2) / (2 * sigma**2)

    for value in (320.0, 500.0, 900.0):
        x = math.log(value)
        up = normal(x, mean + sigma) - normal(x, mean)
        down = normal(x, mean - sigma) - normal(x, mean)
        assert lengths._ratios(value) == pytest.approx((up, down))
    for gap in (0.1, 2.0, 7.0):
        longer = math.log(math.exp(-gap / 3.0) / 3.0) - math.log(math.exp(-gap / 2.0) / 2.0)
        shorter = math.log(0.75 * math.exp(-gap * 0.75)) - math.log(math.exp(-gap / 2.0) / 2.0)
        assert gaps._ratios(gap) == pytest.approx((longer, shorter))


def test_a_change_is_found_in_a_few_requests_and_the_past_forgotten() -> None:
    stream = Stream("lengths", START)
    for value in lognormal(500.0, 0.5, 400, 2):
        assert not stream.add(value)
    drawn = lognormal(4000.0, 0.5, 400, 3)
    delay = next(k for k, value in enumerate(drawn, start=1) if stream.add(value))
    assert delay <= 10
    since = 1 + int(np.argmax(stream.gains()))
    assert abs(since - delay) <= 1
    stream.restart(since)
    assert stream.num == since
    assert stream.mean > 2000.0


@pytest.mark.parametrize(("factor", "most"), [(3.0, 60), (1 / 3.0, 100), (2.0, 150)])
def test_a_change_of_the_rate_is_found(factor: float, most: int) -> None:
    rng = np.random.default_rng(4)
    stream = Stream("gaps", Lengths(mean=1.0, cv=1.0))
    for gap in rng.exponential(1.0, 600):
        stream.add(gap)
    delays = [k for k, gap in enumerate(rng.exponential(factor, 600), start=1) if stream.add(gap)]
    assert delays
    assert delays[0] <= most


@pytest.mark.parametrize("seed", range(3))
def test_a_stationary_stream_has_hardly_any_false_alarm(seed: int) -> None:
    """A million observations an alarm by the theory with known means: here they are estimated."""
    estimator = Estimator(Regime(rate_per_s=0.5, prompt=START, output=START))
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(2.0, 20_000))
    prompts, outputs = lognormal(500.0, 0.5, 20_000, seed), lognormal(500.0, 0.5, 20_000, seed + 9)
    for time_s, prompt, output in zip(times, prompts, outputs, strict=True):
        estimator.finish(estimator.arrive(time_s, max(prompt, 1.0)), max(output, 1.0))
    assert estimator.num_changes <= 1
    assert 1.0 / estimator.gaps.mean == pytest.approx(0.5, rel=0.2)


def two_segments(values: np.ndarray, kind: str, sigma: float) -> int:
    """Return how many of the last values have another mean, by the densities of all splits."""

    def log_density(part: np.ndarray) -> float:
        if len(part) == 0:
            return 0.0
        if kind == "gaps":
            return float(stats.expon(scale=part.mean()).logpdf(part).sum())
        logs = np.log(part)
        return float(stats.norm(logs.mean(), sigma).logpdf(logs).sum())

    splits = [log_density(values[:-n]) + log_density(values[-n:]) for n in range(1, len(values))]
    return 1 + int(np.argmax(splits))


@given(
    kind=st.sampled_from(["lengths", "gaps"]),
    before=st.integers(5, 80),
    after=st.integers(1, 30),
    factor=st.sampled_from([0.1, 0.3, 4.0, 20.0]),
    seed=st.integers(0, 99),
)
def test_a_change_was_where_two_means_are_likeliest(
    kind: Literal["lengths", "gaps"], before: int, after: int, factor: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    values = (
        rng.lognormal(5.0, 0.4, before + after)
        if kind == "lengths"
        else rng.exponential(2.0, before + after)
    )
    values[before:] *= factor
    stream = Stream(kind, Lengths(mean=float(values.mean()), cv=1.0))
    for value in values:
        stream.add(value)
    gains = stream.gains()
    assert len(gains) == before + after
    assert gains[-1] == pytest.approx(0.0, abs=1e-6)  # all of one mean: nothing is gained
    assert 1 + int(np.argmax(gains[:-1])) == two_segments(values, kind, 1.0)


def test_arrivals_and_prompts_tell_together_when_all_changed() -> None:
    """Four old gaps would make the new rate a third of what it is."""
    estimator = Estimator(Regime(rate_per_s=0.1, prompt=START, output=START))
    rng = np.random.default_rng(3)
    time_s = 0.0
    for prompt in lognormal(500.0, 0.5, 200, 5):
        time_s += rng.exponential(10.0)
        estimator.arrive(time_s, prompt)
    began_s = time_s
    for prompt in lognormal(4000.0, 0.5, 30, 6):
        time_s += rng.exponential(1.0)
        estimator.arrive(time_s, prompt)
    assert estimator.num_changes == 1
    assert estimator.num == 30
    assert began_s < estimator.since_s < began_s + 5.0
    assert 1.0 / estimator.gaps.mean == pytest.approx(1.0, rel=0.5)


def test_answers_of_the_load_before_say_nothing_of_the_new_one() -> None:
    estimator = Estimator(Regime(rate_per_s=1.0, prompt=START, output=START))
    for k, prompt in enumerate(lognormal(500.0, 0.5, 200, 5)):
        number = estimator.arrive(float(k), prompt)
        if k < 190:
            estimator.finish(number, 500.0)
    k = 200
    while not estimator.num_changes:
        number = estimator.arrive(float(k), 20_000.0)
        k += 1
    assert estimator.since_s == 200.0
    assert estimator.output.num == 0
    assert estimator.output.before is not None
    estimator.finish(195, 500.0)
    assert estimator.output.num == 0
    estimator.progress(number, 12.0)
    estimator.progress(196, 12.0)
    assert estimator.written == [12.0]
    estimator.finish(number, 30.0)
    assert (estimator.output.num, estimator.written) == (1, [])


def test_answers_that_were_short_enough_to_be_finished_before_the_alarm_count() -> None:
    estimator = Estimator(Regime(rate_per_s=1.0, prompt=START, output=START))
    for k, prompt in enumerate(lognormal(500.0, 0.5, 200, 5)):
        estimator.finish(estimator.arrive(float(k), prompt), 500.0)
    k = 200
    while not estimator.num_changes:
        estimator.finish(estimator.arrive(float(k), 20_000.0), 30.0)
        k += 1
    assert estimator.output.num == k - 200
    assert math.exp(estimator.output.log_mean) == pytest.approx(30.0)


def test_longer_answers_alone_are_a_change_too() -> None:
    estimator = Estimator(Regime(rate_per_s=1.0, prompt=START, output=START))
    lengths = [*lognormal(500.0, 0.5, 200, 7), *lognormal(5000.0, 0.5, 20, 8)]
    for k, length in enumerate(lengths):
        estimator.finish(estimator.arrive(float(k), 500.0), length)
    assert estimator.num_changes == 1
    assert estimator.since_s == pytest.approx(200.0, abs=2.0)
    assert estimator.output.num == pytest.approx(20, abs=2)


@pytest.mark.parametrize(
    ("time_s", "prompt", "words"), [(1.0, 5.0, "in order"), (3.0, 0.0, "at least one token")]
)
def test_nonsense_is_refused(time_s: float, prompt: float, words: str) -> None:
    estimator = Estimator(Regime(rate_per_s=1.0, prompt=START, output=START))
    estimator.arrive(2.0, 10.0)
    with pytest.raises(InputError, match=words):
        estimator.arrive(time_s, prompt)
    with pytest.raises(InputError, match="at least one token"):
        estimator.finish(0, 0.0)
    with pytest.raises(InputError, match="no request 7"):
        estimator.finish(7, 10.0)
    with pytest.raises(InputError, match="no request -1"):
        estimator.progress(-1, 10.0)


def test_of_a_request_long_ago_nothing_is_known_any_more() -> None:
    estimator = Estimator(Regime(rate_per_s=1.0, prompt=START, output=START))
    for k in range(KNOWN + 1):
        estimator.arrive(float(k), 500.0)
    before = estimator.output.num
    estimator.finish(0, 10.0)
    estimator.finish(1, 10.0)
    assert estimator.output.num == before + 1
    assert len(estimator.requests) == KNOWN


def test_few_observations_find_nothing() -> None:
    stream = Stream("lengths", START)
    assert not any(stream.add(1e6) for _ in range(LEAST - PRIOR))
