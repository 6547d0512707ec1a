"""``e2llm-opt advise``: options that contradict, answers as JSON, an inventory written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.problem import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--kinds", "add,sell"], "'sell' is not one of add, link"),
        (["--kinds", "add,add"], "names a kind twice"),
        (["--max-devices", "3"], "--max-devices needs --target-rate"),
        (["-o", "bought.yaml"], "--output needs --target-rate"),
        (["--target-rate", "1", "--kinds", "add"], "--kinds contradicts --target-rate"),
        (["--target-rate", "1", "--top", "2"], "--top contradicts --target-rate"),
        (["--target-rate", "1", "--rate", "2"], "--rate contradicts --target-rate"),
        (["--target-rate", "1", "--by", "capacity"], "--by capacity contradicts --target-rate"),
        (["--kinds", "retire", "--type", "rtx-3090"], "--type contradicts --kinds retire: no add"),
        (["--kinds", "link", "--link-mbit-s", "9"], "--link-mbit-s contradicts --kinds link"),
        (["--target-rate", "0"], "not in the range x>0"),
        (["--price", "rtx-3090=cheap"], "'cheap' is not a number"),
        (["--price", "rtx-3090"], "is not TYPE=USD"),
        (["--price", "rtx-3090=-4"], "must be positive"),
        (["--type", "rtx-309x"], "rtx-309x"),
        (
            ["--target-rate", "1", "--pin", "chat=tower"],
            "constraints.pin: names devices of the inventory",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(lab: str, run: Run, options: list[str], says: str) -> None:
    result = run("advise", lab, *options)
    assert result.exit_code == 2
    assert says in result.output


def test_advice_is_a_report_and_json(lab: str, run: Run) -> None:
    options = ("--kinds", "add,retire", "--type", "rtx-3060-12gb", "--top", "1")
    report = run("advise", lab, *options)
    assert report.exit_code == 0
    for words in ("Now: capacity", "1 add rtx-3060-12gb", "retire laptop", "assumed"):
        assert words in report.output
    answer = json.loads(run("advise", lab, *options, "--json").output)
    assert answer["schema"] == "e2llm-opt/advice/v1"
    added, *retired = answer["advice"]
    assert (added["kind"], added["rank"], added["price"]) == ("add", 1, 329.0)
    assert added["gain"]["capacity_per_s"] == pytest.approx(
        added["capacity_per_s"] - answer["now"]["capacity_per_s"]
    )
    assert {row["kind"] for row in retired} == {"retire"}
    assert added["plan"]["schema"] == answer["now"]["plan"]["schema"] == "e2llm-opt/plan/v1"


def test_what_a_sizing_writes_can_be_planned(lab: str, run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "bought.yaml")
    options = ("--target-rate", "2", "--ttft", "5", "--type", "rtx-3060-12gb", "-o", path)
    report = run("advise", lab, *options)
    assert report.exit_code == 0
    assert "x rtx-3060-12gb" in report.output
    problem = Problem.load(path)
    assert problem.workload.rate_per_s == 2.0
    assert problem.workload.slo_ttft_s == 5.0
    assert run("plan", path, "-q").exit_code == 0
    answer = json.loads(run("advise", lab, *options[:-2], "--json").output)
    assert answer["devices"] == [{"type": "rtx-3060-12gb", "count": len(problem.devices)}]
    assert answer["bound"] <= answer["price"]


def test_a_target_out_of_reach_is_exit_3_with_the_reason(lab: str, run: Run) -> None:
    result = run("advise", lab, "--target-rate", "1", "--tpot", "1e-6")
    assert result.exit_code == 3
    assert "No devices: TPOT of" in result.output
    answer = json.loads(run("advise", lab, "--target-rate", "1", "--tpot", "1e-6", "--json").stdout)
    assert answer["proven"] is True


def test_where_no_change_helps_it_is_exit_3(lab: str, run: Run) -> None:
    big = ("--model", "deepseek-v3", "--weights", "f16", "--kinds", "context")
    result = run("advise", lab, *big)
    assert result.exit_code == 3
    assert "no plan: not enough memory" in result.output
