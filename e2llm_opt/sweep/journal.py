"""What is done of a sweep, a line a row, on disk before anybody is told; survives a crash."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

_fcntl: ModuleType | None
try:
    import fcntl as _fcntl
except ImportError:  # Windows has no locks of this kind
    _fcntl = None

SCHEMA: Final = "e2llm-opt/sweep-journal/v1"
_HEAD: Final = json.dumps({"schema": SCHEMA})


class Journal:
    """A file of one JSON object a line; opened, repaired and locked.

    Parameters
    ----------
    path
        A new file, or a journal.

    Attributes
    ----------
    records
        What it holds, by key.

    Raises
    ------
    InputError
        When it cannot be read or written, is something else, or another sweep writes to it.

    Notes
    -----
    A line that was cut off by a crash is taken away, and a line that cannot be read is passed
    over: its row is planned again.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.records: dict[str, dict[str, Any]] = {}
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._blamed(error) from None
        try:
            self._lock()
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, which unlocks it."""
        os.close(self._file)

    def add(self, key: str, record: dict[str, Any]) -> None:
        """Keep *record*; when this returns, it is on disk.

        Raises
        ------
        InputError
            When the disk takes no more; what was there is kept.
        """
        self._append(json.dumps({"key": key, **record}, allow_nan=False))
        self.records[key] = record

    def _lock(self) -> None:
        if _fcntl is None:
            return
        try:
            _fcntl.flock(self._file, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        except OSError:
            fault = Fault(file=self._path, wrong="another sweep is writing to it")
            raise InputError([fault]) from None

    def _read(self) -> None:
        size = os.fstat(self._file).st_size
        with open(self._file, "rb", closefd=False) as file:
            data = file.read()
        whole = data.rfind(b"\n") + 1
        if whole < size:
            head = f"{_HEAD}\n".encode()
            if not whole and not head.startswith(data):
                raise self._foreign()
            os.ftruncate(self._file, whole)
        lines = data[:whole].splitlines()
        self._size = whole
        if not lines:
            self._append(_HEAD)
            return
        if _parsed(lines[0]).get("schema") != SCHEMA:
            raise self._foreign()
        for record in map(_parsed, lines[1:]):
            key = record.pop("key", None)
            if isinstance(key, str):
                self.records[key] = record

    def _append(self, line: str) -> None:
        data = f"{line}\n".encode()
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
            os.fsync(self._file)
        except OSError as error:
            with suppress(OSError):  # else the next run takes the rest of the line away
                os.ftruncate(self._file, self._size)
            raise self._blamed(error) from None
        self._size += len(data)

    def _foreign(self) -> InputError:
        right = "move it away, or give another --output"
        return InputError([Fault(file=self._path, wrong="is no journal of a sweep", right=right)])

    def _blamed(self, error: OSError) -> InputError:
        reason = (error.strerror or str(error)).lower()
        right = "what is done is kept; the same command goes on from there" if self.records else ""
        fault = Fault(file=self._path, wrong=f"cannot be written: {reason}", right=right)
        return InputError([fault])


def _parsed(line: bytes) -> dict[str, Any]:
    """Return the object of one line; an empty one where there is none."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
