"""A change of plan on one screen: what each step offers, what moves in which order, and why."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.quantities import UNKNOWN, number, rate, seconds, size
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from e2llm_opt.replan.answer import Difference, Figures, Replan

_MOST_LISTED = 12
"""Differences and role changes beyond that are only counted."""


def print_replan(answer: Replan, file: IO[str]) -> None:
    """Print *answer*: what changed, the three offers, the moves in order, the new plan."""
    show(file, *_parts(answer))


def _parts(answer: Replan) -> Iterator[RenderableType]:
    yield Text(answer.why, style="bold")
    if answer.differences:
        lines = [_difference(one) for one in answer.differences]
        yield from section("What changed", Text("\n".join(_cut(lines))))
    yield from section(f"Offers, over {seconds(answer.horizon_s)}", _offers(answer))
    if answer.moves:
        yield from section("Moves, in order", _moves(answer))
        yield from section("What serves meanwhile", _way(answer))
    if answer.role_changes:
        lines = [
            f"{'-'.join(one.devices)}: {one.old_role} x{one.old_slots} -> "
            f"{one.new_role} x{one.new_slots}"
            for one in answer.role_changes
        ]
        yield from section("Roles and slots", Text("\n".join(_cut(lines))))
    yield from section("Plan", Text(answer.plan.summary()))
    if answer.warnings:
        yield from section("Warnings", Text("\n".join(answer.warnings), style="yellow"))


def _cut(lines: Sequence[str]) -> list[str]:
    rest = len(lines) - _MOST_LISTED
    return [*lines[:_MOST_LISTED], *([f"and {rest} more"] if rest > 0 else [])]


def _difference(one: Difference) -> str:
    if one.what in {"gone", "new"}:
        return f"device {one.name}: {one.what}"
    fields = ", ".join(
        f"{name} {_value(then)} -> {_value(now)}"
        for name, (then, now) in one.fields.items()
        if then != now
    )
    kind = {"changed": "device ", "link": "link from ", "model": "model "}.get(one.what, "")
    return f"{kind}{one.name}: {fields}"


def _value(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return number(value)


def _offers(answer: Replan) -> Table:
    rows = table(
        *("step", "waiting", "capacity", "gain", "price", "moves", "weights", "time"),
        right=range(1, 8),
    )
    rows.add_row("as it stands", *_figures(answer.before))
    for one in answer.offers:
        if one.figures is None:
            rows.add_row(one.step, "no plan")
            continue
        mark = " *" if one.step == answer.recommended else ""
        rows.add_row(
            f"{one.step}{mark}",
            *_figures(one.figures),
            number(one.gain),
            number(one.price),
            str(one.moves),
            size(one.num_bytes) if one.num_bytes else "0",
            seconds(one.seconds),
        )
    return rows


def _figures(figures: Figures) -> tuple[str, str]:
    wait = seconds(figures.waiting_time_s) if figures.stable else "unstable"
    return wait, rate(figures.capacity_per_s)


def _moves(answer: Replan) -> Table:
    rows = table(*("step", "device", "layers", "from", "weights", "done after"), right=(4, 5))
    for move in answer.moves:
        start, stop = move.layers
        layers = f"[{start}, {stop})" if stop > start else "-"
        with_tables = "".join(f" + {name}" for name in move.tables)
        rows.add_row(
            str(move.order),
            move.device,
            layers + with_tables,
            move.source or UNKNOWN,
            size(move.num_bytes),
            seconds(move.seconds),
        )
    return rows


def _way(answer: Replan) -> Table:
    rows = table(*("step", "takes", "serving", "capacity", "stops", "starts"), right=(1, 3))
    for step in answer.way:
        stable = "" if step.stable or step.seconds == 0 else " unstable"
        rows.add_row(
            str(step.order),
            seconds(step.seconds),
            f"{len(step.serving)} replicas{stable}",
            rate(step.capacity_per_s),
            ", ".join("-".join(names) for names in step.stopped) or UNKNOWN,
            ", ".join("-".join(names) for names in step.started) or UNKNOWN,
        )
    return rows
