"""Numbers for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.report.quantities import gib, number, percent, rate, seconds, size, span


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (3e-5, "30 us"),
        (0.0123, "12.3 ms"),
        (0.9131, "913 ms"),
        (25.53, "25.5 s"),
        (300.0, "300 s"),
        (900.0, "15 min"),
        (7300.0, "2.03 h"),
    ],
)
def test_times(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 MiB"), (72 * 2**20, "72 MiB"), (6.5 * 2**30, "6.5 GiB")],
)
def test_sizes(value: float | None, text: str) -> None:
    assert size(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0 %"),
        (2e-6, "<0.1 %"),
        (0.004, "0.4 %"),
        (0.738, "74 %"),
        (1.0, "100 %"),
    ],
)
def test_fractions(value: float | None, text: str) -> None:
    assert percent(value) == text


def test_large_numbers_keep_their_digits() -> None:
    assert number(1404.9) == "1405"
    assert number(131072) == "131072"
    assert number(0.31) == "0.31"
    assert rate(0.31) == "0.31/s"
    assert gib(6.54 * 2**30) == "6.5"


@given(value=st.floats(min_value=0, max_value=1e12))
def test_every_time_is_short_ascii_with_a_unit(value: float) -> None:
    text = seconds(value)
    assert text.isascii()
    assert len(text) <= 12
    assert text.split()[1] in {"us", "ms", "s", "min", "h"}


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.0557, 0.128, "55.7-128 ms"),
        (0.9, 9.08, "0.9-9.08 s"),
        (0.0, 0.0, "0 s"),
        (0.0, 2e-5, "0-20 us"),
        (1.5, None, "from 1.5 s"),
    ],
)
def test_an_interval_is_in_the_unit_of_its_upper_end(
    low: float, high: float | None, text: str
) -> None:
    assert span(low, high) == text
