"""What a shell gets: the script, and words for commands, options and their values, quickly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import get_completion_class

from e2llm_opt.catalogue.catalogue import (
    model_entries,
    model_entry,
    runtime_rows,
    weight_format_rows,
)
from e2llm_opt.cli import command_line
from e2llm_opt.cli.completion import PROGRAM, VARIABLE
from e2llm_opt.planners import PLANNERS
from e2llm_opt.problem import Objective

if TYPE_CHECKING:
    from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]
CLUSTER = "examples/raspberry-cluster.yaml"


def completed(*words: str, shell: str = "bash") -> list[str]:
    """Return what the program itself answers to a shell; the last word is not finished."""
    done = subprocess.run(
        [sys.executable, "-m", "e2llm_opt"],
        cwd=ROOT,
        env={
            **os.environ,
            VARIABLE: f"{shell}_complete",
            "COMP_WORDS": " ".join((PROGRAM, *words)),
            "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines() if done.stdout.strip() else []


def words(*typed: str) -> set[str]:
    return {line.removeprefix("plain,") for line in completed(*typed)}


def test_commands_are_completed() -> None:
    assert words("") == {
        *("plan", "pareto", "check", "explain", "report", "simulate", "failures", "export"),
        *("compare", "predict", "replan", "advise"),
        *("sweep", "calibrate", "init", "import", "probe", "catalog", "schema", "completion"),
    }
    assert words("cat") == {"catalog"}
    assert words("compare", "--planners", "e2llm-opt,all") == {"e2llm-opt,all-mixed"}
    assert words("export", "plan.json", "--to", "ll") == {"llama.cpp", "llm-d"}
    assert words("simulate", "--arrivals", "") == {"poisson", "fixed", "bursty"}


def test_devices_of_predict_are_types_or_those_of_the_inventory_named_before() -> None:
    assert {"jetson-nano-4gb", "jetson-agx-orin-64"} <= words("predict", "--device", "jetson")
    some = words("predict", "--inventory", CLUSTER, "--device", "pi-")
    assert some == {f"pi-{i}" for i in range(1, 9)}


def test_options_are_completed() -> None:
    assert {"--rate", "--replicas", "--roles", "--runtime"} <= words("plan", "--r")


@pytest.mark.parametrize("before", [("plan", CLUSTER), ("check", "plan.json", CLUSTER)])
def test_devices_are_those_of_the_inventory_named_before(before: tuple[str, ...]) -> None:
    some = words(*before, "--exclude", "pi")
    assert some == {"pi", *(f"pi-{i}" for i in range(1, 9))}
    assert words(*before, "--exclude", "pi-1", "--exclude", "mini") == {"mini-pc"}
    assert words("calibrate", CLUSTER, "--device", "mini") == {"mini-pc"}


@pytest.mark.parametrize("path", ["absent.yaml", "README.md", "pyproject.toml"])
def test_without_an_inventory_there_are_no_devices_and_no_complaint(path: str) -> None:
    assert completed("plan", path, "--exclude", "") == []
    assert completed("plan", "--exclude", "") == []


def test_values_are_those_that_the_problem_knows() -> None:
    assert words("plan", "--objective", "") == {str(word) for word in Objective}
    assert words("plan", "--roles", "") == {"auto", "disaggregated", "mixed"}
    assert words("plan", "--method", "") == {"auto", "exact", "exhaustive", "ga", "e2llm-paper"}
    assert words("plan", "--planner", "") == set(PLANNERS)
    assert words("catalog", "") == {"devices", "models", "weights", "runtimes"}
    assert words("completion", "") == {"bash", "zsh", "fish"}


def test_names_are_those_of_the_catalogue() -> None:
    assert words("plan", "--model", "") == {entry.key for entry in model_entries()}
    assert words("plan", "--weights", "") == {row.key for row in weight_format_rows()}
    assert words("plan", "--runtime", "") == {row.key for row in runtime_rows()}
    caches = {row.key for row in weight_format_rows() if row.kv_cache_bits is not None}
    assert words("plan", "--kv-cache", "") == caches
    assert words("plan", "--model", "Llama-3.1") == {
        *("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b")
    }


@pytest.mark.parametrize(
    "typed",
    [("plan", "exam"), ("check", "pl"), ("plan", "-o", "x"), ("plan", "--model", "./mine/con")],
)
def test_files_are_left_to_the_shell(typed: tuple[str, ...]) -> None:
    assert completed(*typed) == [f"file,{typed[-1]}"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_shells_that_show_help_are_told_what_a_model_is_called_in_full(shell: str) -> None:
    answer = " ".join(completed("plan", "--model", "llama-3.1-8", shell=shell))
    assert "llama-3.1-8b" in answer
    assert model_entry("llama-3.1-8b").name in answer


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_click_s_own_for_our_program(shell: str, run: Run) -> None:
    script = run("completion", shell).stdout
    assert f"{VARIABLE}={shell}_complete" in script
    assert PROGRAM in script
    kind = get_completion_class(shell)
    assert kind is not None
    own = kind(command_line, {}, PROGRAM, VARIABLE)
    if shell != "bash":  # which would look for a bash of the right version
        assert script.strip() == own.source().strip()


def test_bash_accepts_the_script_and_completes_with_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "script").write_text(run("completion", "bash").stdout, encoding="utf-8")
    program = tmp_path / PROGRAM
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m e2llm_opt "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    ask = (
        "source script; COMP_WORDS=(e2llm-opt plan --roles mi); COMP_CWORD=3; "
        '_e2llm_opt_completion e2llm-opt; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", ask],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("mixed\n", "")


def test_completing_loads_nothing_heavy() -> None:
    program = (
        "import sys, atexit\n"
        "atexit.register(lambda: print(*{m.split('.')[0] for m in sys.modules}, file=sys.stderr))\n"
        "from e2llm_opt.cli import main; main()"
    )
    for typed in (f"plan {CLUSTER} --exclude p", "plan --model l", "plan --objective t"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={
                **os.environ,
                VARIABLE: "bash_complete",
                "COMP_WORDS": f"{PROGRAM} {typed}",
                "COMP_CWORD": str(len(typed.split())),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.startswith("plain,")
        heavy = {"numpy", "numba", "scipy", "pydantic", "rich", "pymoo", "networkx"}
        assert not heavy & set(done.stderr.split())
