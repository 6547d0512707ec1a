"""The partition programs once more in plain Python: what the compiled ones are measured against."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.partition.partition import Demand

MIDDLE, FIRST, LAST, ONLY = 0, 1, 2, 3
State = tuple[tuple[int, ...], int]
"""Devices used of each class, and the class of the first device so far."""


class Plain:
    """One inner problem of a ring without pinned ends, as lists.

    Parameters
    ----------
    costs, demand
        The problem's costs, and what a stage does.
    """

    def __init__(self, costs: Costs, demand: Demand) -> None:
        members: dict[int, list[int]] = {}
        for d in costs.classes.order:
            members.setdefault(costs.classes.class_of[d], []).append(d)
        groups = list(members.values())
        heads = [rows[0] for rows in groups]
        self.available = [len(rows) for rows in groups]
        self.time: list[list[float]] = demand.time[heads].tolist()
        self.memory: list[list[float]] = demand.memory[heads].tolist()
        self.room: list[list[float]] = costs.room()[heads].tolist()
        self.extra: list[list[float]] = demand.extra[heads].tolist()
        self.hop = _hops(costs, groups, demand.hops[0][0])
        self.back = _hops(costs, groups, demand.back[0])
        self.classes = range(len(groups))
        self.top = len(self.memory[0]) - 1

    def cost(self, g: int, layers: tuple[int, int], position: int, behind: int = -1) -> float:
        """Return the time of a stage with its outgoing hop; inf where memory does not do [s]."""
        start, stop = layers
        if self.memory[g][stop] - self.memory[g][start] > self.room[g][position]:
            return inf
        hop = self.hop[g][behind] if behind >= 0 else 0.0
        return self.time[g][stop] - self.time[g][start] + (self.extra[g][position] + hop)

    def with_one_more(self, used: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each class that has a device left, and what is used with one more of it."""
        for g in self.classes:
            if used[g] < self.available[g]:
                yield g, (*used[:g], used[g] + 1, *used[g + 1 :])

    @property
    def nothing(self) -> tuple[int, ...]:
        """No device used."""
        return (0,) * len(self.available)


def _hops(costs: Costs, groups: list[list[int]], num_bytes: float) -> list[list[float]]:
    """Hop times between the first devices of two classes, or the first two of one [s]."""
    rows = np.arange(len(costs.problem.devices))
    hop: list[list[float]] = costs.hop(num_bytes, rows[:, None], rows).tolist()
    return [[hop[g[0]][f[-1] if f is g else f[0]] for f in groups] for g in groups]


def least_bottleneck(p: Plain, *, keeps_all: bool) -> float:
    """Return the least possible time of the slowest stage [s]: bisection over all stage times."""
    costs = sorted(set(_all_costs(p)))
    low, high = 0, len(costs)
    while low < high:
        middle = (low + high) // 2
        if _covers(p, costs[middle], keeps_all=keeps_all):
            high = middle
        else:
            low = middle + 1
    return costs[low] if low < len(costs) else inf


def _all_costs(p: Plain) -> Iterator[float]:
    for g in p.classes:
        yield p.cost(g, (0, p.top), ONLY)
        for b in range(p.top):
            yield p.cost(g, (b, p.top), LAST)
            position = FIRST if b == 0 else MIDDLE
            for a in range(b + 1, p.top):
                for f in p.classes:
                    yield p.cost(g, (b, a), position, f)


def _covers(p: Plain, limit: float, *, keeps_all: bool) -> bool:
    """Whether all layers can be covered with no stage that takes longer than *limit*."""
    level: dict[State, set[int]] = {}
    for g, used in p.with_one_more(p.nothing):
        if p.cost(g, (0, p.top), ONLY) <= limit:
            return True
        level[used, g] = {b for b in range(1, p.top) if p.cost(g, (b, p.top), LAST) <= limit}
    while level:
        further: dict[State, set[int]] = {}
        for (used, f), starts in level.items():
            for a in starts if keeps_all or not starts else (min(starts),):
                for g, more in p.with_one_more(used):
                    if p.cost(g, (0, a), FIRST, f) <= limit:
                        return True
                    found = further.setdefault((more, g), set())
                    for b in range(a - 1, 0, -1):
                        if p.cost(g, (b, a), MIDDLE, f) > limit:
                            break
                        found.add(b)
        level = further
    return False


def least_sum(p: Plain) -> float:
    """Return the least sum of all stages and hops, the hop back included [s]."""
    best = min(p.cost(g, (0, p.top), ONLY) for g in p.classes)
    level: dict[State, dict[int, float]] = {}
    for g, used in p.with_one_more(p.nothing):
        level[used, g] = {b: p.cost(g, (b, p.top), LAST) for b in range(1, p.top)}
    while level:
        further: dict[State, dict[int, float]] = {}
        for (used, f), values in level.items():
            for g, more in p.with_one_more(used):
                found = further.setdefault((more, g), {})
                for a, value in values.items():
                    best = min(best, value + p.cost(g, (0, a), FIRST, f) + p.back[f][g])
                    for b in range(1, a):
                        total = value + p.cost(g, (b, a), MIDDLE, f)
                        if total < found.get(b, inf):
                            found[b] = total
        level = further
    return best
