"""RPC workers of llama.cpp, each held to one core."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.engine.core_share import WHOLE
from tests.engine.hosts import free_port
from tests.engine.programs import priority, running

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.engine.core_share import Share
    from tests.engine.hosts import Host
    from tests.engine.programs import Programs

_START_S: Final = 20.0
"""A worker listens within so long, or does not at all [s]."""
_LISTENS: Final = "0A"
"""State of a listening socket in ``/proc/PID/net/tcp``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A running RPC worker."""

    endpoint: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def worker(
    programs: Programs, host: Host, *, core: int, log: Path, share: Share = WHOLE
) -> Iterator[Worker]:
    """Run a worker with one thread on *core* of *host*, and stop it.

    Raises
    ------
    RuntimeError
        When it does not come to listen; with what it said.
    """
    port = free_port()
    words = (str(programs.rpc_server), "-H", host.address, "-p", str(port), "-t", "1")
    inside = host.command(*share.inside, *on_core(core), *words)
    with running((*priority(), *share.outside, *inside), log) as process:
        _await(process, port, log)
        yield Worker(endpoint=f"{host.address}:{port}", process=process, log=log)


def on_core(core: int) -> tuple[str, ...]:
    """Return the words that hold a command to one core."""
    return ("taskset", "--cpu-list", str(core))


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until *process* listens; its own table of sockets is that of its namespace."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        if listens(process.pid, port):
            return
        time.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise RuntimeError(f"the RPC worker does not listen on port {port}:\n{said}")


def listens(pid: int, port: int) -> bool:
    """Whether something in the network namespace of *pid* listens on *port*."""
    try:
        lines = Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    except OSError:  # it has ended
        return False
    ends = [line.split()[1:4:2] for line in lines]
    return any(state == _LISTENS and int(end.split(":")[1], 16) == port for end, state in ends)
