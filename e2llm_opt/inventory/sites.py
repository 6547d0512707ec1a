"""Many devices at many places: who is where, and what no network between them could beat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.inventory.link import Link

if TYPE_CHECKING:
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.inventory.network import Network

_CENTRE = "anywhere"


def sites_of(inventory: Inventory, network: Network) -> tuple[int, ...]:
    """Return the site of each device [D]: the switch that its host reaches soonest.

    A host that reaches no switch is a site of its own.
    """
    names = [network.nearest_switch(device.host) or device.host for device in inventory.devices]
    number = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return tuple(number[name] for name in names)


def without_distances(inventory: Inventory, network: Network) -> Inventory:
    """Return the same devices with nothing between them but their own links.

    All hosts are linked to one switch, as quickly as their quickest link and as widely as all
    their links together. So no hop takes longer there, no network card is busier, and devices with
    equal numbers and equal links are interchangeable wherever they are.
    """
    links = [link for link in inventory.links if len({*map(inventory.endpoint, link.ends)}) == 1]
    access = network.access()
    if len(access) < 2:  # noqa: PLR2004 - a switch joins two links or more
        return inventory
    centre = _CENTRE
    while centre in access or any(device.name == centre for device in inventory.devices):
        centre += "-"
    links += [
        Link(
            ends=(host, centre),
            forward_bytes_per_s=out,
            backward_bytes_per_s=into,
            latency_s=latency,
        )
        for host, (out, into, latency) in access.items()
    ]
    return replace(inventory, links=tuple(links))
