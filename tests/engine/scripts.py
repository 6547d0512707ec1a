"""Run the scripts of an exported folder as its README says, and look at what they leave."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.engine.programs import tied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.engine.programs import Programs

_START_S: Final = 60.0
"""A part serves within so long [s]."""
_STOP_S: Final = 20.0
"""What is asked to end has ended within so long [s]."""
_STEP: Final = re.compile(r"^\d+\. on .*: `([^`]+)/start\.sh`", re.MULTILINE)
_ASSIGNED: Final = re.compile(r"layer +(\d+) assigned to device (\w+)")
_WORKER: Final = re.compile(r"\b(RPC\d+) +: ([\d.]+:\d+) \(")
"""A server's list of devices."""
_ENDPOINT: Final = re.compile(r"endpoint +: ([\d.]+:\d+)")
"""What a worker says of itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What one start script, or one front door, runs.

    Parameters
    ----------
    process
        The script itself, the first of a session of its own.
    log
        What it prints.
    """

    process: subprocess.Popen[bytes]
    log: Path

    def said(self) -> str:
        """Return what it printed so far."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def left(self) -> list[int]:
        """Return the processes of its session that still run."""
        return left_in(self.process.pid)

    def await_end(self) -> None:
        """Wait until the script has ended; nothing that it ran may be left then."""
        self.process.wait(_STOP_S)
        assert self.left() == []


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An exported folder, and the environment in which its scripts run.

    Parameters
    ----------
    folder
        As it was written.
    environment
        With the engine's programs on PATH under the names that its build gives them.
    started
        Name of a device's folder -> what its start script runs.
    """

    folder: Path
    environment: Mapping[str, str]
    started: dict[str, Running] = field(default_factory=dict)

    @property
    def order(self) -> list[str]:
        """Folders of the devices in the order of starting, as the README says."""
        return _STEP.findall((self.folder / "README.md").read_text(encoding="utf-8"))

    def is_healthy(self, name: str) -> bool:
        """Whether the device's health script says that it serves."""
        script = (str(self.folder / name / "health.sh"),)
        return subprocess.run(script, check=False, capture_output=True).returncode == 0

    def stop(self, *names: str) -> None:
        """Run the stop scripts of *names*, or of all, the last first; nothing may be left."""
        for name in names or tuple(reversed(self.started)):
            part, script = self.started[name], str(self.folder / name / "stop.sh")
            with subprocess.Popen((script,), stdout=subprocess.PIPE, text=True) as stopping:
                part.process.wait(_STOP_S)  # here, or it would stay as a zombie
                assert stopping.communicate(timeout=_STOP_S)[0] == "stopped\n"
            assert stopping.returncode == 0
            assert part.left() == [], f"{name}: stop.sh came back too early"
            assert not self.is_healthy(name)

    def layers(self, server: str) -> dict[int, str]:
        """Return layer -> folder of the device that holds it, as the running programs say.

        The server names the endpoint of each RPC device, each worker its own.
        """
        said = self.started[server].said()
        endpoints = dict(_WORKER.findall(said))
        at = {
            endpoint: name
            for name, running in self.started.items()
            for endpoint in _ENDPOINT.findall(running.said())
        }
        return {
            int(layer): at[endpoints[device]] if device in endpoints else f"{server} {device}"
            for layer, device in _ASSIGNED.findall(said)
        }


@contextmanager
def started(
    folder: Path, engine: Programs, own: Path, *, has_server: bool = True
) -> Iterator[Exported]:
    """Start all devices of an exported folder in order, each once the one before is healthy.

    Whatever still runs at the end, however it comes, is ended.

    Parameters
    ----------
    own
        Where links to programs, logs and the engine's cache go.
    has_server
        Whether the last folder is started, too.

    Raises
    ------
    RuntimeError
        When a part does not come to serve; with what it said.
    """
    exported = Exported(folder=folder, environment=_environment(engine, own))
    with ExitStack() as stack:
        for name in exported.order if has_server else exported.order[:-1]:
            command = (str(folder / name / "start.sh"),)
            log = own / f"{name}.log"
            part = running(command, exported.environment, log, folder / name)
            exported.started[name] = stack.enter_context(part)
            _await_health(exported, name)
        yield exported


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], log: Path, folder: Path
) -> Iterator[Running]:
    """Run *command* in *folder* and in a session of its own; end all of it whatever happens."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            (*tied(), *command),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    found = Running(process=process, log=log)
    try:
        yield found
    finally:
        for how in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + _STOP_S
            with suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            while found.left() and time.monotonic() < until:
                process.poll()
                time.sleep(0.05)
        process.wait()


def _await_health(exported: Exported, name: str) -> None:
    part = exported.started[name]
    until = time.monotonic() + _START_S
    while not exported.is_healthy(name):
        if part.process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"{name} does not come to serve:\n{part.said()[-3000:]}")
        time.sleep(0.1)


def _environment(engine: Programs, own: Path) -> dict[str, str]:
    """Return an environment with the engine on PATH, all of its log, and a cache of its own."""
    programs = own / "bin"
    programs.mkdir(parents=True)
    for name, file in (
        ("ggml-rpc-server", engine.rpc_server),
        ("llama-server", engine.server),
        ("llama-bench", engine.bench),
    ):
        (programs / name).symlink_to(file.resolve())
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LLAMA_ARG_LOG_VERBOSITY": "5",
        "LLAMA_CACHE": str(own / "cache"),
        "GGML_NO_BACKTRACE": "1",  # a debugger would be started
    }


def left_in(session: int) -> list[int]:
    """Return the processes of a session that still run."""
    return [pid for pid, own in _sessions() if own == session]


def _sessions() -> Iterator[tuple[int, int]]:
    """Yield the id and the session of each process that is no zombie."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = file.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if words[0] != "Z":
            yield int(file.parent.name), int(words[3])


def is_free(port: int) -> bool:
    """Whether nothing listens on *port*, of loopback or of all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # others may be closing
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen()
        except OSError:
            return False
    return True
