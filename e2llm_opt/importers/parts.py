"""Values of a JSON or YAML file that know their key path, so that a fault names its line."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.document import KeyPath, spelled
from e2llm_opt.loading.fields import shown
from e2llm_opt.loading.yaml_file import parse

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST = 1e300
"""No quantity is larger; integers may be, and are no floats then."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A value, or the place where one is missing (None).

    Parameters
    ----------
    value
        Plain dicts, lists, text, numbers, booleans and None.
    file
        As the user gave it.
    path
        Keys and list positions from the top of the file.
    line_of
        The line of a key path.
    """

    value: Any
    file: str
    path: KeyPath
    line_of: Callable[[KeyPath], int]

    def at(self, *keys: str | int) -> Part:
        """Return what is at *keys* below; None where there is nothing.

        Raises
        ------
        InputError
            When what should have keys is something else.
        """
        part = self
        for key in keys:
            if isinstance(key, str):
                found = part.entries().get(key)
            else:
                found = next((item for item in part.items() if item.path[-1] == key), None)
            part = part._below(key, None) if found is None else found
        return part

    def items(self) -> list[Part]:
        """Return the items of a list; none where there is no list.

        Raises
        ------
        InputError
            When this is something else.
        """
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self.fault(f"must be a list, got {shown(self.value)}")
        return [self._below(i, item) for i, item in enumerate(self.value)]

    def entries(self) -> dict[str, Part]:
        """Return the entries of a mapping; none where there is no mapping.

        Raises
        ------
        InputError
            When this is something else.
        """
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.fault(f"must be a mapping, got {shown(self.value)}")
        return {key: self._below(key, item) for key, item in self.value.items()}

    def text(self) -> str:
        """Return text; empty where there is nothing. Lone surrogates become question marks.

        Raises
        ------
        InputError
            When this is something else.
        """
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            raise self.fault(f"must be text, got {shown(self.value)}")
        return self.value.encode(errors="replace").decode()

    def number(self, *, least: float = 0.0) -> float | None:
        """Return a number of at least *least*, also one that is written as text, or None.

        Raises
        ------
        InputError
            When this is something else.
        """
        value = self.value
        if value is None:
            return None
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise self.fault(f"must be a number, got {shown(value)}") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(f"must be a number, got {shown(value)}")
        if not least <= value <= _MOST:  # NaN is neither
            raise self.fault(f"must be a number of at least {least:g}, got {shown(value)}")
        return float(value)

    def where(self) -> str:
        """Return file and line."""
        line = self.line_of(self.path)
        return f"{self.file}:{line}" if line else self.file

    def fault(self, wrong: str, right: str = "") -> InputError:
        """Return the error that something is wrong here."""
        path = spelled(self.path)
        line = self.line_of(self.path)
        return InputError([Fault(file=self.file, line=line, path=path, wrong=wrong, right=right)])

    def _below(self, key: str | int, value: Any) -> Part:  # noqa: ANN401 - what the file says
        return Part(value=value, file=self.file, path=(*self.path, key), line_of=self.line_of)


def json_part(text: str, file: str, *, first_line: int = 1) -> Part:
    """Return the value of a JSON text, whose first line is *first_line* of *file*.

    Raises
    ------
    InputError
        When it is not JSON.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        fault = Fault(file=file, line=line, wrong=f"not JSON: {error.msg.lower()}")
        raise InputError([fault]) from None
    except (RecursionError, ValueError):  # too deep, or a number of thousands of digits
        raise InputError([Fault(file=file, line=first_line, wrong="not usable JSON")]) from None

    lines: dict[KeyPath, int] = {}

    def line_of(path: KeyPath) -> int:
        if not lines:
            lines.update(_json_lines(text, first_line))
        return next(lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in lines)

    return Part(value=value, file=file, path=(), line_of=line_of)


def yaml_part(text: str, file: str) -> Part:
    """Return the value of a YAML text.

    Raises
    ------
    InputError
        When it is not YAML, or not a mapping.
    """
    document, faults = parse(text, file=file)
    faults.raise_if_any()
    return Part(
        value=document.value,
        file=file,
        path=(),
        line_of=lambda path: document.place(path).line or 1,
    )


def _json_lines(text: str, line: int) -> dict[KeyPath, int]:
    """Return the line of every value of a JSON text that starts on *line*; one pass."""
    lines: dict[KeyPath, int] = {}
    path: list[str | int | None] = []
    start = 0
    for match in _TOKEN.finditer(text):
        word = match[0]
        line += text.count("\n", start, match.start())
        start = match.start()
        if word == ":":
            continue
        if word in {"]", "}"}:
            path.pop()
        elif word == ",":
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else None
        elif path and path[-1] is None:
            path[-1] = str(json.loads(word))
        else:
            lines[tuple(key for key in path if key is not None)] = line
            if word in {"[", "{"}:
                path.append(0 if word == "[" else None)
    return lines
