"""Hold programs to a share of their core, so that equal cores are unequal devices."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "e2llm"
"""Of the names of groups: ``e2llm-PID``."""
_PERIOD_US: Final = 5_000
"""The share holds within each period; short against the time of a token."""
_PATIENCE_S: Final = 5.0
_FIRST, _SECOND = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
"""Where the control groups of version 1 and 2 are."""


@contextmanager
def core_share(share: float) -> Iterator[tuple[str, ...] | None]:
    """Yield the words that put a command into a group with *share* of one core.

    None where the machine allows no such group. Its programs must end before it does.
    """
    folder = _made(share)
    if folder is None:
        yield None
        return
    try:
        yield ("sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")
    finally:
        _remove(folder)


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
