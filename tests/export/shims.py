"""Runs generated scripts with programs that only write down how they were called."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROGRAMS = (
    *("ggml-rpc-server", "llama-server", "llama-cli", "llama-bench", "vllm", "python", "python3"),
    *("exo", "parallax", "dllama", "dllama-api", "ray", "kubectl", "helm", "serve", "curl"),
    "docker",
)
"""Every program that a generated script may call."""
NUMERIC = "10.99.0.1"
"""What the shims give as the address of every host."""
_BEGINS = f"#!{sys.executable} -S\n"
_NOTE = """
import json, os, sys
with open(os.environ["CALLS"], "a", encoding="utf-8") as file:
    file.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + "\\n")
    file.write(json.dumps(dict(os.environ)) + "\\n")
"""
_LISTENS = """
import socket, sys, time
time.sleep(0.5)  # whoever does not wait is earlier
listening = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("-p") + 1])))
"""
_WAITS = """
time.sleep(60)
"""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One program that a script started."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A folder with shims, and nothing else of interest on PATH."""

    folder: Path

    def run(self, script: Path, **env: str) -> list[Call]:
        """Run *script*, and return what it called; it must end well and write nothing else."""
        calls = self.folder / "calls"
        calls.write_text("", encoding="utf-8")
        before = self._seen()
        done = subprocess.run(
            ["bash", str(script)],
            cwd=script.parent,
            env={"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "CALLS": str(calls), **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert done.returncode == 0, (script.read_text(encoding="utf-8"), done.stderr)
        new = {path for path in self._seen() - before if path.name != "process.pid"}
        assert not new, f"{script} made {new}"
        lines = [json.loads(line) for line in calls.read_text(encoding="utf-8").splitlines()]
        pairs = zip(lines[::2], lines[1::2], strict=True)
        return [Call(argv=tuple(argv), env=env_) for argv, env_ in pairs]

    def listens(self, name: str) -> None:
        """Let the program *name* listen on its port, note that down, and stay."""
        _program(self.folder / "bin" / name, _BEGINS + _LISTENS + _NOTE + _WAITS)

    def _seen(self) -> set[Path]:
        return set(self.folder.rglob("*"))


def machine(folder: Path) -> Machine:
    """Return a machine whose programs are all shims."""
    (folder / "bin").mkdir()
    for name in PROGRAMS:
        _program(folder / "bin" / name, _BEGINS + _NOTE)
    _program(folder / "bin" / "getent", f"#!/bin/sh\necho '127.0.1.1 x'\necho '{NUMERIC} x'\n")
    return Machine(folder=folder)


def _program(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def is_valid_bash(script: str) -> bool:
    """Whether bash can read a script."""
    done = subprocess.run(
        ["bash", "-n"],
        input=script,
        text=True,
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"]},
    )
    return done.returncode == 0
