"""When a search ends: limits that allow nothing are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.search.stop import Stop


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"max_evaluations": 0}, "max_evaluations and stagnation must be at least 1"),
        ({"stagnation": 0}, "max_evaluations and stagnation must be at least 1"),
        ({"time_limit_s": 0.0}, "time_limit_s must be positive, got 0.0"),
        ({"time_limit_s": -1.0}, "time_limit_s must be positive"),
        ({"time_limit_s": math.nan}, "time_limit_s must be positive"),
        ({"method": "luck"}, "method must be one of auto, exact, exhaustive, ga, got 'luck'"),
    ],
)
def test_limits_that_allow_nothing_are_refused(limits: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Stop(**limits)


@pytest.mark.parametrize(
    "limits", [{"max_evaluations": 1, "stagnation": 1}, {"time_limit_s": 1e-9}, {"method": "ga"}]
)
def test_the_least_limits_are_taken(limits: dict[str, Any]) -> None:
    assert {name: getattr(Stop(**limits), name) for name in limits} == limits
