"""``e2llm-opt replan``: the report, JSON, files, and how it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.problem import Problem
from tests.replan.test_replan import planned

if TYPE_CHECKING:
    from tests.cli.conftest import Run

EXAMPLES = Path(__file__).parents[2] / "examples"
OTHER = str(EXAMPLES / "replan" / "plan.json")
"""A plan for other devices."""
LAB = str(EXAMPLES / "homelab.yaml")
BUSY = ("--rate", "1.43")
"""More than two of the three devices serve without long waits."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file with the plan that runs: laptop and desktop, each on its own."""
    file = tmp_path_factory.mktemp("running") / "plan.json"
    file.write_text(planned(Problem.load(LAB)).to_json(), encoding="utf-8")
    return str(file)


def test_an_unchanged_plan_is_written_as_it_is(run: Run, running: str, tmp_path: Path) -> None:
    file = tmp_path / "next.json"
    result = run("replan", running, LAB, "-o", str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Nothing changed" in result.stdout
    assert file.read_text("utf-8") == Path(running).read_text("utf-8")


@pytest.mark.needs_jit
def test_the_answer_has_moves_roles_gain_and_plan(run: Run, running: str, tmp_path: Path) -> None:
    file, picture = tmp_path / "next.json", tmp_path / "way.svg"
    files = ("-o", str(file), "--plot", str(picture))
    result = run("replan", running, LAB, *BUSY, "--json", *files)
    assert (result.exit_code, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert answer["schema"] == "e2llm-opt/replan/v1"
    assert answer["recommended"] == "layers"
    assert {"device", "layers", "from", "bytes", "seconds"} <= set(answer["moves"][0])
    assert answer["gain"]["before"]["stable"] is False
    assert answer["gain"]["after"]["stable"] is True
    assert set(answer["gain"]["steps"]) == {"routing", "roles", "layers"}
    assert answer["plan"] == json.loads(file.read_text("utf-8"))
    assert picture.read_text("utf-8").startswith("<?xml")
    checked = run("check", str(file), LAB, *BUSY)
    assert checked.exit_code == 0
    again = run("replan", str(file), LAB, *BUSY)
    assert "Nothing changed" in again.stdout


@pytest.mark.needs_jit
def test_the_report_offers_three_steps_and_lists_the_moves(run: Run, running: str) -> None:
    result = run("replan", running, LAB, *BUSY)
    for words in ("as it stands", "routing", "roles", "layers *", "Moves, in order", "mac-mini"):
        assert words in result.stdout
    roles = run("replan", running, LAB, *BUSY, "--step", "roles")
    assert "Moves, in order" not in roles.stdout


@pytest.mark.needs_jit
def test_limits_that_leave_nothing_are_named(run: Run, running: str) -> None:
    gone = ("--exclude", "laptop", "--exclude", "desktop")
    result = run("replan", running, LAB, *gone, "--max-moves", "0")
    assert result.exit_code == 2
    assert "max_moves 0" in result.stderr
    assert "1 moves" in result.stderr
    possible = run("replan", running, LAB, *gone, "-q")
    assert possible.exit_code == 0


def test_nothing_feasible_is_an_answer(run: Run, running: str, tmp_path: Path) -> None:
    file = tmp_path / "next.json"
    result = run("replan", running, LAB, "--context", "40000000", "--json", "-o", str(file))
    assert result.exit_code == 3
    assert json.loads(result.stdout)["schema"] == "e2llm-opt/infeasible/v1"
    assert not file.exists()


def test_bad_input_is_refused(run: Run, running: str, tmp_path: Path) -> None:
    other = tmp_path / "plan.json"
    other.write_text("{}", encoding="utf-8")
    assert run("replan", str(other), LAB).exit_code == 2
    assert run("replan", running, LAB, "--weights-on", "nas").exit_code == 2
    assert run("replan", running, LAB, "--json", "-o", "-").exit_code == 2
    assert run("replan", running, LAB, "--horizon", "0").exit_code == 2
    assert run("replan", running, LAB, "--plot", "way.txt").exit_code == 2


def test_a_plan_of_other_devices_is_matched_by_name(run: Run) -> None:
    result = run("replan", OTHER, LAB, "--json")
    assert result.exit_code == 0
    kinds = {(one["what"], one["name"]) for one in json.loads(result.stdout)["differences"]}
    assert ("gone", "agx-1") in kinds
    assert ("new", "desktop") in kinds
