"""Loads side by side: what is impossible is refused, and how they count together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.errors import InputError
from e2llm_opt.search.scenarios import measured
from e2llm_opt.workload.scenarios import Risk, Scenario, corners
from e2llm_opt.workload.workload import Lengths, Workload, context_for

LENGTHS = Lengths(mean=100.0)


def scenario(name: str, weight: float = 1.0, rate: float = 1.0, mean: float = 100.0) -> Scenario:
    lengths = Lengths(mean=mean)
    return Scenario(name=name, weight=weight, rate_per_s=rate, prompt=lengths, output=LENGTHS)


def workload(*weights: float, risk: Risk, level: float = 0.8) -> Workload:
    return Workload(
        prompt=LENGTHS,
        output=LENGTHS,
        scenarios=tuple(scenario(f"s{i}", weight) for i, weight in enumerate(weights)),
        risk=risk,
        cvar_level=level,
    )


def cvar(values: list[float], weights: list[float], level: float) -> float:
    """The least over t of t + E[(v - t)+] / (1 - level): Rockafellar and Uryasev, theorem 1."""
    total = sum(weights)

    def at(t: float) -> float:
        over = sum(w * max(v - t, 0.0) for v, w in zip(values, weights, strict=True)) / total
        return t + over / (1.0 - level)

    return min(map(at, values))


amounts = st.floats(0.0, 1e4)
cases = st.lists(st.tuples(amounts, st.floats(0.01, 100.0)), min_size=1, max_size=6)


@given(cases, st.floats(0.0, 0.99))
def test_cvar_is_what_its_definition_says(drawn: list[tuple[float, float]], level: float) -> None:
    values, weights = [v for v, _ in drawn], [w for _, w in drawn]
    asked = workload(*weights, risk=Risk.CVAR, level=level)
    found = float(measured(np.array(values), asked))
    assert found == pytest.approx(cvar(values, weights, level), rel=1e-6, abs=1e-6)


@given(cases)
def test_the_expected_is_no_more_than_cvar_and_that_no_more_than_the_worst(
    drawn: list[tuple[float, float]],
) -> None:
    values, weights = np.array([v for v, _ in drawn]), [w for _, w in drawn]
    expected, tail, worst = (float(measured(values, workload(*weights, risk=r))) for r in
                             (Risk.EXPECTED, Risk.CVAR, Risk.WORST))  # fmt: skip
    assert expected == pytest.approx(float(np.average(values, weights=weights)))
    assert expected <= tail * (1 + 1e-9) + 1e-9
    assert tail <= worst * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("risk", list(Risk))
def test_no_steady_state_in_one_scenario_is_none_at_all(risk: Risk) -> None:
    values = np.array([[1.0, 2.0], [math.inf, 3.0]])
    found = measured(values, workload(3.0, 1.0, risk=risk))
    assert math.isinf(found[0])
    assert math.isfinite(found[1])


def test_columns_are_measured_one_by_one() -> None:
    asked = workload(2.0, 1.0, 1.0, risk=Risk.CVAR, level=0.5)
    values = np.array([[1.0, 9.0], [2.0, 1.0], [9.0, 2.0]])
    assert measured(values, asked).tolist() == [5.5, 9.0]


def test_slots_hold_the_requests_of_every_scenario() -> None:
    long = scenario("long", mean=4000.0)
    found = Workload(prompt=LENGTHS, output=LENGTHS, scenarios=(long,))
    assert found.context_tokens == context_for(long.prompt.p95, LENGTHS.p95)
    there = found.in_scenario(long)
    assert there.context_tokens == found.context_tokens
    assert there.prompt == long.prompt
    assert not there.scenarios
    assert not found.alone.scenarios


def test_what_is_impossible_is_refused() -> None:
    with pytest.raises(InputError, match="weight of 's' must be positive"):
        scenario("s", weight=0.0)
    with pytest.raises(InputError, match="rate_per_s of 's' must be zero or more"):
        scenario("s", rate=-1.0)
    with pytest.raises(InputError, match="two have the same name"):
        Workload(prompt=LENGTHS, output=LENGTHS, scenarios=(scenario("s"), scenario("s")))
    with pytest.raises(InputError, match="cvar_level must be"):
        workload(1.0, risk=Risk.CVAR, level=1.0)


def test_corners_are_the_middle_and_all_ends() -> None:
    assert corners([(1.0, 3.0)]) == [(2.0,), (1.0,), (3.0,)]
    assert len(corners([(0.0, 1.0)] * 3)) == 9
    assert corners([(2.0, 2.0)]) == [(2.0,)]
