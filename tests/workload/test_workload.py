"""Lengths and service levels: what is impossible is refused, and p95 means p95."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.errors import InputError
from e2llm_opt.workload.workload import Lengths, Workload

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("mean", [0.0, -1.0, NAN, INF])
def test_a_mean_length_is_positive_and_finite(mean: float) -> None:
    with pytest.raises(InputError, match="mean length must be positive and finite"):
        Lengths(mean=mean)


@pytest.mark.parametrize("cv", [-0.1, NAN, INF])
def test_a_cv_is_zero_or_more_and_finite(cv: float) -> None:
    with pytest.raises(InputError, match="cv must be zero or more and finite"):
        Lengths(mean=1.0, cv=cv)


def test_lengths_that_do_not_vary_are_all_the_mean() -> None:
    assert Lengths(mean=300.0, cv=0.0).p95 == 300.0


@given(st.floats(1e-3, 1e6), st.floats(0.0, 1.349))
def test_lengths_made_from_a_p95_have_it(mean: float, exponent: float) -> None:
    p95 = mean * math.exp(exponent)
    found = Lengths.from_p95(mean, p95)
    assert found.mean == mean
    assert found.p95 == pytest.approx(p95, rel=1e-6)


@pytest.mark.parametrize(
    ("mean", "p95"),
    [(100.0, 99.0), (100.0, 400.0), (100.0, -1.0), (-1.0, 100.0), (100.0, NAN), (1e300, 1e-300)],
)
def test_a_p95_that_no_lognormal_has_is_refused(mean: float, p95: float) -> None:
    with pytest.raises(InputError, match="No lognormal has mean"):
        Lengths.from_p95(mean, p95)


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [
        *((name, value, 0.0) for name in ("rate_per_s", "min_tokens_per_s") for value in (-1, NAN)),
        ("slots", 0, 1),
        ("context_tokens", -1, 1),
        ("slo_ttft_s", 0.0, 1e-9),
        ("slo_tpot_s", INF, 1e9),
    ],
)
def test_service_levels_are_numbers_that_can_be(field: str, wrong: Any, right: Any) -> None:
    lengths: dict[str, Any] = {"prompt": Lengths(mean=10.0), "output": Lengths(mean=10.0)}
    with pytest.raises(InputError, match=f"^{field} must be"):
        Workload(**lengths, **{field: wrong})
    assert getattr(Workload(**lengths, **{field: right}), field) == right
