"""What was found → items of an inventory, filled from the catalogue with a comment that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.importers.hardware import catalogue_device, nearest_types
from e2llm_opt.loading.inventory_items import Item

if TYPE_CHECKING:
    from e2llm_opt.catalogue.catalogue import DeviceEntry
    from e2llm_opt.importers.found import Found, FoundDevice, FoundLink

NUMBERS = ("memory_gib", "memory_bandwidth_gb_s", "fp16_tflops")
"""What every device must have, from a source, the catalogue, or the user."""


def device_items(found: Found, source: str) -> list[Item]:
    """Return the items of ``devices``; *source* is named in their comments."""
    return [_device_item(device, source) for device in found.devices]


def link_items(found: Found, source: str) -> list[Item]:
    """Return the items of ``links``; *source* is named in their comments."""
    return [_link_item(link, source) for link in found.links]


def open_keys(item: Item) -> list[str]:
    """Return the keys that nothing is known for."""
    return [key for key, value in item.keys.items() if value is None]


def _device_item(device: FoundDevice, source: str) -> Item:
    memory = device.values.get("memory_gib")
    entry = catalogue_device(device.hardware, float(memory) if memory else None)
    keys: dict[str, Any] = {"name": device.name}
    filled: set[str] = set()
    comments = {"": "\n".join(device.notes), "name": f"{source}, {device.where}"}
    if entry is not None:
        keys["type"] = entry.key
        if device.hardware != entry.key:
            comments["type"] = f"there: {device.hardware}"
    elif device.hardware:
        near = nearest_types(device.hardware)
        like = f"; like {', '.join(near)}?" if near else ""
        unknown = f"the catalogue has no '{device.hardware}'{_with(memory)}{like}"
        comments[""] = "\n".join([*device.notes, unknown])
    for key in NUMBERS:
        if key in device.values:
            keys[key] = device.values[key]
        else:
            keys[key], comments[key] = _filled(key, entry, source)
            filled.add(key)
    keys |= {key: value for key, value in device.values.items() if key not in keys}
    return Item(keys=keys, comments=comments, filled=frozenset(filled))


def _filled(key: str, entry: DeviceEntry | None, source: str) -> tuple[float | None, str]:
    """Return what the catalogue knows, and how well."""
    if entry is None:
        return None, f"TODO: not known to {source} nor to the catalogue; give it, or a type"
    evidence = "sourced" if key in entry.sourced else "from memory"
    value: float = getattr(entry, key)
    return value, f"not in {source}: from the catalogue ({entry.key}, {evidence})"


def _with(memory: object) -> str:
    return f" with {memory:.3g} GiB" if isinstance(memory, float) else ""


def _link_item(link: FoundLink, source: str) -> Item:
    keys: dict[str, Any] = {"between": list(link.ends)}
    comments = {"": link.notes.get("", ""), "between": f"{source}, {link.where}"}
    rates = link.forward_mbit_s, link.backward_mbit_s
    known = [rate for rate in rates if rate is not None]
    way = ""
    how = link.notes.get("bandwidth_mbit_s", "")
    if not known:
        keys["bandwidth_mbit_s"] = None
        comments["bandwidth_mbit_s"] = f"TODO: not in {source}; measure it: iperf3 -c HOST -J"
    elif len(known) == 1 or known[0] == known[1]:
        keys["bandwidth_mbit_s"] = known[0]
        comments["bandwidth_mbit_s"] = how
        if len(known) == 1:
            way = "forward" if rates[0] is not None else "backward"
            ends = link.ends if way == "forward" else link.ends[::-1]
            only = f"only from {ends[0]} to {ends[1]}: measure the way back, too (iperf3 -R)"
            comments["bandwidth_mbit_s"] = f"{how}; {only}" if how else only
    else:
        keys["bandwidth_mbit_s"] = {"forward": known[0], "backward": known[1]}
        comments["bandwidth_mbit_s"] = how
    keys["latency_ms"] = link.latency_ms
    comments["latency_ms"] = link.notes.get("latency_ms", "")
    if link.latency_ms is None:
        comments["latency_ms"] = f"TODO: not in {source}; measure it: half of what ping shows"
    keys |= {key: getattr(link, key) for key in ("interface", "duplex") if getattr(link, key)}
    return Item(keys=keys, comments=comments, way=way)
