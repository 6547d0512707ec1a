"""The network between hosts: usable paths, their speed, and the links and cards they cross."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.inventory.path_arrays import attached, by_rank, undominated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import networkx as nx
    from numpy.typing import NDArray

    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.inventory.link import Link

    Floats = NDArray[np.float64]

BUS_LATENCY_S = 20e-6
"""One way between two devices of one host (DESIGN section 5) [s]."""

Resource = tuple[str, str, str]
"""What transfers share: ``("link", index, direction)`` or ``("card", host/interface, in|out)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One way from a host to another.

    Parameters
    ----------
    latency_s
        Sum over its links, one way [s].
    bandwidth_bytes_per_s
        Of its slowest link [bytes/s].
    name
        Switches it crosses and the interface it leaves by: ``lan/eth0``, ``thunderbolt``.
    resources
        Links and network cards it loads.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    name: str
    resources: tuple[Resource, ...]

    def time(self, num_bytes: float) -> float:
        """Seconds until *num_bytes* have arrived, without the engine's fixed cost."""
        return self.latency_s + num_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arc:
    """A link in one direction."""

    source: str
    target: str
    latency_s: float
    bandwidth_bytes_per_s: float
    interface: str
    resource: Resource

    @property
    def speed(self) -> tuple[float, float]:
        """Latency and bandwidth [s], [bytes/s]."""
        return self.latency_s, self.bandwidth_bytes_per_s


class Network:
    """All paths between hosts, none of which is worse than another in both latency and bandwidth.

    Hosts do not forward: a path runs over a direct link, or through switches only.

    Parameters
    ----------
    inventory
        Devices and links.

    Attributes
    ----------
    capacity
        Bytes per second of every link direction and network card [bytes/s]. A card is all links
        of one host with one interface name; it is as fast as its fastest link.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._hosts = set(inventory.hosts)
        self._direct: dict[tuple[str, str], list[Path]] = {}
        self._leaving: dict[str, list[_Arc]] = {}
        self._entering: dict[str, list[_Arc]] = {}
        self._between: list[_Arc] = []
        self._known: dict[tuple[str, str], tuple[Path, ...]] = {}
        self.capacity: dict[Resource, float] = {}
        for index, link in enumerate(inventory.links):
            for _, _, bandwidth, resource in _directions(index, link):
                self._raise(resource, bandwidth)
            for arc in _arcs(index, link, inventory):
                self._sort_in(arc)
        self._has_direct = {host for pair in self._direct for host in pair}
        self._trunks = dict(_trunks(self._between, self._switches()))

    def paths(self, source: str, target: str) -> tuple[Path, ...]:
        """Return the paths from host to host, the widest first; empty when there is none."""
        key = (source, target)
        if key not in self._known:
            self._known[key] = pareto(self._all_paths(source, target))
        return self._known[key]

    def place(self, host: str) -> tuple[object, ...]:
        """Return what hosts have in common whose paths to any third host are equally fast."""
        out = [(arc.target, *arc.speed) for arc in self._leaving.get(host, ())]
        back = [(arc.source, *arc.speed) for arc in self._entering.get(host, ())]
        name = host if host in self._has_direct else ""
        return (name, tuple(sorted(out)), tuple(sorted(back)))

    def nearest_switch(self, host: str) -> str:
        """Return the switch that *host* reaches soonest; empty where it has no link to one."""
        arcs = self._leaving.get(host, ())
        near = [(a.latency_s, -a.bandwidth_bytes_per_s, a.target) for a in arcs]
        return min(near)[-1] if near else ""

    def access(self) -> dict[str, tuple[float, float, float]]:
        """Return bytes a second out and in, all cards together, and the least latency, by host.

        Of a direct link between two hosts, half the latency. Hosts without a link are left out.
        """
        found: dict[str, tuple[float, float, float]] = {}
        for host in self._inventory.hosts:
            soonest = [arc.latency_s for arc in self._leaving.get(host, ())]
            soonest += [arc.latency_s for arc in self._entering.get(host, ())]
            for pair, paths in self._direct.items() if host in self._has_direct else ():
                soonest += [0.5 * path.latency_s for path in paths if host in pair]
            if soonest:
                found[host] = (self.cards[host, "out"], self.cards[host, "in"], min(soonest))
        return found

    @cached_property
    def cards(self) -> dict[tuple[str, str], float]:
        """Bytes a second of all cards of each host, by host and direction: ``in`` or ``out``."""
        total: dict[tuple[str, str], float] = defaultdict(float)
        for (kind, name, way), speed in self.capacity.items():
            if kind == "card":
                total[name.rpartition("/")[0], way] += speed
        return dict(total)

    def ways(self, hosts: Sequence[str]) -> tuple[Floats, Floats]:
        """Return latency [s] and 1 / bandwidth [s/byte] of the paths between *hosts* [H, H, P].

        P is the number of paths between the two hosts that have the most; missing ones have an
        infinite latency.
        """
        found = [*self._over_switches(hosts), *self._over_links(hosts)]
        latency, inverse = (np.stack([one[i] for one in found], axis=2) for i in (0, 1))
        return undominated(latency, inverse) if len(found) > 1 else (latency, inverse)

    def _over_switches(self, hosts: Sequence[str]) -> Iterator[tuple[Floats, Floats]]:
        number = {switch: i for i, switch in enumerate(self._switches())}
        leaving = [[(number[a.target], *a.speed) for a in self._leaving.get(h, ())] for h in hosts]
        entering = [
            [(number[a.source], *a.speed) for a in self._entering.get(h, ())] for h in hosts
        ]
        trunks = list(by_rank(self._trunks, number))
        for first, out_s, out in attached(leaving):
            for last, in_s, into in attached(entering):
                for trunk_s, trunk in trunks:
                    pair = first[:, None], last[None, :]
                    width = np.minimum(out[:, None], into[None, :])
                    yield (
                        out_s[:, None] + trunk_s[pair] + in_s[None, :],
                        1.0 / np.minimum(width, trunk[pair]),
                    )

    def _over_links(self, hosts: Sequence[str]) -> Iterator[tuple[Floats, Floats]]:
        row = {host: i for i, host in enumerate(hosts)}
        most = max(map(len, self._direct.values()), default=0 if self._trunks else 1)
        for rank in range(most):
            latency = np.full((len(hosts), len(hosts)), np.inf)
            inverse = np.zeros(latency.shape)
            for (source, target), paths in self._direct.items():
                if source in row and target in row and rank < len(paths):
                    latency[row[source], row[target]] = paths[rank].latency_s
                    inverse[row[source], row[target]] = 1.0 / paths[rank].bandwidth_bytes_per_s
            yield latency, inverse

    def _all_paths(self, source: str, target: str) -> Iterator[Path]:
        yield from self._direct.get((source, target), ())
        for first in self._leaving.get(source, ()):
            for last in self._entering.get(target, ()):
                for trunk in self._trunks.get((first.target, last.source), ()):
                    yield self._join(first, trunk, last)

    def _join(self, first: _Arc, trunk: Path, last: _Arc) -> Path:
        name = f"{trunk.name}/{first.interface}" if first.interface else trunk.name
        return Path(
            latency_s=first.latency_s + trunk.latency_s + last.latency_s,
            bandwidth_bytes_per_s=min(
                first.bandwidth_bytes_per_s,
                trunk.bandwidth_bytes_per_s,
                last.bandwidth_bytes_per_s,
            ),
            name=name,
            resources=(
                _card(first.source, first.interface, "out"),
                first.resource,
                *trunk.resources,
                last.resource,
                _card(last.target, last.interface, "in"),
            ),
        )

    def _sort_in(self, arc: _Arc) -> None:
        leaves, enters = arc.source in self._hosts, arc.target in self._hosts
        if leaves:
            self._raise(_card(arc.source, arc.interface, "out"), arc.bandwidth_bytes_per_s)
        if enters:
            self._raise(_card(arc.target, arc.interface, "in"), arc.bandwidth_bytes_per_s)
        if leaves and enters:
            path = Path(
                latency_s=arc.latency_s,
                bandwidth_bytes_per_s=arc.bandwidth_bytes_per_s,
                name=arc.interface or "direct",
                resources=(
                    _card(arc.source, arc.interface, "out"),
                    arc.resource,
                    _card(arc.target, arc.interface, "in"),
                ),
            )
            self._direct.setdefault((arc.source, arc.target), []).append(path)
        elif leaves:
            self._leaving.setdefault(arc.source, []).append(arc)
        elif enters:
            self._entering.setdefault(arc.target, []).append(arc)
        else:
            self._between.append(arc)

    def _raise(self, resource: Resource, bandwidth: float) -> None:
        self.capacity[resource] = max(self.capacity.get(resource, 0.0), bandwidth)

    def _switches(self) -> list[str]:
        ends = [arc.source for arc in self._between] + [arc.target for arc in self._between]
        ends += [arc.target for arcs in self._leaving.values() for arc in arcs]
        return sorted(set(ends))


def graph(inventory: Inventory) -> nx.MultiDiGraph[str]:
    """Return devices, hosts, switches and links as a networkx graph.

    Node attribute ``kind`` is ``device``, ``host`` or ``switch``; edges carry ``latency_s``,
    ``bandwidth_bytes_per_s`` and ``interface``. A device that is its own host is one node.
    """
    import networkx as nx  # noqa: PLC0415 - costs 0.1 s

    result: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    for device in inventory.devices:
        result.add_node(device.host, kind="host")
    for device in inventory.devices:
        result.add_node(device.name, kind="device")
        if device.host != device.name:
            bus = {"latency_s": BUS_LATENCY_S, "interface": "bus"}
            speed = device.host_bus_bytes_per_s
            result.add_edge(device.name, device.host, bandwidth_bytes_per_s=speed, **bus)
            result.add_edge(device.host, device.name, bandwidth_bytes_per_s=speed, **bus)
    for index, link in enumerate(inventory.links):
        for arc in _arcs(index, link, inventory):
            for end in (arc.source, arc.target):
                if end not in result:
                    result.add_node(end, kind="switch")
            result.add_edge(
                arc.source,
                arc.target,
                latency_s=arc.latency_s,
                bandwidth_bytes_per_s=arc.bandwidth_bytes_per_s,
                interface=arc.interface,
            )
    return result


def private_links(inventory: Inventory) -> dict[tuple[str, str], list[Path]]:
    """Return the links between two devices of one host (NVLink …), by device names."""
    hosts = {device.name: device.host for device in inventory.devices}
    result: dict[tuple[str, str], list[Path]] = {}
    for index, link in enumerate(inventory.links):
        first, second = link.ends
        if first not in hosts or hosts[first] != hosts.get(second):
            continue
        for source, target, bandwidth, resource in _directions(index, link):
            path = Path(
                latency_s=link.latency_s,
                bandwidth_bytes_per_s=bandwidth,
                name=link.interface or "direct",
                resources=(resource,),
            )
            result.setdefault((source, target), []).append(path)
    return result


def pareto(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Keep the paths that no other beats in both latency and bandwidth, widest first."""
    kept: list[Path] = []
    for path in sorted(paths, key=lambda p: (-p.bandwidth_bytes_per_s, p.latency_s, p.name)):
        if not kept or path.latency_s < kept[-1].latency_s:
            kept.append(path)
    return tuple(kept)


def _arcs(index: int, link: Link, inventory: Inventory) -> Iterator[_Arc]:
    """Both directions of a link between hosts or switches; nothing for a private link."""
    for first, second, bandwidth, resource in _directions(index, link):
        source, target = inventory.endpoint(first), inventory.endpoint(second)
        if source != target:
            yield _Arc(
                source=source,
                target=target,
                latency_s=link.latency_s,
                bandwidth_bytes_per_s=bandwidth,
                interface=link.interface,
                resource=resource,
            )


def _directions(index: int, link: Link) -> Iterator[tuple[str, str, float, Resource]]:
    first, second = link.ends
    back = "both" if link.is_half_duplex else "backward"
    forth = "both" if link.is_half_duplex else "forward"
    yield first, second, link.forward_bytes_per_s, ("link", str(index), forth)
    yield second, first, link.backward_bytes_per_s, ("link", str(index), back)


def _card(host: str, interface: str, direction: str) -> Resource:
    return ("card", f"{host}/{interface}", direction)


def _trunks(arcs: list[_Arc], switches: list[str]) -> Iterator[tuple[tuple[str, str], list[Path]]]:
    """Paths from switch to switch: the quickest one at each bandwidth that a link has."""
    for switch in switches:
        here = Path(latency_s=0.0, bandwidth_bytes_per_s=float("inf"), name=switch, resources=())
        yield (switch, switch), [here]
    if not arcs:
        return
    import networkx as nx  # noqa: PLC0415 - costs 0.1 s, and most inventories have one switch

    found: dict[tuple[str, str], list[Path]] = {}
    for width in sorted({arc.bandwidth_bytes_per_s for arc in arcs}, reverse=True):
        wide: nx.DiGraph[str] = nx.DiGraph()
        for arc in arcs:
            known = wide.get_edge_data(arc.source, arc.target, {"latency_s": float("inf")})
            if arc.bandwidth_bytes_per_s >= width and arc.latency_s < known["latency_s"]:
                wide.add_edge(arc.source, arc.target, latency_s=arc.latency_s, arc=arc)
        for source, ways in nx.all_pairs_dijkstra_path(wide, weight="latency_s"):
            for target, nodes in ways.items():
                if source != target:
                    found.setdefault((source, target), []).append(_trunk(wide, nodes))
    for pair, paths in found.items():
        yield pair, list(pareto(paths))


def _trunk(wide: nx.DiGraph[str], nodes: list[str]) -> Path:
    arcs: list[_Arc] = [wide.edges[pair]["arc"] for pair in pairwise(nodes)]
    return Path(
        latency_s=sum(arc.latency_s for arc in arcs),
        bandwidth_bytes_per_s=min(arc.bandwidth_bytes_per_s for arc in arcs),
        name="+".join(nodes),
        resources=tuple(arc.resource for arc in arcs),
    )
