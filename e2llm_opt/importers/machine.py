"""The machine that this runs on: what psutil, nvidia-smi and sysfs say of it."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_QUERY = ("--query-gpu=index,name,uuid,memory.total,memory.used,power.limit", "--format=csv")
_PATIENCE_S = 20.0
"""The first call of nvidia-smi after a start may take long [s]."""
_AMD = "0x1002"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine says of itself; empty where it does not.

    Parameters
    ----------
    name
        Its host name.
    memory_bytes
        All RAM.
    product
        The board or the computer: ``Raspberry Pi 5 Model B Rev 1.0``, ``Mac16,10``.
    processor
        The CPU's name.
    nvidia_smi
        What nvidia-smi printed.
    amd_cards
        Name, memory [bytes] and identity of each card of AMD.
    interfaces
        Network card → its rate on the wire [Mbit/s].
    """

    name: str
    memory_bytes: float
    product: str = ""
    processor: str = ""
    nvidia_smi: str = ""
    amd_cards: tuple[tuple[str, float, str], ...] = ()
    interfaces: tuple[tuple[str, int], ...] = ()


def this_machine(root: Path = Path("/")) -> Machine:
    """Return what the machine that this runs on says of itself; *root* holds its sys and proc."""
    import psutil  # noqa: PLC0415 - only here

    model = _line(root / "proc/device-tree/model")
    return Machine(
        name=platform.node().split(".")[0],
        memory_bytes=float(psutil.virtual_memory().total),
        product=model or _line(root / "sys/class/dmi/id/product_name"),
        processor=_processor(root),
        nvidia_smi=_printed("nvidia-smi", *_QUERY),
        amd_cards=_amd_cards(root),
        interfaces=_interfaces(root),
    )


def _processor(root: Path) -> str:
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in {"model name", "Model"}:
            return value.strip()
    return _printed("sysctl", "-n", "machdep.cpu.brand_string").strip() or platform.processor()


def _amd_cards(root: Path) -> tuple[tuple[str, float, str], ...]:
    """Return the cards that the amdgpu driver has: its memory stands in sysfs."""
    found = []
    for card in sorted(root.glob("sys/class/drm/card*")):
        memory = _line(card / "device/mem_info_vram_total")
        if memory.isdecimal() and _line(card / "device/vendor") == _AMD:
            name = _line(card / "device/product_name")
            found.append((name, float(memory), _line(card / "device/unique_id")))
    return tuple(found)


def _interfaces(root: Path) -> tuple[tuple[str, int], ...]:
    """Return the network cards that are up, and tell their rate: Wi-Fi does not."""
    found = []
    for card in sorted(root.glob("sys/class/net/*")):
        speed = _line(card / "speed")
        if speed.isdecimal() and int(speed) > 0 and (card / "device").exists():
            found.append((card.name, int(speed)))
    return tuple(found)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not on this machine, or not for this user
        return ""


def _line(path: Path) -> str:
    return re.split(r"[\n\0]", _text(path).strip(), maxsplit=1)[0].strip()


def _printed(program: str, *arguments: str) -> str:
    """Return what a program prints; nothing where it is missing, slow or fails."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 - fixed words
            [path, *arguments], capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
