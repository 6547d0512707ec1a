"""Dask clusters on this machine, and what may be done to their workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]


@contextmanager
def local_cluster(num_workers: int = 2, threads: int = 1) -> Iterator[str]:
    """Give the address of a scheduler with worker processes."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=num_workers,
        threads_per_worker=threads,
        processes=True,
        dashboard_address=":0",
        silence_logs=50,
    ) as cluster:
        if num_workers:  # a slow machine starts them one by one
            cluster.wait_for_workers(num_workers, timeout=60)
        yield cluster.scheduler_address


_CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    sys.modules["e2llm_opt"] = None  # of the scheduler; workers are other processes
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@contextmanager
def doomed_cluster() -> Iterator[tuple[str, Callable[[], None]]]:
    """Give the address of a cluster whose scheduler lacks this package, and what kills it all."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "cluster.py"
        program.write_text(_CLUSTER, encoding="utf-8")
        process = subprocess.Popen(
            [sys.executable, program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        with process:
            assert process.stdout is not None
            address = process.stdout.readline().strip()

            def kill() -> None:
                os.killpg(process.pid, signal.SIGKILL)

            try:
                yield address, kill
            finally:
                with suppress(ProcessLookupError):
                    kill()


def pids(address: str) -> list[int]:
    """Return the process of each worker."""
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        found: dict[str, Any] = client.run(os.getpid)
    return list(found.values())


def kill_a_worker(address: str) -> None:
    os.kill(pids(address)[0], signal.SIGKILL)
