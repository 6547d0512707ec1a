"""A plan written by hand becomes whole: what the checker recomputed, and nothing invented."""

from __future__ import annotations

import json

import pytest

from e2llm_opt.check.check import check
from e2llm_opt.check.complete import completed
from e2llm_opt.plan.json_file import plan_from_dict
from tests.simulate.small import ON_DESKTOP, ON_MAC, plan, problem


def test_a_completed_plan_is_valid_and_reads_back() -> None:
    found = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
    assert check(found, problem()).violations == ()
    assert plan_from_dict(json.loads(found.to_json())) == found


def test_requests_are_shared_by_service_rates() -> None:
    found = plan(("MIXED", ON_DESKTOP), ("MIXED", ON_MAC))
    assert [r.arrival_rate_per_s for r in found.replicas] == pytest.approx(
        [r.service_rate_per_s for r in found.replicas]
    )
    assert [r.utilisation for r in found.replicas] == pytest.approx([1, 1])
    split = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
    slowest = min(r.service_rate_per_s for r in split.replicas)
    assert [r.arrival_rate_per_s for r in split.replicas] == [slowest, slowest]


def test_what_is_not_recomputed_is_not_predicted() -> None:
    found = completed(
        check(
            {"replicas": [{"role": "MIXED", "stages": [{"device": "desktop", "layers": [0, 28]}]}]},
            problem(),
        ),
        problem(),
    )
    assert found.predicted.waiting_time_s is None
    assert found.predicted.capacity_per_s == found.replicas[0].service_rate_per_s
