"""Sets of devices, as how many there are of each kind: smaller, cheaper, the cheapest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Counts = tuple[int, ...]
MOST_SETS = 3000
"""With more cheaper sets than that, none is listed."""


def smaller(counts: Counts, costs: Sequence[float]) -> list[Counts]:
    """Return sets without one device, or with a cheaper one in its place, the cheapest first."""
    found: dict[Counts, float] = {}
    for k, num in enumerate(counts):
        if not num:
            continue
        less = [*counts]
        less[k] -= 1
        found[tuple(less)] = -costs[k]
        for other, cost in enumerate(costs):
            if cost < costs[k]:
                swapped = [*less]
                swapped[other] += 1
                found[tuple(swapped)] = cost - costs[k]
    return sorted((one for one in found if any(one)), key=lambda one: (found[one], one))


def cheaper_sets(
    costs: Sequence[float], below: float, least: float, most_devices: int
) -> list[Counts] | None:
    """Return every set that costs less than *below* and no less than *least*, the cheapest first.

    Parameters
    ----------
    costs
        Of a device of each kind [K].
    below, least
        Cost of a set.
    most_devices
        In a set.

    Returns
    -------
    list or None
        None where there are more than :data:`MOST_SETS`, the cheaper ones than *least* counted.
    """
    found: list[tuple[float, Counts]] = [(0.0, ())]
    for cost in costs:
        found = [
            (spent + num * cost, (*one, num))
            for spent, one in found
            for num in range(most_devices - sum(one) + 1)
            if spent + num * cost < below * (1 - 1e-12)
        ]
        if len(found) > MOST_SETS:
            return None
    return [one for spent, one in sorted(found) if any(one) and spent >= least * (1 - 1e-9)]
