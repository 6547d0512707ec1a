"""``e2llm-opt plan --planner e2llm-paper``: an ordinary plan, or a refusal that says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Run

TESTBED = str(Path(__file__).parents[2] / "examples" / "e2llm-testbed.yaml")
PLANNER = ("--planner", "e2llm-paper")


def test_the_plan_of_the_paper_passes_check(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    result = run("plan", TESTBED, *PLANNER, "--seed", "1", "-o", path)
    assert result.exit_code == 0
    assert "PREFILL" in result.stdout
    assert "MIXED" not in result.stdout.split("Alternatives")[0]
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    assert document["problem"]["options"]["planner"] == "e2llm-paper"
    assert run("check", path, TESTBED).exit_code == 0


def test_the_method_of_the_paper_is_its_planner(run: Run) -> None:
    by_method = json.loads(run("plan", TESTBED, "--method", "e2llm-paper", "--json").stdout)
    by_planner = json.loads(run("plan", TESTBED, *PLANNER, "--json").stdout)
    assert by_method["replicas"] == by_planner["replicas"]
    assert by_method["problem"] == by_planner["problem"]
    other = run("plan", TESTBED, "--method", "e2llm-paper", "--planner", "hexgen")
    assert other.exit_code == 2
    assert "leave --planner hexgen out" in other.stderr


def test_llama_cpp_as_it_is_is_refused_with_what_to_do(run: Run, lab: str) -> None:
    result = run("plan", lab, *PLANNER, "--runtime", "llama.cpp")
    assert result.exit_code == 3
    assert "planner e2llm-paper" in result.stdout
    assert "planner: e2llm-opt" in result.stdout


def test_mixed_roles_are_refused(run: Run, lab: str) -> None:
    result = run("plan", lab, *PLANNER, "--roles", "mixed")
    assert result.exit_code == 3
    assert "roles: auto" in result.stdout


def test_the_help_names_the_planner(run: Run) -> None:
    assert "e2llm-paper" in run("plan", "--help").stdout
