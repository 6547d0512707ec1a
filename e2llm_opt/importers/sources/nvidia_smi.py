"""``nvidia-smi --query-gpu=… --format=csv``: cards with name, uuid and memory."""

from __future__ import annotations

import csv
import re

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.importers.found import Found, FoundDevice, Value, host_of, usable_name
from e2llm_opt.units import GIB, MIB

_WANTED = "nvidia-smi --query-gpu=index,name,uuid,memory.total,memory.used --format=csv"
_HEADER = re.compile(r"^(?P<key>[a-z0-9_.]+)(?: \[(?P<unit>\w+)\])?$")
_UNKNOWN = re.compile(r"^\[.*\]$|^N/A$|^$")
_NUMBER = re.compile(r"^(\d+(?:\.\d+)?)(?: (MiB|GiB|W))?$")
_UUID = re.compile(r"^(?:GPU|MIG)-[\w/-]+$")
_KNOWN = {"name", "gpu_name", "uuid", "gpu_uuid"}


def read(text: str, where: str, host: str = "") -> Found:
    """Return the cards of *host*, called as the file unless given: the output does not say.

    Raises
    ------
    InputError
        With file and line, when it is not this command's output.
    """
    lines = [(i, line) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise _fault(where, 0, "the file is empty")
    first, header = lines[0][0], _cells(lines[0][1])
    if _KNOWN & set(header):
        keys = [_key(cell, where, first) for cell in header]
        lines = lines[1:]
    else:
        keys = _guessed(header, where, first)
    host = usable_name(host) or host_of(where)
    cards = [_card(_row(line, keys, where, i), f"{where}:{i}") for i, line in lines]
    found = [card for card in cards if card is not None]
    if not found:
        raise _fault(where, first, "no cards are listed")
    is_alone = len(found) == 1
    named = tuple(
        FoundDevice(
            name=host if is_alone else f"{host}-{i}",
            where=card.where,
            hardware=card.hardware,
            values=card.values if is_alone else {**card.values, "host": host},
            notes=card.notes,
        )
        for i, card in enumerate(found)
    )
    return Found(devices=named)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]


def _key(cell: str, where: str, line: int) -> str:
    match = _HEADER.match(cell)
    if match is None:
        raise _fault(where, line, f"not a column of nvidia-smi: {cell[:60]!r}")
    return match["key"].removeprefix("gpu_")


def _guessed(cells: list[str], where: str, line: int) -> list[str]:
    """Return the columns of a file without a header; memory in all must be the first number."""
    keys = []
    for cell in cells:
        if _UUID.match(cell):
            keys.append("uuid")
        elif _NUMBER.match(cell) or _UNKNOWN.match(cell):
            taken = [key for key in keys if key.startswith("memory")]
            keys.append(f"memory.{('total', 'free')[len(taken)]}" if len(taken) < 2 else "")  # noqa: PLR2004
        else:
            keys.append("name" if "name" not in keys else "")
    if sorted(keys)[-2:] != ["name", "uuid"] or "memory.total" not in keys or "" in keys:
        raise _fault(where, line, f"not the output of nvidia-smi: {','.join(cells)[:60]!r}")
    return keys


def _row(line: str, keys: list[str], where: str, number: int) -> dict[str, str]:
    cells = _cells(line)
    if len(cells) != len(keys):
        wrong = f"{len(cells)} values, but {len(keys)} columns: {line.strip()[:60]!r}"
        raise _fault(where, number, wrong)
    cells = ["" if _UNKNOWN.match(cell) else cell for cell in cells]
    row = dict(zip(keys, cells, strict=True))
    for key, cell in row.items():
        if key.startswith(("memory.", "power.")) and cell and not _NUMBER.match(cell):
            raise _fault(where, number, f"{key} must be a number, got {cell[:60]!r}")
    return row


def _card(row: dict[str, str], where: str) -> FoundDevice | None:
    if row.get("uuid", "").startswith("MIG-"):
        return None  # a slice of a card that is listed, too
    values: dict[str, Value] = {}
    total, used = _amount(row, "memory.total", MIB), _amount(row, "memory.used", MIB)
    notes = []
    if total:
        values["memory_gib"] = round(total / GIB, 3)
        free = _amount(row, "memory.free", MIB)
        in_use = used if used is not None else total - free if free is not None else 0.0
        if in_use > 0.05 * total:
            notes.append(f"{in_use / GIB:.1f} GiB were in use: reserved_gib, if they stay")
    if row.get("uuid"):
        values["uuid"] = row["uuid"]
    limit = _amount(row, "power.limit", 1.0)
    if limit:
        values["power_w"] = limit
    name = row.get("name", "")
    return FoundDevice(name=name, where=where, hardware=name, values=values, notes=tuple(notes))


def _amount(row: dict[str, str], key: str, factor: float) -> float | None:
    match = _NUMBER.match(row.get(key, ""))
    if match is None:
        return None
    return float(match[1]) * (GIB if match[2] == "GiB" else factor)


def _fault(where: str, line: int, wrong: str) -> InputError:
    return InputError([Fault(file=where, line=line, wrong=wrong, right=f"run {_WANTED}")])
