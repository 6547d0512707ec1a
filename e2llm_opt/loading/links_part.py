"""The section ``links`` to Link objects: ``all``, ``via`` and device names expanded to hosts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from e2llm_opt.inventory.link import Link
from e2llm_opt.loading.fields import shown
from e2llm_opt.loading.schema import DirectionsEntry, LinkEntry
from e2llm_opt.loading.validate import checked, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.loading.document import Faults, KeyPath

MAX_LINKS = 100_000
"""Most links of one inventory; ``between: all`` grows with the square of the hosts."""
_PAIR = 2


@dataclass(slots=True)
class Names:
    """Every name a link may end at; also those of devices whose other values are wrong.

    Parameters
    ----------
    hosts
        Host of each device.
    groups
        Devices that the base name of a counted device stands for.
    paths
        Where each device stands in the file.
    uncounted
        Base names with a count that is wrong: any of their numbers may be meant.
    """

    hosts: dict[str, str] = field(default_factory=dict)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paths: dict[str, KeyPath] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Tell whether *name* is a device, a group of them, or may be one."""
        base, dash, number = name.rpartition("-")
        is_guess = bool(dash) and number.isdigit() and base in self.uncounted
        return name in self.hosts or name in self.groups or is_guess


def read_links(names: Names, faults: Faults) -> list[Link]:
    """Return the links of ``faults.document`` between the devices that *names* knows."""
    section = _Links(names, faults)
    value = faults.document.value.get("links", [])
    if not isinstance(value, list):
        faults.add(("links",), f"must be a list of links, got {shown(value)}")
        return []
    for i, raw in enumerate(value):
        section.read(raw, ("links", i))
        if len(section.links) > MAX_LINKS:
            faults.add(("links", i), f"more than {MAX_LINKS} links", "join the hosts by a switch")
            return []
    section.check_switches()
    return section.links


class _Links:
    """The links read so far, and where each switch was named."""

    def __init__(self, names: Names, faults: Faults) -> None:
        self.links: list[Link] = []
        self._names = names
        self._hosts = names.hosts
        self._host_names = dict.fromkeys(names.hosts.values())
        self._groups = names.groups
        self._faults = faults
        self._uses: dict[str, list[KeyPath]] = {}

    def read(self, raw: Any, path: KeyPath) -> None:  # noqa: ANN401 - what the file says
        """Add the links of one item."""
        entry = checked(LinkEntry, raw, path, self._faults)
        if entry is None:
            self._excuse(raw, path)
            return
        values = entry.si()
        for ends in self._pairs(entry, path):
            if len(self.links) > MAX_LINKS:
                return
            self.links.append(Link(ends=ends, **values))

    def check_switches(self) -> None:
        """Refuse switches with a single link: mostly misspelt devices."""
        known = [*self._hosts, *self._host_names, *self._groups]
        for switch, paths in self._uses.items():
            if len(paths) == 1:
                others = [name for name, uses in self._uses.items() if len(uses) > 1]
                guess = nearest(switch, [*known, *others], 2)
                self._faults.add(
                    paths[0],
                    f"'{switch}' is no device and no host, and only this link leads to it",
                    f"{guess} a switch joins two links or more".strip(),
                )

    def _pairs(self, entry: LinkEntry, path: KeyPath) -> Iterator[tuple[str, str]]:
        if entry.between == "all":
            yield from self._all_pairs(entry, path)
        elif entry.via is not None:
            yield from self._to_switch(entry, path)
        else:
            yield from self._pair(entry, path)

    def _all_pairs(self, entry: LinkEntry, path: KeyPath) -> Iterator[tuple[str, str]]:
        if not self._is_one_number(entry, path):
            return
        if entry.via is None:
            yield from itertools.combinations(self._host_names, 2)
        elif self._is_switch(entry, path):
            for end in self._host_names:
                self._use(entry.via, (*path, "via"))
                yield end, entry.via

    def _to_switch(self, entry: LinkEntry, path: KeyPath) -> Iterator[tuple[str, str]]:
        via = entry.via or ""
        if not entry.between:
            self._faults.add((*path, "between"), "names no end", "list those that reach the switch")
        if not (self._is_switch(entry, path) and self._is_one_number(entry, path)):
            return
        ends: dict[str, None] = {}
        for i, name in enumerate(entry.between):
            if name == via:
                self._faults.add((*path, "between", i), f"'{name}' is the switch of via itself")
                self._use(via, path)
                continue
            for device in self._groups.get(name, (name,)):
                ends[self._host(device)] = None
            self._note((*path, "between", i), name)
        for end in ends:
            self._use(via, (*path, "via"))
            yield end, via

    def _pair(self, entry: LinkEntry, path: KeyPath) -> Iterator[tuple[str, str]]:
        where = (*path, "between")
        if len(entry.between) != _PAIR:
            self._faults.add(
                where,
                f"must name two ends, got {len(entry.between)}",
                "add via: and a switch's name to join more than two, or write between: all",
            )
            return
        is_clear = [self._is_single(name, (*where, i)) for i, name in enumerate(entry.between)]
        ends = self._resolved(entry.between[0], entry.between[1])
        if not all(is_clear):
            return
        if ends[0] == ends[1]:
            same = entry.between[0] == entry.between[1]
            self._faults.add(
                where, "both ends are the same" if same else f"both ends are on host '{ends[0]}'"
            )
            return
        for i, name in enumerate(entry.between):
            self._note((*where, i), name)
        yield ends

    def _resolved(self, one: str, other: str) -> tuple[str, str]:
        """Return the ends: hosts and switches, or two devices of one host (a private link)."""
        is_private = (
            one != other
            and one in self._hosts
            and other in self._hosts
            and self._hosts[one] == self._hosts[other]
        )
        return (one, other) if is_private else (self._host(one), self._host(other))

    def _host(self, name: str) -> str:
        return name if name in self._host_names else self._hosts.get(name, name)

    def _is_single(self, name: str, path: KeyPath) -> bool:
        if name not in self._groups or name in self._hosts or name in self._host_names:
            return True
        devices = self._groups[name]
        self._faults.add(
            path,
            f"'{name}' stands for {len(devices)} devices, {devices[0]} … {devices[-1]}",
            "name one of them, or join all of them to a switch with via",
        )
        return False

    def _is_switch(self, entry: LinkEntry, path: KeyPath) -> bool:
        via = entry.via or ""
        if via not in self._host_names and not self._names.has(via):
            return True
        self._faults.add(
            (*path, "via"),
            f"'{via}' is a device or a host, not a switch",
            "via needs a name of its own; link a device with between: [a, b]",
        )
        return False

    def _is_one_number(self, entry: LinkEntry, path: KeyPath) -> bool:
        if not isinstance(entry.bandwidth_mbit_s, DirectionsEntry):
            return True
        self._faults.add(
            (*path, "bandwidth_mbit_s"),
            "forward and backward need two ends",
            "write one link for each pair, or a single number",
        )
        return False

    def _note(self, path: KeyPath, name: str) -> None:
        """Remember the use of a name that is no device, no host and no group: a switch."""
        if name not in self._host_names and not self._names.has(name):
            self._use(name, path)

    def _use(self, switch: str, path: KeyPath) -> None:
        self._uses.setdefault(switch, []).append(path)

    def _excuse(self, raw: Any, path: KeyPath) -> None:  # noqa: ANN401 - what the file says
        """Count a wrong link's ends twice: what is wrong with it is known already."""
        value = raw if isinstance(raw, dict) else {}
        ends = value.get("between")
        for name in [*(ends if isinstance(ends, list) else []), value.get("via")]:
            if isinstance(name, str):
                self._use(name, path)
                self._use(name, path)
