"""Several plans under each other, as ``plan --top`` prints them."""

from __future__ import annotations

import io
from dataclasses import replace

from e2llm_opt.report.ranking import print_ranking
from tests.samples import sample_plan


def printed(*capacities: float) -> list[str]:
    plan = sample_plan()
    plans = [
        replace(plan, predicted=replace(plan.predicted, capacity_per_s=capacity))
        for capacity in capacities
    ]
    file = io.StringIO()
    print_ranking(plans, file)
    return file.getvalue().splitlines()


def test_one_plan_is_no_ranking() -> None:
    assert printed(0.42) == []


def test_plans_are_listed_the_best_first_with_their_replicas() -> None:
    lines = printed(0.42, 0.37)
    assert "Ranked plans" in lines
    rows = [line.split() for line in lines]
    assert ["1", "DECODE", "tower", "+", "laptop", "913", "ms", "25.5", "s", "0.42/s"] in rows
    assert ["2", "DECODE", "tower", "+", "laptop", "913", "ms", "25.5", "s", "0.37/s"] in rows
    assert rows.count(["PREFILL", "mac"]) == 2
