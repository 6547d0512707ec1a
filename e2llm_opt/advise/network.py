"""Devices that come and go: how a new one is linked, and which links an old one leaves."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from e2llm_opt.errors import InputError
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.units import MBIT_PER_S, MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.inventory.device import Device

SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How a device that is bought is linked.

    Parameters
    ----------
    mbit_s
        What one stream gets of its link [Mbit/s]; None: as the others' links, else gigabit.
    latency_ms
        One way [ms]; None: as the others' links, else 0.2.
    """

    mbit_s: float | None = None
    latency_ms: float | None = None

    def __post_init__(self) -> None:
        """Refuse impossible numbers."""
        if self.mbit_s is not None and not 0 < self.mbit_s < float("inf"):
            raise InputError(f"mbit_s of a link must be positive and finite, got {self.mbit_s}.")
        if self.latency_ms is not None and not 0 <= self.latency_ms < float("inf"):
            raise InputError(f"latency_ms of a link must be zero or more, got {self.latency_ms}.")

    def link(self, ends: tuple[str, str], like: tuple[float, float] | None = None) -> Link:
        """Return a link between *ends*, *like* [bytes/s, s] others where nothing is said."""
        speed, latency = like or (DEFAULT_MBIT_S * MBIT_PER_S, DEFAULT_LATENCY_MS * MS)
        if self.mbit_s is not None:
            speed = self.mbit_s * MBIT_PER_S
        if self.latency_ms is not None:
            latency = self.latency_ms * MS
        return Link(
            ends=ends, forward_bytes_per_s=speed, backward_bytes_per_s=speed, latency_s=latency
        )


DEFAULT_MBIT_S = 940.0
"""What one stream gets of gigabit Ethernet."""
DEFAULT_LATENCY_MS = 0.2


def with_device(inventory: Inventory, device: Device, wire: Wire) -> Inventory:
    """Return *inventory* with one device more.

    It hangs on the switch on which most hosts do, with the bandwidth and latency that most links
    there have; without a switch it is linked to every host as the median link is.
    """
    links = tuple(_links_of(inventory, device.host, wire))
    return replace(
        inventory, devices=(*inventory.devices, device), links=(*inventory.links, *links)
    )


def _links_of(inventory: Inventory, host: str, wire: Wire) -> list[Link]:
    around = _around_switches(inventory)
    if around:
        switch = max(sorted(around), key=lambda name: len(around[name]))
        speeds = Counter(map(_figures, around[switch]))
        like = max(sorted(speeds), key=lambda figures: speeds[figures])
        return [wire.link((host, switch), like)]
    usual = [_figures(link) for link in inventory.links if not _is_private(inventory, link)]
    like_all = (
        (median(speed for speed, _ in usual), median(latency for _, latency in usual))
        if usual
        else None
    )
    return [wire.link((host, other), like_all) for other in inventory.hosts]


def _figures(link: Link) -> tuple[float, float]:
    """Return the slower bandwidth and the latency of a link [bytes/s, s]."""
    return min(link.forward_bytes_per_s, link.backward_bytes_per_s), link.latency_s


def _is_private(inventory: Inventory, link: Link) -> bool:
    return inventory.endpoint(link.ends[0]) == inventory.endpoint(link.ends[1])


def _around_switches(inventory: Inventory) -> dict[str, list[Link]]:
    """Return each switch with its links to hosts."""
    found: dict[str, list[Link]] = {}
    for link in inventory.links:
        ends = [inventory.endpoint(end) for end in link.ends]
        for one, other in (ends, ends[::-1]):
            if one not in inventory.hosts and other in inventory.hosts:
                found.setdefault(one, []).append(link)
    return found


def without_device(inventory: Inventory, name: str) -> Inventory:
    """Return *inventory* without the device called *name*, and without links to nowhere.

    Raises
    ------
    InputError
        When it is the only device.
    """
    (gone,) = (device for device in inventory.devices if device.name == name)
    devices = tuple(device for device in inventory.devices if device.name != name)
    hosts = {device.host for device in devices}
    meant = {name: gone.host} if gone.host in hosts else {}
    links = [
        replace(
            link,
            ends=(meant.get(link.ends[0], link.ends[0]), meant.get(link.ends[1], link.ends[1])),
        )
        for link in inventory.links
        if not _is_lost(inventory, link, name, gone.host, hosts)
    ]
    return Inventory(devices=devices, links=tuple(_without_stubs(links, devices)))


def _is_lost(inventory: Inventory, link: Link, name: str, host: str, hosts: Iterable[str]) -> bool:
    """Whether a link has no end any more where the device called *name* was."""
    if _is_private(inventory, link):
        return name in link.ends
    return host not in hosts and host in map(inventory.endpoint, link.ends)


def _without_stubs(links: Sequence[Link], devices: Sequence[Device]) -> list[Link]:
    """Return *links* without those to a switch that no other link leaves."""
    known = {device.name for device in devices} | {device.host for device in devices}
    kept = list(links)
    while True:
        degree = Counter(end for link in kept for end in link.ends if end not in known)
        stubs = {end for end, num in degree.items() if num == 1}
        if not stubs:
            return kept
        kept = [link for link in kept if stubs.isdisjoint(link.ends)]


def on_one_switch(devices: Sequence[Device], wire: Wire) -> Inventory:
    """Return *devices*, all linked to one switch."""
    if len(devices) == 1:
        return Inventory(devices=tuple(devices))
    links = tuple(wire.link((device.name, SWITCH)) for device in devices)
    return Inventory(devices=tuple(devices), links=links)


def unused_name(inventory: Inventory, stem: str) -> str:
    """Return *stem*, or *stem* with a number, that no device, host or switch is called."""
    taken = {end for link in inventory.links for end in link.ends}
    taken |= {device.name for device in inventory.devices} | set(inventory.hosts)
    names = (f"{stem}-{number}" if number > 1 else stem for number in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)
