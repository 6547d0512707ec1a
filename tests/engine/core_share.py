"""Hold programs to a share of their core, so that equal cores are unequal devices."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.engine import stop_and_go

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "e2llm"
"""Of the names of groups: ``e2llm-PID``."""
_PERIOD_US: Final = 5_000
"""The share holds within each period; short against the time of a token."""
_PATIENCE_S: Final = 5.0
_FIRST, _SECOND = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
"""Where the control groups of version 1 and 2 are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How a command is held to a share of its core.

    Parameters
    ----------
    outside, inside
        Words before a command, and before it but within a namespace, where ``/sys`` is another.
    words
        The same for people.
    """

    outside: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    words: str = "its core"


WHOLE: Final = Share()


@contextmanager
def core_share(share: float) -> Iterator[Share]:
    """Make a control group with *share* of one core; commands are stopped and go on without one.

    The programs in the group must end before it does.
    """
    folder = _made(share)
    if folder is None:
        inside = (sys.executable, str(stop_and_go.PATH), str(share))
        yield Share(inside=inside, words=f"{share:.0%} of its core, stopped for the rest")
        return
    try:
        enter = ("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")
        yield Share(outside=enter, words=f"{share:.0%} of its core by a control group")
    finally:
        _remove(folder)


def _remove_leftovers() -> None:
    """Remove the groups of runs that were killed before they could."""
    for folder in groups():
        if not Path("/proc", folder.name.split("-")[1]).exists():
            with suppress(OSError):  # its programs are still ending
                folder.rmdir()


def _remove(folder: Path) -> None:
    """Remove a group; one whose last program has just ended may need a moment."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            folder.rmdir()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


def groups() -> list[Path]:
    """Return the groups of this and of other runs."""
    return [*_FIRST.glob(f"{PREFIX}-*"), *_SECOND.glob(f"{PREFIX}-*")]


def _made(share: float) -> Path | None:
    _remove_leftovers()
    is_first = (_FIRST / "cpu.cfs_quota_us").exists()
    folder = (_FIRST if is_first else _SECOND) / f"{PREFIX}-{os.getpid()}"
    quota_us = round(share * _PERIOD_US)
    try:
        folder.mkdir()
    except OSError:
        return None
    try:
        if is_first:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US), encoding="ascii")
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us), encoding="ascii")
        else:
            (folder / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}", encoding="ascii")
    except OSError:
        folder.rmdir()
        return None
    return folder
