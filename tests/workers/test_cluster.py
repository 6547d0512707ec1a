"""A Dask cluster as workers: the same answers, and clear words where there is none."""

from __future__ import annotations

import http.server
import os
import socket
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import InputError, __version__
from e2llm_opt.workers import cluster
from e2llm_opt.workers.workers import open_workers
from tests.workers.clusters import doomed_cluster, kill_a_worker, local_cluster
from tests.workers.tasks import deadly, deadly_once, faulty, nothing, pid_after, square

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_every_item_is_answered_once(dask: str) -> None:
    with open_workers(dask=dask) as workers:
        assert workers.num == 2
        done = list(workers.map_unordered(square, range(20), nothing))
    assert sorted((one.index, one.answer) for one in done) == [(i, i * i) for i in range(20)]


def test_workers_work_side_by_side(dask: str) -> None:
    with open_workers(dask=dask) as workers:
        began = time.monotonic()
        pids = {done.answer for done in workers.map_unordered(pid_after, [0.4] * 4, nothing)}
        assert time.monotonic() - began < 1.4
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_what_a_task_raises_is_its_error(dask: str) -> None:
    with open_workers(dask=dask) as workers:
        done = {one.index: one for one in workers.map_unordered(faulty, range(3), nothing)}
    assert done[1].error == "ValueError: one is not allowed"
    assert (done[0].answer, done[2].answer) == (0, 2)


def test_a_task_whose_worker_dies_is_run_again(dask: str, tmp_path: Path) -> None:
    with open_workers(dask=dask) as workers:
        done = list(workers.map_unordered(deadly_once, [str(tmp_path / "mark")], nothing))
    assert [one.answer for one in done] == ["was here"]


@pytest.mark.slow
def test_a_task_that_kills_every_worker_fails_and_the_rest_runs(dask: str) -> None:
    with open_workers(dask=dask) as workers:
        done = {one.index: one for one in workers.map_unordered(deadly, range(6), nothing)}
    assert done[2].error == "its worker process died 4 times"
    assert [done[i].answer for i in (0, 1, 3, 4, 5)] == [0, 1, 3, 4, 5]


def test_what_breathe_raises_ends_the_map(dask: str) -> None:
    def breathe() -> None:
        raise KeyboardInterrupt

    began = time.monotonic()
    with open_workers(dask=dask) as workers:
        with pytest.raises(KeyboardInterrupt):
            list(workers.map_unordered(pid_after, [1.5], breathe))
        assert time.monotonic() - began < 1.2
        assert [one.answer for one in workers.map_unordered(square, [3], nothing)] == [9]


@pytest.mark.slow
def test_a_process_with_many_threads_runs_one_task_at_a_time() -> None:
    """Kernels hold Python's lock: more at once would only use up each other's time limits."""
    with (
        local_cluster(num_workers=1, threads=4) as address,
        open_workers(dask=address) as workers,
    ):
        assert workers.num == 1
        began = time.monotonic()
        list(workers.map_unordered(pid_after, [0.2] * 4, nothing))
        assert time.monotonic() - began >= 0.8


def test_workers_of_another_version_are_named(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "__version__", "9.9.9")
    with pytest.raises(InputError) as caught, open_workers(dask=dask):
        pass
    assert len(caught.value.faults) == 2
    for fault in caught.value.faults:
        assert fault.wrong.startswith("tcp://127.0.0.1:")
        assert fault.wrong.endswith(f" has e2llm_opt {__version__}, here is 9.9.9")
        assert fault.right == "install version 9.9.9 on all workers and start them again"


def test_a_worker_without_the_package_is_named(dask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PACKAGE", "e2llm_of_tomorrow")
    with (
        pytest.raises(InputError, match=r"tcp://127.0.0.1:\d+ has no e2llm_of_tomorrow, here is"),
        open_workers(dask=dask),
    ):
        pass


def test_a_worker_of_another_version_that_joins_later_is_named(
    dask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_workers(dask=dask) as workers:
        monkeypatch.setattr(cluster, "__version__", "9.9.9")
        with pytest.raises(InputError, match=rf"has e2llm_opt {__version__}, here is 9.9.9"):
            list(workers.map_unordered(square, [1], nothing))


@contextmanager
def silence() -> Iterator[int]:
    """Accept connections and never say a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(5)
        yield listening.getsockname()[1]


@contextmanager
def web_server() -> Iterator[int]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@contextmanager
def nobody() -> Iterator[int]:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@pytest.mark.parametrize(
    "stranger", [nobody, silence, pytest.param(web_server, marks=pytest.mark.slow)]
)
def test_an_address_that_does_not_answer_is_an_error_in_seconds(
    stranger: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    began = time.monotonic()
    with stranger() as port:  # type: ignore[operator]
        address = f"tcp://127.0.0.1:{port}"
        with (
            pytest.raises(InputError, match=f"no Dask scheduler answers at '{address}' within 1 s"),
            open_workers(dask=address),
        ):
            pass
    assert time.monotonic() - began < 4


@pytest.mark.parametrize("address", ["nonsense", "", "foo://here:1", "tcp://here"])
def test_what_is_no_address_is_said_at_once(address: str) -> None:
    with (
        pytest.raises(InputError, match=f"'{address}' is no address of a Dask scheduler"),
        open_workers(dask=address),
    ):
        pass


def test_a_scheduler_without_workers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    with (
        local_cluster(num_workers=0) as address,
        pytest.raises(InputError, match=f"{address} has had no worker for 1 s; start some: dask"),
        open_workers(dask=address),
    ):
        pass


def test_a_scheduler_that_ends_in_the_middle_is_an_error_and_no_hang(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with (
        doomed_cluster() as (address, kill),
        open_workers(dask=address) as workers,
    ):
        tasks = workers.map_unordered(pid_after, [0.0, 60.0], nothing)
        next(tasks)
        kill()
        began = time.monotonic()
        with pytest.raises(InputError, match=f"the Dask scheduler {address} is gone; what is done"):
            next(tasks)
        assert time.monotonic() - began < 15
    assert "Traceback" not in capfd.readouterr().err


def test_without_dask_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(InputError, match=r"pip install 'e2llm-opt\[dask\]'"),
        open_workers(dask="tcp://127.0.0.1:8786"),
    ):
        pass


def test_both_kinds_at_once_are_refused() -> None:
    with pytest.raises(InputError, match="not both"), open_workers(num=2, dask="tcp://a:1"):
        pass


@pytest.mark.slow
def test_a_killed_worker_is_replaced_for_the_next_map(dask: str) -> None:
    with open_workers(dask=dask) as workers:
        kill_a_worker(dask)
        done = list(workers.map_unordered(square, range(5), nothing))
    assert sorted(one.index for one in done) == list(range(5))
