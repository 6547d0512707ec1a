"""Which of several changes is the best, by what is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from e2llm_opt.advise.advice import AdviceRow, By

LEAST_SHARE, LEAST_WAIT_S = 1e-3, 5e-4
"""Gains below this share of the capacity, and waits below this [s], are no difference."""


def score(by: By, row: AdviceRow) -> tuple[float, float] | None:
    """Return what sorts *row*, more is better; None where what it costs is not known."""
    wait = row.waiting_time_gain_s or 0.0
    if by == "capacity":
        return row.capacity_gain_per_s, wait
    if by == "waiting_time":
        return wait, row.capacity_gain_per_s
    cost = row.price if by == "money" else row.power_w
    if cost is None or cost <= 0:
        return None
    return row.capacity_gain_per_s / cost, wait / cost


def ordered(by: By, rows: Iterable[AdviceRow]) -> tuple[list[AdviceRow], list[AdviceRow]]:
    """Return the rows with a score, the best first, and the others by what they gain.

    Where the inventory does not serve all that arrives, changes come first after which it does,
    and among these by the same scores.
    """
    given = [(score(by, row), row) for row in rows]
    first = sorted(
        ((points, row) for points, row in given if points is not None),
        key=lambda one: (not _makes_stable(by, one[1]), *(-part for part in one[0]), one[1].change),
    )
    apart = [row for points, row in given if points is None]
    apart.sort(key=lambda row: (-row.capacity_gain_per_s, row.change))
    return [row for _, row in first], apart


def _makes_stable(by: By, row: AdviceRow) -> bool:
    """Whether the wait ends to grow; only where waits are compared."""
    return by == "waiting_time" and row.is_stable and row.waiting_time_gain_s is None


def retired_first(rows: Iterable[AdviceRow]) -> list[AdviceRow]:
    """Return devices to retire: the least loss first, then the most power and money saved."""
    return sorted(
        rows,
        key=lambda row: (
            not row.is_stable,
            round(-row.capacity_gain_per_s, 9),
            -(row.waiting_time_gain_s or 0.0),
            row.power_w or 0.0,
            row.price or 0.0,
            row.change,
        ),
    )


def is_difference(row: AdviceRow, capacity_per_s: float) -> bool:
    """Whether a change gains anything, where *capacity_per_s* is there now."""
    more = row.capacity_gain_per_s > max(LEAST_SHARE * capacity_per_s, 1e-12)
    return more or (row.waiting_time_gain_s or 0.0) >= LEAST_WAIT_S
