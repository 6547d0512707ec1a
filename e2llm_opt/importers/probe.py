"""The machine that this runs on as an entry of an inventory: its cards, or else its CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.importers.found import Found, FoundDevice, usable_name
from e2llm_opt.importers.hardware import catalogue_device
from e2llm_opt.importers.sources import nvidia_smi
from e2llm_opt.loading.yaml_file import parse
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from e2llm_opt.importers.machine import Machine


def probed(machine: Machine, name: str = "") -> Found:
    """Return the devices of *machine*: one, or one a card.

    Parameters
    ----------
    machine
        What it says of itself.
    name
        What to call it; its host name unless given.
    """
    name = usable_name(name or machine.name) or "here"
    notes = [
        f"{card} runs at {rate} Mbit/s; measure with iperf3 what a stream gets of it"
        for card, rate in machine.interfaces
    ]
    devices = _nvidia(machine, name, notes) or _amd(machine, name)
    return Found(devices=devices or (_board(machine, name),), notes=tuple(notes))


def _nvidia(machine: Machine, name: str, notes: list[str]) -> tuple[FoundDevice, ...]:
    """Return the cards with memory of their own; a Jetson has none, it is its board."""
    if not machine.nvidia_smi.strip():
        return ()
    try:
        cards = nvidia_smi.read(machine.nvidia_smi, "nvidia-smi", name).devices
    except InputError as error:
        notes.append(f"what nvidia-smi prints is left out: {error.faults[0].wrong}")
        return ()
    return tuple(replace(card, where="this machine") for card in cards if _has_memory(card))


def _has_memory(card: FoundDevice) -> bool:
    return "memory_gib" in card.values


def _amd(machine: Machine, name: str) -> tuple[FoundDevice, ...]:
    """Return the cards of AMD, but a graphics unit that shares the RAM of a known CPU."""
    entry = catalogue_device(machine.processor)
    cards = () if entry is not None and entry.memory_kind == "unified" else machine.amd_cards
    is_alone = len(cards) == 1
    return tuple(
        FoundDevice(
            name=name if is_alone else f"{name}-{i}",
            where="this machine",
            hardware=hardware,
            values={
                "memory_gib": round(memory / GIB, 3),
                **({"uuid": identity} if identity else {}),
                **({} if is_alone else {"host": name}),
            },
            notes=() if hardware else ("a card of AMD; its driver does not name it",),
        )
        for i, (hardware, memory, identity) in enumerate(cards)
    )


def _board(machine: Machine, name: str) -> FoundDevice:
    known = [one for one in (machine.product, machine.processor) if catalogue_device(one)]
    return FoundDevice(
        name=name,
        where="this machine",
        hardware=known[0] if known else machine.processor or machine.product,
        values={"memory_gib": round(machine.memory_bytes / GIB, 3)},
        notes=("no graphics card with memory of its own was found: the CPU, with all the RAM",),
    )


def refuse_card(found: Found, into: str, file: str) -> None:
    """Refuse to write a CPU with its RAM into the entry of a graphics card.

    Parameters
    ----------
    found
        What :func:`probed` returned.
    into, file
        The inventory's text, and its name for messages.

    Raises
    ------
    InputError
        When an entry of the same name has a card's type, or *into* is not YAML.
    """
    boards = {
        one.name for one in found.devices if "uuid" not in one.values and not _is_card(one.hardware)
    }
    listed = parse(into, file=file)[0].value.get("devices") if into.strip() else None
    for i, entry in enumerate(listed if isinstance(listed, list) else []):
        name, kind = (entry.get("name"), entry.get("type")) if isinstance(entry, dict) else ("", "")
        if name in boards and _is_card(str(kind or "")):
            wrong = f"{name} is a {kind} there, but no card is to be seen here: is its driver in?"
            right = "run probe on that machine where nvidia-smi works, or give another --name"
            raise InputError([Fault(file=file, path=f"devices[{i}]", wrong=wrong, right=right)])


def _is_card(hardware: str) -> bool:
    entry = catalogue_device(hardware)
    return entry is not None and entry.memory_kind == "discrete"
