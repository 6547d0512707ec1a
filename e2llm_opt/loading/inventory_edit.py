"""New values for single keys of devices in an inventory file; every other byte stays as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.inventory_items import Value, written
from e2llm_opt.loading.inventory_part import read_inventory
from e2llm_opt.loading.yaml_file import nodes_of, parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.inventory.device import Device

Changes = Mapping[str, Value | Mapping[str, Value]]
"""Keys of one device: values, or mappings of which the keys named are set."""
_ALIAS = re.compile(r"\s*:\s*(?P<alias>\*[^\s,\[\]{}]+)")


class Splice(NamedTuple):
    """Characters ``[start, stop)`` of the text become *new*."""

    start: int
    stop: int
    new: str


def edited(text: str, changes: Mapping[str, Changes], *, file: str) -> str:
    """Return the inventory *text* with keys of some items of ``devices`` set.

    Comments, order, spacing and everything else stay; a key that the item lacks is added behind
    its last one, in the style of the item.

    Parameters
    ----------
    text
        A file that loads.
    changes
        Name of each item (not of a device of a ``count``), and what to set.
    file
        Its name, for messages.

    Raises
    ------
    InputError
        When an item is not found, or is written so that setting it would change others.
    """
    root = nodes_of(text)
    items = _items(root)
    splices: list[Splice] = []
    for name, keys in changes.items():
        item = items.get(name)
        if item is None:
            wrong = f"the device '{name}' is not listed under devices in this file"
            raise InputError([Fault(file=file, wrong=wrong)])
        splices += ItemEdit(text).set_keys(item, keys)
    found = applied(text, splices)
    _refuse_side_effects(text, found, changes, file)
    return found


def stated(text: str, name: str, key: str) -> Any:  # noqa: ANN401 - what the file says
    """Return the value of *key* of the item *name* of ``devices``; None where there is none."""
    document, _ = parse(text)
    listed = document.value.get("devices")
    for item in listed if isinstance(listed, list) else []:
        if isinstance(item, dict) and item.get("name") == name:
            return item.get(key)
    return None


def _items(root: yaml.Node | None) -> dict[str, yaml.MappingNode]:
    """Return the mappings under ``devices`` by name."""
    devices = own(root, "devices")[1] if isinstance(root, yaml.MappingNode) else None
    nodes = devices.value if isinstance(devices, yaml.SequenceNode) else []
    named = [(own(node, "name")[1], node) for node in nodes if isinstance(node, yaml.MappingNode)]
    return {name.value: node for name, node in named if isinstance(name, yaml.ScalarNode)}


def own(node: yaml.Node, key: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Return key and value as the mapping itself has them; nothing that it merges."""
    for own_key, value in node.value:
        if isinstance(own_key, yaml.ScalarNode) and own_key.value == key:
            return own_key, value
    return None, None


class ItemEdit:
    """Splices that set keys of mappings in one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newline = "\r\n" if "\r\n" in text else "\n"

    def set_keys(self, node: yaml.MappingNode, keys: Changes) -> list[Splice]:
        """Return what replaces the values of *keys*, and adds those that are not there."""
        splices, new = [], dict[str, str]()
        for key, value in keys.items():
            own_key, old = own(node, key)
            if own_key is None or old is None:
                new[key] = written(value)
                continue
            start, stop = self.span(own_key, old)
            is_here = start == index(old.start_mark)
            if isinstance(value, Mapping) and isinstance(old, yaml.MappingNode) and is_here:
                splices += self.set_keys(old, value)
            else:
                splices.append(Splice(start, stop, written(value)))
        return [*splices, *self._added(node, new)]

    def _added(self, node: yaml.MappingNode, new: Mapping[str, str]) -> list[Splice]:
        if not new:
            return []
        entries = [f"{key}: {value}" for key, value in new.items()]
        if not node.value:  # {}
            at = index(node.start_mark) + 1
            return [Splice(at, at, ", ".join(entries))]
        at = self.end(node)
        if node.flow_style:
            return [Splice(at, at, "".join(f", {entry}" for entry in entries))]
        line_end = re.compile(r"\r?\n|\Z").search(self._text, at)
        at = line_end.start() if line_end else len(self._text)
        indent = " " * node.value[0][0].start_mark.column
        lines = "".join(f"{self._newline}{indent}{entry}" for entry in entries)
        return [Splice(at, at, lines)]

    def end(self, node: yaml.Node) -> int:
        """Return where the last entry of a mapping ends: a block's own mark is the next token's."""
        key, value = node.value[-1]
        start, stop = self.span(key, value)
        is_block = isinstance(value, yaml.CollectionNode) and not value.flow_style
        if is_block and start == index(value.start_mark) and value.value:
            last = value.value[-1]
            is_list = isinstance(value, yaml.SequenceNode)
            return index(last.end_mark) if is_list else self.end(value)
        return len(self._text[:stop].rstrip())

    def span(self, key: yaml.Node, value: yaml.Node) -> tuple[int, int]:
        """Return where a value stands; an alias stands where it is used."""
        after = index(key.end_mark)
        alias = _ALIAS.match(self._text, after)
        if alias is not None:
            return alias.start("alias"), alias.end("alias")
        return index(value.start_mark), index(value.end_mark)


def index(mark: yaml.Mark | None) -> int:
    """Return where a mark stands in the text."""
    if mark is None:
        msg = "a node of a text has no place in it"
        raise RuntimeError(msg)
    return mark.index


def applied(text: str, splices: Sequence[Splice]) -> str:
    """Return *text* with all splices made."""
    in_order = sorted(splices, key=lambda splice: splice.start)
    for splice in in_order[::-1]:  # of two at one place the first is written last: it comes first
        text = text[: splice.start] + splice.new + text[splice.stop :]
    return text


def _refuse_side_effects(text: str, found: str, changes: Mapping[str, Changes], file: str) -> None:
    """Refuse a change that other devices inherit (``<<: *anchor``), or that does not read back."""
    before, after = _devices(text), _devices(found)
    others = [
        name
        for name, (item, device) in before.items()
        if item not in changes and after.get(name, ("", None))[1] != device
    ]
    if others or before.keys() != after.keys():
        what = f"{', '.join(others)} would change, too" if others else "other parts would change"
        raise InputError(
            [
                Fault(
                    file=file,
                    wrong=f"{', '.join(changes)} cannot be set here: {what}",
                    right="write out what anchors and aliases share",
                )
            ]
        )


def _devices(text: str) -> dict[str, tuple[str, Device]]:
    """Return item and values of every device of an inventory text; none of one with faults."""
    try:
        _, faults = parse(text)
    except InputError:
        return {}
    inventory, names = read_inventory(faults)
    item_of = {name: item for item, group in names.groups.items() for name in group}
    devices = inventory.devices if inventory is not None and not faults.at(()) else ()
    return {device.name: (item_of.get(device.name, device.name), device) for device in devices}
