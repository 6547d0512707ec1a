"""Which devices are interchangeable, and an order of the devices that names do not decide."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.inventory import Inventory

_Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClasses:
    """Devices sorted into classes of interchangeable ones.

    Parameters
    ----------
    class_of
        Class of each device, by its row in the inventory; classes are numbered in *order*.
    order
        Rows of all devices: by numbers and place in the network first, by name last.
    """

    class_of: tuple[int, ...]
    order: tuple[int, ...]


def classify(inventory: Inventory, marks: Sequence[_Key] = ()) -> DeviceClasses:
    """Sort the devices into classes and into an order that renaming does not change.

    Two devices are interchangeable when their numbers are equal and swapping them leaves every
    link as it was: both on one host, or each alone on its host. *marks*, one sortable key a
    device, keep devices apart that constraints treat differently.

    Notes
    -----
    The order comes from colour refinement of the network (hosts and switches coloured by their
    numbers, then by the colours around them), so it ignores names except between devices that
    no number and no link tells apart.
    """
    private = _private_links(inventory)
    numbers = [_numbers(device, private.get(device.name, ())) for device in inventory.devices]
    if marks:
        numbers = [(*key, mark) for key, mark in zip(numbers, marks, strict=True)]
    adjacency = _adjacency(inventory)
    colour = _refine(_host_colours(inventory, numbers, adjacency), adjacency)
    rows = range(len(inventory.devices))
    keys = [(colour[device.host], numbers[d]) for d, device in enumerate(inventory.devices)]
    num_on = Counter(device.host for device in inventory.devices)
    order = sorted(rows, key=lambda d: (*keys[d], inventory.devices[d].name))
    class_of = [-1] * len(order)
    leaders: dict[_Key, list[int]] = {}
    num_classes = 0
    for d in order:
        twins = leaders.setdefault(keys[d], [])
        for twin in twins:
            one, other = inventory.devices[d], inventory.devices[twin]
            is_one_host = one.host == other.host and one.name not in private
            is_alone = num_on[one.host] == num_on[other.host] == 1
            if is_one_host or (is_alone and _have_equal_links(adjacency, one.host, other.host)):
                class_of[d] = class_of[twin]
                break
        else:
            class_of[d] = num_classes
            num_classes += 1
            twins.append(d)
    return DeviceClasses(class_of=tuple(class_of), order=tuple(order))


_Adjacency = dict[str, dict[str, _Key]]


def _private_links(inventory: Inventory) -> dict[str, list[_Key]]:
    """Return the links of each device to others of its host, by device name, sorted."""
    found: dict[str, list[_Key]] = {}
    for link in inventory.links:
        if inventory.endpoint(link.ends[0]) == inventory.endpoint(link.ends[1]):
            speeds = link.forward_bytes_per_s, link.backward_bytes_per_s, link.latency_s
            for end in link.ends:
                found.setdefault(end, []).append((*speeds, link.ends[0] == end))
    return {end: sorted(links) for end, links in found.items()}


def _numbers(device: Device, private: Sequence[_Key]) -> _Key:
    """Everything about a device but its names, as a sortable key; *private*: links in its host."""
    return (
        device.usable_bytes,
        device.memory_bytes,
        device.memory_bandwidth_bytes_per_s,
        device.fp16_flop_per_s,
        device.prefill_efficiency,
        device.decode_efficiency,
        device.layer_overhead_s,
        str(device.memory_kind),
        device.host_bus_bytes_per_s,
        device.host_memory_bytes,
        device.host_bandwidth_bytes_per_s,
        device.bus_bytes_per_s,
        -1.0 if device.power_w is None else device.power_w,
        -1.0 if device.cost_per_hour is None else device.cost_per_hour,
        tuple(private),
    )


def _adjacency(inventory: Inventory) -> _Adjacency:
    """Links around each host and switch: far end -> (out, in, latency, interface, duplex) …."""
    found: dict[str, dict[str, list[_Key]]] = {host: {} for host in inventory.hosts}
    for link in inventory.links:
        first, second = (inventory.endpoint(end) for end in link.ends)
        if first == second:
            continue
        shared = (link.latency_s, link.interface, link.is_half_duplex)
        out = (link.forward_bytes_per_s, link.backward_bytes_per_s, *shared)
        back = (link.backward_bytes_per_s, link.forward_bytes_per_s, *shared)
        found.setdefault(first, {}).setdefault(second, []).append(out)
        found.setdefault(second, {}).setdefault(first, []).append(back)
    return {
        end: {far: tuple(sorted(links)) for far, links in around.items()}
        for end, around in found.items()
    }


def _host_colours(
    inventory: Inventory, numbers: Sequence[_Key], adjacency: _Adjacency
) -> dict[str, int]:
    """First colours: a host's devices; all switches alike."""
    on_host: dict[str, list[_Key]] = {end: [] for end in adjacency}
    for device, key in zip(inventory.devices, numbers, strict=True):
        on_host[device.host].append(key)
    return _ranks({end: tuple(sorted(keys)) for end, keys in on_host.items()})


def _refine(colour: dict[str, int], adjacency: _Adjacency) -> dict[str, int]:
    num_colours = 0
    while len(set(colour.values())) > num_colours:
        num_colours = len(set(colour.values()))
        colour = _ranks(
            {
                end: (
                    colour[end],
                    tuple(sorted((colour[far], links) for far, links in near.items())),
                )
                for end, near in adjacency.items()
            }
        )
    return colour


def _ranks(keys: dict[str, _Key]) -> dict[str, int]:
    ranking = {key: rank for rank, key in enumerate(sorted(set(keys.values())))}
    return {end: ranking[key] for end, key in keys.items()}


def _have_equal_links(adjacency: _Adjacency, one: str, other: str) -> bool:
    """Whether two hosts can change places with every link as it was."""
    near, far = dict(adjacency[one]), dict(adjacency[other])
    return near.pop(other, ()) == far.pop(one, ()) and near == far
