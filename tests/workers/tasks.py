"""Functions that tests run in other processes, which find them here."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from e2llm_opt.sweep.question import PLANNED, Answer, Question


def square(number: int) -> int:
    return number * number


def pid_after(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def nothing() -> None:
    pass


def deadly(number: int) -> int:
    """Kill the worker that is asked about 2."""
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def deadly_once(mark: str) -> str:
    """Kill the first worker that is asked, and answer the second one."""
    path = Path(mark)
    if not path.exists():
        path.write_text("was here", encoding="utf-8")
        os.kill(os.getpid(), signal.SIGKILL)
    return path.read_text(encoding="utf-8")


def faulty(number: int) -> int:
    if number == 1:
        message = "one is not allowed"
        raise ValueError(message)
    return number


def quick_answer(question: Question) -> Answer:
    """Answer without planning: enough to tell questions apart."""
    time.sleep(0.03)
    rate = question.problem.workload.rate_per_s
    figures: dict[str, Any] = {"capacity_per_s": 2 * rate, "elapsed_s": 0.05}
    text = f'{{"rate": {rate}}}' if question.wants_plan else ""
    return Answer(status=PLANNED, figures=figures, plan=text)


def counted_answer(question: Question) -> Answer:
    """Answer, and leave a mark of having been asked."""
    folder = Path(os.environ["E2LLM_TEST_MARKS"])
    (folder / f"{question.problem.workload.rate_per_s}-{time.time_ns()}").touch()
    return quick_answer(question)
