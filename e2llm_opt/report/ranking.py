"""Several plans under each other: what each does, and what it costs to take another one."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.quantities import rate, seconds
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from e2llm_opt.plan.plan import Plan


def print_ranking(plans: Sequence[Plan], file: IO[str]) -> None:
    """Print *plans*, the best first, as one table; nothing where there is only one."""
    if len(plans) > 1:
        for part in section("Ranked plans", _ranking(plans)):
            show(file, part)


def _ranking(plans: Sequence[Plan]) -> Table:
    answer = table("", "replicas", "waiting", "latency", "capacity", right=(0, 2, 3, 4))
    for number, plan in enumerate(plans, start=1):
        figures = plan.predicted
        answer.add_row(
            str(number),
            Text(_replicas(plan)),
            seconds(figures.waiting_time_s),
            seconds(figures.latency_s),
            rate(figures.capacity_per_s),
        )
    return answer


def _replicas(plan: Plan) -> str:
    """Return the plan's replicas, one a line: ``DECODE tower + laptop``."""
    return "\n".join(
        f"{replica.role} {' + '.join(name for stage in replica.stages for name in stage.devices)}"
        for replica in plan.replicas
    )
