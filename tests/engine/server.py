"""llama-server on a host, and what it answers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.engine.hosts import free_port
from tests.engine.programs import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.engine.hosts import Host
    from tests.engine.programs import Programs

_START_S: Final = 120.0
"""A server has loaded its model within so long [s]."""
_ASSIGNED: Final = re.compile(rb"layer +(\d+) assigned to device (RPC\d+)")
_ASK: Final = """
import sys, urllib.request
body = sys.argv[2].encode() or None
request = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
sys.stdout.buffer.write(urllib.request.urlopen(request, timeout=60).read())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server with its verbose log."""

    host: Host
    port: int
    log: Path

    def completion(self, prompt: str, num_tokens: int) -> dict[str, Any]:
        """Return the answer to *prompt*, of *num_tokens* tokens."""
        found: dict[str, Any] = self._ask(
            "/completion", prompt=prompt, n_predict=num_tokens, ignore_eos=True
        )
        return found

    def is_ready(self) -> bool:
        """Whether the model is loaded."""
        try:
            self._ask("/health")
        except subprocess.CalledProcessError:
            return False
        return True

    def assigned(self) -> dict[int, str]:
        """Return layer -> device, as the server says it; the last one is the output head."""
        said = _ASSIGNED.findall(self.log.read_bytes())
        return {int(layer): device.decode() for layer, device in said}

    def _ask(self, path: str, **body: Any) -> Any:
        """Ask from the server's own host, which may be in a namespace."""
        url = f"http://{self.host.address}:{self.port}{path}"
        words = (sys.executable, "-c", _ASK, url, json.dumps(body) if body else "")
        command = self.host.command(*words)
        done = subprocess.run(command, check=True, capture_output=True, timeout=90)
        return json.loads(done.stdout)


@contextmanager
def serving(
    programs: Programs, host: Host, model: Path, log: Path, *options: str
) -> Iterator[Server]:
    """Run llama-server on *host* until it is ready, and stop it.

    Raises
    ------
    RuntimeError
        When it does not become ready; with what it said.
    """
    port = free_port()
    words = ("-m", str(model), "--host", host.address, "--port", str(port), "--verbose")
    server = Server(host=host, port=port, log=log)
    with running(host.command(str(programs.server), *words, *options), log) as process:
        until = time.monotonic() + _START_S
        while not server.is_ready():
            if process.poll() is not None or time.monotonic() > until:
                said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
                raise RuntimeError(f"llama-server does not become ready:\n{said}")
            time.sleep(0.2)
        yield server
