"""Local search: the best grouping with one device moved, two swapped, groups merged or split."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

from e2llm_opt.search.roles import RoleChooser, Scope

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.search import Search
    from e2llm_opt.search.stop import Stop
    from e2llm_opt.search.variant import Variant

MAX_NEIGHBOURS = 120
"""Groupings that are judged at most."""
_MAX_ASSIGNMENTS = 3**6
"""Of roles; with more, a neighbour takes seconds, and single roles are changed instead."""


def climb(search: Search, variant: Variant, stop: Stop) -> None:
    """Judge all neighbours of the best grouping, roles chosen anew, as long as one is better.

    Where it ends before its limits the plan is locally optimal.
    """
    available = {k: len(rows) for k, rows in search.candidates.rows.items()}
    left = MAX_NEIGHBOURS if stop.max_refinements else 0
    chooser = RoleChooser(search.evaluator, search.roles, _MAX_ASSIGNMENTS)
    count, best = itertools.count(1), search.best_key()
    while best is not None and left > 0:
        start = search.archive.choices(search.aim)[0]
        if start.variant is not variant:
            return
        for packing in neighbours(start.groups, available):
            if left <= 0 or search.is_late(stop):
                return
            if not search.rules.allows(packing):
                continue
            left -= 1
            hopeless = search.archive.worst().get(Scope.ANY)
            search.archive.offer(chooser.best(packing, variant, hopeless))
            search.tell("neighbour", next(count), search.archive.choices(search.aim)[:1])
            if search.best_key() != best:
                break
        if search.best_key() == best:
            return
        best = search.best_key()


def neighbours(
    packing: tuple[Group, ...], available: dict[int, int]
) -> Iterator[tuple[Group, ...]]:
    """Yield every packing one move, swap, merge or split away, each once.

    A device moves to another group, to none, from none, or to a group of its own; two devices of
    unlike classes change places; two groups become one; a group becomes two, all devices of one
    class, or one of them, on their own.
    """
    seen = {packing}
    for changed in _changes(packing, _idle(packing, available)):
        found = tuple(sorted(group for group in changed if group))
        if found not in seen:
            seen.add(found)
            yield found


def _idle(packing: tuple[Group, ...], available: dict[int, int]) -> list[int]:
    used = Counter(k for group in packing for k in group)
    return [k for k, count in sorted(available.items()) if count > used[k]]


def _changes(packing: tuple[Group, ...], idle: list[int]) -> Iterator[list[Group]]:
    groups = list(packing)
    for i, group in enumerate(groups):
        for k in sorted(set(group)):
            less = _without(group, k)
            yield _with(groups, {i: less})
            yield [*_with(groups, {i: less}), (k,)]
            own = tuple(c for c in group if c == k)
            yield [*_with(groups, {i: tuple(c for c in group if c != k)}), own]
            yield from (_with(groups, {i: _plus(less, c)}) for c in idle if c != k)
            for j, other in enumerate(groups):
                if j == i:
                    continue
                yield _with(groups, {i: less, j: _plus(other, k)})
                for c in sorted(set(other)):
                    if c > k:
                        swapped = {i: _plus(less, c), j: _plus(_without(other, c), k)}
                        yield _with(groups, swapped)
        yield from (_with(groups, {i: _plus(group, c)}) for c in idle)
        for j in range(i + 1, len(groups)):
            yield _with(groups, {i: tuple(sorted(group + groups[j])), j: ()})
    yield from ([*groups, (c,)] for c in idle)


def _with(groups: list[Group], changed: dict[int, Group]) -> list[Group]:
    return [changed.get(i, group) for i, group in enumerate(groups)]


def _without(group: Group, k: int) -> Group:
    place = group.index(k)
    return group[:place] + group[place + 1 :]


def _plus(group: Group, k: int) -> Group:
    return tuple(sorted((*group, k)))
