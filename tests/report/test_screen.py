"""Colour and width are those that the reader's environment asks for."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import termios
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.report.refusals import print_infeasible
from e2llm_opt.report.terminal import print_plan
from e2llm_opt.report.width import columns
from tests.samples import sample_infeasible, sample_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def terminal() -> Iterator[io.TextIOWrapper]:
    """Yield a real terminal of 97 columns, at its program's end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 97, 0, 0))
    with open(theirs, "w", encoding="utf-8") as file:  # noqa: PTH123 - a number
        file.ours = ours  # type: ignore[attr-defined]
        yield file
    os.close(ours)


def shown(terminal: io.TextIOWrapper) -> str:
    print_plan(sample_plan(), terminal)
    terminal.flush()
    return os.read(terminal.ours, 1 << 20).decode()  # type: ignore[attr-defined]


def piped() -> str:
    file = io.StringIO()
    print_plan(sample_plan(), file)
    print_infeasible(sample_infeasible(), file)
    return file.getvalue()


def test_a_terminal_is_coloured(terminal: io.TextIOWrapper) -> None:
    assert COLOUR.search(shown(terminal))


@pytest.mark.parametrize("value", ["1", "0", "no", "yes please"])
def test_no_color_is_any_value_that_is_not_empty(
    value: str, terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", value)
    assert not COLOUR.search(shown(terminal))


def test_an_empty_no_color_asks_for_nothing(
    terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    assert COLOUR.search(shown(terminal))


def test_a_dumb_terminal_gets_no_escapes(
    terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in shown(terminal)


def test_a_pipe_gets_no_escapes_whatever_the_terminal_can() -> None:
    assert "\x1b" not in piped()
    assert all(line == line.rstrip() for line in piped().splitlines())


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_the_width_is_the_terminal_s(
    term: str, terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    assert columns(terminal) == 97
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown(terminal)).splitlines()
    assert 80 < max(map(len, lines)) <= 97


@pytest.mark.parametrize("width", [75, 100])
def test_columns_wins_over_the_terminal_and_in_a_pipe(
    width: int, terminal: io.TextIOWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert columns(terminal) == width
    assert max(len(line) for line in piped().splitlines()) <= width


@pytest.mark.parametrize("value", ["", "0", "-5", "wide", "80.5"])
def test_columns_that_are_no_number_are_ignored(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", value)
    assert columns(io.StringIO()) == 80


@pytest.mark.parametrize("width", ["1", "7", "60", "100000"])
def test_any_width_prints_every_name(width: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert "".join(piped().split()).count("tower") >= 2
