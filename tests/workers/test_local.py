"""Processes of this machine: every item once, whoever dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import InputError
from e2llm_opt.workers.workers import MAX_DEATHS, num_cores, open_workers
from tests.workers.tasks import (
    deadly,
    deadly_once,
    faulty,
    nothing,
    pid_after,
    square,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]


def test_every_item_is_answered_once() -> None:
    with open_workers(num=2) as workers:
        assert workers.num == 2
        done = list(workers.map_unordered(square, range(20), nothing))
    assert sorted((one.index, one.answer) for one in done) == [(i, i * i) for i in range(20)]


def test_workers_are_other_processes_and_work_side_by_side() -> None:
    with open_workers(num=2) as workers:
        list(workers.map_unordered(square, range(2), nothing))  # both have started
        began = time.monotonic()
        pids = {done.answer for done in workers.map_unordered(pid_after, [0.4] * 4, nothing)}
        assert time.monotonic() - began < 1.4
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_workers_serve_many_maps_and_are_gone_afterwards() -> None:
    with open_workers(num=1) as workers:
        first = [done.answer for done in workers.map_unordered(pid_after, [0.0], nothing)]
        again = [done.answer for done in workers.map_unordered(pid_after, [0.0], nothing)]
        assert first == again
    assert not multiprocessing.active_children()


def test_items_are_taken_when_a_worker_is_free() -> None:
    taken = []

    def items() -> Iterator[int]:
        for number in range(6):
            taken.append(number)
            yield number

    with open_workers(num=1) as workers:
        for done in workers.map_unordered(square, items(), nothing):
            assert taken[-1] == done.index, "the next one is not asked for before"


def test_a_task_whose_worker_dies_is_run_again(tmp_path: Path) -> None:
    with open_workers(num=1) as workers:
        done = list(workers.map_unordered(deadly_once, [str(tmp_path / "mark")], nothing))
    assert [one.answer for one in done] == ["was here"]


def test_a_task_that_kills_every_worker_fails_and_the_rest_runs() -> None:
    with open_workers(num=2) as workers:
        done = {one.index: one for one in workers.map_unordered(deadly, range(6), nothing)}
    assert done[2].error == f"its worker process died {MAX_DEATHS} times (signal 9)"
    assert [done[i].answer for i in (0, 1, 3, 4, 5)] == [0, 1, 3, 4, 5]


def test_what_a_task_raises_is_its_error(capfd: pytest.CaptureFixture[str]) -> None:
    with open_workers(num=1) as workers:
        done = {one.index: one for one in workers.map_unordered(faulty, range(3), nothing)}
    assert done[1].error == "ValueError: one is not allowed"
    assert (done[0].answer, done[2].answer) == (0, 2)
    assert "in faulty" in capfd.readouterr().err, "a bug shows where it is"


def test_what_breathe_raises_ends_the_map_and_its_workers() -> None:
    began = time.monotonic()

    def breathe() -> None:
        raise KeyboardInterrupt

    with open_workers(num=1) as workers, pytest.raises(KeyboardInterrupt):
        list(workers.map_unordered(pid_after, [30.0], breathe))
    assert time.monotonic() - began < 10
    assert not multiprocessing.active_children()


def test_workers_leave_ctrl_c_to_who_hands_out_tasks() -> None:
    with open_workers(num=1) as workers:
        tasks = workers.map_unordered(pid_after, [0.0, 0.3], nothing)
        pid = next(tasks).answer
        assert pid is not None
        os.kill(pid, signal.SIGINT)
        assert next(tasks).answer == pid


def test_a_program_without_a_main_guard_is_told_so(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from operator import neg\n"
        "from e2llm_opt.workers.workers import open_workers\n"
        "with open_workers(num=1) as workers:\n"
        "    print(list(workers.map_unordered(neg, [1], int)))\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "InputError: a worker process ended before it began to work (exit code 1)" in done.stderr
    assert '__name__ == "__main__"' in done.stderr


def test_a_number_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1, got 0"), open_workers(num=0):
        pass


def test_the_default_is_all_cores() -> None:
    with open_workers() as workers:
        assert workers.num == num_cores() >= 1
