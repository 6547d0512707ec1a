"""From a device set to classes of interchangeable devices, and the order beyond the exact limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.roofline import kv_bytes
from e2llm_opt.partition.kernel import Inner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.partition.partition import Demand

    Floats = NDArray[np.float64]

MAX_STATES = 4096
"""Most multisets of devices that are enumerated: 12 distinct devices, or 20 in 4 classes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """One inner problem and the devices behind its classes.

    Parameters
    ----------
    inner
        Arrays for the kernel.
    rows
        Device rows of each class [K].
    has_unlike_layers
        Least starts alone do not suffice: layers and hops are both unlike.
    """

    inner: Inner
    rows: tuple[tuple[int, ...], ...]
    has_unlike_layers: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """How a set is looked at: whether the way back counts (in sums), and what is exact in time."""

    counts_return: bool
    max_states: int


def collapse(
    costs: Costs, devices: tuple[int, ...], demand: Demand, frame: Frame
) -> Iterator[Members]:
    """Yield the inner problems whose best answer is the answer for *devices*.

    One is enough where neither the topology nor the way back depends on which device is last
    (first, where the head is there); otherwise one for each class that could be at that end.
    """
    place = {d: i for i, d in enumerate(costs.classes.order)}
    ordered = sorted(devices, key=place.__getitem__)
    classes: dict[int, list[int]] = {}
    for d in ordered:
        classes.setdefault(costs.classes.class_of[d], []).append(d)
    groups = [tuple(rows) for rows in classes.values()]
    is_ring = costs.problem.runtime.topology == "ring"
    if is_ring and (not frame.counts_return or _is_even(costs, ordered, demand)):
        yield _members(costs, groups, demand, -1, frame.max_states)
        return
    for rows in groups:
        anchor = rows[0]
        others = [tuple(d for d in group if d != anchor) for group in groups]
        split = [(anchor,), *(group for group in others if group)]
        yield _members(costs, split, demand, anchor, frame.max_states)


def _is_even(costs: Costs, devices: list[int], demand: Demand) -> bool:
    """Whether the way back costs the same from any device to any other."""
    num_bytes, weight = demand.back
    if weight == 0 or len(devices) < 2:  # noqa: PLR2004 - one device has no way back
        return True
    back = costs.hop(num_bytes)[np.ix_(devices, devices)]
    off = back[~np.eye(len(devices), dtype=bool)]
    return bool((off == off[0]).all())


def _members(
    costs: Costs, groups: list[tuple[int, ...]], demand: Demand, anchor: int, max_states: int
) -> Members:
    """Build the arrays; class 0 is the anchor where there is one."""
    pin = np.array([-1, -1])
    if anchor >= 0:
        pin[0 if costs.problem.runtime.head == "first" else 1] = 0
    is_ordered = int(np.prod([len(rows) + 1 for rows in groups])) > max_states
    if is_ordered:
        groups = _pipeline_order(costs, groups, demand, anchor)
        pin = np.where(pin == 0, next((k for k, g in enumerate(groups) if g == (anchor,)), -1), -1)
    hop = _pairs(costs, groups, demand.hops, anchor)
    heads = [rows[0] for rows in groups]
    starts = np.ones(costs.problem.model.num_layers + 1, dtype=np.bool_)
    allowed = costs.problem.model.allowed_stage_starts
    if allowed is not None:
        starts[:] = False
        starts[[0, *allowed]] = True
    inner = Inner(
        count=np.array([len(rows) for rows in groups]),
        time=np.ascontiguousarray(demand.time[heads]),
        memory=costs.memory_prefix(demand.slots),
        room=np.ascontiguousarray((costs.room() if demand.room is None else demand.room)[heads]),
        extra=np.ascontiguousarray(demand.extra[heads]),
        hop=hop,
        back=_pairs(costs, groups, (demand.back,), anchor),
        starts=starts,
        pin=pin,
        is_ordered=is_ordered,
    )
    return Members(
        inner=inner,
        rows=tuple(groups),
        has_unlike_layers=_has_unlike_hops(hop) and not _is_alike(costs, inner),
    )


def _pairs(
    costs: Costs,
    groups: list[tuple[int, ...]],
    transfers: tuple[tuple[float, float], ...],
    anchor: int,
) -> Floats:
    """Weighted hop times between classes; within a class between two of its devices [K, K]."""
    heads = [rows[0] for rows in groups]
    total = np.zeros((len(groups), len(groups)))
    for num_bytes, weight in transfers:
        if weight == 0:
            continue
        hop = costs.hop(num_bytes, anchor)
        times = hop[np.ix_(heads, heads)]
        for k, rows in enumerate(groups):
            times[k, k] = hop[rows[0], rows[1]] if len(rows) > 1 else 0.0
        total += weight * times
    return total


def _has_unlike_hops(hop: Floats) -> bool:
    off = hop[~np.eye(len(hop), dtype=bool)]
    within = np.diag(hop)[np.diag(hop) > 0]
    values = np.concatenate([off, within])
    return bool(len(values)) and bool((values != values[0]).any())


def _is_alike(costs: Costs, inner: Inner) -> bool:
    """Whether every layer costs the same time and memory, and a stage may start anywhere."""
    tables = costs.tables
    kv = kv_bytes(tables, costs.problem.workload.context_tokens)
    mean = kv_bytes(tables, costs.mean_context)
    arrays = (
        tables.dense,
        tables.routed,
        tables.fraction,
        tables.flops,
        tables.attention,
        kv,
        mean,
    )
    alike = all(bool((array == array[0]).all()) for array in arrays)
    return alike and bool((tables.window == tables.window[0]).all()) and bool(inner.starts.all())


def _pipeline_order(
    costs: Costs, groups: list[tuple[int, ...]], demand: Demand, anchor: int
) -> list[tuple[int, ...]]:
    """One device a class, nearest neighbour after nearest neighbour, the last stage first.

    Starts at the anchor, else at the device that would finish all layers soonest; the quickest
    hop comes next, the quicker device where hops are equal. Heuristic: any order is valid, and
    the cut is exact for this one.
    """
    devices = [d for rows in groups for d in rows]
    speed = demand.time[:, -1]
    num_bytes = demand.hops[-1][0]
    hop = costs.hop(num_bytes, anchor)
    here = anchor if anchor >= 0 else min(devices, key=lambda d: (speed[d], devices.index(d)))
    order = [here]
    waiting = [d for d in devices if d != here]
    while waiting:
        here = min(waiting, key=lambda d: (hop[d, here], speed[d], devices.index(d)))  # noqa: B023
        order.append(here)
        waiting.remove(here)
    if anchor >= 0 and costs.problem.runtime.head == "first":
        order.reverse()
    return [(d,) for d in order]
