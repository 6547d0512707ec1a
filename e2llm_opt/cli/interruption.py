"""Ctrl-C ends work where it can be ended, and keeps what was found; the second one quits."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2llm_opt.cli.progress import Line
    from e2llm_opt.search.progress import Progress, ProgressCallback


class GivenUp(BaseException):
    """The second Ctrl-C: quit at once, whatever was found."""


@contextmanager
def interruptible(line: Line | None) -> Iterator[ProgressCallback]:
    """Give a callback of a search that raises KeyboardInterrupt when Ctrl-C was pressed before."""
    with breakable(line) as breathe:

        def callback(state: Progress) -> None:
            if line is not None:
                line(state)
            breathe()

        yield callback


@contextmanager
def breakable(line: Line | None) -> Iterator[Callable[[], None]]:
    """Give a function that raises KeyboardInterrupt when Ctrl-C was pressed before.

    An exception in the middle of compiled code would surface as an error of the interpreter, so
    the first Ctrl-C waits for the next call of the function. The second one does not wait.
    """
    is_asked = False

    def ask(_signal: int, _frame: object) -> None:
        nonlocal is_asked
        is_asked = True
        signal.signal(signal.SIGINT, _give_up)
        if line is not None:
            line.interrupted()

    def breathe() -> None:
        nonlocal is_asked
        if is_asked:
            is_asked = False
            raise KeyboardInterrupt

    # Elsewhere somebody has decided already: a shell's background job ignores Ctrl-C.
    is_ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if is_ours:
        signal.signal(signal.SIGINT, ask)
    try:
        yield breathe
    finally:
        if is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _give_up(_signal: int, _frame: object) -> None:
    raise GivenUp
