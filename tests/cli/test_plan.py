"""``e2llm-opt plan``: what is printed, what is written, and which exit code says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.plan.json_file import dump_json, load_plan
from e2llm_opt.search.islands import Islands
from e2llm_opt.search.stop import Stop
from tests.samples import sample_infeasible, sample_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Planner, Run


def test_the_report_goes_to_standard_output(lab: str, run: Run, planner: Planner) -> None:
    result = run("plan", lab)
    assert result.exit_code == 0
    assert "r0 DECODE" in result.stdout
    assert result.stderr == ""
    assert [device.name for device in planner.problems[0].devices] == ["tower", "laptop"]


@pytest.mark.parametrize("arguments", [["--json"], ["-o", "-"], ["--json", "-q"]])
def test_json_on_standard_output_is_the_plan_and_nothing_else(
    lab: str, run: Run, planner: Planner, arguments: list[str]
) -> None:
    assert run("plan", lab, *arguments).stdout == dump_json(sample_plan())
    assert planner.problems


def test_the_output_file_holds_the_plan(
    lab: str, run: Run, planner: Planner, tmp_path: Path
) -> None:
    output = tmp_path / "plan.json"
    result = run("plan", lab, "-o", str(output))
    assert load_plan(output) == planner.answer
    assert "Replicas" in result.stdout


def test_quiet_prints_nothing(lab: str, run: Run, planner: Planner, tmp_path: Path) -> None:
    result = run("plan", lab, "-q", "-o", str(tmp_path / "plan.json"))
    assert (result.exit_code, result.output) == (0, "")
    assert load_plan(tmp_path / "plan.json") == planner.answer


def test_no_plan_is_exit_3_and_still_an_answer(
    lab: str, run: Run, planner: Planner, tmp_path: Path
) -> None:
    planner.answer = sample_infeasible()
    result = run("plan", lab, "-o", str(tmp_path / "plan.json"))
    assert result.exit_code == 3
    assert "There is no plan." in result.stdout
    assert json.loads((tmp_path / "plan.json").read_text())["schema"].startswith(
        "e2llm-opt/infeasible"
    )
    result = run("plan", lab, "--json")
    assert (result.exit_code, result.stdout) == (3, dump_json(sample_infeasible()))


def test_an_interruption_without_a_plan_is_exit_130_and_writes_nothing(
    lab: str, run: Run, planner: Planner, tmp_path: Path
) -> None:
    planner.answer = KeyboardInterrupt()
    output = tmp_path / "plan.json"
    result = run("plan", lab, "-o", str(output))
    assert result.exit_code == 130
    assert not output.exists()


@pytest.mark.parametrize("output", ["", "absent/plan.json"])
def test_an_unwritable_output_is_refused_before_the_search(
    lab: str, run: Run, planner: Planner, tmp_path: Path, output: str
) -> None:
    result = run("plan", lab, "-o", f"{tmp_path}/{output}")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr
    assert not planner.problems


def test_a_search_gets_its_seed_and_limits(lab: str, run: Run, planner: Planner) -> None:
    run("plan", lab)
    assert (planner.name, planner.seed, planner.stop) == ("e2llm-opt", 0, Stop())
    run(
        *("plan", lab, "--seed", "7", "--method", "ga"),
        *("--time-limit", "2.5", "--max-evaluations", "99", "--planner", "hexgen"),
    )
    assert (planner.name, planner.seed) == ("hexgen", 7)
    assert planner.stop == Stop(method="ga", time_limit_s=2.5, max_evaluations=99)


def test_a_faulty_file_is_exit_2_with_its_line(run: Run, planner: Planner, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("devices:\n  - {name: a, memory_gb: 3}\nmodle: x\n")
    result = run("plan", str(path))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert f"{path}:2: devices[0].memory_gb: unknown key" in result.stderr
    assert f"{path}:3: modle: unknown key" in result.stderr
    assert not planner.problems


@pytest.mark.parametrize(
    ("arguments", "islands"),
    [
        ((), None),
        (("--islands", "3"), Islands(num=3)),
        (("--dask", "tcp://a:1"), Islands(num=4, dask="tcp://a:1")),
        (("--dask", "tcp://a:1", "--islands", "9"), Islands(num=9, dask="tcp://a:1")),
    ],
)
def test_islands_reach_the_search(
    lab: str, run: Run, planner: Planner, arguments: tuple[str, ...], islands: Islands | None
) -> None:
    assert run("plan", lab, *arguments).exit_code == 0
    assert planner.islands == islands


def test_an_address_that_is_none_is_bad_input(lab: str, run: Run) -> None:
    result = run("plan", lab, "--dask", "nonsense")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: 'nonsense' is no address of a Dask scheduler: missing")
