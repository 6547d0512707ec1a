"""Who holds which weights, what a new cut makes devices fetch, from whom, and how long that takes.

A device of the old plan keeps its layers until it holds others; dropping layers costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.replan.terms import ALL_DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.inventory.network import Resource
    from e2llm_opt.replan.terms import ReplanTerms

    Floats = NDArray[np.float64]

TIED = "table"
"""Embedding and head where they are one table."""


class Held(NamedTuple):
    """What one device holds: layers ``[start, stop)``, and tables by name."""

    start: int
    stop: int
    tables: frozenset[str]


Holdings = dict[int, Held]
"""By row of the problem's devices; the others hold nothing."""
NOTHING = Held(0, 0, frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Weights that one device gets from one place.

    Parameters
    ----------
    device
        Row of the device that gets them.
    layers
        ``[start, stop)``.
    tables
        Embedding, head, or :data:`TIED`, that come with them.
    source
        Row of the device that sends them; the device itself: from its own disk; None: unknown.
    num_bytes
        Weights [bytes].
    """

    device: int
    layers: tuple[int, int]
    tables: tuple[str, ...]
    source: int | None
    num_bytes: float


class Weights:
    """What moving the weights of one model over one network takes.

    Parameters
    ----------
    costs
        Of the problem.
    terms
        Who has the model file, and how fast it loads.
    """

    def __init__(self, costs: Costs, terms: ReplanTerms) -> None:
        self._costs, self._terms = costs, terms
        model = costs.problem.model
        self.prefix: Floats = costs.memory_prefix(0)
        self._bytes_of = {
            "embedding": model.embedding_bytes,
            "head": model.head_bytes,
            TIED: model.head_bytes,
        }
        self._stage_bytes: dict[tuple[int, Held], Floats] = {}
        self._excluded = set(costs.problem.constraints.exclude)
        names = [device.name for device in costs.problem.devices]
        on = terms.weights_on
        self._has_file = None if on in {None, ALL_DEVICES} else names.index(str(on))

    def held(self, cuts: Iterable[Cut]) -> Holdings:
        """Return what the devices of *cuts* hold."""
        return {
            d: Held(start, stop, self._tables(d, position_of(cut, j)))
            for cut in cuts
            for j, (d, start, stop) in enumerate(cut)
        }

    def stage(self, device: int, layers: tuple[int, int], position: int) -> Held:
        """Return what a stage at *position* of its pipeline holds."""
        return Held(*layers, self._tables(device, position))

    def _tables(self, device: int, position: int) -> frozenset[str]:
        fixed = self._costs.stage_fixed(device, position)
        found = {"embedding"} if fixed.has_embedding else set()
        found |= {"head"} if fixed.has_head else set()
        return frozenset({TIED} if found and self._costs.problem.model.is_tied else found)

    def gained(self, old: Held, new: Held) -> float:
        """Return the bytes of *new* that are not in *old* [bytes]."""
        shared = max(min(old.stop, new.stop), old.start, new.start)
        first = min(max(old.start, new.start), shared)
        held = float(self.prefix[shared] - self.prefix[first])
        layers = float(self.prefix[new.stop] - self.prefix[new.start]) - held
        return layers + sum(self._bytes_of[name] for name in new.tables - old.tables)

    def moved_bytes(self, old: Holdings, new: Holdings) -> float:
        """Return the bytes that devices hold in *new* and did not hold in *old* [bytes]."""
        return sum(self.gained(old.get(d, NOTHING), held) for d, held in sorted(new.items()))

    def stage_bytes(self, device: int, old: Held) -> Floats:
        """Return what *device* must fetch to hold each stage ``[b, a)`` [L+1, L+1] [bytes]."""
        key = (device, old)
        if key not in self._stage_bytes:
            self._stage_bytes[key] = self._all_stages(device, old)
        return self._stage_bytes[key]

    def _all_stages(self, device: int, old: Held) -> Floats:
        num = len(self.prefix) - 1
        place = np.arange(num + 1)
        start, stop = place[:, None], place[None, :]
        high = np.clip(np.minimum(stop, old.stop), old.start, None)
        low = np.clip(np.maximum(start, old.start), None, high)
        found: Floats = self.prefix[stop] - self.prefix[start]
        found = found - (self.prefix[high] - self.prefix[low])
        for position in range(4):
            is_here = ((start == 0) == (position in {1, 3})) & (
                (stop == num) == (position in {2, 3})
            )
            missing = self._tables(device, position) - old.tables
            found = found + is_here * sum(self._bytes_of[name] for name in missing)
        return found

    def fetches(self, old: Holdings, new: Holdings) -> list[Fetch]:
        """Return who gets what from whom, by device and layer: each range from one holder.

        From the holder with the widest way to the device; of holders that are as near, from the
        one that has most of what is missing from there on. Without a holder: from the machine that
        has the model file.
        """
        return [one for d in sorted(new) for one in self._of_device(d, old, new[d])]

    def _of_device(self, d: int, old: Holdings, new: Held) -> Iterator[Fetch]:
        before = old.get(d, NOTHING)
        waiting = set(new.tables - before.tables)
        for start, stop in _missing(before, new):
            at = start
            while at < stop:
                source, end = self._source(d, at, stop, old)
                tables = tuple(sorted(name for name in waiting if self._goes_with(name, at, end)))
                waiting -= set(tables)
                num_bytes = float(self.prefix[end] - self.prefix[at])
                num_bytes += sum(self._bytes_of[name] for name in tables)
                yield Fetch(
                    device=d,
                    layers=(at, end),
                    tables=tables,
                    source=source,
                    num_bytes=num_bytes,
                )
                at = end
        for name in sorted(waiting):  # the layer beside it is here already
            source = self._holder_of_table(d, name, old)
            at = new.start if self._goes_with(name, new.start, new.start + 1) else new.stop
            yield Fetch(
                device=d,
                layers=(at, at),
                tables=(name,),
                source=source,
                num_bytes=self._bytes_of[name],
            )

    def _goes_with(self, table: str, start: int, stop: int) -> bool:
        """Whether *table* is sent with the layers ``[start, stop)``: the first or the last."""
        runtime, last = self._costs.problem.runtime, len(self.prefix) - 2
        with_last = runtime.head == "last" and (
            table == "head" or (table == "embedding" and runtime.embedding == "host")
        )
        if table == TIED:
            return start == 0 or (stop == last + 1 and stop > start)
        return (start <= last < stop) if with_last else start == 0 < stop

    def _holder_of_table(self, d: int, name: str, old: Holdings) -> int | None:
        if self._terms.weights_on == ALL_DEVICES:
            return d
        holders = [e for e, held in old.items() if name in held.tables and self._may_send(e, d)]
        return min(holders, key=lambda e: (self._slowness(e, d), e), default=self._has_file)

    def _source(self, d: int, start: int, stop: int, old: Holdings) -> tuple[int | None, int]:
        """Return who sends layers from *start* on, and up to which layer."""
        if self._terms.weights_on == ALL_DEVICES:
            return d, stop
        holders = {
            e: held
            for e, held in old.items()
            if held.start <= start < held.stop and self._may_send(e, d)
        }
        if holders:
            near = min(self._slowness(e, d) for e in holders)
            equals = [e for e in holders if self._slowness(e, d) <= near * (1 + 1e-9)]
            source = min(equals, key=lambda e: (-min(holders[e].stop, stop), e))
            return source, min(holders[source].stop, stop)
        others = [h.start for e, h in old.items() if h.start > start and self._may_send(e, d)]
        return self._has_file, min([stop, *others])

    def _may_send(self, source: int, target: int) -> bool:
        is_there = self._costs.problem.devices[source].name not in self._excluded
        return is_there and source != target and np.isfinite(self._slowness(source, target))

    def _slowness(self, source: int, target: int) -> float:
        """Return seconds a byte over the widest way; inf where there is none [s/byte]."""
        latency, inverse, _ = self._costs.ways.of(np.array(source), np.array(target))
        return float(np.where(np.isfinite(latency), inverse, np.inf).min())

    def slowest_way(self, device: int) -> float:
        """Return seconds a byte over the narrowest way to *device*, 0 if it has none [s/byte]."""
        others = np.array([e for e in range(len(self._costs.problem.devices)) if e != device])
        if not len(others):
            return 0.0
        latency, inverse, _ = self._costs.ways.of(others, np.array(device))
        widest = np.where(np.isfinite(latency), inverse, np.inf).min(axis=-1)
        widest = widest[np.isfinite(widest)]
        return float(widest.max()) if len(widest) else 0.0

    def seconds(self, fetches: Sequence[Fetch]) -> list[float]:
        """Return when each of *fetches*, which all begin at once, is done [s].

        What crosses a link, card or bus shares it: each takes as long as the busiest of those that
        it crosses is busy, and a device then loads all that it got.
        """
        paths = [self._path(one) for one in fetches]
        busy: dict[Resource, float] = {}
        loads: dict[int, float] = {}
        for one, (_, resources) in zip(fetches, paths, strict=True):
            loads[one.device] = loads.get(one.device, 0.0) + one.num_bytes
            for resource, inverse in resources.items():
                busy[resource] = busy.get(resource, 0.0) + one.num_bytes * inverse
        return [
            latency
            + max((busy[resource] for resource in resources), default=0.0)
            + loads[one.device] / self._terms.load_bytes_per_s
            for one, (latency, resources) in zip(fetches, paths, strict=True)
        ]

    def _path(self, one: Fetch) -> tuple[float, Mapping[Resource, float]]:
        """Return latency [s], and what is crossed with its seconds a byte [s/byte]."""
        if one.source == one.device:
            return 0.0, {}
        if one.source is None:
            return 0.0, {
                ("way", self._costs.problem.devices[one.device].name, ""): (
                    self.slowest_way(one.device)
                )
            }
        path = self._costs.path(one.source, one.device, one.num_bytes)
        if path is None:  # the machine with the model file is not linked: as if it were unknown
            return 0.0, {}
        capacity = self._costs.network.capacity
        speeds = {r: capacity.get(r, path.bandwidth_bytes_per_s) for r in path.resources}
        return path.latency_s, {resource: 1.0 / speed for resource, speed in speeds.items()}


def _missing(old: Held, new: Held) -> Iterator[tuple[int, int]]:
    """Yield the ranges of *new* layers that are not among the *old* ones."""
    below = (new.start, min(new.stop, max(old.start, new.start)))
    above = (max(new.start, min(old.stop, new.stop)), new.stop)
    if old.stop <= new.start or old.start >= new.stop:
        below, above = (new.start, new.stop), (new.stop, new.stop)
    yield from (span for span in (below, above) if span[0] < span[1])
