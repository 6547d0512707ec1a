"""Closed, full and abandoned standard streams: the right exit code and one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import LAB

ROOT = Path(__file__).parents[2]
CLOSED = "Error: standard output cannot be written: bad file descriptor\n"
FULL = "Error: standard output cannot be written: no space left on device\n"


def shell(line: str, folder: Path, **environment: str) -> tuple[int, str, str]:
    """Run a shell line in which ``E2LLM`` stands for the program."""
    (folder / "lab.yaml").write_text(LAB, encoding="utf-8")
    done = subprocess.run(
        ["bash", "-c", line.replace("E2LLM", f"{sys.executable} -m e2llm_opt")],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


PRINTING = (
    "--help",
    "--version",
    "plan --help",
    "plan lab.yaml",
    "plan lab.yaml --json",
    "plan lab.yaml -o -",
    "catalog devices",
    "catalog models --json",
    "schema",
)


@pytest.mark.parametrize("arguments", PRINTING)
def test_a_closed_standard_output_is_bad_usage(arguments: str, tmp_path: Path) -> None:
    assert shell(f"E2LLM {arguments} >&-", tmp_path) == (2, "", CLOSED)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", ["--help", "plan --help", "catalog devices", "schema"])
def test_so_is_one_that_is_full(arguments: str, tmp_path: Path) -> None:
    assert shell(f"E2LLM {arguments} >/dev/full", tmp_path) == (2, "", FULL)


def test_who_asks_for_no_output_may_close_it(tmp_path: Path) -> None:
    """And the plan file is not mistaken for standard output, whose number it would get."""
    line = "E2LLM plan lab.yaml -q -o plan.json >&- && E2LLM check plan.json lab.yaml >&- -q"
    assert shell(line, tmp_path) == (0, "", "")
    assert (tmp_path / "plan.json").read_text(encoding="utf-8").startswith("{\n")


def test_check_says_that_its_verdict_cannot_be_written(tmp_path: Path) -> None:
    line = "E2LLM plan lab.yaml -q -o plan.json && E2LLM check plan.json lab.yaml >&-"
    assert shell(line, tmp_path) == (2, "", CLOSED)


@pytest.mark.parametrize("streams", ["2>&-", "<&- 2>&-"])
def test_without_standard_error_the_answer_is_the_same(streams: str, tmp_path: Path) -> None:
    code, out, err = shell(f"E2LLM plan lab.yaml {streams}", tmp_path)
    assert (code, err) == (0, "")
    assert "Replicas" in out


@pytest.mark.parametrize(
    ("arguments", "code"), [("plan absent.yaml", 2), ("frobnicate", 2), ("schema", 2)]
)
def test_with_everything_closed_only_the_exit_code_is_left(
    arguments: str, code: int, tmp_path: Path
) -> None:
    assert shell(f"E2LLM {arguments} <&- >&- 2>&-", tmp_path) == (code, "", "")


def test_a_name_that_the_encoding_lacks_is_escaped_and_json_stays_json(tmp_path: Path) -> None:
    line = "sed -i s/tower/t\u00fcrm\U0001f5fc/ lab.yaml && E2LLM plan lab.yaml"
    code, out, err = shell(f"{line} --json", tmp_path, PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    names = [s["device"] for r in json.loads(out)["replicas"] for s in r["stages"]]
    assert "t\u00fcrm\U0001f5fc" in names
    code, out, err = shell(line, tmp_path, PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert "t\\u00fcrm\\ud83d\\uddfc" in out


def test_a_complaint_about_such_a_name_is_no_traceback(tmp_path: Path) -> None:
    code, _, err = shell("E2LLM plan \u00fc.yaml", tmp_path, PYTHONIOENCODING="ascii")
    assert (code, err.count("\n")) == (2, 1)
