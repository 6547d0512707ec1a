"""Standard streams that are closed, full, ASCII or without a reader: never a traceback."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_UNWRITABLE: Final = 2
"""Standard output takes nothing: bad usage."""
EXIT_BROKEN_PIPE: Final = 141
"""Whoever read the output has gone; what a shell reports for it."""
_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""What the system says when a disk takes no more, or when a stream is closed."""


def prepare_streams() -> None:
    """Make standard streams fit for what will be written; for a program, not for a library."""
    _occupy_closed_streams()
    codecs.register_error(_ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)


_ESCAPED: Final = "e2llm-opt-escaped"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding lacks as JSON does, so that JSON stays JSON in a C locale."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _occupy_closed_streams() -> None:
    """Fill in for standard streams that are closed (``>&-``).

    Python has None for them, and the next file to be opened would become standard output.
    Their stand-ins: an input without a byte, an output that refuses every byte, and for errors
    nowhere.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:  # closed; all lower ones are open, so this number is the next
            os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


@contextmanager
def answered_output() -> Iterator[None]:
    """Turn what standard output refuses into an exit code.

    All is written out inside, since Python would complain about the rest when it ends.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)
        sys.exit(EXIT_BROKEN_PIPE)
    except OSError as error:
        # Files that the user named are blamed as InputError: this is standard output.
        if error.errno not in _UNWRITABLE:
            raise
        _discard(sys.stdout)
        reason = os.strerror(error.errno).lower()
        with suppress(OSError):  # else nobody is left to be told
            click.echo(f"Error: standard output cannot be written: {reason}", err=True)
        sys.exit(EXIT_UNWRITABLE)


def _discard(stream: IO[str]) -> None:
    """Send what is still buffered nowhere, or Python complains when it ends."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, stream.fileno())
    os.close(sink)
