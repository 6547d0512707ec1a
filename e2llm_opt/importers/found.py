"""What a source says of devices and links: only what it knows, under the inventory's keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Value = str | float

MAX_NAME: Final = 200
"""Longest name that an inventory takes [characters]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDevice:
    """A device, or several alike where *values* has a ``count``.

    Parameters
    ----------
    name
        As the source names it.
    where
        File and line.
    hardware
        The product as the source spells it, to be looked up in the catalogue; may be empty.
    values
        Inventory keys that the source knows.
    notes
        What else to tell whoever reads the entry, a line each.
    """

    name: str
    where: str
    hardware: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLink:
    """A link, or what is known of one.

    Parameters
    ----------
    ends
        Names or addresses.
    where
        File and line.
    forward_mbit_s, backward_mbit_s
        Goodput from the first end to the second, and back; None where not measured.
    latency_ms
        One way; None where not measured.
    interface
        What it is called where there are several; may be empty.
    duplex
        ``half`` where the directions share; empty where not known.
    notes
        Each measured key (or an empty text, for the whole), and how it was measured.
    """

    ends: tuple[str, str]
    where: str
    forward_mbit_s: float | None = None
    backward_mbit_s: float | None = None
    latency_ms: float | None = None
    interface: str = ""
    duplex: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Everything that one file, or several of one source, says.

    Parameters
    ----------
    devices, links
        In the order of the file.
    notes
        What the user should know and the entries do not say.
    names
        Other names of the ends of links, such as addresses → the name to use.
    """

    devices: tuple[FoundDevice, ...] = ()
    links: tuple[FoundLink, ...] = ()
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)


STANDARD_INPUT: Final = "standard input"
"""What stands for the file name of text that was piped in."""


def host_of(file: str) -> str:
    """Return the machine that a file is called after.

    Examples
    --------
    >>> host_of("outputs/tower.csv")
    'tower'
    """
    return "here" if file == STANDARD_INPUT else usable_name(PurePath(file).stem) or "here"


def usable_name(text: str) -> str:
    r"""Return *text* as a name that an inventory takes; empty where nothing is left.

    Examples
    --------
    >>> usable_name(" gpu\tbox ")
    'gpu_box'
    """
    printable = "".join(char if char.isprintable() else "_" for char in text.strip())
    return printable[:MAX_NAME].strip()
