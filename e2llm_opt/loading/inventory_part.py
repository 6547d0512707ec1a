"""The sections ``devices`` and ``links`` to an Inventory, with counts and link ends expanded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from e2llm_opt.catalogue.catalogue import device_entry
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import Device, MemoryKind, device_of_type
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.loading.document import spelled
from e2llm_opt.loading.fields import shown
from e2llm_opt.loading.links_part import Names, read_links
from e2llm_opt.loading.schema import DeviceEntry, counted
from e2llm_opt.loading.validate import checked

if TYPE_CHECKING:
    from e2llm_opt.loading.document import Faults, KeyPath

MAX_DEVICES = 10_000
"""Most devices of one inventory."""
_LIST = "e2llm-opt catalog devices lists those known, or give the numbers instead of a type"
_NEEDED_WITHOUT_TYPE = ("memory_gib", "memory_bandwidth_gb_s", "fp16_tflops")
_SPILL = ("host_memory_gib", "host_bandwidth_gb_s", "bus_gb_s")


def read_inventory(faults: Faults) -> tuple[Inventory | None, Names]:
    """Return the inventory of ``faults.document``; None, and more faults, where it is wrong."""
    names = Names()
    devices: list[Device] = []
    for i, raw in enumerate(_devices(faults)):
        path: KeyPath = ("devices", i)
        entry = checked(DeviceEntry, raw, path, faults)
        _check_type(raw, path, faults)
        _note_names(raw, entry, path, names, faults)
        if entry is not None and len(names.hosts) <= MAX_DEVICES:
            devices.extend(_built(entry, path, faults))
    if len(names.hosts) > MAX_DEVICES:
        faults.add(("devices",), f"more than {MAX_DEVICES} devices")
        return None, names
    _check_cards(faults)
    links = read_links(names, faults)
    if faults.at(("devices",)) or faults.at(("links",)):
        return None, names
    try:
        devices = _without_lent_ram(devices, faults)
        return Inventory(devices=tuple(devices), links=tuple(links)), names
    except InputError as error:
        faults.absorb(error, ("devices",))
        return None, names


def _devices(faults: Faults) -> list[Any]:
    value = faults.document.value.get("devices")
    if value is None:
        faults.add(("devices",), "missing", "list at least one device")
    elif not isinstance(value, list):
        faults.add(("devices",), f"must be a list of devices, got {shown(value)}")
    elif not value:
        faults.add(("devices",), "there are no devices", "list at least one")
    else:
        return value
    return []


def _note_names(
    raw: Any,  # noqa: ANN401 - what the file says
    entry: DeviceEntry | None,
    path: KeyPath,
    names: Names,
    faults: Faults,
) -> None:
    """Add the item's names to *names*, refusing those that are taken."""
    value = raw if isinstance(raw, dict) else {}
    base = value.get("name")
    if not isinstance(base, str) or faults.at((*path, "name")):
        return
    host = value.get("host") if isinstance(value.get("host"), str) else None
    count = value.get("count") if entry is None else entry.count
    is_sane = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MAX_DEVICES
    if not is_sane and count is not None:
        names.uncounted.add(base)
    devices = counted(base, count if isinstance(count, int) and is_sane else 1)
    if len(names.hosts) + len(devices) > MAX_DEVICES:
        faults.add(("devices",), f"more than {MAX_DEVICES} devices")
        return
    if len(devices) > 1:
        names.groups.setdefault(base, devices)
    for name in devices:
        if name in names.hosts:
            where = _where(names.paths[name], "name", faults)
            wrong = f"the name '{name}' is taken by {where}"
            faults.add((*path, "name"), wrong, "names must be unique")
            continue
        names.hosts[name] = host or name
        names.paths[name] = path


def _check_type(raw: Any, path: KeyPath, faults: Faults) -> None:  # noqa: ANN401
    """Want a type that the catalogue has, or the numbers it would bring."""
    value = raw if isinstance(raw, dict) else {}
    if isinstance(value.get("type"), str):
        try:
            device_entry(value["type"])
        except InputError as error:
            faults.absorb(error, (*path, "type"), _LIST)
    elif value and "type" not in value:
        for key in _NEEDED_WITHOUT_TYPE:
            if key not in value:
                faults.add((*path, key), "missing", "give it, or the type of a catalogue device")


def _built(entry: DeviceEntry, path: KeyPath, faults: Faults) -> list[Device]:
    """Return the devices of one item, or none after noting what is wrong."""
    if faults.at(path):
        return []
    try:
        devices = [_device(entry, name) for name in entry.names()]
    except InputError as error:
        if "reserved_bytes" in str(error):
            key = "reserved_gib" if entry.reserved_gib is not None else "memory_gib"
            wrong = "all of the device's memory is reserved, nothing is left to plan on"
            faults.add((*path, key), wrong, "reserved_gib must be less than memory_gib")
        else:
            faults.absorb(error, path)
        return []
    _check_spill(devices[0], path, faults)
    return devices


def _device(entry: DeviceEntry, name: str) -> Device:
    if entry.type is None:
        return Device(name=name, **entry.si())
    return device_of_type(entry.type, name=name, **entry.si())


def _check_spill(device: Device, path: KeyPath, faults: Faults) -> None:
    """Refuse host memory without the speeds that decide what spilling costs."""
    speeds = {"host_bandwidth_gb_s": device.host_bandwidth_bytes_per_s}
    speeds["bus_gb_s"] = device.bus_bytes_per_s
    for key, value in speeds.items():
        if device.host_memory_bytes > 0 and value == 0:
            faults.add(
                (*path, key), "missing", f"weights spill to host RAM with {', '.join(_SPILL)}"
            )


def _without_lent_ram(devices: list[Device], faults: Faults) -> list[Device]:
    """Return *devices*, those that compute in RAM reserving what cards of their host may use.

    Only where the file says nothing of their reserve.
    """
    raw = [item for item in _devices(faults) if isinstance(item, dict)]
    stated = {item.get("name") for item in raw if "reserved_gib" in item}
    found = []
    for device in devices:
        lent = sum(own.host_memory_bytes for own in devices if own.host == device.host)
        if device.memory_kind != MemoryKind.DISCRETE and lent and device.name not in stated:
            device = replace(device, reserved_bytes=device.reserved_bytes + lent)  # noqa: PLW2901
        found.append(device)
    return found


def _check_cards(faults: Faults) -> None:
    """Refuse a physical card that is listed twice."""
    users: dict[str, int] = {}
    for i, raw in enumerate(_devices(faults)):
        uuid = raw.get("uuid") if isinstance(raw, dict) else None
        path: KeyPath = ("devices", i, "uuid")
        if not isinstance(uuid, str) or faults.at(path):
            continue
        count = raw.get("count", 1)
        if isinstance(count, int | float) and count > 1:
            faults.add(path, f"one card cannot be {shown(count)} devices", "remove uuid or count")
        elif uuid in users:
            where = _where(("devices", users[uuid]), "uuid", faults)
            wrong = f"uuid {uuid} is listed by {where} already"
            faults.add(path, wrong, "one card is one device; remove the alias")
        users.setdefault(uuid, i)


def _where(path: KeyPath, key: str, faults: Faults) -> str:
    line = faults.document.place((*path, key)).line
    return spelled(path) + (f" on line {line}" if line else "")
