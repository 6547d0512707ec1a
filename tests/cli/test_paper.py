"""``e2llm-opt plan --method e2llm-paper``: an ordinary plan, or a refusal that says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Run

TESTBED = str(Path(__file__).parents[2] / "examples" / "e2llm-testbed.yaml")
METHOD = ("--method", "e2llm-paper")


def test_the_plan_of_the_papers_method_passes_check(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "plan.json")
    result = run("plan", TESTBED, *METHOD, "--seed", "1", "-o", path)
    assert result.exit_code == 0
    assert "PREFILL" in result.stdout
    assert "MIXED" not in result.stdout.split("Alternatives")[0]
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    assert document["problem"]["options"]["method"] == "e2llm-paper"
    assert run("check", path, TESTBED).exit_code == 0


def test_llama_cpp_as_it_is_is_refused_with_what_to_do(run: Run, lab: str) -> None:
    result = run("plan", lab, *METHOD, "--runtime", "llama.cpp")
    assert result.exit_code == 2
    assert "method e2llm-paper" in result.stderr
    assert "or method auto" in result.stderr


def test_mixed_roles_are_refused(run: Run, lab: str) -> None:
    result = run("plan", lab, *METHOD, "--roles", "mixed")
    assert result.exit_code == 2
    assert "knows only PREFILL and DECODE" in result.stderr


def test_the_help_names_the_method(run: Run) -> None:
    assert "e2llm-paper" in run("plan", "--help").stdout
