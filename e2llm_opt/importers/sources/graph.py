"""A ``networkx`` graph: as an object, as node-link JSON, or as GraphML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.importers.found import Found, FoundDevice, FoundLink, Value, usable_name
from e2llm_opt.importers.parts import json_part

if TYPE_CHECKING:
    import networkx as nx

    from e2llm_opt.importers.parts import Part

_TEXTS = {"type", "uuid", "host"}
_NUMBERS = {
    *("memory_gib", "reserved_gib", "memory_bandwidth_gb_s", "fp16_tflops", "layer_overhead_us"),
    *("host_bus_gb_s", "host_memory_gib", "host_bandwidth_gb_s", "bus_gb_s", "power_w"),
    *("cost_per_hour", "count"),
}
_RATES = {"bandwidth_mbit_s", "latency_ms"}
_LINK_KEYS = {*_RATES, "interface", "duplex"}
_RIGHT = "write networkx.node_link_data as JSON, or networkx.write_graphml"


def read(text: str, where: str) -> Found:
    """Return what a file of either format says.

    Raises
    ------
    InputError
        With file and line, when it is neither, or an attribute is not what the inventory takes.
    """
    graph = _from_graphml(text, where) if text.lstrip().startswith("<") else _from_json(text, where)
    return found_in(graph, where)


def found_in(graph: nx.Graph[Any], where: str = "graph") -> Found:
    """Return devices and links of *graph*; attributes are called as the inventory's keys.

    A node with no attribute of a device is a switch. In a directed graph, an edge is a direction.

    Raises
    ------
    InputError
        When an attribute is not what the inventory takes.
    """
    ignored: dict[str, None] = {}
    devices = []
    names = {node: usable_name(str(node)) for node in graph.nodes}
    for node, attributes in graph.nodes(data=True):
        known = {key: attributes[key] for key in attributes if key in _TEXTS | _NUMBERS}
        ignored |= dict.fromkeys(key for key in attributes if key not in {*known, "name", "label"})
        if not names[node]:
            raise _fault(where, f"node {node!r}", "has no usable name")
        if known:
            devices.append(_device(names[node], known, where))
    links: dict[tuple[str, str, str], FoundLink] = {}
    for one, other, attributes in graph.edges(data=True):
        ignored |= dict.fromkeys(key for key in attributes if key not in _LINK_KEYS)
        _add_link((names[one], names[other]), attributes, where, links, graph.is_directed())
    if not devices:
        raise _fault(where, "graph", "no node has a key of a device, such as type or memory_gib")
    notes = (f"{where}: not read: {', '.join(map(str, ignored))}",) if ignored else ()
    return Found(devices=tuple(devices), links=tuple(links.values()), notes=notes)


def _device(name: str, known: dict[str, Any], where: str) -> FoundDevice:
    at = f"{where}: node {name}"
    hardware = str(known.pop("type", ""))
    values: dict[str, Value] = {
        key: str(value) if key in _TEXTS else _number(value, where, f"node {name}: {key}")
        for key, value in known.items()
    }
    return FoundDevice(name=name, where=at, hardware=hardware, values=values)


def _add_link(
    ends: tuple[str, str],
    attributes: dict[str, Any],
    where: str,
    links: dict[tuple[str, str, str], FoundLink],
    is_directed: bool,  # noqa: FBT001 - only called here
) -> None:
    at = f"edge {ends[0]} - {ends[1]}"
    rate, latency = (
        _number(attributes[key], where, f"{at}: {key}") if key in attributes else None
        for key in ("bandwidth_mbit_s", "latency_ms")
    )
    interface = str(attributes.get("interface", ""))
    back = links.get((ends[1], ends[0], interface)) if is_directed else None
    if back is not None:
        links[ends[1], ends[0], interface] = FoundLink(
            ends=back.ends,
            where=back.where,
            forward_mbit_s=back.forward_mbit_s,
            backward_mbit_s=rate,
            latency_ms=back.latency_ms if latency is None else latency,
            interface=interface,
            duplex=back.duplex,
        )
        return
    links[*ends, interface] = FoundLink(
        ends=ends,
        where=f"{where}: {at}",
        forward_mbit_s=rate,
        backward_mbit_s=None if is_directed else rate,
        latency_ms=latency,
        interface=interface,
        duplex=str(attributes.get("duplex", "")),
    )


def _number(value: Any, where: str, path: str) -> float:  # noqa: ANN401 - what the file says
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise _fault(where, path, f"must be a number, got {str(value)[:60]!r}")
    return number


def _from_graphml(text: str, where: str) -> nx.Graph[Any]:
    import networkx as nx  # noqa: PLC0415 - slow to import

    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise _fault(where, "", "a document type is not read", "remove <!DOCTYPE …>")
    try:
        return nx.parse_graphml(text)
    except ParseError as error:
        line = error.position[0]
        reason = str(error).split(":", maxsplit=1)[0]
        fault = Fault(file=where, line=line, wrong=f"not XML: {reason}", right=_RIGHT)
        raise InputError([fault]) from None
    except (nx.NetworkXError, KeyError, ValueError) as error:
        raise _fault(where, "", f"not GraphML: {error}") from None


def _from_json(text: str, where: str) -> nx.Graph[Any]:
    import networkx as nx  # noqa: PLC0415 - slow to import

    root = json_part(text, where)
    if not isinstance(root.value, dict) or not isinstance(root.value.get("nodes"), list):
        raise root.fault("not a graph: no list of nodes", _RIGHT)
    graph: nx.Graph[Any] = nx.MultiDiGraph() if root.at("directed").value else nx.MultiGraph()
    for node in root.at("nodes").items():
        name = node.at("id")
        if not isinstance(name.value, str | int) or isinstance(name.value, bool):
            raise node.fault("a node without an id", _RIGHT)
        rest = _attributes(node, {"id"})
        graph.add_node(name.value)
        graph.nodes[name.value].update(rest)
    edges = root.at("links") if "links" in root.value else root.at("edges")
    for edge in edges.items():
        ends = [edge.at(key).value for key in ("source", "target")]
        for key, end in zip(("source", "target"), ends, strict=True):
            if isinstance(end, list | dict) or end not in graph:
                raise edge.at(key).fault(f"no node is called {str(end)[:60]!r}", _RIGHT)
        number = graph.add_edge(*ends)
        graph.edges[*ends, number].update(_attributes(edge, {"source", "target", "key"}))
    return graph


def _attributes(part: Part, drop: set[str]) -> dict[str, Any]:
    """Return the attributes of a node or an edge; a wrong number is refused with its line."""
    entries = {key: entry for key, entry in part.entries().items() if key not in drop}
    for key, entry in entries.items():
        if key in _NUMBERS | _RATES:
            entry.number()
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


def _fault(where: str, path: str, wrong: str, right: str = _RIGHT) -> InputError:
    return InputError([Fault(file=where, path=path, line=0, wrong=wrong, right=right)])
