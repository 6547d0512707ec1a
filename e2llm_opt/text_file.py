"""Reading a text file that a user named: whatever is wrong with it becomes an InputError."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 4 * 2**20
"""Largest file that is read as a whole [bytes]."""


@contextmanager
def open_bytes(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open *path* for reading, blaming the user's path for what the system refuses.

    Raises
    ------
    InputError
        When the file is missing, is a directory, or cannot be opened or read.
    """
    name = os.fspath(path)
    if "\0" in name:
        raise InputError([Fault(file=repr(name), wrong="cannot be read: this is no file name")])
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - Path() would rewrite the user's spelling
            yield file
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError([Fault(file=name, wrong=f"cannot be read: {reason}")]) from None


def read_text(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> str:
    """Return the text of a UTF-8 file.

    Parameters
    ----------
    path
        A file, or anything that can be read like one (a pipe).
    max_bytes
        Nothing beyond this is read [bytes].

    Raises
    ------
    InputError
        When the file is missing, a directory, unreadable, too large, or not text.
    """
    with open_bytes(path) as file:
        data = file.read(max_bytes + 1)
    name = os.fspath(path)
    if len(data) > max_bytes:
        fault = Fault(file=name, wrong=f"larger than {max_bytes / 2**20:g} MiB")
        raise InputError([fault])
    return decoded(data, file=name)


def decoded(data: bytes, *, file: str, line: int = 0) -> str:
    """Return *data* as text; a byte-order mark is dropped.

    Raises
    ------
    InputError
        When *data* is not UTF-8 or holds NUL characters; *file* and *line* say where.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = line or data.count(b"\n", 0, error.start) + 1
        fault = Fault(file=file, line=where, wrong="not a text file", right="save it as UTF-8")
        raise InputError([fault]) from None
    if "\0" in text:
        where = line or text.count("\n", 0, text.index("\0")) + 1
        raise InputError([Fault(file=file, line=where, wrong="not a text file (NUL characters)")])
    return text
