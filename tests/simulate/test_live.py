"""Replicas that come and go: the event loop equals a plain SimPy model, request by request."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.simulate.live_cases import LiveCase, assert_same, live_cases

some = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(some, max_examples=2000)


@some
@given(live_cases())
def test_replicas_that_come_and_go(case: LiveCase) -> None:
    assert_same(case.fast(), case.plain())


@pytest.mark.slow
@many
@given(live_cases())
def test_replicas_that_come_and_go_thousands_of_times(case: LiveCase) -> None:
    assert_same(case.fast(), case.plain())
