"""Items of ``devices`` and ``links`` as YAML text, each number with a comment that says whence."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from e2llm_opt.loading.yaml_file import resolved

Value = str | float | list[str]
"""What stands behind a key."""
_PLAIN = re.compile(r"[a-z][\w.-]*( [\w.-]+)*|\d{4}-\d\d-\d\d", re.ASCII | re.IGNORECASE)
"""Needs no quotes: no number to any reader, and no punctuation that means something."""
_SWITCHES = frozenset({"y", "n", "yes", "no", "on", "off"})
"""Words that are booleans to readers of YAML 1.1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of a list in an inventory.

    Parameters
    ----------
    keys
        What it says, in the order of the file; None is left open for the user.
    comments
        Key → what stands behind its value; the empty key is above the item.
    filled
        Keys that the catalogue knows, and the source did not.
    way
        ``forward`` or ``backward``, along ``between``, where only that bandwidth was measured.
    """

    keys: Mapping[str, Value | Mapping[str, Value] | None]
    comments: Mapping[str, str] = field(default_factory=dict)
    filled: frozenset[str] = frozenset()
    way: str = ""


def written(value: Value | Mapping[str, Value] | None) -> str:
    """Return *value* on one line, as YAML reads it back.

    Examples
    --------
    >>> written("pi 4"), written("no: [a]"), written("1e9"), written(0.1)
    ('pi 4', '"no: [a]"', '"1e9"', '0.1')
    """
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(written(item) for item in value) + "]"
    if isinstance(value, str):
        is_plain = _PLAIN.fullmatch(value) and value.lower() not in _SWITCHES
        return value if is_plain and isinstance(resolved(value), str) else _quoted(value)
    return f"{value:.15g}"


def block(item: Item, indent: int) -> list[str]:
    """Return the lines of an item of a block list, the dash at column *indent*."""
    lines = [f"{' ' * indent}# {line}" for line in _lines(item.comments.get("", ""))]
    for i, (key, value) in enumerate(item.keys.items()):
        start = " " * indent + ("- " if i == 0 else "  ")
        entry = f"{start}{key}: {written(value)}".rstrip()
        comment = " ".join(_lines(item.comments.get(key, "")))
        lines.append(f"{entry}   # {comment}" if comment else entry)
    return lines


def flow(item: Item) -> str:
    """Return an item of a list in brackets; there is no room for comments."""
    entries = (f"{key}: {written(value)}" for key, value in item.keys.items() if value is not None)
    return "{" + ", ".join(entries) + "}"


def _lines(comment: str) -> list[str]:
    """Return a comment's lines without what would end it: YAML has more line ends than Python."""
    return [
        "".join(c if c.isprintable() else " " for c in line) for line in comment.split("\n") if line
    ]


def _quoted(text: str) -> str:
    """Return *text* in double quotes; what YAML would fold or refuse is escaped."""
    plain = json.dumps(text, ensure_ascii=False)
    return "".join(char if char.isprintable() else _escaped(char) for char in plain)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"  # noqa: PLR2004 - four digits
