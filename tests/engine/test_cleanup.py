"""Nothing is left of workers, namespaces and groups, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.engine.bed import TooSmallError, bed
from tests.engine.core_share import groups
from tests.engine.hosts import namespaces
from tests.engine.programs import ROOT, tied
from tests.engine.workers import listens

if TYPE_CHECKING:
    from tests.engine.programs import Programs

pytestmark = pytest.mark.engine

_WAITING: Final = """
import sys, time
from pathlib import Path
from tests.engine.bed import bed
from tests.engine.programs import programs
with bed(programs(), Path(sys.argv[1])) as made:
    print(made.slow.process.pid, made.fast.process.pid, flush=True)
    time.sleep(60)
"""


def left_of(pid: int) -> list[str]:
    """Return the namespaces and groups that the run with *pid* made and did not remove."""
    names = [*namespaces(), *(group.name for group in groups())]
    return [name for name in names if f"-{pid}" in name]


def test_nothing_is_left_after_a_failure(engine: Programs, tmp_path: Path) -> None:
    pids = []

    def fail() -> None:
        with bed(engine, tmp_path) as made:
            for worker in (made.slow, made.fast):
                pids.append(worker.process.pid)
                assert listens(worker.process.pid, int(worker.endpoint.split(":")[1]))
            if made.hosts.first.namespace:
                assert len(left_of(os.getpid())) == 3
            raise ZeroDivisionError

    try:
        with pytest.raises(ZeroDivisionError):
            fail()
    except TooSmallError as reason:
        pytest.skip(str(reason))
    assert left_of(os.getpid()) == []
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_after_ctrl_c_and_no_worker_after_a_kill(
    engine: Programs, tmp_path: Path, ended_by: signal.Signals
) -> None:
    environment = {**os.environ, "LLAMA_CPP_BIN_DIR": str(engine.bench.parent)}
    command = (sys.executable, "-c", _WAITING, str(tmp_path))
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        pids = run.stdout.readline().split()
        run.send_signal(ended_by)
        _, said = run.communicate(timeout=30)
    if b"TooSmallError" in said:
        pytest.skip(said.decode().splitlines()[-1])
    assert len(pids) == 2
    if ended_by == signal.SIGKILL:  # nobody could remove the rest: the next run does
        _await_end(pids)
        with bed(engine, tmp_path):
            pass
    assert left_of(run.pid) == []
    assert not any(Path(f"/proc/{int(pid)}").exists() for pid in pids)


def _await_end(pids: list[bytes]) -> None:
    if not tied():
        pytest.skip("without setpriv, workers outlive a run that is killed")
    until = time.monotonic() + 10
    while any(Path(f"/proc/{int(pid)}").exists() for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)
