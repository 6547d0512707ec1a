"""What a sweep came to: how many rows of which kind, and the rows where they are few."""

from __future__ import annotations

from collections import Counter
from typing import IO, TYPE_CHECKING

from e2llm_opt.report.quantities import rate, seconds
from e2llm_opt.report.screen import show, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from e2llm_opt.sweep.table import SweepRow

MAX_SHOWN = 20
"""Rows that fit on a screen; of more only the counts are shown."""


def print_sweep(rows: Sequence[SweepRow], output: str, file: IO[str]) -> None:
    """Print the counts of *rows*, which are in the file *output*, and few rows themselves."""
    counts = Counter(row.status for row in rows)
    words = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    file.write(f"{len(rows)} rows in {output}: {words}\n")
    if 0 < len(rows) <= MAX_SHOWN:
        file.write("\n")
        show(file, _table(rows))


def _table(rows: Sequence[SweepRow]) -> Table:
    answer = table(
        *("row", "inventory", "model", "rate", "objective", "planner", "waiting", "capacity"),
        right=(0, 3, 6, 7),
        dense=True,
    )
    for row in rows:
        is_planned = row.status == "planned"
        answer.add_row(
            str(row.row),
            row.name or row.inventory,
            row.model,
            "" if row.rate_per_s is None else rate(row.rate_per_s),
            row.objective,
            row.planner,
            seconds(row.waiting_time_s) if is_planned else row.status,
            rate(row.capacity_per_s) if row.capacity_per_s is not None else "",
        )
    return answer
