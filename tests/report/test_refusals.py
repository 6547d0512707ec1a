"""Why there is no plan, and what is wrong with one."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.check.verdict import Report, Violation
from e2llm_opt.report.refusals import print_check, print_infeasible
from tests.samples import sample_infeasible

if TYPE_CHECKING:
    from e2llm_opt.plan.infeasible import Infeasible


def refused(answer: Infeasible) -> str:
    file = io.StringIO()
    print_infeasible(answer, file)
    return file.getvalue()


def checked(*violations: Violation) -> str:
    file = io.StringIO()
    report = Report(violations=violations, replicas=(), routes=(), links=(), capacity_per_s=0.5)
    print_check(report, file)
    return file.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        "There is no plan.",
        "exceed the memory of all devices",
        "tower   30 GiB  11 GiB   19 GiB",
        "in all 56 GiB, of which KV cache 16 GiB; short of 30 GiB",
        "context_tokens: 12288   makes it feasible",
    ],
)
def test_an_infeasible_answer_tells(words: str) -> None:
    text = refused(sample_infeasible())
    assert words in text
    assert text.isascii()


def test_nothing_is_said_to_be_short_where_memory_is_not_the_reason() -> None:
    answer = replace(sample_infeasible(), shortfall_bytes=0, suggestions=(), reason="No legal cut.")
    text = refused(answer)
    assert "short of" not in text
    assert "What would help" not in text


def test_a_valid_plan_gets_one_line() -> None:
    assert checked() == "The plan is valid: 0 replicas, capacity 0.5/s.\n"


def test_every_violation_is_listed_with_need_and_have() -> None:
    text = checked(
        Violation(what="r0: memory exceeded", need=13 * 2**30, have=11 * 2**30, device="tower"),
        Violation(what="r1: layers", need="[0, 32)", have=None),
        Violation(what="r1: tpot_s", need=0.0412345, have=0.0412),
    )
    assert "not valid: 3 violations" in text
    assert "13.000 GiB  11.000 GiB" in text
    assert "[0, 32)" in text
    assert "0.0412345" in text


def test_one_violation_is_singular() -> None:
    assert "1 violation." in checked(Violation(what="x", need=1, have=2))
