"""The command line as a whole: help, exit codes, and nothing loaded in vain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

import e2llm_opt
from e2llm_opt.cli import LazyGroup, command_line, group
from e2llm_opt.cli.interruption import GivenUp
from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from tests.cli.conftest import Run


ROOT = Path(__file__).parents[2]
COMMANDS = command_line.list_commands(click.Context(command_line))
NO_COMMANDS = {
    *("__init__", "arrivals", "changes", "group", "interruption"),
    *("names", "problem", "progress", "streams", "words"),
}
HEAVY = {"matplotlib", "networkx", "numba", "numpy", "pydantic", "pymoo", "rich", "scipy", "yaml"}


def test_every_file_of_the_folder_is_a_command_or_known_not_to_be() -> None:
    files = {path.stem for path in (ROOT / "e2llm_opt" / "cli").glob("*.py")}
    commands = {group._MODULES.get(name, name) for name in COMMANDS}
    assert files == {*commands, *NO_COMMANDS}, "add the command to _COMMANDS in cli/group.py"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command: str, run: Run) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"  Examples:\n    e2llm-opt {command}" in result.stdout


def test_the_list_of_commands_names_all_of_them(run: Run) -> None:
    listed = run("--help").stdout.split("Commands:\n")[1]
    assert [line.split()[0] for line in listed.splitlines()] == COMMANDS


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("plann", "No such command 'plann'. Did you mean plan or replan?"),
        ("xyz", "No such command 'xyz'.\n"),
    ],
)
def test_a_misspelt_command_is_told_which_one_was_meant(word: str, said: str, run: Run) -> None:
    result = run(word, "lab.yaml")
    assert result.exit_code == 2
    assert said in result.stderr


def test_the_version_is_the_package_s(run: Run) -> None:
    assert e2llm_opt.__version__ in run("--version").stdout


@pytest.mark.parametrize("arguments", [["--help"], ["plan", "--help"], ["check", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys; from e2llm_opt.cli import command_line; "
        f"command_line.main({arguments}, standalone_mode=False); "
        "print('LOADED', *{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split("LOADED")[1].split()
    heavy = HEAVY & set(loaded)
    assert not heavy, f"import {', '.join(heavy)} inside the command that needs it"


def test_the_module_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "e2llm_opt", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("e2llm-opt")


def failing(error: BaseException) -> click.Group:
    group = LazyGroup("e2llm-opt", invoke_without_command=True)

    def fail() -> None:
        raise error

    group.callback = fail
    return group


def test_bad_input_prints_every_fault_to_stderr_and_exits_2() -> None:
    faults = [
        Fault(file="lab.yaml", line=3, path="devices[0].memory_gb", wrong="unknown key"),
        Fault(wrong="there are no devices"),
    ]
    result = CliRunner().invoke(failing(InputError(faults)))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "lab.yaml:3: devices[0].memory_gb: unknown key",
        "Error: there are no devices",
    ]


def test_an_interruption_with_nothing_to_show_exits_130() -> None:
    result = CliRunner().invoke(failing(KeyboardInterrupt()))
    assert result.exit_code == 130
    assert result.stdout == ""


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), GivenUp()])
def test_an_interruption_of_compiled_code_exits_130_too(cause: BaseException) -> None:
    """Numba turns a Ctrl-C inside a kernel into a SystemError."""
    error = SystemError("returned a result with an exception set")
    error.__cause__ = cause
    assert CliRunner().invoke(failing(error)).exit_code == 130


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemError("a real one")])
def test_a_bug_is_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error)):
        CliRunner().invoke(failing(error), catch_exceptions=False)


@pytest.mark.parametrize("arguments", [["frobnicate"], ["plan"], ["catalog", "planets"]])
def test_wrong_usage_exits_2(arguments: list[str], run: Run) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


def test_a_reader_that_goes_away_is_no_error_to_speak_of() -> None:
    reader = "import sys; sys.stdin.read(1)"
    program = (
        f"{sys.executable} -m e2llm_opt catalog models --json | {sys.executable} -c '{reader}'"
    )
    done = subprocess.run(
        ["bash", "-c", f"{program}; echo ${{PIPESTATUS[0]}}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in {"0", "141"}, "0: the pipe was large enough for all of it"
