"""``llama-server --list-devices``: what llama.cpp can use here, and through its RPC servers."""

from __future__ import annotations

import re

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.importers.found import Found, FoundDevice, Value, host_of, usable_name
from e2llm_opt.units import GIB, MIB

_TITLE = "Available devices:"
_DEVICE = re.compile(
    r"^\s*(?P<id>[^\s:\[]+(?:\[[^\]]*\])?): (?P<name>.*) "
    r"\((?P<total>\d+) MiB, (?P<free>\d+) MiB free\)\s*$"
)
_ADDRESS = re.compile(r"^(?:RPC\[)?(?P<host>\[[0-9a-fA-F:.]+\]|[\w.-]+):(?P<port>\d+)\]?$")


def read(text: str, where: str, host: str = "") -> Found:
    """Return the devices; those that are not remote are of *host*, called as the file.

    Raises
    ------
    InputError
        With file and line, when it is not this command's output.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.strip() == _TITLE), None)
    if start is None:
        raise _fault(where, 1 if lines else 0, f"there is no line '{_TITLE}'")
    host = usable_name(host) or host_of(where)
    found: list[FoundDevice] = []
    for i, line in enumerate(lines[start + 1 :], start=start + 2):
        match = _DEVICE.match(line)
        if match is not None:
            found.append(_device(match, host, f"{where}:{i}"))
        elif line.strip() and line.startswith(" "):
            raise _fault(where, i, f"not a device: {line.strip()[:60]!r}")
        elif line.strip():
            break  # the log goes on
    if not found:
        raise _fault(where, start + 1, "no devices are listed: only the CPU is used")
    return Found(devices=tuple(found))


def _device(match: re.Match[str], host: str, where: str) -> FoundDevice:
    total, free = (int(match[key]) * MIB / GIB for key in ("total", "free"))
    address = _ADDRESS.match(match["name"]) or _ADDRESS.match(match["id"])
    values: dict[str, Value] = {"memory_gib": round(total, 3)} if total else {}
    name, hardware = f"{host}-{match['id']}".lower(), match["name"]
    notes = [f"{free:.1f} GiB were free"]
    if address is not None:  # an RPC server: the product behind it is not known
        name, hardware = f"{address['host'].strip('[]')}:{address['port']}", ""
        values["host"] = address["host"].strip("[]")
        notes.append("behind an RPC server: which product it is, it does not say")
    else:
        values["host"] = host
    return FoundDevice(
        name=usable_name(name), where=where, hardware=hardware, values=values, notes=tuple(notes)
    )


def _fault(where: str, line: int, wrong: str) -> InputError:
    right = "save all that llama-server --list-devices prints"
    return InputError([Fault(file=where, line=line, wrong=wrong, right=right)])
