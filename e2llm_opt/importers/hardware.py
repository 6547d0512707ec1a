"""A product as drivers and labels spell it → the catalogue's device of that name and memory."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from e2llm_opt.catalogue.catalogue import device_entries, device_entry
from e2llm_opt.catalogue.names import VENDORS, UnknownNameError, nearest_keys
from e2llm_opt.loading.setup import catalogue_key

if TYPE_CHECKING:
    from e2llm_opt.catalogue.catalogue import DeviceEntry

_NOISE = {
    *VENDORS,
    *("gpu", "graphics", "generation", "edition", "series", "corporation", "workstation"),
    *("shared", "developer", "kit", "engineering", "reference"),
}
_FORMS = {"pcie", "sxm", "hbm3", "hbm2", "hbm2e", "hbm3e"}
_DECORATION = re.compile(r"\([^)]*\)| w/ .*$| @ .*$|\bmodel b\b|\brev [\d.]+")
_MEMORY = re.compile(r"^(\d+)gi?b$")
_SAME_MEMORY = 0.2
"""Drivers show up to so much less than the card's name says, and a bit more in GiB."""


@lru_cache(maxsize=4096)
def catalogue_device(hardware: str, memory_gib: float | None = None) -> DeviceEntry | None:
    """Return the catalogue's device that *hardware* names, or None.

    A card of the same name with other memory is another card (an RTX 3060 has 12 GB or 8 GB, and
    another bus): it is no match. Where the memory is the machine's RAM, any size is.

    Parameters
    ----------
    hardware
        ``NVIDIA A100-SXM4-80GB``, ``NVIDIA-GeForce-RTX-3090-SHARED``, ``Apple M4 Pro`` …
    memory_gib
        What the device says it has, where that is known.

    Examples
    --------
    >>> catalogue_device("NVIDIA A100-SXM4-40GB", 39.6).key
    'a100-40gb'
    >>> catalogue_device("NVIDIA GeForce RTX 3060", 8.0) is None
    True
    """
    if "-MIG-" in hardware or not hardware.strip():
        return None
    words = _words(hardware)
    exact = _exact(hardware)
    if exact is not None and (exact.key == hardware or _fits(exact, memory_gib)):
        return exact
    found = [entry for names, entry in _entries() if words and words in names]
    found += [entry for names, entry in _entries() if _core(words) and _core(words) in names]
    memory_gib = memory_gib or _stated_gib(hardware)
    fitting = [entry for entry in found if _fits(entry, memory_gib)]
    if memory_gib is not None:  # V100 with 16 or 32 GB, Jetson AGX Orin with 32 or 64
        fitting.sort(key=lambda entry: abs(entry.memory_gib - memory_gib))
    return fitting[0] if fitting else None


@lru_cache(maxsize=4096)
def nearest_types(hardware: str) -> tuple[str, ...]:
    """Return up to three catalogue keys that are spelt like *hardware*."""
    keys = {entry.key: entry.key for entry in device_entries()}
    return nearest_keys(" ".join(sorted(_words(hardware))) or hardware, keys)


def _exact(hardware: str) -> DeviceEntry | None:
    """Return the device that is called so, as it stands or without what drivers add."""
    try:
        return device_entry(hardware)
    except UnknownNameError:
        key = catalogue_key(hardware)
    return device_entry(key) if key else None


def _fits(entry: DeviceEntry, memory_gib: float | None) -> bool:
    if memory_gib is None or entry.memory_kind != "discrete":
        return True
    return abs(entry.memory_gib - memory_gib) <= _SAME_MEMORY * entry.memory_gib


@cache
def _entries() -> tuple[tuple[frozenset[frozenset[str]], DeviceEntry], ...]:
    """Return every device with the sets of words that name it."""
    return tuple(
        (frozenset(_words(name) for name in (entry.key, entry.name, *entry.aliases)), entry)
        for entry in device_entries()
    )


def _words(name: str) -> frozenset[str]:
    """Return the words that tell products apart, without maker and memory."""
    text = _DECORATION.sub(" ", name.lower())
    words = re.findall(r"[a-z0-9+]+", re.sub(r"\b(\d+) (gi?b)\b", r"\1\2", text))
    if "hbm3" in words and "pcie" not in words:
        words.append("sxm")  # an H100 with HBM3 is the SXM one; the PCIe card has HBM2e
    kept = (re.sub(r"^sxm\d*$", "sxm", word) for word in words)
    drop = _NOISE | (_FORMS - {"sxm", "pcie"})
    return frozenset(word for word in kept if word not in drop and not _MEMORY.match(word))


def _core(words: frozenset[str]) -> frozenset[str]:
    """Leave out how the card is plugged in."""
    return words - _FORMS


def _stated_gib(name: str) -> float | None:
    found = re.search(r"(?<![a-z0-9])(\d+) ?gi?b\b", name.lower())
    return float(found[1]) if found else None
