"""Ctrl-C ends the search at the next callback; a second one at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2llm_opt.cli.interruption import interruptible
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
        with pytest.raises(KeyboardInterrupt):
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
    seen: list[Progress] = []
    with interruptible(seen.append) as progress:
        progress(STATE)
    assert seen == [STATE]


@pytest.mark.slow
def test_an_interrupted_search_prints_its_best_plan() -> None:
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
