"""Parallax's nodes: those that its scheduler is told of, or those of its cluster status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.importers.found import Found, FoundDevice, FoundLink, Value, usable_name
from e2llm_opt.importers.parts import json_part

if TYPE_CHECKING:
    from e2llm_opt.importers.parts import Part

_RIGHT = "save the scheduler's list of nodes, or its cluster status, as JSON"
_KEYS = {
    "memory_gb": "memory_gib",  # a GiB to Parallax: it multiplies by 1024^3
    "gpu_memory": "memory_gib",
    "memory_bandwidth_gbps": "memory_bandwidth_gb_s",
    "tflops_fp16": "fp16_tflops",
}


def read(text: str, where: str) -> Found:
    """Return the nodes, and between them the latencies that they measured.

    Raises
    ------
    InputError
        With file and line, when it is no list of nodes.
    """
    root = json_part(text, where)
    nodes = _nodes(root)
    if not nodes:
        raise root.fault("there are no Parallax nodes", _RIGHT)
    devices = tuple(_device(node) for node in nodes)
    names = [device.name for device in devices]
    times: dict[tuple[str, str], list[Part]] = {}
    for name, node in zip(names, nodes, strict=True):
        for other, rtt in node.at("rtt_to_nodes").entries().items():
            end = usable_name(other)
            if end in names and end != name:
                times.setdefault((min(name, end), max(name, end)), []).append(rtt)
    links = tuple(
        _link(ends, found) for ends, found in times.items() if any(rtt.number() for rtt in found)
    )
    return Found(devices=devices, links=links)


def _nodes(root: Part) -> list[Part]:
    if isinstance(root.value, list):
        return root.items()
    for keys in (("data", "node_list"), ("node_list",), ("nodes",)):
        part = root
        for key in keys:
            if not isinstance(part.value, dict):
                break
            part = part.at(key)
        if isinstance(part.value, list):
            return part.items()
    return [root] if isinstance(root.value, dict) and "node_id" in root.value else []


def _device(node: Part) -> FoundDevice:
    hardware = node.at("hardware") if "hardware" in node.entries() else node
    name = usable_name(node.at("node_id").text() or hardware.at("node_id").text())
    if not name:
        raise node.fault("a node without node_id", _RIGHT)
    values: dict[str, Value] = {}
    for theirs, ours in _KEYS.items():
        number = hardware.at(theirs).number()
        if number:
            values[ours] = round(number, 3)
    cards = hardware.at("num_gpus").number() or hardware.at("gpu_num").number() or 1
    notes = []
    if cards > 1:
        values |= {"host": name, "count": int(cards)}
        notes.append("the numbers are taken as those of one card")
    return FoundDevice(
        name=name,
        where=node.where(),
        hardware=hardware.at("gpu_name").text(),
        values=values,
        notes=tuple(notes),
    )


def _link(ends: tuple[str, str], found: list[Part]) -> FoundLink:
    known = [rtt.number() or 0.0 for rtt in found]
    mean = sum(known) / len(known)
    return FoundLink(
        ends=ends,
        where=found[0].where(),
        latency_ms=float(f"{mean / 2:.4g}"),
        notes={"latency_ms": "half the round trip"},
    )
