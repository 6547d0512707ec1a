"""Scenarios and ranges in a file: what they become, and every fault with its key."""

from __future__ import annotations

from typing import Any

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.loading.load import problem_from_mapping
from e2llm_opt.workload.scenarios import Risk
from e2llm_opt.workload.workload import Lengths, Workload

DEVICE = {"name": "box", "memory_gib": 64, "memory_bandwidth_gb_s": 200, "fp16_tflops": 20}


def read(workload: dict[str, Any]) -> Workload:
    mapping = {"devices": [DEVICE], "model": "llama-3.1-8b", "workload": workload}
    return problem_from_mapping(mapping).workload


def faults(workload: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        read(workload)
    return str(caught.value)


BASE = {"prompt_tokens": 500, "output_tokens": 100, "rate_per_s": 0.5}


def test_a_scenario_takes_from_the_workload_what_it_leaves_out() -> None:
    found = read({**BASE, "risk": "worst", "scenarios": [
        {"name": "day", "weight": 3, "rate_per_s": 2},
        {"name": "night", "prompt_tokens": {"mean": 4000, "cv": 0}},
    ]})  # fmt: skip
    day, night = found.scenarios
    assert (day.rate_per_s, day.weight, day.prompt) == (2.0, 3.0, Lengths(mean=500.0))
    assert (night.rate_per_s, night.weight) == (0.5, 1.0)
    assert night.prompt == Lengths(mean=4000.0, cv=0.0)
    assert found.rate_per_s == 0.5
    assert found.risk is Risk.WORST


def test_scenarios_alone_say_what_stands_for_them_all() -> None:
    one = {"name": "a", "rate_per_s": 3, "prompt_tokens": {"mean": 100, "cv": 0}}
    two = {"name": "b", "rate_per_s": 1, "prompt_tokens": {"mean": 500, "cv": 0}}
    lengths = {"output_tokens": {"mean": 50, "cv": 0}}
    found = read({"scenarios": [{**one, **lengths}, {**two, **lengths}]})
    assert found.rate_per_s == 2.0
    # Three requests in four have 100 tokens, one has 500.
    assert found.prompt.mean == pytest.approx(200.0)
    assert found.prompt.cv == pytest.approx((0.75 * 0.25) ** 0.5 * 400 / 200)
    assert found.output.mean == pytest.approx(50.0)


def test_a_range_becomes_its_middle_and_its_ends() -> None:
    found = read({**BASE, "rate_per_s": {"low": 1, "high": 3},
                  "prompt_tokens": {"low": 100, "high": 700, "cv": 0.2}})  # fmt: skip
    assert found.rate_per_s == 2.0
    assert found.prompt == Lengths(mean=400.0, cv=0.2)
    loads = {(one.rate_per_s, one.prompt.mean) for one in found.scenarios}
    assert loads == {(2.0, 400.0), (1.0, 100.0), (1.0, 700.0), (3.0, 100.0), (3.0, 700.0)}
    assert {one.prompt.cv for one in found.scenarios} == {0.2}
    assert len({one.name for one in found.scenarios}) == 5


@pytest.mark.parametrize(
    ("workload", "told"),
    [
        (
            {**BASE, "rate_per_s": {"low": 3, "high": 1}},
            "workload.rate_per_s: low is 3",
        ),
        ({**BASE, "rate_per_s": {"low": 3}}, "workload.rate_per_s.high: missing"),
        ({**BASE, "prompt_tokens": {"low": 1, "mean": 3}}, "workload.prompt_tokens.mean"),
        ({**BASE, "risk": "wrost"}, "workload.risk"),
        ({**BASE, "cvar_level": 1}, "workload.cvar_level"),
        ({**BASE, "scenarios": [{"name": "a", "weight": 0}]}, "workload.scenarios[0].weight"),
        ({**BASE, "scenarios": [{"name": "a"}, {"name": "a"}]}, "there is a scenario 'a' already"),
        ({**BASE, "scenarios": [{"rate_per_s": 1}]}, "workload.scenarios[0].name: missing"),
        ({**BASE, "scenarios": [{"name": "a", "rate": 1}]}, "workload.scenarios[0].rate"),
        (
            {**BASE, "rate_per_s": {"low": 1, "high": 2}, "scenarios": [{"name": "a"}]},
            "workload.rate_per_s: a range, beside scenarios",
        ),
        (
            {"output_tokens": 5, "scenarios": [{"name": "a", "prompt_tokens": 9}, {"name": "b"}]},
            "workload.scenarios[1].prompt_tokens: missing",
        ),
        (
            {**BASE, "context_tokens": 800, "scenarios": [{"name": "a", "prompt_tokens": 900}]},
            "workload.context_tokens: a mean request has 1000 tokens",
        ),
    ],
)
def test_every_fault_names_its_key(workload: dict[str, Any], told: str) -> None:
    assert told in faults(workload)
