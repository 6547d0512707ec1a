"""Where the built programs of llama.cpp are, and how they are run and stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.engine.build import TARGETS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
BUILT: Final = ROOT / "build" / "llama.cpp" / VERSION / "build" / "bin"
"""Where ``make test-engine`` builds; ``LLAMA_CPP_BIN_DIR`` names another folder."""
_NICENESS: Final = "-15"
"""Of what is measured, where the machine allows it: others should not be in the way."""
_PATIENCE_S: Final = 5.0
"""A process that is asked to end has so long before it is killed [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The programs of one build."""

    server: Path
    bench: Path
    rpc_server: Path


def programs() -> Programs:
    """Return the programs of ``LLAMA_CPP_BIN_DIR``, else those that were built.

    Raises
    ------
    FileNotFoundError
        When one of them is missing; it says where it was looked for.
    """
    folder = Path(os.environ.get("LLAMA_CPP_BIN_DIR") or BUILT)
    server, bench, rpc_server = TARGETS
    aliases = {rpc_server: (rpc_server, "rpc-server")}  # its name until 2026
    found = []
    for name in (server, bench, rpc_server):
        files = [folder / alias for alias in aliases.get(name, (name,))]
        file = next(filter(Path.is_file, files), None)
        if file is None:
            raise FileNotFoundError(f"{folder} has no {name}: make test-engine builds it")
        found.append(file)
    return Programs(server=found[0], bench=found[1], rpc_server=found[2])


@cache
def tied() -> tuple[str, ...]:
    """Return the words that end a command when this process is killed; none where unknown."""
    return _if_allowed(("setpriv", "--pdeathsig", "TERM", "--"))


@cache
def priority() -> tuple[str, ...]:
    """Return the words that give a command more of the machine; none where that is not allowed."""
    return _if_allowed(("nice", "-n", _NICENESS))


def _if_allowed(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return *words* where a command behind them runs and nobody complains."""
    if shutil.which(words[0]) is None:
        return ()
    done = subprocess.run((*words, "true"), check=False, capture_output=True)
    return words if done.returncode == 0 and not done.stderr else ()


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run *command* in the background, what it prints going to *log*; end it whatever happens."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            (*tied(), *command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
