"""Ray's cluster YAML: kinds of nodes with their resources, or the addresses of an own cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.importers.found import Found, FoundDevice, Value, usable_name
from e2llm_opt.importers.parts import yaml_part
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from e2llm_opt.importers.parts import Part

_RIGHT = "give the file that ray up takes"
_MOST = 10_000
"""Most devices of one kind; an inventory takes no more."""
_ACCELERATOR = "accelerator_type:"


def read(text: str, where: str) -> Found:
    """Return a device a kind of node (``max_workers`` of it), or a machine of an own cluster.

    Raises
    ------
    InputError
        With file and line, when it is no cluster YAML.
    """
    root = yaml_part(text, where)
    kinds = root.at("available_node_types").entries()
    provider = root.at("provider")
    if not kinds and not provider.entries():
        raise root.fault("no available_node_types and no provider", _RIGHT)
    devices = _machines(provider)
    for name, kind in kinds.items():
        if not devices or kind.at("resources").entries():
            devices += _kind(name, kind, is_head=root.at("head_node_type").value == name)
    if not devices:
        raise root.fault("there are no nodes", _RIGHT)
    notes = (f"{where}: the file says nothing of links; measure them with iperf3 and ping",)
    return Found(devices=tuple(devices), notes=notes)


def _machines(provider: Part) -> list[FoundDevice]:
    """Return the machines of ``provider: {type: local, head_ip: , worker_ips: []}``."""
    addresses = [provider.at("head_ip"), *provider.at("worker_ips").items()]
    return [
        FoundDevice(
            name=usable_name(address.text()),
            where=address.where(),
            notes=("what it has, the file does not say",),
        )
        for address in addresses
        if address.value is not None and usable_name(address.text())
    ]


def _kind(name: str, kind: Part, *, is_head: bool) -> list[FoundDevice]:
    resources = kind.at("resources")
    cards = resources.at("GPU").number() or 0.0
    named = [key for key in resources.entries() if key.startswith(_ACCELERATOR)]
    hardware = named[0].removeprefix(_ACCELERATOR) if named else ""
    if not hardware:
        hardware = _of_cloud(kind.at("node_config"))
    most = kind.at("max_workers").number()
    nodes = 1 if most is None or (is_head and most == 0) else int(most)
    if nodes * max(1.0, cards) > _MOST:
        raise kind.fault(f"more than {_MOST} of them", "give max_workers as it will be")
    count = nodes * max(1, int(cards))
    if count == 0:
        return []
    values: dict[str, Value] = {}
    memory = resources.at("memory").number()
    if not cards and memory:
        values["memory_gib"] = round(memory / GIB, 3)
    if count > 1:
        values["count"] = count
    return _nodes(usable_name(name), kind, hardware, values, (nodes, int(cards)))


def _nodes(
    name: str, kind: Part, hardware: str, values: dict[str, Value], size: tuple[int, int]
) -> list[FoundDevice]:
    """Return an item a node where it has several cards (they share a host), else one for all."""
    nodes, cards = size
    instance = kind.at("node_config", "InstanceType").value or ""
    notes = [f"instance {instance}"] if isinstance(instance, str) and instance else []
    if not cards:
        notes.append("no GPU among its resources: the CPU")
    first = FoundDevice(
        name=name, where=kind.where(), hardware=hardware, values=values, notes=tuple(notes)
    )
    if cards <= 1:
        return [first]
    names = [name if nodes == 1 else f"{name}-{i}" for i in range(1, nodes + 1)]
    return [replace(first, name=own, values={"host": own, "count": cards}) for own in names]


def _of_cloud(config: Part) -> str:
    """Return the card that a cloud's node is ordered with: GCP names it."""
    accelerators = config.entries().get("guestAccelerators")
    for accelerator in accelerators.items() if accelerators else ():
        kind = accelerator.at("acceleratorType").text()
        return kind.rsplit("/", 1)[-1].removeprefix("nvidia-")
    return ""
