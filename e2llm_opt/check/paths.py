"""Ways from device to device, found anew by a small Dijkstra that lets no host forward."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.inventory.link import Link
    from e2llm_opt.runtime import Runtime

BUS_LATENCY_S = 20e-6
"""One way between two devices of one host (DESIGN section 5) [s]."""

Wire = tuple[int, str]
"""Index of a link and its direction: ``forward``, ``backward``, or ``both`` if half duplex."""


Card = tuple[str, str, str]
"""Host, interface, and ``out`` or ``in``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One way over a bus, a private link or the network.

    Parameters
    ----------
    latency_s, fixed_s
        Of the way [s], and of the engine for using it [s].
    bandwidth_bytes_per_s
        Of its slowest part [bytes/s].
    wires
        Link directions that it loads; none on a bus.
    name
        Switches and interface, ``lan/eth0``; or ``bus``.
    ends
        Hosts at both ends of a way over the network; None inside a host.
    """

    latency_s: float
    bandwidth_bytes_per_s: float
    fixed_s: float
    wires: tuple[Wire, ...]
    name: str
    ends: tuple[str, str] | None = None

    def time(self, num_bytes: float) -> float:
        """Seconds until *num_bytes* have arrived, the engine's fixed cost included."""
        return self.fixed_s + self.latency_s + num_bytes / self.bandwidth_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arc:
    target: str
    latency_s: float
    bandwidth_bytes_per_s: float
    wire: Wire


class Ways:
    """All ways of one inventory under one engine's topology and fixed costs.

    Parameters
    ----------
    inventory, runtime
        Of the problem that is checked.

    Attributes
    ----------
    bandwidth
        Of every wire [bytes/s].
    card
        Bandwidth of each network card: that of its fastest link in this direction [bytes/s]. All
        links of one host with one interface name are one card.
    """

    def __init__(self, inventory: Inventory, runtime: Runtime) -> None:
        self._links = inventory.links
        self._runtime = runtime
        self._hosts = set(inventory.hosts)
        self._leaving: dict[str, list[_Arc]] = defaultdict(list)
        self._private: dict[tuple[str, str], list[Leg]] = defaultdict(list)
        self._known: dict[tuple[str, str], list[Leg]] = {}
        self.bandwidth: dict[Wire, float] = {}
        self.card: dict[Card, float] = defaultdict(float)
        self._num_links: dict[Card, int] = defaultdict(int)
        host_of = {device.name: device.host for device in inventory.devices}
        for index, link in enumerate(inventory.links):
            first, second = (inventory.endpoint(end) for end in link.ends)
            for source, target, speed, wire in _directions(index, link):
                self.bandwidth[wire] = max(self.bandwidth.get(wire, 0.0), speed)
                if first != second:
                    forth = source == link.ends[0]
                    ends = (first, second) if forth else (second, first)
                    self._add_arc(ends, link.latency_s, speed, wire)
                elif source in host_of and target in host_of:
                    self._private[source, target].append(self._private_leg(link, speed, wire))

    def hop(
        self, source: Device, target: Device, num_bytes: float, head_host: str
    ) -> tuple[Leg, ...] | None:
        """Return the legs of a hop from stage to stage, or None where there is no way.

        Parameters
        ----------
        source, target
            Devices of the two stages.
        num_bytes
            Decides between several ways [bytes].
        head_host
            Host of the head process, through which everything goes in a star.
        """
        if self._runtime.topology == "star":
            if source.host == target.host == head_host:
                return (self.inside(source, target, num_bytes),)
            stops = [source.host, head_host, target.host]
            legs = [
                self.network(start, stop, num_bytes)
                for start, stop in itertools.pairwise(stops)
                if start != stop
            ]
        elif source.host == target.host:
            return (self.inside(source, target, num_bytes),)
        else:
            legs = [self.network(source.host, target.host, num_bytes)]
        found = tuple(leg for leg in legs if leg is not None)
        return found if len(found) == len(legs) else None

    def network(self, source: str, target: str, num_bytes: float) -> Leg | None:
        """Return the quickest way for *num_bytes* between two hosts; None where there is none."""
        if (source, target) not in self._known:
            self._known[source, target] = list(self._candidates(source, target))
        candidates = self._known[source, target]
        return min(candidates, key=lambda leg: leg.time(num_bytes)) if candidates else None

    def bus(self, source: Device, target: Device) -> Leg:
        """Return the way over the bus of the host that both devices share."""
        return Leg(
            latency_s=BUS_LATENCY_S,
            bandwidth_bytes_per_s=min(source.host_bus_bytes_per_s, target.host_bus_bytes_per_s),
            fixed_s=self._runtime.bus_hop_overhead_s,
            wires=(),
            name="bus",
        )

    def cards(self, leg: Leg) -> tuple[Card, ...]:
        """Return the network cards, at either end of a leg, that other links share with it."""
        if not leg.wires or leg.ends is None:
            return ()
        source, target = leg.ends
        first, last = self.link(leg.wires[0]).interface, self.link(leg.wires[-1]).interface
        cards = ((source, first, "out"), (target, last, "in"))
        return tuple(card for card in cards if self._num_links[card] > 1)

    def carriers(self, leg: Leg) -> tuple[Wire | Card, ...]:
        """Return everything that a leg loads: link directions and network cards."""
        return (*leg.wires, *self.cards(leg))

    def speed(self, carrier: Wire | Card) -> float:
        """Return the bandwidth of a link direction or a network card [bytes/s]."""
        return self.bandwidth[carrier] if len(carrier) == 2 else self.card[carrier]  # noqa: PLR2004

    def link(self, wire: Wire) -> Link:
        """Return the link that a wire is a direction of."""
        return self._links[wire[0]]

    def inside(self, source: Device, target: Device, num_bytes: float) -> Leg:
        """Return the quickest way between two devices of one host: its bus or a private link."""
        ways = [self.bus(source, target), *self._private[source.name, target.name]]
        return min(ways, key=lambda leg: leg.time(num_bytes))

    def _candidates(self, source: str, target: str) -> Iterator[Leg]:
        """For every bandwidth that some link has: the least latency over links that wide.

        The best way for any number of bytes is among them; the widest comes first.
        """
        widths = {arc.bandwidth_bytes_per_s for arcs in self._leaving.values() for arc in arcs}
        for width in sorted(widths, reverse=True):
            leg = self._least_latency(source, target, width)
            if leg is not None:
                yield leg

    def _least_latency(self, source: str, target: str, width: float) -> Leg | None:
        queue: list[tuple[float, float, str, tuple[Wire, ...]]] = [(0.0, -math.inf, source, ())]
        done = set()
        while queue:
            latency, negative_bandwidth, place, wires = heapq.heappop(queue)
            if place == target:
                return Leg(
                    latency_s=latency,
                    bandwidth_bytes_per_s=-negative_bandwidth,
                    fixed_s=self._runtime.hop_overhead_s,
                    wires=wires,
                    name=self._name(wires),
                    ends=(source, target),
                )
            # Hosts do not forward: only the source itself and switches pass anything on.
            if place in done or (place in self._hosts and place != source):
                continue
            done.add(place)
            for arc in self._leaving[place]:
                speed = arc.bandwidth_bytes_per_s
                if speed >= width:
                    slowest = max(negative_bandwidth, -speed)
                    further = (latency + arc.latency_s, slowest, arc.target, (*wires, arc.wire))
                    heapq.heappush(queue, further)
        return None

    def _name(self, wires: tuple[Wire, ...]) -> str:
        ends = [set(self.link(wire).ends) for wire in wires]
        switches = [min(here & there) for here, there in itertools.pairwise(ends) if here & there]
        interface = self.link(wires[0]).interface
        return "/".join(part for part in ("+".join(switches), interface) if part) or "direct"

    def _add_arc(self, ends: tuple[str, str], latency_s: float, speed: float, wire: Wire) -> None:
        source, target = ends
        arc = _Arc(target=target, latency_s=latency_s, bandwidth_bytes_per_s=speed, wire=wire)
        self._leaving[source].append(arc)
        interface = self.link(wire).interface
        for end, direction in ((source, "out"), (target, "in")):
            if end in self._hosts:
                card = (end, interface, direction)
                self.card[card] = max(self.card[card], speed)
                self._num_links[card] += 1

    def _private_leg(self, link: Link, speed: float, wire: Wire) -> Leg:
        return Leg(
            latency_s=link.latency_s,
            bandwidth_bytes_per_s=speed,
            fixed_s=self._runtime.bus_hop_overhead_s,
            wires=(wire,),
            name=link.interface or "direct",
        )


def _directions(index: int, link: Link) -> Iterator[tuple[str, str, float, Wire]]:
    first, second = link.ends
    forth, back = ("both", "both") if link.is_half_duplex else ("forward", "backward")
    yield first, second, link.forward_bytes_per_s, (index, forth)
    yield second, first, link.backward_bytes_per_s, (index, back)
