"""Shell scripts of one folder: start, health check and stop; every word quoted."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from e2llm_opt.export.addresses import is_numeric
from e2llm_opt.export.names import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.export.process import Process

_HERE = 'here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"'
_ADDRESS_OF = """\
# The numeric address of a host name: some programs bind or connect to nothing else. Loopback
# addresses are left out, since a machine often knows its own name as 127.0.1.1.
address_of() {
  local found
  if command -v getent >/dev/null; then
    found="$(getent ahostsv4 "$1" | awk '$1 !~ /^127[.]/ { print $1; exit }')" || true
  else
    found="$(dscacheutil -q host -a name "$1" | awk '/^ip_address: / { print $2; exit }')" || true
  fi
  if [[ -z "$found" ]]; then
    echo "$1: no address is known; export again with --address DEVICE=10.0.0.2" >&2
    return 1
  fi
  echo "$found"
}
"""
_STOP = f"""\
#!/usr/bin/env bash
# Ends what start.sh beside it runs.
set -euo pipefail
{_HERE}

if [[ ! -f "$here/process.pid" ]]; then
  echo "not running"
  exit 0
fi
pid="$(cat "$here/process.pid")"
kill "$pid" 2>/dev/null || true
for _ in {{1..60}}; do
  kill -0 "$pid" 2>/dev/null || break
  sleep 0.2
done
kill -KILL "$pid" 2>/dev/null || true
rm -f "$here/process.pid"
echo stopped
"""


_ENDING = """\
pids=()
# Ends all, and waits: whoever starts them again needs their ports and memory.
end_all() {
  kill "${pids[@]}" 2>/dev/null || true
  for _ in {1..40}; do
    kill -0 "${pids[@]}" 2>/dev/null || return 0
    sleep 0.2
  done
  kill -KILL "${pids[@]}" 2>/dev/null || true
}
trap end_all EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
"""


def numeric(argv: Sequence[str], *options: str) -> dict[int, str]:
    """Return shell words for the values of *options* that are host names and must be numeric."""
    return {
        position + 1: f'"$(address_of {shlex.quote(argv[position + 1])})"'
        for position, word in enumerate(argv[:-1])
        if word in options and not is_numeric(argv[position + 1])
    }


def start_script(processes: Sequence[Process]) -> str:
    """Return the script that starts the processes of one folder, the last one being waited for."""
    titles = " and ".join(process.title for process in processes)
    lines = ["#!/usr/bin/env bash", f"# {one_line(titles)}", "set -euo pipefail", _HERE, ""]
    if any("address_of" in word for own in processes for word in own.shell.values()):
        lines.append(_ADDRESS_OF)
    lines += [_settled(process, i) for i, process in enumerate(processes) if process.shell]
    lines += [
        f"echo {shlex.quote(f'WARNING: {own.caution}')} >&2" for own in processes if own.caution
    ]
    lines.append('echo "$$" >"$here/process.pid"')
    if len(processes) == 1:
        return "\n".join([*lines, *_exports(processes[0]), _command(processes[0], 0, "exec "), ""])
    lines.append(_ENDING)
    for i, process in enumerate(processes):
        lines += _in_background("\n".join([*_exports(process), _command(process, i, "exec ")]))
        lines += _awaited(process, i) if process.is_awaited else []
    return "\n".join([*lines, 'wait "${pids[${#pids[@]}-1]}"', ""])


def health_script(processes: Sequence[Process]) -> str:
    """Return the script whose exit code says whether all processes of one folder serve."""
    lines = ["#!/usr/bin/env bash", "# Exit code 0: serving.", "set -euo pipefail", ""]
    if any(process.health.kind == "process" for process in processes):
        lines += [
            _HERE,
            'if ! kill -0 "$(cat "$here/process.pid")" 2>/dev/null; then',
            '  echo "not running" >&2',
            "  exit 1",
            "fi",
        ]
    for process in processes:
        if process.health.kind == "http":
            url = shlex.quote(process.url + process.health.path)
            lines.append(f"curl -fsS --max-time 5 -o /dev/null {url}")
        elif process.health.kind == "tcp":
            lines.append(_connects(process))
    return "\n".join([*lines, "echo ok", ""])


def stop_script() -> str:
    """Return the script that ends what the start script of the same folder runs."""
    return _STOP


def command_script(comment: str, argv: Sequence[str], beside: Sequence[Process] = ()) -> str:
    """Return a script that runs one command, such as a benchmark.

    Parameters
    ----------
    beside
        Processes that it starts before and ends afterwards; what they print goes to the errors.
    """
    lines = ["#!/usr/bin/env bash", f"# {one_line(comment)}", "set -euo pipefail", ""]
    if not beside:
        return "\n".join([*lines, "exec " + _words(argv, {}), ""])
    lines.append(_ENDING)
    for i, process in enumerate(beside):
        lines += _in_background("exec " + _words(process.argv, {}), " >&2")
        lines += _awaited(process, i)
    lines += _in_background("exec " + _words(argv, {}))
    return "\n".join([*lines, 'wait "${pids[${#pids[@]}-1]}"', ""])


def printed(process: Process) -> str:
    """Return a process as one would type it."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in process.env.items()]
    return " ".join([*settings, shlex.join(process.argv)])


def _in_background(commands: str, to: str = "") -> list[str]:
    return ["(", commands, f"){to} &", "pids+=($!)"]


def _exports(process: Process) -> Iterable[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in process.env.items()]


def _settled(process: Process, i: int) -> str:
    """Set a variable for each word that the machine fills in; a failure there ends the script."""
    words = process.shell.items()
    return "\n".join(f"word_{i}_{position}={word}" for position, word in words) + "\n"


def _command(process: Process, i: int, prefix: str) -> str:
    filled = {position: f'"$word_{i}_{position}"' for position in process.shell}
    return prefix + _words(process.argv, filled)


def _awaited(process: Process, i: int) -> list[str]:
    """Wait until a process listens; give up when it has ended."""
    return [
        f"until {_connects(process)} 2>/dev/null; do",
        f'  kill -0 "${{pids[{i}]}}" 2>/dev/null || exit 1',
        "  sleep 0.2",
        "done",
    ]


def _connects(process: Process) -> str:
    """Return the command that ends with 0 if the port of a process is open."""
    return f"(exec 3<>/dev/tcp/{shlex.quote(process.host)}/{process.port})"


def _words(argv: Sequence[str], filled: dict[int, str]) -> str:
    """Write one option a line: a word that begins with a dash starts a line."""
    lines: list[list[str]] = [[]]
    for position, word in enumerate(argv):
        if position and word.startswith("-"):
            lines.append([])
        lines[-1].append(filled.get(position, shlex.quote(word)))
    return " \\\n  ".join(" ".join(line) for line in lines)
