"""Several files of one source as one: names given, directions of a link paired, no card twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.errors import InputError
from e2llm_opt.importers.found import Found, FoundDevice, FoundLink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def combined(
    files: Sequence[Found], names: Mapping[str, str] | None = None, *, interface: str = ""
) -> Found:
    """Return what all *files* say together.

    Parameters
    ----------
    files
        One source's.
    names
        Names or addresses as the files have them → names of the inventory.
    interface
        What links are called that have no such name: two machines may have several.

    Raises
    ------
    InputError
        When a name to be replaced is nowhere in the files.
    """
    naming = _Naming(files, names or {})
    notes = [note for found in files for note in found.notes]
    devices = _distinct([naming.device(d) for found in files for d in found.devices], notes)
    named = [naming.link(link) for found in files for link in found.links]
    named = [replace(link, interface=link.interface or interface) for link in named]
    links = _paired(named, notes)
    naming.refuse_unused()
    return Found(devices=tuple(devices), links=tuple(links), notes=tuple(dict.fromkeys(notes)))


class _Naming:
    """What each thing is called in the end."""

    def __init__(self, files: Sequence[Found], given: Mapping[str, str]) -> None:
        self._given = given
        self._known = {key: name for found in files for key, name in found.names.items()}
        self._unused = dict.fromkeys(given)

    def of(self, name: str) -> str:
        """Return the name given for *name*, for what it is called elsewhere, or that."""
        called = self._known.get(name, name)
        same = [key for key, value in self._known.items() if value == called]
        for candidate in (name, called, *same):
            if candidate in self._given:
                self._unused.pop(candidate, None)
                return self._given[candidate]
        return called

    def device(self, device: FoundDevice) -> FoundDevice:
        """Return the device with its names; those made from its host's follow the host."""
        host = device.values.get("host")
        name = self.of(device.name)
        if not isinstance(host, str):
            return replace(device, name=name)
        new = self.of(host)
        if name == device.name and name.startswith(f"{host}-"):
            name = new + name[len(host) :]
        return replace(device, name=name, values={**device.values, "host": new})

    def link(self, link: FoundLink) -> FoundLink:
        """Return the link between the names of its ends."""
        return replace(link, ends=(self.of(link.ends[0]), self.of(link.ends[1])))

    def refuse_unused(self) -> None:
        """Refuse names that nothing has: they are misspelt."""
        if self._unused:
            raise InputError(f"--name: nothing is called {', '.join(self._unused)} in these files.")


def _distinct(devices: Sequence[FoundDevice], notes: list[str]) -> list[FoundDevice]:
    """Return each card once, and no name twice."""
    found: dict[str, FoundDevice] = {}
    cards: dict[str, FoundDevice] = {}
    for device in devices:
        uuid = str(device.values.get("uuid", ""))
        if uuid and uuid in cards:
            notes.append(
                f"{device.where}: the card {uuid} is on {cards[uuid].where}, too; kept once"
            )
            continue
        name = device.name
        if name in found:
            number = next(n for n in range(2, len(devices) + 2) if f"{name}-{n}" not in found)
            name = f"{name}-{number}"
            notes.append(f"{device.where}: a second '{device.name}' is called {name}")
        found[name] = replace(device, name=name)
        cards[uuid] = found[name]
    return list(found.values())


def _paired(links: Sequence[FoundLink], notes: list[str]) -> list[FoundLink]:
    """Return one link for all that was measured between the same ends and interfaces."""
    found: dict[tuple[frozenset[str], str], FoundLink] = {}
    for link in links:
        if link.ends[0] == link.ends[1]:
            notes.append(f"{link.where}: '{link.ends[0]}' to itself is no link")
            continue
        key = frozenset(link.ends), link.interface
        found[key] = _both(found[key], link) if key in found else link
    return list(found.values())


def _both(one: FoundLink, other: FoundLink) -> FoundLink:
    """Return what both say: the later rate, and the lower latency, which waited less."""
    forward, backward = other.forward_mbit_s, other.backward_mbit_s
    if one.ends != other.ends:
        forward, backward = backward, forward
    known = [link.latency_ms for link in (one, other) if link.latency_ms is not None]
    return replace(
        one,
        where=f"{one.where}, {other.where}",
        forward_mbit_s=one.forward_mbit_s if forward is None else forward,
        backward_mbit_s=one.backward_mbit_s if backward is None else backward,
        latency_ms=min(known) if known else None,
        notes={**one.notes, **other.notes},
    )
