"""Reports of simulations and comparisons: whole numbers on 80 columns, and what is odd is said."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from e2llm_opt.compare import ComparisonRow
from e2llm_opt.report.comparison import print_comparison
from e2llm_opt.report.simulation import print_simulation
from e2llm_opt.simulate.simulate import simulate
from e2llm_opt.simulate.statistics import Spread
from tests.samples import overloaded_plan
from tests.simulate.small import ON_DESKTOP, plan, problem, trace

LONG = Spread(mean=4734.0, p50=4734.0, p90=7199.0, p99=10000.0)
ROW = ComparisonRow(
    planner="memory-proportional",
    plan=overloaded_plan(),
    simulated=dict.fromkeys(("waiting_time_s", "ttft_s", "tpot_s", "latency_s"), LONG),
    rejected=3,
    planning_s=0.0123,
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_no_number_of_a_comparison_is_cut() -> None:
    refused = replace(ROW, planner="splitwise", plan=None, simulated=None, reason="no machine")
    file = io.StringIO()
    print_comparison([ROW, refused], 100, file)
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    for words in (
        *("memory-proportional", "unstable", "78.9 min", "120 min", "2.78 h", "12.3 ms"),
        *("splitwise: no machine", "memory-proportional: 3 requests are longer"),
    ):
        assert words in text


def test_an_interrupted_overloaded_run_says_so() -> None:
    found = plan(("MIXED", ON_DESKTOP), longest=400)
    requests = trace(*((0.01 * i, 200, 100) for i in range(120)), (2.0, 900, 9))
    summary = simulate(found, problem(), requests).summary(found, problem())
    file = io.StringIO()
    print_simulation(summary, problem().workload, 1000, file)
    text = file.getvalue()
    for words in (
        *("Interrupted: the first 121 of 1000 requests", "1 rejected", "Drifting"),
        *("TTFT up to 2 s", "TPOT up to 200 ms", "all of them"),
    ):
        assert words in text
