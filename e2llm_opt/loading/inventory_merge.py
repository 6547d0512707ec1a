"""New items and new values into an inventory text; every other byte stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.inventory_edit import ItemEdit, Splice, applied, index, own
from e2llm_opt.loading.inventory_items import Item, block, flow, written
from e2llm_opt.loading.setup import catalogue_key
from e2llm_opt.loading.yaml_file import nodes_of, parse

_KEPT = frozenset(
    {"name", "type", "host", "reserved_gib", "between", "interface", "duplex", "count"}
)
"""Keys that a merge adds where they lack and never replaces: they are the user's choice."""
_FILLS = frozenset({"memory_bandwidth_gb_s", "fp16_tflops"})
"""Keys that come from the catalogue unless a source measured them."""
_OPEN = re.compile(r"[ \t]*(#[ \t]*TODO[^\r\n]*)?")
_PAIR = 2


class Merged(NamedTuple):
    """The new text, and what was done in it, a sentence each."""

    text: str
    notes: tuple[str, ...]


def merged_items(
    text: str, devices: Sequence[Item], links: Sequence[Item], *, file: str = ""
) -> Merged:
    """Return an inventory *text* with *devices* and *links* in it.

    A device that the text has already (by ``uuid``, else by ``name``) and a link between the same
    ends get the values that were measured; the others are added at the end of their list.

    Parameters
    ----------
    text
        YAML; it need not load as an inventory yet, and may be empty.
    devices, links
        Items to merge.
    file
        Its name, for messages.

    Raises
    ------
    InputError
        When *text* is not YAML, or is written so that a change would change other parts.
    """
    bare = "".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    if not bare.strip():
        return Merged(text + ("\n" if text else "") + written_inventory(devices, links), ())
    document, _ = parse(text, file=file)
    root = nodes_of(text)
    if not isinstance(root, yaml.MappingNode):
        msg = "a text that was parsed has no mapping"
        raise RuntimeError(msg)  # noqa: TRY004 - a bug
    merge = _Merge(text, root, document.value)
    for key, items in (("devices", devices), ("links", links)):
        merge.section(key, items)
    result = applied(text, merge.splices)
    if result != text and parse(result, file=file)[0].value != merge.expected:
        wrong = "cannot be merged into: other parts of the file would change"
        right = "write out what anchors and aliases share"
        raise InputError([Fault(file=file, wrong=wrong, right=right)])
    return Merged(result, tuple(merge.notes))


def written_inventory(devices: Sequence[Item], links: Sequence[Item]) -> str:
    """Return a new inventory with these items."""
    lines: list[str] = []
    for key, items in (("devices", devices), ("links", links)):
        if items:
            lines += [f"{key}:", *(line for item in items for line in block(item, 2))]
    return "".join(f"{line}\n" for line in lines)


class _Merge:
    """Splices that bring items into one text, and the values that it must have then."""

    def __init__(self, text: str, root: yaml.MappingNode, value: dict[str, Any]) -> None:
        self.splices: list[Splice] = []
        self.notes: list[str] = []
        self.expected = dict(value)
        self._text = text
        self._root = root
        self._edit = ItemEdit(text)
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def section(self, key: str, items: Sequence[Item]) -> None:
        """Bring *items* into the list under *key*."""
        if not items:
            return
        listed = self.expected.get(key)
        values: list[Any] = list(listed) if isinstance(listed, list) else []
        node = own(self._root, key)[1]
        nodes = node.value if isinstance(node, yaml.SequenceNode) else []
        new = []
        for item in items:
            row = _row(values, item)
            if row is None:
                new.append(item)
            elif isinstance(nodes[row], yaml.MappingNode):
                values[row] = self._update(nodes[row], values[row], item)
        self.expected[key] = values
        if new:
            values += self._append(key, node, new)

    def _update(self, node: yaml.MappingNode, value: dict[str, Any], item: Item) -> dict[str, Any]:
        """Set what was measured of one item; return its new value."""
        if value.get("count", 1) != 1 and "count" not in item.keys:
            self.notes.append(f"{title_of(value)} stands for several devices; it stays as it is")
            return value
        own_type, type_there = value.get("type"), item.keys.get("type")
        if own_type and type_there and catalogue_key(str(own_type)) != type_there:
            self.notes.append(f"{title_of(value)}: stays {own_type}, but there it is {type_there}")
        changes = _changes(value, item)
        later: list[Splice] = []  # a new line may start where an open value of the last one stands
        for key, change in changes.items():
            old_key, old = own(node, key)
            is_open = isinstance(old, yaml.ScalarNode) and old.value == "" and not old.style
            if old_key is None or old is None or not is_open:
                later += self._edit.set_keys(node, {key: change})
                continue
            start = self._text.index(":", index(old_key.end_mark)) + 1
            rest = _OPEN.match(self._text, start)
            stop = rest.end() if rest else start
            self.splices.append(Splice(start, stop, f" {written(change)}"))
        self.splices += later
        if changes:
            self.notes.append(f"{title_of(value)}: {', '.join(changes)} set")
        return value | changes

    def _append(
        self, key: str, node: yaml.Node | None, items: Sequence[Item]
    ) -> list[dict[str, Any]]:
        """Write *items* behind the last one of a list; return what is read back."""
        values = [_plain(item) for item in items]
        for item in items if key == "links" else ():
            self._note_second_way(item)
        self.notes += [f"{title_of(_plain(item))}: added" for item in items]
        if isinstance(node, yaml.SequenceNode) and node.value and node.flow_style:
            at = index(node.value[-1].end_mark)
            self.splices.append(Splice(at, at, "".join(f", {flow(item)}" for item in items)))
            return [{k: v for k, v in value.items() if v is not None} for value in values]
        if isinstance(node, yaml.SequenceNode) and node.value:
            at = self._line_end(self._last(node.value[-1]))
            self._insert(at, [line for item in items for line in block(item, _column(node))])
            return values
        lines = [line for item in items for line in block(item, 2)]
        name = own(self._root, key)[0]
        if name is None or node is None:
            at = len(self._text.rstrip())
            self._insert(self._line_end(at), [f"{key}:", *lines])
            return values
        start, stop = index(name.end_mark), index(node.end_mark)
        start = self._text.index(":", start) + 1
        if stop > start:  # [], null
            self.splices.append(Splice(start, stop, ""))
        self._insert(self._line_end(max(start, stop)), lines)
        return values

    def _note_second_way(self, item: Item) -> None:
        """Tell of a switch that both ends of a new link reach already: mostly the same cable."""
        ends = item.keys["between"]
        listed = self.expected.get("links")
        for switch, reached in _switches(listed if isinstance(listed, list) else []).items():
            if isinstance(ends, list) and ("all" in reached or set(ends) <= reached):
                title = title_of(_plain(item))
                self.notes.append(
                    f"{title}: both reach '{switch}', too; keep one, if it is one way"
                )

    def _insert(self, at: int, lines: Sequence[str]) -> None:
        self.splices.append(Splice(at, at, "".join(self._newline + line for line in lines)))

    def _last(self, node: yaml.Node) -> int:
        """Return where the last item ends: a block's own mark is the next token's."""
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            if isinstance(node, yaml.MappingNode):
                return self._edit.end(node)
            return self._last(node.value[-1])
        return len(self._text[: index(node.end_mark)].rstrip())

    def _line_end(self, at: int) -> int:
        found = re.compile(r"\r?\n|\Z").search(self._text, at)
        return found.start() if found else len(self._text)


def _column(node: yaml.SequenceNode) -> int:
    mark = node.start_mark
    return mark.column if mark is not None else 0


def _row(values: Sequence[Any], item: Item) -> int | None:
    """Return the position of what *item* is about; None where it is not there."""
    if "between" in item.keys:
        rows = [i for i, value in enumerate(values) if _is_link(value, item.keys["between"], item)]
        named = item.keys.get("interface")
        exact = [i for i in rows if values[i].get("interface") == named]
        return next(iter([*exact, *rows]), None)
    for key in ("uuid", "name"):
        for i, value in enumerate(values):
            if isinstance(value, dict) and key in item.keys and value.get(key) == item.keys[key]:
                uuids = value.get("uuid"), item.keys.get("uuid")
                if key == "uuid" or None in uuids or uuids[0] == uuids[1]:
                    return i
    return None


def _is_link(value: Any, ends: Any, item: Item) -> bool:  # noqa: ANN401 - what the file says
    if not isinstance(value, dict) or not isinstance(value.get("between"), list):
        return False
    have = [end for end in value["between"] if isinstance(end, str)]
    interfaces = value.get("interface"), item.keys.get("interface")
    is_same = None in interfaces or interfaces[0] == interfaces[1]
    is_pair = len(have) == _PAIR and "via" not in value
    return is_pair and set(have) == set(ends) and is_same


def _changes(value: Mapping[str, Any], item: Item) -> dict[str, Any]:
    """Return what *item* knows and *value* lacks, or has otherwise."""
    changes: dict[str, Any] = {}
    for key, new in item.keys.items():
        old = value.get(key)
        if new is None or (old is not None and (key in _KEPT or key in item.filled)):
            continue
        if key == "bandwidth_mbit_s":
            new = _rates(value, item)  # noqa: PLW2901
        if key == "type" and old is None and all(value.get(k) is not None for k in _FILLS):
            continue  # all its numbers are the user's own
        if key in item.filled and key not in value and "type" in {**value, **changes}:
            continue  # its type brings it
        if old != new:
            changes[key] = new
    return changes


def _rates(value: Mapping[str, Any], item: Item) -> Any:  # noqa: ANN401 - as the file writes it
    """Return the bandwidth that is new, along the ends as the file has them."""
    new, ways = item.keys["bandwidth_mbit_s"], ("forward", "backward")
    is_turned = value["between"] != item.keys["between"]
    if isinstance(new, Mapping):
        turned = [new[way] for way in (ways[::-1] if is_turned else ways)]
        return dict(zip(ways, turned, strict=True))
    old = value.get("bandwidth_mbit_s")
    if not item.way or old is None:
        return new
    pair: list[Any] = [old[way] for way in ways] if isinstance(old, dict) else [old, old]
    pair[(item.way == "backward") != is_turned] = new
    return pair[0] if pair[0] == pair[1] else dict(zip(ways, pair, strict=True))


def _switches(values: Sequence[Any]) -> dict[str, set[str]]:
    """Return what each switch joins, as far as ``via`` says it."""
    found: dict[str, set[str]] = {}
    for value in values:
        via = value.get("via") if isinstance(value, dict) else None
        if isinstance(via, str):
            ends = value.get("between")
            named = ends if isinstance(ends, list) else [ends]
            found.setdefault(via, set()).update(end for end in named if isinstance(end, str))
    return found


def _plain(item: Item) -> dict[str, Any]:
    return {key: dict(v) if isinstance(v, Mapping) else v for key, v in item.keys.items()}


def title_of(value: Mapping[str, Any]) -> str:
    """Return what an item is called: its name, or the ends of a link."""
    between = value.get("between")
    return " - ".join(map(str, between)) if isinstance(between, list) else str(value.get("name"))
