"""Every way to pack device classes into groups, for inventories small enough."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.search.candidate import Group

MAX_DEVICES = 8
"""Most devices for which all groupings are enumerated (DESIGN section 6)."""


def all_groups(available: dict[int, int]) -> Iterator[Group]:
    """Yield every non-empty multiset of classes, the smaller first within each class."""
    classes = sorted(available)
    for counts in product(*(range(available[k] + 1) for k in classes)):
        if any(counts):
            yield tuple(k for k, count in zip(classes, counts, strict=True) for _ in range(count))


def packings(groups: Sequence[Group], available: dict[int, int]) -> Iterator[tuple[Group, ...]]:
    """Yield every non-empty set of groups that the available devices can form side by side.

    Groups are used in order, so that no packing comes twice; devices may be left over.
    """
    needs = [{k: group.count(k) for k in set(group)} for group in groups]

    def extend(
        first: int, left: dict[int, int], chosen: tuple[Group, ...]
    ) -> Iterator[tuple[Group, ...]]:
        for i in range(first, len(groups)):
            if any(left[k] < count for k, count in needs[i].items()):
                continue
            rest = {k: count - needs[i].get(k, 0) for k, count in left.items()}
            yield (*chosen, groups[i])
            yield from extend(i, rest, (*chosen, groups[i]))

    yield from extend(0, dict(available), ())
