"""Writing an answer where the user wants it: whole or not at all."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDARD_OUTPUT = "-"
"""The name that means standard output."""


def write_text_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write *text* to *path*.

    A new or regular file is replaced in one step, so that a reader sees the old or the new text
    and never half of it; its permissions stay. Anything else (a pipe, ``/dev/null``) is written,
    and ``-`` is standard output.

    Raises
    ------
    InputError
        When the system refuses; nothing is left behind.
    """
    name = os.fspath(path)
    if name == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    with replaced(name) as file:
        file.write(text.encode())


@contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open *path* for writing, as :func:`write_text_atomically` writes it; it appears at the end.

    Raises
    ------
    InputError
        When the system refuses; nothing is left behind.
    """
    name = os.fspath(path)
    with _blamed(name):
        mode = _mode(name)
        if mode is None or stat.S_ISREG(mode):
            with _replacing(Path(os.path.realpath(name)), mode) as file:
                yield file
        else:
            with Path(name).open("wb") as file:
                yield file


def refuse_unwritable(path: str | os.PathLike[str], *read: str | os.PathLike[str]) -> None:
    """Refuse what surely cannot be written, before a long computation is spent on it.

    Nor is one of the files *read* that the answer is made of.

    Raises
    ------
    InputError
        When *path* is a folder, or its folder is missing or not writable, or it is one of *read*.
    """
    name = os.fspath(path)
    if name == STANDARD_OUTPUT:
        return
    with _blamed(name):
        mode = _mode(name)
    for other in map(Path, read):
        if mode is not None and other.exists() and other.samefile(name):
            wrong = "would be overwritten, and it is what is read"
            raise InputError([Fault(file=name, wrong=wrong, right="give another file name")])
    folder = Path(os.path.realpath(name)).parent
    wrong = ""
    if mode is not None and stat.S_ISDIR(mode):
        wrong = "is a directory"
    elif mode is None and not folder.is_dir():
        wrong = "no such file or directory"
    elif (mode is None or stat.S_ISREG(mode)) and not os.access(folder, os.W_OK):
        wrong = "permission denied"
    if wrong:
        raise InputError([Fault(file=name, wrong=f"cannot be written: {wrong}")])


@contextmanager
def _blamed(name: str) -> Iterator[None]:
    """Turn what the system refuses into a fault of the user's path."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError([Fault(file=name, wrong=f"cannot be written: {reason}")]) from None


def _mode(name: str) -> int | None:
    """Return type and permissions of what a name leads to; None where there is nothing yet."""
    try:
        return os.stat(name).st_mode  # noqa: PTH116 - Path() would rewrite the user's spelling
    except FileNotFoundError:
        return None
    except ValueError:
        fault = Fault(file=repr(name), wrong="cannot be written: this is no file name")
        raise InputError([fault]) from None


@contextmanager
def _replacing(path: Path, mode: int | None) -> Iterator[IO[bytes]]:
    # In the same folder: only inside one file system is a replacement a single step.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(_new_file_mode() if mode is None else stat.S_IMODE(mode))
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _new_file_mode() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
