"""A line on the terminal, with a table below it, while something takes long; else nothing."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from e2llm_opt.report.quantities import UNKNOWN, number, percent, rate, seconds
from e2llm_opt.report.width import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.search.progress import Progress

PATIENCE_S = 2.0
"""What ends sooner shows nothing [s]."""
_PERIOD_S = 0.2
_ERASE, _UP = "\r\x1b[K", "\x1b[1A"
_LEAST_WIDTH = 60
"""Columns from which there is room for a table."""
STOPPING = "stopping; Ctrl-C again quits at once"


@contextmanager
def progress_line(file: IO[str] | None, *, quiet: bool, doing: str) -> Iterator[Line | None]:
    """Give a callback that keeps one line on *file* up to date, if that is a terminal.

    The line appears once people have waited in silence for :data:`PATIENCE_S`, says *doing* until
    the callback is told more, and is gone at the end.
    """
    if quiet or file is None or not file.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    line = Line(file, doing)
    line.start()
    try:
        yield line
    finally:
        line.stop()


class Line:
    """One line that a thread of its own paints, so that seconds pass while kernels compile.

    Parameters
    ----------
    file
        A terminal.
    doing
        What to say before the first call.
    """

    def __init__(self, file: IO[str], doing: str) -> None:
        self._file = file
        self._doing = doing
        self._began = time.monotonic()
        self._state: Progress | None = None
        self._is_stopping = False
        self._ended = threading.Event()
        self._num_lines = 1
        self._painter = threading.Thread(target=self._paint, name="progress", daemon=True)

    def __call__(self, progress: Progress) -> None:
        """Take the state that the next painting shows."""
        self._state = progress

    def say(self, doing: str) -> None:
        """Say from now on what is done, where no search tells how far it is."""
        self._doing, self._state = doing, None

    def interrupted(self) -> None:
        """Say from now on that Ctrl-C was heard."""
        self._is_stopping = True

    def start(self) -> None:
        """Begin to wait."""
        self._painter.start()

    def stop(self) -> None:
        """Take the line away."""
        self._ended.set()
        self._painter.join()

    def _paint(self) -> None:
        if self._ended.wait(PATIENCE_S):
            return
        while not self._ended.is_set():
            lines = self.lines(columns(self._file) - 1)
            self._write(self._erased() + "\n".join(lines))
            self._num_lines = len(lines)
            self._ended.wait(_PERIOD_S)
        self._write(self._erased())

    def _erased(self) -> str:
        """Return what takes away the lines that are there, from the last to the first."""
        return (_ERASE + _UP) * (self._num_lines - 1) + _ERASE

    def _write(self, text: str) -> None:
        try:
            self._file.write(text)
            self._file.flush()
        except OSError:  # the terminal has gone; whoever prints the answer will say so
            self._ended.set()

    def lines(self, width: int) -> list[str]:
        """Return the line, and a table of the best plan so far where a search is told of."""
        state = self._state
        if state is None or width < _LEAST_WIDTH:
            return [self.text(width)]
        rows = [("best so far", state.best.partition(",")[0]), *_columns(state)]
        widths = [max(map(len, row)) for row in rows]
        table = [
            "  ".join(row[i].ljust(wide) for row, wide in zip(rows, widths, strict=True))
            for i in (0, 1)
        ]
        parts = [self._elapsed(), _doing(state), "Ctrl-C keeps the best"]
        if self._is_stopping:
            parts.insert(1, STOPPING)
        return [line.rstrip()[:width] for line in (" | ".join(filter(None, parts)), *table)]

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._began:.0f} s"

    def text(self, width: int) -> str:
        """Return all of it in one line, cut to *width* columns."""
        state = self._state
        parts = [self._elapsed()]
        if state is None:
            parts.append(self._doing)
        else:
            speed = f" ({state.evaluations / state.elapsed_s:.0f}/s)" if state.elapsed_s > 0 else ""
            num = f"{state.evaluations} evaluations{speed}"
            parts += [_doing(state), f"best: {state.best}", num]
            parts.append("Ctrl-C keeps it")
        if self._is_stopping:
            parts.insert(1, STOPPING)
        return " | ".join(part for part in parts if part)[: max(width, 1)]


def _columns(state: Progress) -> list[tuple[str, str]]:
    """Return what is known of the best plan, and how fast plans are judged: (title, value)."""
    capacity, gap = state.best_capacity_per_s, state.gap
    bound = capacity / (1.0 - gap) if capacity is not None and gap is not None else None
    speed = state.evaluations / state.elapsed_s if state.elapsed_s > 0 else None
    values = (
        ("waiting", seconds(state.best_waiting_s)),
        ("latency", seconds(state.best_latency_s)),
        ("capacity", rate(capacity)),
        ("bound", rate(bound)),
        ("gap", percent(gap)),
        ("hypervolume", number(state.hypervolume)),
        ("evaluations", str(state.evaluations)),
        ("a second", number(speed)),
    )
    return [(title, value) for title, value in values if value != UNKNOWN]


def _doing(state: Progress) -> str:
    if state.done is None:
        return f"trying {state.doing}" if state.doing else ""
    planned = "" if state.planned is None else f" of {state.planned}"
    return f"{state.doing} {state.done}{planned}"
