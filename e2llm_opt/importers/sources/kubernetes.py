"""``kubectl get nodes -o json``: nodes, with the labels of GPU feature discovery."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from e2llm_opt.importers.found import Found, FoundDevice, Value, usable_name
from e2llm_opt.importers.parts import json_part
from e2llm_opt.units import GIB, MIB

if TYPE_CHECKING:
    from e2llm_opt.importers.parts import Part

_QUANTITY = re.compile(r"^(\d+(?:\.\d+)?(?:[eE]\d+)?)([numkKMGTPE]?i?)$")
_FACTORS = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": MIB,
    "Gi": GIB,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
}
_PRODUCTS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "gpu.intel.com/product")
_CLOUD = ("cloud.google.com/gke-accelerator", "karpenter.k8s.aws/instance-gpu-name")
_CARDS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")


def read(text: str, where: str) -> Found:
    """Return a device a node, with a ``count`` where it has several cards.

    Raises
    ------
    InputError
        With file and line, when it is no list of nodes.
    """
    root = json_part(text, where)
    right = "run kubectl get nodes -o json"
    if not isinstance(root.value, dict) or _kind(root) not in {
        "List",
        "NodeList",
        "Node",
    }:
        raise root.fault("not a list of Kubernetes nodes", right)
    nodes = [root] if root.value["kind"] == "Node" else root.at("items").items()
    found: list[FoundDevice] = []
    notes: list[str] = []
    for node in nodes:
        if _kind(node) not in {"", "Node"}:
            raise node.at("kind").fault(f"not a node but a {_kind(node)}", right)
        found.append(_device(node))
        if node.at("spec", "unschedulable").value:
            notes.append(f"{node.where()}: '{found[-1].name}' is cordoned off; delete it?")
    if not found:
        raise root.fault("there are no nodes", right)
    return Found(devices=tuple(found), notes=tuple(notes))


def _kind(part: Part) -> str:
    return part.at("kind").text()


def _device(node: Part) -> FoundDevice:
    name = usable_name(node.at("metadata", "name").text())
    if not name:
        raise node.fault("a node without metadata.name", "run kubectl get nodes -o json")
    labels = {key: label.text() for key, label in node.at("metadata", "labels").entries().items()}
    hardware = next((labels[key] for key in (*_PRODUCTS, *_CLOUD) if labels.get(key)), "")
    cards = _cards(node, labels)
    if not cards:
        memory = _quantity(node.at("status", "allocatable", "memory"))
        values: dict[str, Value] = {"memory_gib": round(memory / GIB, 3)} if memory else {}
        cpu = labels.get("feature.node.kubernetes.io/cpu-model.name", "")
        note = ("no cards: the CPU, with the memory that pods may have",)
        return FoundDevice(
            name=name,
            where=node.where(),
            hardware=cpu,
            values=values,
            notes=note,
        )
    memory = _card_memory(node, labels)
    values = {"memory_gib": round(memory / GIB, 3)} if memory else {}
    notes = []
    if cards > 1:
        values |= {"host": name, "count": cards}
    if "-MIG-" in hardware:
        notes.append(f"slices ({hardware}): give memory and speeds of one")
    return FoundDevice(
        name=name,
        where=node.where(),
        hardware=hardware.replace("-SHARED", ""),
        values=values,
        notes=tuple(notes),
    )


def _cards(node: Part, labels: dict[str, str]) -> int:
    """Return the number of cards; where they are shared, several pods count one card."""
    label = labels.get("nvidia.com/gpu.count", "")
    if label.isdecimal():
        return int(label)
    for where in ("capacity", "allocatable"):
        for key in _CARDS:
            number = _quantity(node.at("status", where, key))
            if number:
                return int(number)
    return 0


def _card_memory(node: Part, labels: dict[str, str]) -> float | None:
    """Return the memory of a card [bytes]."""
    label = node.at("metadata", "labels", "nvidia.com/gpu.memory")
    mib = label.number()
    if mib:
        return mib * MIB
    amd = labels.get("amd.com/gpu.vram", "")
    match = re.fullmatch(r"(\d+)G", amd)
    return int(match[1]) * GIB if match else None


def _quantity(part: Part) -> float | None:
    """Return a Kubernetes quantity (``32780Mi``) as a number."""
    if part.value is None:
        return None
    match = _QUANTITY.match(str(part.value))
    if match is None or match[2] not in _FACTORS:
        raise part.fault(f"must be a quantity such as 16Gi, got {str(part.value)[:60]!r}")
    return float(match[1]) * _FACTORS[match[2]]
