"""What can be lost of an inventory, and the inventory without it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.inventory.link import Link


class LossKind(StrEnum):
    """What kind of thing is lost."""

    DEVICE = "device"
    HOST = "host"
    SWITCH = "switch"
    LINK = "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that can be lost, with all that falls with it.

    Parameters
    ----------
    kind, name
        What it is, and what the inventory calls it; a link by its ends.
    devices
        Names of the devices that fall.
    links
        Numbers of the links that fall.
    """

    kind: LossKind
    name: str
    devices: tuple[str, ...] = ()
    links: tuple[int, ...] = ()


def parts(inventory: Inventory, kinds: Collection[LossKind] = tuple(LossKind)) -> tuple[Part, ...]:
    """Return everything of *kinds* that can be lost, in the order of the inventory.

    A host with a single device falls with it, and is not listed; hosts do not forward, so that its
    links are of no use to others.
    """
    found = [*_devices(inventory), *_hosts(inventory), *_switches(inventory), *_links(inventory)]
    return tuple(part for part in found if part.kind in kinds)


def without(inventory: Inventory, lost: Iterable[Part]) -> Inventory:
    """Return *inventory* without the links of *lost*; switches left with one link vanish.

    Devices stay listed, so that rows stay what they are; who plans on it excludes them.
    """
    gone = {number for part in lost for number in part.links}
    links = [link for number, link in enumerate(inventory.links) if number not in gone]
    while True:
        degree = Counter(end for link in links for end in _switch_ends(inventory, link))
        useful = [
            link for link in links if all(degree[end] > 1 for end in _switch_ends(inventory, link))
        ]
        if len(useful) == len(links):
            return replace(inventory, links=tuple(links))
        links = useful


def _devices(inventory: Inventory) -> Iterator[Part]:
    for device in inventory.devices:
        yield Part(kind=LossKind.DEVICE, name=device.name, devices=(device.name,))


def _hosts(inventory: Inventory) -> Iterator[Part]:
    for host in inventory.hosts:
        names = tuple(device.name for device in inventory.devices if device.host == host)
        if len(names) > 1:
            ends = [
                number
                for number, link in enumerate(inventory.links)
                if host in {inventory.endpoint(end) for end in link.ends}
            ]
            yield Part(kind=LossKind.HOST, name=host, devices=names, links=tuple(ends))


def _switches(inventory: Inventory) -> Iterator[Part]:
    joined: dict[str, list[int]] = {}
    for number, link in enumerate(inventory.links):
        for end in _switch_ends(inventory, link):
            joined.setdefault(end, []).append(number)
    for switch, numbers in joined.items():
        yield Part(kind=LossKind.SWITCH, name=switch, links=tuple(numbers))


def _links(inventory: Inventory) -> Iterator[Part]:
    names = [_label(link) for link in inventory.links]
    uses, seen = Counter(names), Counter[str]()
    for number, name in enumerate(names):
        seen[name] += 1
        own = f"{name} #{seen[name]}" if uses[name] > 1 else name
        yield Part(kind=LossKind.LINK, name=own, links=(number,))


def _label(link: Link) -> str:
    ends = " - ".join(link.ends)
    return f"{ends} ({link.interface})" if link.interface else ends


def _switch_ends(inventory: Inventory, link: Link) -> list[str]:
    hosts = set(inventory.hosts)
    return [end for end in link.ends if inventory.endpoint(end) not in hosts]
