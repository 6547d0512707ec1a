"""What the user owns: devices and the links between their hosts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.link import Link


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Devices and links, checked against each other once.

    Parameters
    ----------
    devices
        At least one; their order is the row order of every table.
    links
        May be empty: devices of one host talk over its bus, others not at all.

    Raises
    ------
    InputError
        With every fault: a name or uuid twice, a switch with a single link, host RAM that cards
        may use though a device that computes in it is planned on the same bytes.
    """

    devices: tuple[Device, ...]
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        """Check names, cards and link ends, all at once."""
        faults = list(self._faults())
        if faults:
            raise InputError(faults)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Inventory:
        """Read only the devices and links of an inventory file.

        Raises
        ------
        InputError
            With every fault of those two sections.
        """
        from e2llm_opt.loading.load import load_inventory  # noqa: PLC0415 - the one upward call, made late

        return load_inventory(path)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of all hosts, in the order of their first device."""
        return tuple(dict.fromkeys(device.host for device in self.devices))

    def endpoint(self, end: str) -> str:
        """Return the host that a link's end means: a device's host, otherwise the name itself."""
        return self._meant.get(end, end)

    @cached_property
    def _meant(self) -> dict[str, str]:
        """The host that each name of a device, or of a host, means."""
        hosts = {device.name: device.host for device in self.devices}
        return hosts | {host: host for host in self.hosts}

    def _faults(self) -> Iterator[Fault]:
        if not self.devices:
            yield Fault(wrong="there are no devices", right="list at least one", path="devices")
        names = Counter(device.name for device in self.devices)
        for name, times in names.items():
            if times > 1:
                yield Fault(
                    wrong=f"the name '{name}' is given to {times} devices",
                    right="names must be unique",
                    path="devices",
                )
        cards: dict[str, list[str]] = {}
        for device in self.devices:
            if device.uuid:
                cards.setdefault(device.uuid, []).append(device.name)
        for uuid, users in cards.items():
            if len(users) > 1:
                yield Fault(
                    wrong=f"uuid {uuid} is listed {len(users)} times: {', '.join(users)}",
                    right="one card is one device; remove the aliases",
                    path="devices",
                )
        yield from self._host_ram_faults()
        yield from self._link_faults()

    def _host_ram_faults(self) -> Iterator[Fault]:
        """Yield devices that compute in RAM which cards of their host may fill."""
        lends: dict[str, float] = {}
        for device in self.devices:
            lends[device.host] = lends.get(device.host, 0.0) + device.host_memory_bytes
        for device in self.devices:
            lent = lends[device.host]
            if device.memory_kind != MemoryKind.DISCRETE and device.reserved_bytes < lent:
                yield Fault(
                    wrong=f"'{device.name}' is planned on RAM that cards of host '{device.host}' "
                    f"may use too (host_memory_gib, {lent / GIB:.3g} GiB in all)",
                    right=f"set its reserved_gib to {lent / GIB:.3g} or more",
                    path="devices",
                )

    def _link_faults(self) -> Iterator[Fault]:
        hosts = {device.name: device.host for device in self.devices}
        host_names = set(hosts.values())
        degree: Counter[str] = Counter()
        for link in self.links:
            degree.update(end for end in link.ends if end not in hosts and end not in host_names)
        for switch, num_links in degree.items():
            if num_links == 1:
                yield Fault(
                    wrong=f"'{switch}' is no device and no host, and only one link leads to it",
                    right="a switch joins two links or more; is it a misspelt device?",
                    path="links",
                )
