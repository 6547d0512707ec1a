"""What takes long shows a few lines on a terminal; everything else stays silent."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.cli import progress as module
from e2llm_opt.cli.progress import Line, progress_line
from e2llm_opt.search.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "e2llm_opt")
STATE = Progress(
    evaluations=1234,
    elapsed_s=2.5,
    best="4 MIXED, waiting [6 ms]",
    doing="packing",
    done=7,
    planned=4140,
    best_waiting_s=0.006,
    best_capacity_per_s=2.0,
    gap=0.2,
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")


def wait_for(is_there: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_there():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("file", [io.StringIO(), None], ids=["pipe", "closed"])
def test_what_is_no_terminal_gets_nothing(file: io.StringIO | None) -> None:
    with progress_line(file, quiet=False, doing="checking") as line:
        assert line is None


def test_quiet_gets_nothing() -> None:
    with progress_line(Terminal(), quiet=True, doing="checking") as line:
        assert line is None


def test_a_dumb_terminal_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with progress_line(Terminal(), quiet=False, doing="checking") as line:
        assert line is None


def test_what_ends_soon_shows_nothing() -> None:
    terminal = Terminal()
    with progress_line(terminal, quiet=False, doing="checking") as line:
        assert line is not None
        line(STATE)
    assert terminal.getvalue() == ""


def test_what_takes_long_shows_how_far_it_is_and_takes_it_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    terminal = Terminal()
    with progress_line(terminal, quiet=False, doing="checking the plan") as line:
        assert line is not None
        wait_for(lambda: "s | checking the plan" in terminal.getvalue())
        line(STATE)
        wait_for(lambda: "packing 7 of 4140" in terminal.getvalue())
    assert screen(terminal.getvalue()) == [""]


def screen(written: str) -> list[str]:
    """Return what a terminal shows after *written*, by the three sequences that we use."""
    rows, row = [""], 0
    for part in re.findall(r"\x1b\[K|\x1b\[1A|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            rows += [""] * (row == len(rows))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[K":
            rows[row] = ""
        elif part != "\r":
            rows[row] += part
    return rows[: row + 1] if not any(rows[row + 1 :]) else rows


def test_a_search_shows_best_bound_gap_and_how_fast_it_is() -> None:
    line = Line(io.StringIO(), "checking")
    line(STATE)
    first, titles, values = line.lines(200)
    assert first == "0 s | packing 7 of 4140 | Ctrl-C keeps the best"
    assert re.split("  +", titles) == [
        *("best so far", "waiting", "capacity", "bound", "gap", "evaluations", "a second"),
    ]
    assert re.split("  +", values) == ["4 MIXED", "6 ms", "2/s", "2.5/s", "20 %", "1234", "494"]
    assert all(len(one) <= 70 for one in line.lines(70))
    assert line.lines(40) == [line.text(40)]


def test_a_table_is_painted_over_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    monkeypatch.setattr(module, "_PERIOD_S", 0.01)
    terminal = Terminal()
    with progress_line(terminal, quiet=False, doing="checking the plan") as line:
        assert line is not None
        line(STATE)
        wait_for(lambda: terminal.getvalue().count("packing 7") > 3)
        line.say("simulating")
        wait_for(lambda: terminal.getvalue().count("simulating") > 2)
        line(STATE)
        wait_for(lambda: terminal.getvalue().count("packing 7") > 6)
    assert screen(terminal.getvalue()) == [""]
    before_the_end = terminal.getvalue()[: terminal.getvalue().rindex("a second")]
    assert len(screen(before_the_end)) == 2


def test_a_line_is_never_wider_than_the_terminal() -> None:
    line = Line(io.StringIO(), "checking")
    line(STATE)
    assert len(line.text(20)) == 20
    assert line.text(20).startswith("0 s | packing 7 of")


def test_a_change_that_is_tried_is_named() -> None:
    line = Line(io.StringIO(), "checking")
    line(Progress(evaluations=5, elapsed_s=3, best="no plan", doing="weights: q4_k_m"))
    assert "trying weights: q4_k_m | best: no plan" in line.text(100)


def test_after_ctrl_c_the_line_says_so() -> None:
    line = Line(io.StringIO(), "checking")
    line(STATE)
    line.interrupted()
    assert line.text(100).startswith("0 s | stopping; Ctrl-C again quits at once | packing")


def _read(terminal: int) -> bytes:
    """Return what is there; nothing at the end, which Linux reports as an error."""
    try:
        return os.read(terminal, 1 << 20)
    except OSError:
        return b""


@pytest.mark.slow
def test_a_long_search_paints_on_a_real_terminal_and_prints_to_a_pipe() -> None:
    """Standard error is the terminal here; standard output stays clean."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*PROGRAM, "plan", "examples/campus-fog.yaml", "--json", "--time-limit", "4"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "COLUMNS": "100"},
    )
    os.close(theirs)
    out, _ = running.communicate(timeout=120)
    painted = b"".join(iter(lambda: _read(ours), b"")).decode()
    os.close(ours)
    assert out.startswith(b"{\n")
    assert b"\x1b" not in out
    assert "grouping" in painted
    assert " of 2400 | Ctrl-C keeps the best" in painted
    assert "best so far" in painted
    assert painted.endswith("\r\x1b[K")
