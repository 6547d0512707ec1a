"""Ctrl-C ends the search at the next callback; a second one at once."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from e2llm_opt.cli.interruption import GivenUp, interruptible
from e2llm_opt.cli.progress import STOPPING, Line
from e2llm_opt.search.progress import Progress

STATE = Progress(evaluations=1, elapsed_s=0.1, best="none yet")
ROOT = Path(__file__).parents[2]


def test_the_callback_raises_once_after_ctrl_c() -> None:
    with interruptible(None) as progress:
        progress(STATE)
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            progress(STATE)
        progress(STATE)


def test_a_second_ctrl_c_does_not_wait() -> None:
    with interruptible(None):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(GivenUp):
            signal.raise_signal(signal.SIGINT)


def test_a_second_ctrl_c_does_not_wait_either_where_the_first_was_heard() -> None:
    with interruptible(None) as progress:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            progress(STATE)
        with pytest.raises(GivenUp):
            signal.raise_signal(signal.SIGINT)


def test_a_ctrl_c_after_the_last_callback_loses_nothing() -> None:
    with interruptible(None):
        signal.raise_signal(signal.SIGINT)


def test_the_usual_handler_is_back_afterwards() -> None:
    with interruptible(None):
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_somebody_else_is_left_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interruptible(None) as progress:
            signal.raise_signal(signal.SIGINT)
            progress(STATE)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_progress_is_passed_on() -> None:
    line = Line(io.StringIO(), "preparing")
    with interruptible(line) as progress:
        assert "preparing" in line.text(80)
        progress(STATE)
        assert "best: none yet" in line.text(80)
        signal.raise_signal(signal.SIGINT)
        assert STOPPING in line.text(80)


def test_another_thread_than_the_main_one_can_plan_too() -> None:
    heard: list[str] = []

    def run() -> None:
        with interruptible(None) as progress:
            progress(STATE)
            heard.append("yes")

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert heard == ["yes"]


def interrupted(*arguments: str, after: str, times: int = 1) -> tuple[int, str, str]:
    """Run the program and press Ctrl-C when a search says *after* for the third time."""
    program = f"""
import os, signal, sys, time
from e2llm_opt.search import progress
from e2llm_opt.cli import main
tell, heard = progress.Progress, []
def told(**state):
    heard.append(state.get("doing", ""))
    if heard.count({after!r}) == 3:
        for _ in range({times}):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
    return tell(**state)
progress.Progress = told
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout, done.stderr


SEARCHES = {"exhaustive": "packing", "ga": "grouping"}


@pytest.mark.parametrize("method", SEARCHES)
def test_an_interrupted_search_prints_its_best_plan(method: str) -> None:
    example = ("plan", "examples/homelab.yaml", "--json", "--method", method)
    code, out, err = interrupted(*example, after=SEARCHES[method])
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["replicas"]
    assert "interrupted" in document["warnings"][0]


@pytest.mark.parametrize("method", SEARCHES)
def test_a_second_ctrl_c_quits_at_once_with_130(method: str) -> None:
    example = ("plan", "examples/homelab.yaml", "--json", "--method", method)
    answer = interrupted(*example, after=SEARCHES[method], times=2)
    assert answer == (130, "", "Interrupted; there is nothing to show yet.\n")


TOO_LARGE = ("plan", "examples/two-macs.yaml", "--weights", "f16", "--context-tokens", "1000000")


def test_an_interruption_while_changes_are_tried_keeps_the_answer() -> None:
    code, out, err = interrupted(*TOO_LARGE, "--json", after="weights: mlx_6bit")
    assert (code, err) == (3, "")
    document = json.loads(out)
    assert document["schema"] == "e2llm-opt/infeasible/v1"
    assert document["reason"].endswith("(interrupted: not every change was tried)")
    assert document["shortfall_bytes"] > 0


def test_a_second_ctrl_c_quits_then_too() -> None:
    assert interrupted(*TOO_LARGE, after="weights: mlx_6bit", times=2)[0] == 130


@pytest.mark.slow
def test_a_ctrl_c_at_any_moment_of_a_long_search_keeps_the_best_plan() -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "e2llm_opt", "plan", "examples/campus-fog.yaml", "--json"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(8)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert (started.returncode, err) == (0, "")
    assert "interrupted" in out
