"""From a device set to classes of interchangeable devices, and the order beyond the exact limit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from e2llm_opt.partition.kernel import ALL, INTERVAL, LEAST, Inner
from e2llm_opt.partition.stage_table import not_faster, stage_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.spill import SpillRule
    from e2llm_opt.partition.partition import Demand
    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MAX_STATES = 4096
"""Most multisets of devices that are enumerated: 12 distinct devices, or 20 in 4 classes."""


WayBack = Literal["none", "exists", "counts"]
"""Of the hop from the last to the first stage: not there, must be possible, is part of a sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A device set collapsed to classes: all of an inner problem that no demand changes.

    Parameters
    ----------
    rows
        Device rows of each class [K].
    anchor
        Device at the centre of a star; -1 in a ring.
    source, target
        Rows whose hop stands for a hop between two classes [K, K]; equal rows where a class has
        one device, and so no hop within.
    has_hop
        Pairs of classes that can follow each other [K, K].
    num_layers
        Exactly so many layers; -1 where free [K].
    room, host
        As in :class:`~e2llm_opt.cost.stages.kernel.Stages`.
    spills
        Classes that have host RAM to spill to [K].
    is_additive, available, must, starts, after, before, pin, is_ordered
        As in :class:`~e2llm_opt.partition.kernel.Inner`.
    """

    rows: tuple[tuple[int, ...], ...]
    anchor: int
    source: Ints
    target: Ints
    has_hop: Bools
    num_layers: Ints
    room: Floats
    host: Floats
    spills: Bools
    is_additive: Bools
    available: Ints
    must: Ints
    starts: Bools
    after: Ints
    before: Ints
    pin: Ints
    is_ordered: bool

    @property
    def heads(self) -> Ints:
        """The device that stands for each class [K]."""
        return self.source[:, 0]

    def hops(self, costs: Costs, transfers: tuple[tuple[float, float], ...]) -> Floats:
        """Return weighted hop times between classes [K, K] [s]."""
        total = np.zeros(self.source.shape)
        for num_bytes, weight in transfers:
            if weight > 0:
                total += weight * costs.hop(num_bytes, self.source, self.target, self.anchor)
        return total


def shapes(
    costs: Costs, devices: tuple[int, ...], way_back: WayBack, max_states: int
) -> tuple[Shape, ...]:
    """Return the shapes whose best answer is the answer for *devices*.

    One is enough where neither the topology nor the way back depends on which device is first or
    last; otherwise there is one for each class that could be there.

    Parameters
    ----------
    costs, devices
        The problem's costs, and rows in any order.
    way_back
        What the hop from the last to the first stage matters.
    max_states
        Sets with more subsets are ordered heuristically.
    """
    key = (devices, way_back, max_states)
    if key not in costs.shapes:
        costs.shapes[key] = tuple(_shapes(costs, devices, way_back, max_states))
    found: tuple[Shape, ...] = costs.shapes[key]
    return found


def inner_problem(costs: Costs, shape: Shape, demand: Demand) -> tuple[Inner, int]:
    """Return the kernel's arrays, and which starts it must keep to be exact."""
    hop = shape.hops(costs, demand.hops)
    heads = shape.heads
    prefix, extra = demand.time[heads], demand.extra[heads]
    rule = costs.spill_rule
    penalty = demand.penalty[heads]
    inner = Inner(
        available=shape.available,
        must=shape.must,
        times=stage_table(costs, shape.heads, demand),
        prefix=prefix,
        middle=np.ascontiguousarray(extra[:, 0]),
        is_additive=shape.is_additive,
        hop=hop,
        back=shape.hops(costs, (demand.back,)),
        starts=shape.starts,
        after=shape.after,
        before=shape.before,
        pin=shape.pin,
        is_ordered=shape.is_ordered,
        latest=np.full((*hop.shape, len(shape.starts)), len(shape.starts) - 1),
    )
    between = hop[shape.has_hop]
    is_even = len(between) == 0 or between.min() == between.max()
    if not shape.is_additive.all() and not _is_growing(shape, rule, penalty):
        return inner, ALL
    if is_even and not shape.must.any():
        return inner, LEAST
    return inner, INTERVAL if costs.has_alike_layers else ALL


def within(costs: Costs, shape: Shape, inner: Inner, demand: Demand, limit: float) -> Inner:
    """Return *inner* with stages left out that take longer than *limit* for another demand [s].

    Where longer stages may be faster, some stages before a greatest stop that fits remain.
    """
    times, hop = stage_table(costs, shape.heads, demand), shape.hops(costs, demand.hops)
    top = times.shape[1] - 1
    shortest = np.where(shape.has_hop, hop, np.inf).min(axis=1)
    busy = times.copy()
    busy[:, :, :top] += np.where(np.isfinite(shortest), shortest, 0.0)[:, None, None]
    is_free = times[:, None, :, :top] + hop[:, :, None, None] <= limit
    stop = top - 1 - is_free[..., ::-1].argmax(axis=3)
    latest = np.where(is_free.any(axis=3), stop, 0)
    return inner._replace(
        times=np.where(busy <= limit, inner.times, np.inf),
        latest=np.ascontiguousarray(np.minimum(latest, inner.latest)),
    )


def allowing(shape: Shape, inner: Inner, busy: Floats, limits: tuple[float, float]) -> Inner:
    """Return *inner* with stages that take at least a multiple of *busy*, or are left out [s].

    *limits*: the multiple, the longest hop of the class taken off (so that stages whose hop is
    shorter are counted as a bit faster than they are), and the longest *busy* allowed.
    """
    least, most = limits
    times = np.where(busy <= most, inner.times, np.inf)
    if least > 0:
        hop = np.where(shape.has_hop, inner.hop, 0.0)
        times = not_faster(times, least * busy, hop)
    return inner._replace(times=times)


def _is_growing(shape: Shape, rule: SpillRule, penalty: Floats) -> bool:
    """Whether a longer stage is never faster, nor fits where a shorter one does not."""
    is_free = bool((shape.num_layers < 0).all())
    return is_free and rule.is_even and bool((penalty[shape.spills] >= 0).all())


def _shapes(
    costs: Costs, devices: tuple[int, ...], way_back: WayBack, max_states: int
) -> Iterator[Shape]:
    place = {d: i for i, d in enumerate(costs.units.order)}
    ordered = sorted(devices, key=place.__getitem__)
    classes: dict[int, list[int]] = {}
    for d in ordered:
        classes.setdefault(costs.units.class_of[d], []).append(d)
    groups = [tuple(rows) for rows in classes.values()]
    for first, last in _ends(costs, groups, way_back):
        pinned = [d for d in dict.fromkeys((last, first)) if d >= 0]
        others = [tuple(d for d in group if d not in pinned) for group in groups]
        split = [*((d,) for d in pinned), *(group for group in others if group)]
        yield _shape(costs, split, (first, last), max_states)


def _ends(
    costs: Costs, groups: list[tuple[int, ...]], way_back: WayBack
) -> Iterator[tuple[int, int]]:
    """Yield the (first, last) devices that must be told apart; -1 where any will do."""
    heads = [rows[0] for rows in groups]
    runtime = costs.problem.runtime
    if runtime.topology == "star" and runtime.head == "first":
        for first in heads:
            if way_back == "none":
                yield first, -1
                continue
            for rows in groups:
                yield first, next((d for d in rows if d != first), first)
            yield first, first
    elif runtime.topology == "star" or not _is_even(
        costs, [d for rows in groups for d in rows], way_back
    ):
        for last in heads:
            yield -1, last
    else:
        yield -1, -1


def _is_even(costs: Costs, devices: list[int], way_back: WayBack) -> bool:
    """Whether the way back matters no more from one device than from another, for any bytes."""
    rows = np.array(devices)
    off = ~np.eye(len(devices), dtype=bool)
    latency, speed, fixed = (one[off] for one in costs.ways.of(rows[:, None], rows))
    if way_back == "none" or len(latency) == 0:
        return True
    if way_back == "exists":
        return bool(np.isfinite(latency.min(axis=1)).all())
    return bool(
        (latency == latency[0]).all() and (speed == speed[0]).all() and (fixed == fixed[0]).all()
    )


def _shape(
    costs: Costs, groups: list[tuple[int, ...]], ends: tuple[int, int], max_states: int
) -> Shape:
    """Build a shape with pinned (first, last) devices, each a class of its own."""
    runtime = costs.problem.runtime
    is_ordered = math.prod(len(rows) + 1 for rows in groups) > max_states
    centre = -1
    if runtime.topology == "star":
        centre = ends[0] if runtime.head == "first" else ends[1]
    if is_ordered:
        groups = _pipeline_order(costs, groups, ends, centre)
    pin = np.array([groups.index((d,)) if d >= 0 else -1 for d in ends])
    must = costs.must_hold_layers
    heads = np.array([rows[0] for rows in groups])
    source, target = np.meshgrid(heads, heads, indexing="ij")
    for k, rows in enumerate(groups):
        target[k, k] = rows[min(1, len(rows) - 1)]
    starts, after, before = _starts(costs)
    host, num_layers = costs.spill_rule.host[heads], costs.fixed_layers[heads]
    spills = (host > 0).any(axis=1)
    return Shape(
        rows=tuple(groups),
        anchor=centre,
        source=np.ascontiguousarray(source),
        target=np.ascontiguousarray(target),
        has_hop=source != target,
        num_layers=num_layers,
        room=costs.room()[heads],
        host=host,
        spills=spills,
        is_additive=~spills & (num_layers < 0),
        available=np.array([len(rows) for rows in groups]),
        must=np.array([sum(must[d] for d in rows) for rows in groups]),
        starts=starts,
        after=after,
        before=before,
        pin=pin,
        is_ordered=is_ordered,
    )


def allowed_starts(problem: Problem) -> Bools:
    """Return whether a stage may start at each layer [L+1]."""
    top, allowed = problem.model.num_layers, problem.model.allowed_stage_starts
    starts = np.zeros(top + 1, dtype=np.bool_)
    starts[list(range(top + 1) if allowed is None else (0, *allowed))] = True
    return starts


def _starts(costs: Costs) -> tuple[Bools, Ints, Ints]:
    """Return allowed starts, and the next one at or after, and before, each layer [L+1]."""
    top = costs.problem.model.num_layers
    starts = allowed_starts(costs.problem)
    places = np.flatnonzero(starts)
    layers = np.arange(top + 1)
    after = np.append(places, top + 1)[np.searchsorted(places, layers)]
    before = np.append(0, places)[np.searchsorted(places, layers)]
    return starts, after, before


def _pipeline_order(
    costs: Costs, groups: list[tuple[int, ...]], ends: tuple[int, int], centre: int
) -> list[tuple[int, ...]]:
    """One device a class, nearest neighbour after nearest neighbour, the last stage first.

    Starts at the device that must be last, else at the one that would decode fastest; the
    quickest hop comes next, the faster device where hops are equal. Heuristic: any order is
    valid, and the cut is exact for this one.
    """
    first, last = ends
    devices = np.array([d for rows in groups for d in rows])
    speed = costs.decode_prefix(1)[devices, -1]
    hop = costs.hop(costs.forward_bytes(1), devices[:, None], devices, centre)
    is_waiting = (devices != first) | (devices == last)
    here = int(np.where(is_waiting, speed, np.inf).argmin())
    if last >= 0:
        here = int(np.flatnonzero(devices == last)[0])
    order = [here]
    is_waiting[here] = False
    while is_waiting.any():
        left = np.flatnonzero(is_waiting)
        here = int(left[np.lexsort((speed[left], hop[left, here]))[0]])
        order.append(here)
        is_waiting[here] = False
    if first >= 0 and first != last:
        order.append(int(np.flatnonzero(devices == first)[0]))
    return [(int(devices[i]),) for i in order]
