"""What is known of a load, against closed forms, numerical integrals, and loads that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from e2llm_opt import Lengths, Regime
from e2llm_opt.adapt.belief import UNCHANGED, belief_of
from e2llm_opt.adapt.estimator import Estimator
from e2llm_opt.adapt.stream import PRIOR

PROMPT, OUTPUT = Lengths(mean=500.0, cv=0.5), Lengths(mean=200.0, cv=0.8)
START = Regime(rate_per_s=2.0, prompt=PROMPT, output=OUTPUT)


def seen(outputs: list[float], written: list[float], gap_s: float = 0.5) -> Estimator:
    """Return an estimator that has seen answers, and pieces of others."""
    estimator = Estimator(START)
    for k, length in enumerate([*outputs, *written]):
        number = estimator.arrive(gap_s * k, 500.0)
        if k < len(outputs):
            estimator.finish(number, length)
        else:
            estimator.progress(number, length)
    return estimator


def moments(outputs: list[float], written: list[float]) -> tuple[float, float]:
    """Return mean and spread of the logarithm's mean, by integrals over all that it may be."""
    sigma = OUTPUT.sigma
    means = np.linspace(0.0, 14.0, 5601)
    log = PRIOR * stats.norm(0.0, sigma).logpdf(math.log(OUTPUT.mean) - sigma**2 / 2 - means)
    for length in outputs:
        log += stats.norm(means, sigma).logpdf(math.log(length))
    for length in written:
        log += stats.norm(means, sigma).logsf(math.log(length))
    density = np.exp(log - log.max())
    whole, mean, square = (integrate.simpson(density * means**k, x=means) for k in range(3))
    return mean / whole, math.sqrt(square / whole - (mean / whole) ** 2)


@given(
    outputs=st.lists(st.floats(20.0, 900.0), max_size=15),
    written=st.lists(st.floats(2.0, 3000.0), max_size=15),
)
def test_unfinished_answers_are_longer_than_what_there_is_of_them(
    outputs: list[float], written: list[float]
) -> None:
    estimator = seen(outputs, written)
    belief = belief_of(estimator)
    mean = float(belief.weight @ belief.log_output)
    spread = math.sqrt(float(belief.weight @ (belief.log_output - mean) ** 2))
    expected, deviation = moments(outputs, written)
    assert mean == pytest.approx(expected, abs=0.02)
    assert spread == pytest.approx(deviation, rel=0.05)


def test_short_answers_that_are_finished_first_do_not_mislead() -> None:
    """Of a hundred answers, 1000 tokens on average, only the short ones are done."""
    lengths = 1000.0 * np.exp(0.69 * np.random.default_rng(2).standard_normal(100) - 0.24)
    done = 400.0  # tokens that were written so far, of each
    estimator = seen([x for x in lengths if x <= done], [done for x in lengths if x > done])
    naive = np.mean([x for x in lengths if x <= done])
    belief = belief_of(estimator)
    assert naive < 350.0
    assert 800.0 < belief.regime.output.mean < 1250.0


def changed(num: int, output: float) -> Estimator:
    """Return an estimator whose prompts have just changed, and *num* answers since."""
    estimator = Estimator(START)
    rng = np.random.default_rng(1)
    for k in range(400):
        number = estimator.arrive(0.5 * k, 500.0 * math.exp(0.47 * rng.standard_normal()))
        estimator.finish(number, 200.0 * math.exp(0.7 * rng.standard_normal()))
    numbers = [estimator.arrive(200.0 + 0.5 * k, 20_000.0) for k in range(20)]
    for number in numbers[:num]:
        estimator.finish(number, output)
    assert estimator.num_changes == 1
    return estimator


def test_answers_are_as_likely_as_not_what_they_were_when_only_prompts_are_seen_to_change() -> None:
    estimator = changed(0, 1.0)
    belief = belief_of(estimator)
    before = estimator.output.before
    assert before is not None
    near = np.abs(belief.log_output - before[0]) < 4.0 * before[1]
    other = 1.0 - UNCHANGED
    assert float(belief.weight[near].sum()) == pytest.approx(
        UNCHANGED + other * (2.0 * stats.norm.cdf(4.0 * before[1] / 1.5) - 1.0), abs=0.03
    )
    assert belief.log_before == before[0]


@pytest.mark.parametrize(("num", "share"), [(3, 0.5), (20, 0.1)])
def test_a_few_answers_of_another_length_are_believed(num: int, share: float) -> None:
    belief = belief_of(changed(num, 3000.0))
    assert belief.regime.output.mean == pytest.approx(3000.0 * math.exp(0.24), rel=share)


def test_loads_that_are_drawn_are_those_that_are_believed() -> None:
    outputs = [150.0 + 10.0 * k for k in range(30)]
    belief = belief_of(seen(outputs, []))
    drawn = belief.draw(2000)
    rates = np.array([one.rate_per_s for one in drawn])
    num = 29 + PRIOR  # the first arrival has no gap before it
    assert rates.mean() == pytest.approx(belief.regime.rate_per_s, rel=0.01)
    assert rates.std() == pytest.approx(rates.mean() / math.sqrt(num), rel=0.02)
    prompts = np.log([one.prompt.mean for one in drawn])
    assert prompts.std() == pytest.approx(PROMPT.sigma / math.sqrt(30 + PRIOR), rel=0.02)
    answers = np.log([one.output.mean for one in drawn]) - OUTPUT.sigma**2 / 2
    expected, deviation = moments(outputs, [])
    assert answers.mean() == pytest.approx(expected, abs=0.01)
    assert answers.std() == pytest.approx(deviation, rel=0.02)
    pairs = np.corrcoef([rates, prompts, answers])
    assert np.abs(pairs[np.triu_indices(3, 1)]).max() < 0.1
