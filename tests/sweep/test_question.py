"""A row's answer: figures of the plan, why there is none, or what is wrong with the question."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import e2llm_opt
from e2llm_opt import Plan, Problem, Stop
from e2llm_opt.sweep.question import Question, answer
from e2llm_opt.sweep.table import COLUMNS
from tests.cli.conftest import LAB

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUICK = "memory-proportional"


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., Question]:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB, encoding="utf-8")

    def question(*, planner: str = QUICK, stop: Stop | None = None, **more: Any) -> Question:
        problem = Problem.load(path, **more)
        terms = {"planner": planner, "seed": 0, "stop": stop or Stop(), "wants_plan": True}
        return Question(problem=problem, **terms)  # type: ignore[arg-type]

    return question


def test_a_plan_becomes_figures_that_are_columns(ask: Callable[..., Question]) -> None:
    question = ask()
    found, plan = answer(question), e2llm_opt.plan(question.problem, planner=QUICK)
    assert isinstance(plan, Plan)
    assert found.status == "planned"
    assert set(found.figures) <= set(COLUMNS)
    assert found.figures["ttft_s"] == plan.predicted.ttft_s
    assert found.figures["mixed_replicas"] == 1
    assert found.figures["devices"] == len(plan.replicas[0].stages)
    assert json.loads(found.plan)["replicas"] == json.loads(plan.to_json())["replicas"]


def test_no_plan_is_an_answer_with_its_reason(ask: Callable[..., Question]) -> None:
    found = answer(ask(weights="f16", constraints={"exclude": ["tower"]}))
    assert (found.status, found.plan) == ("infeasible", "")
    assert found.figures["reason"].startswith("not enough memory")


def test_a_question_that_cannot_be_asked_fails(ask: Callable[..., Question]) -> None:
    found = answer(ask(planner="e2llm-opt", objective="latency", stop=Stop(method="exact")))
    assert found.status == "failed"
    assert found.figures == {"reason": "method exact is for objective throughput."}
