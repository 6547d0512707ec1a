"""``e2llm-opt check`` on plans written by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Run


def written(tmp_path: Path, *stages: tuple[str, int, int]) -> str:
    path = tmp_path / "plan.json"
    entries = [{"device": device, "layers": [start, stop]} for device, start, stop in stages]
    path.write_text(json.dumps({"replicas": [{"role": "MIXED", "stages": entries}]}))
    return str(path)


def test_a_valid_plan_is_exit_0(lab: str, run: Run, tmp_path: Path) -> None:
    plan = written(tmp_path, ("tower", 0, 32))
    result = run("check", plan, lab)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("The plan is valid: 1 replica")
    assert json.loads(run("check", plan, lab, "--json").stdout)["valid"] is True


def test_violations_are_exit_3_and_listed(lab: str, run: Run, tmp_path: Path) -> None:
    plan = written(tmp_path, ("tower", 0, 16), ("laptop", 17, 32))
    result = run("check", plan, lab)
    assert result.exit_code == 3
    assert "not valid" in result.stdout
    assert "laptop" in result.stdout
    answer = json.loads(run("check", plan, lab, "--json").stdout)
    assert answer["valid"] is False
    assert {"what", "device", "need", "have"} == set(answer["violations"][0])


def test_quiet_says_it_with_the_exit_code(lab: str, run: Run, tmp_path: Path) -> None:
    assert run("check", "-q", written(tmp_path, ("tower", 0, 32)), lab).output == ""
    result = run("check", "-q", written(tmp_path, ("tower", 0, 31)), lab)
    assert (result.exit_code, result.output) == (3, "")


def test_options_change_what_a_plan_is_checked_against(lab: str, run: Run, tmp_path: Path) -> None:
    plan = written(tmp_path, ("tower", 0, 28))
    assert run("check", plan, lab).exit_code == 3
    assert run("check", plan, lab, "--model", "llama-3.2-3b").exit_code == 0


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\x7fELF\x00\xff", b"[]", b'{"replicas": 3}', b"null", b'{"a": NaN}']
)
def test_what_is_no_plan_is_exit_2(lab: str, run: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    result = run("check", str(path), lab)
    assert result.exit_code == 2
    assert str(path) in result.stderr


def test_a_missing_plan_is_exit_2(lab: str, run: Run, tmp_path: Path) -> None:
    result = run("check", str(tmp_path / "absent.json"), lab)
    assert result.exit_code == 2
    assert "absent.json: cannot be read" in result.stderr
