"""YAML text to plain values that know their line; no tags, no duplicate keys, no bombs.

The text is read as YAML 1.2 would read it: ``no`` and ``12:30`` are text, ``1e9`` is a number.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.document import Document, Faults, KeyPath, Place
from e2llm_opt.text_file import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # PyYAML built without libyaml: slower, the same events
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MAX_DEPTH = 40
"""Deepest nesting, aliases followed."""
MAX_VALUES = 200_000
"""Most values in one file, aliases followed: what an anchor bomb multiplies."""

_INT = re.compile(r"[-+]?[0-9]+")
_BASED_INT = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **{f"-{word}": -math.inf for word in (".inf", ".Inf", ".INF")},
}
_MAX_DIGITS = 18


def read_document(path: str | os.PathLike[str]) -> tuple[Document, Faults]:
    """Read a YAML file whose top level is a mapping.

    Returns
    -------
    tuple of Document and Faults
        The values, and what is wrong with keys and tags; more may be added to it.

    Raises
    ------
    InputError
        When the file cannot be read at all: missing, binary, too large, not YAML, empty.
    """
    return parse(read_text(path), file=os.fspath(path))


def parse(text: str, *, file: str = "") -> tuple[Document, Faults]:
    """Return the values of YAML *text*; :func:`read_document` without the file.

    Raises
    ------
    InputError
        When *text* is not YAML, is empty, is no mapping, or is too large once aliases are followed.
    """
    root = _Composer(text, file).root()
    document = Document(value={}, file=file)
    faults = Faults(document)
    document.value.update(_value(root, (), faults))
    return document, faults


def nodes_of(text: str) -> yaml.Node | None:
    """Return the nodes of a *text* that :func:`parse` accepts: each with its place in the text."""
    return yaml.compose(text, Loader=_Loader)


@dataclass(slots=True)
class _Node:
    """One value as written: text, or items that each have a key (or position) and a line."""

    line: int
    scalar: Any = None
    items: list[tuple[str | int, int, _Node]] = field(default_factory=list)
    kind: type = str
    wrong: tuple[str, str] | None = None
    num_values: int = 1
    height: int = 1


class _Composer:
    """Turns libyaml's events into nodes, iterating lazily so that limits stop it early."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._events = self._parsed(text)
        self._anchors: dict[str, _Node | None] = {}

    def root(self) -> _Node:
        """Return the one document's mapping."""
        next(self._events)  # stream start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            raise self._error(0, "the file is empty", "list devices, a model and a workload")
        root = self._node(next(self._events), 1)
        next(self._events)  # document end
        following = next(self._events)
        if not isinstance(following, yaml.StreamEndEvent):
            raise self._error(_line(following), "a second document starts here", "keep one")
        if root.kind is str and root.scalar is None and root.wrong is None:
            raise self._error(0, "the file is empty", "list devices, a model and a workload")
        if root.wrong is not None:
            raise self._error(root.line, *root.wrong)
        if root.kind is not dict:
            raise self._error(
                root.line, "the file is not a mapping", "start with 'devices:' and a list of them"
            )
        return root

    def _parsed(self, text: str) -> Iterator[yaml.Event]:
        try:
            yield from yaml.parse(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = ", ".join(part for part in (error.context, error.problem) if part)
            last = len(text.splitlines())  # the mark may stand behind the end
            line = min(mark.line + 1, last) if mark else 0
            raise self._error(line, f"not valid YAML: {what}") from None
        except yaml.YAMLError as error:  # the reader's: a position instead of a mark
            reason = str(getattr(error, "reason", error))
            line = text.count("\n", 0, getattr(error, "position", 0)) + 1
            raise self._error(line, f"not valid YAML: {reason}") from None
        except UnicodeEncodeError:
            raise self._error(0, "not valid text: a lone surrogate") from None

    def _error(self, line: int, wrong: str, right: str = "") -> InputError:
        return InputError([Fault(file=self._file, line=line, wrong=wrong, right=right)])

    def _node(self, event: yaml.Event, depth: int) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(event)
        node = _Node(_line(event))
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node.scalar = resolved(event.value) if event.implicit[0] else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            node.kind = list
            self._fill_list(node, depth)
        else:
            node.kind = dict
            self._fill_dict(node, depth)
        tag = getattr(event, "tag", None)
        if tag is not None:
            node.wrong = _no_tag(tag)
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _aliased(self, event: yaml.AliasEvent) -> _Node:
        name = event.anchor or ""
        target = self._anchors.get(name)
        if target is not None:
            return target
        wrong = "contains itself" if name in self._anchors else "is defined nowhere above"
        return _Node(_line(event), wrong=(f"the alias *{name} {wrong}", "write it out"))

    def _fill_list(self, node: _Node, depth: int) -> None:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._append(node, len(node.items), event, event, depth)

    def _fill_dict(self, node: _Node, depth: int) -> None:
        merges: list[_Node] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error(_line(event), "a key must be a word", "write key: value")
            if event.tag is not None:
                node.wrong = _no_tag(event.tag)
            if event.value == "<<" and event.implicit[0]:
                merges.append(self._node(next(self._events), depth + 1))
            else:
                self._append(node, event.value, event, next(self._events), depth)
        for merge in merges:
            self._merge(node, merge)

    def _append(
        self, node: _Node, key: str | int, at: yaml.Event, event: yaml.Event, depth: int
    ) -> None:
        if depth >= MAX_DEPTH:
            raise self._error(_line(event), f"nested more than {MAX_DEPTH} deep")
        child = self._node(event, depth + 1)
        node.items.append((key, _line(at), child))
        self._grow(node, child)

    def _grow(self, node: _Node, child: _Node) -> None:
        node.num_values += child.num_values
        node.height = max(node.height, child.height + 1)
        if node.num_values > MAX_VALUES:
            raise self._error(
                child.line, f"more than {MAX_VALUES} values, aliases followed", "use count"
            )
        if node.height > MAX_DEPTH:
            raise self._error(child.line, f"nested more than {MAX_DEPTH} deep, aliases followed")

    def _merge(self, node: _Node, merge: _Node) -> None:
        """Take over the entries of ``<<: *anchor`` that *node* does not have itself."""
        sources = [child for _, _, child in merge.items] if merge.kind is list else [merge]
        for source in sources:
            if source.kind is not dict:
                node.wrong = source.wrong or ("<< must name a mapping", "use <<: *anchor")
                continue
            own = {key for key, _, _ in node.items}
            for key, line, child in source.items:
                if key not in own:
                    node.items.append((key, line, child))
                    self._grow(node, child)


def resolved(text: str) -> str | float | bool | None:
    """Return what an unquoted word means: null, a boolean, a number, or the text itself.

    Examples
    --------
    >>> resolved("1e9"), resolved("no"), resolved("12:30"), resolved("0x10")
    (1000000000.0, 'no', '12:30', 16)
    """
    if text in _WORDS:
        word: float | bool | None = _WORDS[text]
        return word
    is_short = len(text) <= _MAX_DIGITS  # longer is beyond any quantity: a float says so cheaply
    if _INT.fullmatch(text):
        return int(text) if is_short else float(text)
    if _BASED_INT.fullmatch(text):
        return int(text, 0) if is_short else math.inf
    return float(text) if _FLOAT.fullmatch(text) else text


def _no_tag(tag: str) -> tuple[str, str]:
    short = tag.replace("tag:yaml.org,2002:", "!!")
    return f"YAML tags are not allowed, got {short}", "remove the tag"


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


def _value(node: _Node, path: KeyPath, faults: Faults) -> Any:  # noqa: ANN401 - plain YAML value
    if node.wrong is not None:
        faults.add(path, *node.wrong)
        return None
    if node.kind is str:
        return node.scalar
    places = faults.document.places
    values: dict[str | int, Any] = {}
    for key, line, child in node.items:
        below = (*path, key)
        if key in values:
            first = places[below]
            places[below] = Place(faults.document.file, line)
            right = f"it is on line {first.line} already, keep one of them"
            faults.add(below, "the key is given twice", right)
            places[below] = first
            continue
        places[below] = Place(faults.document.file, line)
        values[key] = _value(child, below, faults)
    return values if node.kind is dict else list(values.values())
