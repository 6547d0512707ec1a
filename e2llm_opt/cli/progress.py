"""A line on the terminal while a long search runs, and nothing otherwise."""

from __future__ import annotations

from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.status import Status

    from e2llm_opt.search.progress import Progress, ProgressCallback

PATIENCE_S = 2.0
"""Searches that end sooner show nothing [s]."""


@contextmanager
def search_progress(file: IO[str], *, quiet: bool) -> Iterator[ProgressCallback | None]:
    """Give a callback that keeps one line on *file* up to date, if that is a terminal."""
    if quiet or not file.isatty():
        yield None
        return
    line = _Line(file)
    try:
        yield line
    finally:
        line.stop()


class _Line:
    """The line; it appears once the search has taken longer than people wait in silence."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._status: Status | None = None

    def __call__(self, progress: Progress) -> None:
        if progress.elapsed_s < PATIENCE_S:
            return
        if self._status is None:
            from rich.console import Console
            from rich.status import Status

            self._status = Status("", console=Console(file=self._file, markup=False))
            self._status.start()
        self._status.update(
            f"{progress.elapsed_s:.0f} s, {progress.evaluations} sets of replicas tried, "
            f"best: {progress.best}   (Ctrl-C keeps it)"
        )

    def stop(self) -> None:
        """Take the line away."""
        if self._status is not None:
            self._status.stop()
