"""GPUStack's ``/v2/workers``: workers with their cards, and what GPUStack reserves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.importers.found import Found, FoundDevice, Value, usable_name
from e2llm_opt.importers.parts import json_part
from e2llm_opt.units import GIB, MIB

if TYPE_CHECKING:
    from e2llm_opt.importers.parts import Part

_RIGHT = "save what GET /v2/workers answers"


def read(text: str, where: str) -> Found:
    """Return a device a card, or a worker's CPU where it has none.

    Raises
    ------
    InputError
        With file and line, when it is no list of workers.
    """
    root = json_part(text, where)
    is_page = isinstance(root.value, dict) and "items" in root.value
    if not is_page and not isinstance(root.value, list):
        raise root.fault("not a list of GPUStack workers", _RIGHT)
    workers = root.at("items").items() if is_page else root.items()
    found: list[FoundDevice] = []
    notes: list[str] = []
    for worker in workers:
        found += _devices(worker)
        state = worker.at("state").text()
        if state.lower() not in {"", "ready"}:
            notes.append(f"{worker.where()}: '{found[-1].name}' is {state}")
    if not found:
        raise root.fault("there are no workers", _RIGHT)
    pages = root.at("pagination", "totalPage").number() if is_page else None
    if pages and pages > 1:
        notes.append(f"{where}: the first of {pages:g} pages; ask with ?perPage=100")
    return Found(devices=tuple(found), notes=tuple(notes))


def _devices(worker: Part) -> list[FoundDevice]:
    name = usable_name(worker.at("name").text() or worker.at("hostname").text())
    status = worker.at("status")
    if not name or not status.entries():
        raise worker.fault("not a GPUStack worker: no name and status", _RIGHT)
    cards = status.at("gpu_devices").items()
    reserved = _gib(worker.at("system_reserved", "vram" if cards else "ram"))
    common: dict[str, Value] = {"reserved_gib": reserved} if reserved else {}
    if not cards:
        memory = _gib(status.at("memory", "total"))
        values: dict[str, Value] = {"memory_gib": memory} if memory else {}
        return [
            FoundDevice(
                name=name,
                where=worker.where(),
                values=values | common,
                notes=("no cards: the CPU",),
            )
        ]
    return [_card(card, name, common, len(cards)) for card in cards]


def _card(card: Part, host: str, common: dict[str, Value], num_cards: int) -> FoundDevice:
    index = card.at("index").number()
    memory = _gib(card.at("memory", "total"))
    values: dict[str, Value] = {"memory_gib": memory} if memory else {}
    uuid = card.at("uuid").text()
    if uuid:
        values["uuid"] = uuid
    power = card.at("power").number()
    if power:
        values["power_w"] = power
    if num_cards > 1:
        values["host"] = host
    number = card.path[-1] if index is None else int(index)
    return FoundDevice(
        name=usable_name(f"{host}-{number}") if num_cards > 1 else host,
        where=card.where(),
        hardware=card.at("name").text(),
        values=values | common,
    )


def _gib(part: Part) -> float | None:
    """Return bytes in GiB; small numbers (of older versions, of settings) are GiB already."""
    number = part.number()
    if number is None:
        return None
    return round(number / GIB if number >= MIB else number, 3)
