"""Plain values that remember the file and line they came from, and the faults found in them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2llm_opt.errors import Fault, InputError

KeyPath = tuple[str | int, ...]
"""Keys and list positions from the top of the file: ``("devices", 2, "memory_gib")``."""

COMMAND_LINE = "command line"
"""What stands for the file name of a value that the user did not write into the file."""


@dataclass(frozen=True, slots=True)
class Place:
    """File and 1-based line of a value; line 0 where there is none."""

    file: str
    line: int = 0


_ON_COMMAND_LINE = Place(COMMAND_LINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file's content.

    Parameters
    ----------
    value
        Nested dicts, lists, text, numbers, booleans and None.
    places
        Where each key path stands; a path without an entry stands where its parent does.
    file
        As the user gave it; empty for values that never were in a file.
    """

    value: dict[str, Any]
    places: dict[KeyPath, Place] = field(default_factory=dict)
    file: str = ""

    def place(self, path: KeyPath) -> Place:
        """Return the place of *path*, or of its nearest parent that has one."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.places:
                return self.places[path[:length]]
        return Place(self.file)

    def beside(self, path: KeyPath, name: str) -> Path:
        """Return the file *name* that *path* mentions: relative to the file that mentions it."""
        target = Path(os.path.expanduser(name))  # noqa: PTH111 - Path's own fails for ~nobody
        file = self.place(path).file
        return target if file in {COMMAND_LINE, ""} else Path(file).parent / target


class Faults:
    """Every fault of one document, the first of each place, sorted by line at the end."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._found: dict[KeyPath, list[Fault]] = {}
        self._wrong: set[KeyPath] = set()  # the paths in _found and all their parents

    def add(self, path: KeyPath, wrong: str, right: str = "") -> None:
        """Note a fault at *path*, unless one is known there: the second is mostly its echo."""
        place = self.document.place(path)
        if all(known.line != place.line for known in self._found.get(path, ())):
            fault = Fault(
                wrong=wrong, right=right, path=spelled(path), file=place.file, line=place.line
            )
            self._note(path, fault)

    def absorb(self, error: InputError, path: KeyPath, otherwise: str = "") -> None:
        """Note the faults of an object built from the value at *path*.

        A fault with a line of its own (of a trace, of a ``config.json``) keeps it. A sentence
        that opens with a key path of this document (``workload.slots: …``) goes there. Where
        the fault has no remedy, *otherwise* is offered.
        """
        for fault in error.faults:
            if fault.line:
                self._note(path, fault)
                continue
            below, sentence = _located(fault, path)
            wrong, right = sentence.rstrip("."), fault.right
            if not right:
                wrong, _, right = wrong.partition("; ")
            self.add(below, wrong, right or otherwise)

    def moved(self, document: Document) -> Faults:
        """Return the faults that are still faults of *document*, a variant of this one."""
        faults = Faults(document)
        for path, found in self._found.items():
            is_kept = not path or path[0] in document.value
            if is_kept and document.place(path).file == self.document.file:
                for fault in found:
                    faults._note(path, fault)
        return faults

    def inside(self, path: KeyPath) -> tuple[Fault, ...]:
        """Return the faults at *path* and below."""
        found = (faults for at, faults in self._found.items() if at[: len(path)] == path)
        return tuple(fault for faults in found for fault in faults)

    def shallow(self, depth: int) -> Faults:
        """Return the faults at paths of fewer than *depth* keys."""
        faults = Faults(self.document)
        for path, found in self._found.items():
            for fault in found if len(path) < depth else ():
                faults._note(path, fault)
        return faults

    def at(self, path: KeyPath) -> bool:
        """Tell whether anything at *path* or below it is known to be wrong."""
        return path in self._wrong

    def raise_if_any(self) -> None:
        """Raise all faults, in the order of their lines.

        Raises
        ------
        InputError
            When there is at least one.
        """
        found = [fault for faults in self._found.values() for fault in faults]
        if found:
            name = self.document.file
            raise InputError(sorted(found, key=lambda fault: (fault.file != name, fault.line)))

    def _note(self, path: KeyPath, fault: Fault) -> None:
        self._found.setdefault(path, []).append(fault)
        self._wrong.update(path[:length] for length in range(len(path) + 1))


def spelled(path: KeyPath) -> str:
    """Return *path* as people write it.

    Examples
    --------
    >>> spelled(("devices", 2, "memory_gib"))
    'devices[2].memory_gib'
    """
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".")


def merged(
    document: Document, overrides: Mapping[str, Any], place: Place = _ON_COMMAND_LINE
) -> Document:
    """Return *document* with *overrides* on top: they win, and mappings are merged deeply.

    The overrides stand at *place*.
    """
    places = dict(document.places)
    value = _merge(document.value, _normalised(overrides), (), (places, place))
    return Document(value=value, places=places, file=document.file)


def from_mapping(mapping: Mapping[str, Any]) -> Document:
    """Return a document without a file."""
    return Document(value=_normalised(mapping))


def _merge(
    base: dict[str, Any],
    over: dict[str, Any],
    path: KeyPath,
    known: tuple[dict[KeyPath, Place], Place],
) -> dict[str, Any]:
    """Merge, and note in the *known* places those of what is new."""
    result, (places, place) = dict(base), known
    for key, value in over.items():
        below = (*path, key)
        old = result.get(key)
        if below == ("runtime",) and isinstance(value, dict) and isinstance(old, str):
            old = {"name": old}  # a bare name is short for this mapping
        if below == ("workload",) and isinstance(value, dict) and isinstance(old, dict):
            old = _without_replaced_lengths(old, value)
        if isinstance(value, dict) and isinstance(old, dict):
            result[key] = _merge(old, value, below, known)
            continue
        for gone in [gone for gone in places if gone[: len(below)] == below]:
            del places[gone]
        places[below] = place
        result[key] = value
    return result


def _without_replaced_lengths(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Drop what a new trace, or new lengths instead of an old trace, make meaningless."""
    lengths = {"prompt_tokens", "output_tokens"}
    gone = lengths if "trace" in new else {"trace"} if lengths & set(new) else set()
    return {key: value for key, value in old.items() if key not in gone}


_SECTION_PATH = r"(?:devices|links|model|weights|kv_cache|runtime|workload|constraints)[.\w\[\]]*"


def _located(fault: Fault, path: KeyPath) -> tuple[KeyPath, str]:
    """Return the key path of this document that *fault* is about, and its sentence.

    That is *path*, unless the fault names another, or its sentence opens with one.
    """
    if fault.file:
        inside = f"{fault.path}: " if fault.path else ""
        return path, f"{Path(fault.file).name}: {inside}{fault.wrong}"
    if re.fullmatch(_SECTION_PATH, fault.path):
        return _parsed(fault.path), fault.wrong
    if fault.path:
        return (*path, *_parsed(fault.path)), fault.wrong
    match = re.match(rf"({_SECTION_PATH}): (.+)", fault.wrong)
    return (path, fault.wrong) if match is None else (_parsed(match[1]), match[2])


def _parsed(text: str) -> KeyPath:
    """Return the inverse of :func:`spelled`."""
    return tuple(int(key) if key.isdigit() else key for key in re.findall(r"\w+", text))


def _normalised(value: Any) -> Any:  # noqa: ANN401 - a file's value may be anything
    """Return *value* in the types a YAML file would give."""
    if isinstance(value, Mapping):
        return {str(key): _normalised(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalised(item) for item in value]
    return str(value) if isinstance(value, os.PathLike) else value
