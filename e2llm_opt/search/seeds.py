"""Groupings to start from: all together, all alone, by host, by distance, and dealt out evenly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs

    Labels = NDArray[np.int64]

_MAX_LEVELS = 4
_MAX_DEALS = 10


def seed_groupings(costs: Costs, devices: list[int]) -> list[Labels]:
    """Return labels for *devices* (rows, in the canonical order), greedy plans among them."""
    found = [
        np.zeros(len(devices), dtype=np.int64),
        np.arange(len(devices), dtype=np.int64),
        _by_host(costs, devices),
        *_by_distance(costs, devices),
        *_dealt(costs, devices),
        *_filled(costs, devices),
    ]
    return list({labels.tobytes(): labels for labels in found}.values())


def _by_host(costs: Costs, devices: list[int]) -> Labels:
    hosts = [costs.problem.devices[d].host for d in devices]
    return np.array([hosts.index(host) for host in hosts], dtype=np.int64)


def _by_distance(costs: Costs, devices: list[int]) -> Iterator[Labels]:
    """Join devices whose hop takes no longer than a threshold: sites, then hosts."""
    hop = distances(costs, devices)
    levels = np.unique(hop[np.isfinite(hop) & (hop > 0)])
    if len(levels) > _MAX_LEVELS:
        levels = np.quantile(levels, np.linspace(0, 1, _MAX_LEVELS))
    for level in levels:
        labels = np.arange(len(devices), dtype=np.int64)
        for i in range(len(devices)):
            for j in range(i):
                if hop[i, j] <= level:
                    labels[labels == labels[i]] = labels[j]
        yield labels


def _dealt(costs: Costs, devices: list[int]) -> Iterator[Labels]:
    """Deal devices, the largest first, to the group with the least memory so far."""
    memory = (costs.tables.usable + costs.spill_rule.host[:, 0])[devices]
    needed = float(costs.memory_prefix(1)[-1])
    most = min(int(memory.sum() // needed), len(devices)) if needed > 0 else 1
    for num_groups in range(2, min(most, _MAX_DEALS) + 1):
        held = np.zeros(num_groups)
        labels = np.zeros(len(devices), dtype=np.int64)
        for i in np.argsort(-memory, kind="stable"):
            labels[i] = int(held.argmin())
            held[labels[i]] += memory[i]
        yield labels


def _filled(costs: Costs, devices: list[int]) -> Iterator[Labels]:
    """Start a group with the fastest device left and add its nearest until the model fits."""
    needed = float(costs.memory_prefix(1)[-1])
    hop = distances(costs, devices)
    rooms = (costs.room() + costs.spill_rule.host)[devices, 0]
    for margin in (1.05, 1.5):
        speed = costs.tables.bandwidth[devices]
        waiting = list(np.argsort(-speed, kind="stable"))
        labels = np.full(len(devices), -1, dtype=np.int64)
        group = 0
        while waiting:
            here = waiting.pop(0)
            chosen, room = [here], float(rooms[here])
            near = sorted(waiting, key=lambda j: (hop[here, j], -speed[j]))
            for j in near:
                if room >= margin * needed:
                    break
                chosen.append(j)
                room += float(rooms[j])
            labels[chosen] = group
            waiting = [j for j in waiting if j not in chosen]
            group += 1
        yield labels


def distances(costs: Costs, devices: list[int]) -> NDArray[np.float64]:
    """Return the hop of one token between *devices* (rows) [N, N] [s]; inf without a path."""
    rows, size = np.array(devices), costs.forward_bytes(1)
    hop = costs.hop(size, rows[:, None], rows, devices[0])
    latency, inverse, _ = costs.ways.of(rows[:, None], rows)
    found = np.where(np.isfinite(hop), (latency + size * inverse).min(axis=-1), np.inf)
    np.fill_diagonal(found, np.inf)
    return found
