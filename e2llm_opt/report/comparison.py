"""Several planners on one screen: what plans promise, what a simulation says, what they use."""

from __future__ import annotations

import csv
import io
from typing import IO, TYPE_CHECKING, Any

from rich.text import Text

from e2llm_opt.report.quantities import UNKNOWN, rate, seconds
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from e2llm_opt.compare import ComparisonRow

_TIMES = ("waiting_time_s", "ttft_s", "tpot_s", "latency_s")
_SPREAD = ("mean", "p50", "p90", "p99")


def print_comparison(rows: Sequence[ComparisonRow], num_requests: int, file: IO[str]) -> None:
    """Print *rows*, simulated on *num_requests* requests."""
    refused = [row for row in rows if row.plan is None]
    show(file, Text(f"Each plan simulated on the same {num_requests} requests"))
    show(file, *section("Waiting time and capacity", _waits(rows)))
    show(file, *section("Means, simulated", _means(rows)))
    if refused:
        lines = [f"{row.planner}: {_short(row)}" for row in refused]
        show(file, *section("No plan", Text("\n".join(lines), style="yellow")))
    for row in rows:
        if row.rejected:
            line = f"{row.planner}: {row.rejected} requests are longer than its slots; not counted"
            show(file, Text(line, style="yellow"))


def _short(row: ComparisonRow) -> str:
    return row.reason.removeprefix(f"planner {row.planner} finds no plan: ")


def _waits(rows: Sequence[ComparisonRow]) -> Table:
    answer = table(
        *("planner", "capacity", "predicted", "simulated", "P90", "P99"),
        right=range(1, 6),
    )
    for row in rows:
        predicted = None if row.plan is None else row.plan.predicted
        waits = _spread(row, "waiting_time_s")
        answer.add_row(
            row.planner,
            UNKNOWN if predicted is None else rate(predicted.capacity_per_s),
            UNKNOWN if predicted is None else _steady(predicted.waiting_time_s),
            *map(seconds, (waits[0], *waits[2:])),
        )
    return answer


def _means(rows: Sequence[ComparisonRow]) -> Table:
    answer = table(
        *("planner", "TTFT", "TPOT", "latency", "devices", "planned in"), right=range(1, 6)
    )
    for row in rows:
        means = [_spread(row, name)[0] for name in ("ttft_s", "tpot_s", "latency_s")]
        used = UNKNOWN if row.devices_used is None else str(row.devices_used)
        answer.add_row(row.planner, *map(seconds, means), used, seconds(row.planning_s))
    return answer


def _spread(row: ComparisonRow, name: str) -> list[float | None]:
    """Return mean, P50, P90 and P99 of a simulated time [s]."""
    if row.simulated is None:
        return [None] * len(_SPREAD)
    return [getattr(row.simulated[name], field) for field in _SPREAD]


def _steady(wait_s: float | None) -> str:
    return "unstable" if wait_s is None else seconds(wait_s)


def comparison_csv(rows: Sequence[ComparisonRow]) -> str:
    """Return *rows* as CSV text: one a planner, times in seconds, nothing where there is none."""
    text = io.StringIO()
    head = ("planner", "capacity_per_s", *(f"predicted_{name}" for name in _TIMES))
    simulated = (f"simulated_{name}_{field}" for name in _TIMES for field in _SPREAD)
    tail = ("rejected", "devices_used", "planning_s", "reason")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*head, *simulated, *tail))
    for row in rows:
        figures: list[Any] = [None] * 5
        if row.plan is not None:
            predicted = row.plan.predicted
            figures = [predicted.capacity_per_s, *(getattr(predicted, name) for name in _TIMES)]
        spreads = [value for name in _TIMES for value in _spread(row, name)]
        rejected = None if row.plan is None else row.rejected
        writer.writerow(
            (
                row.planner,
                *figures,
                *spreads,
                rejected,
                row.devices_used,
                row.planning_s,
                row.reason,
            )
        )
    return text.getvalue()
