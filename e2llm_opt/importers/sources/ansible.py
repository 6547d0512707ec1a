"""Ansible facts: the output of ``-m setup``, files of ``--tree``, or a cache of facts."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.importers.found import Found, FoundDevice, Value, usable_name
from e2llm_opt.importers.parts import json_part
from e2llm_opt.units import GIB, MIB

if TYPE_CHECKING:
    from e2llm_opt.importers.parts import Part

_HOST = re.compile(r"^(?P<host>\S+) \| (?P<state>[A-Z!]+) => (?=\{)", re.MULTILINE)
_FAILED = re.compile(r"^(?P<host>\S+) \| (?P<state>UNREACHABLE|FAILED)[!|: ]", re.MULTILINE)
_NO_PRODUCT = re.compile(r"\d*|GenuineIntel|AuthenticAMD|ARM|N/A|NA|Default string|.*O\.E\.M\..*")
_RIGHT = "run ansible all -m setup"


def read(text: str, where: str) -> Found:
    """Return a device a machine: its CPU with all its RAM, for facts say nothing of cards.

    Raises
    ------
    InputError
        With file and line, when these are no facts.
    """
    hosts = _hosts(text, where)
    found = tuple(_device(name, facts) for name, facts in hosts)
    notes = [
        f"{where}:{text.count(chr(10), 0, match.start()) + 1}: {match['host']} was not reached"
        for match in _FAILED.finditer(text)
    ]
    notes += [note for name, facts in hosts for note in _interfaces(name, facts)]
    notes.append(f"{where}: facts do not list graphics cards; import nvidia-smi for these")
    return Found(devices=found, notes=tuple(notes), names=_addresses(hosts))


def _hosts(text: str, where: str) -> list[tuple[str, Part]]:
    """Return each machine's facts by the name that Ansible, or else the file, gives it."""
    starts = list(_HOST.finditer(text))
    if not starts:
        root = json_part(text, where)
        is_map = isinstance(root.value, dict)
        hosts = root.at("_meta", "hostvars").entries() if is_map else {}
        if hosts:
            return [(name, _facts(part)) for name, part in hosts.items()]
        facts = _facts(root)
        own = facts.at("ansible_hostname").text()
        return [(own or PurePath(where).stem, facts)]
    found = []
    for match in starts:
        line = text.count("\n", 0, match.start()) + 1
        try:
            _, stop = json.JSONDecoder().raw_decode(text, match.end())
        except json.JSONDecodeError as error:
            fault = Fault(file=where, line=error.lineno, wrong=f"not JSON: {error.msg.lower()}")
            raise InputError([fault]) from None
        except (RecursionError, ValueError):
            raise InputError([Fault(file=where, line=line, wrong="not usable JSON")]) from None
        if match["state"] == "SUCCESS":
            part = json_part(text[match.end() : stop], where, first_line=line)
            found.append((match["host"], _facts(part)))
    if not found:
        raise InputError([Fault(file=where, line=1, wrong="no machine answered", right=_RIGHT)])
    return found


def _facts(part: Part) -> Part:
    """Return the facts, whose keys start with ``ansible_``."""
    if not isinstance(part.value, dict):
        raise part.fault("not the facts of a machine", _RIGHT)
    facts = part.at("ansible_facts") if "ansible_facts" in part.value else part
    if "ansible_memtotal_mb" not in facts.entries():
        raise facts.fault("no ansible_memtotal_mb: these are no facts of a machine", _RIGHT)
    return facts


def _device(name: str, facts: Part) -> FoundDevice:
    memory = facts.at("ansible_memtotal_mb").number() or 0.0
    values: dict[str, Value] = {"memory_gib": round(memory * MIB / GIB, 3)} if memory else {}
    product = _product(facts)
    cores = facts.at("ansible_processor_vcpus").number()
    notes = [f"CPU: {_processor(facts) or 'unknown'}"]
    if cores:
        notes[0] += f", {cores:g} threads"
    return FoundDevice(
        name=usable_name(name),
        where=facts.where(),
        hardware=product,
        values=values,
        notes=tuple(notes),
    )


def _processor(facts: Part) -> str:
    """Return the CPU's name from a list of number, vendor and name, again for each core."""
    names = [part.text() for part in facts.at("ansible_processor").items()]
    return next((name for name in names if not _NO_PRODUCT.fullmatch(name)), "")


def _product(facts: Part) -> str:
    """Return what the catalogue may know: a board or a Mac by its product, else by its CPU."""
    product = facts.at("ansible_product_name").text()
    is_board = re.search(r"raspberry|jetson|orange pi|spark", product, re.IGNORECASE)
    return product if is_board else _processor(facts) or product


def _interfaces(name: str, facts: Part) -> list[str]:
    """Return what the machine's own network card runs at: no goodput, so it makes no link."""
    interface = facts.at("ansible_default_ipv4", "interface").text()
    speed = facts.at(f"ansible_{interface.replace('-', '_')}", "speed")
    if not interface or isinstance(speed.value, bool) or not isinstance(speed.value, int):
        return []
    if speed.value <= 0:
        return []
    return [
        f"{speed.where()}: {name}: {interface} runs at {speed.value} Mbit/s; measure with iperf3"
    ]


def _addresses(hosts: list[tuple[str, Part]]) -> dict[str, str]:
    found = {}
    for name, facts in hosts:
        address = facts.at("ansible_default_ipv4", "address").text()
        if address:
            found[address] = usable_name(name)
    return found
