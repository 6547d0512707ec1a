"""What each loss does to a plan, on one screen: the worst first, one a row."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.quantities import UNKNOWN, percent, rate, seconds
from e2llm_opt.report.screen import section, show, table
from e2llm_opt.search.phrases import named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from e2llm_opt.failures.answer import Failures, Left, LossReport

USERS = "Users are taken to reach every device that is left: where they enter is not known."

_FIGURES = 2
"""The first column that holds figures."""


def print_failures(answer: Failures, top: int, file: IO[str]) -> None:
    """Print the *top* worst losses of *answer*, and what they come down to."""
    show(file, *_screen(answer, top))


def _screen(answer: Failures, top: int) -> Iterator[RenderableType]:
    what = "Each loss" if answer.k == 1 else f"Each loss of {answer.k} things at once"
    text = Text(what, style="bold")
    text.append(f" at {rate(answer.rate_per_s)}; without any: ", "not bold")
    text.append(_told(answer.intact), "not bold")
    yield text
    harmful = [loss for loss in answer.losses if loss.re_roled is not None]
    harmless = [loss.name for loss in answer.losses if loss.re_roled is None]
    if harmful:
        yield from section("Losses, the worst first", _losses(harmful[:top]))
    hidden = len(harmful) - top
    notes = [f"{hidden} more losses do no more harm; --top shows them."] if hidden > 0 else []
    if harmless:
        notes.append(f"{len(harmless)} losses change nothing: {named(harmless)}.")
    if not answer.is_complete:
        notes.append("Interrupted: not every loss was looked at.")
    yield from section("In short", Text("\n".join([*answer.explain, *notes, USERS])))
    if answer.warnings:
        yield from section("Warnings", Text("\n".join(answer.warnings), style="yellow"))


def _losses(losses: Sequence[LossReport]) -> Table:
    rows = table(
        *("lost", "replicas\nlost", "capacity\nlost", "as it is", "in other roles", "planned anew"),
        right=(2,),
    )
    for index, column in enumerate(rows.columns):
        column.no_wrap = index >= _FIGURES  # names may be broken, figures not
    for loss in losses:
        rows.add_row(
            loss.name,
            ", ".join(loss.replicas_lost) or "none",
            percent(max(loss.damage, 0.0)),
            _cell(loss.as_is),
            "the same" if loss.re_roled == loss.as_is else _cell(loss.re_roled),
            _planned(loss),
        )
    return rows


def _planned(loss: LossReport) -> Text | str:
    if not loss.was_replanned:
        return UNKNOWN
    return Text("no plan", style="bold red") if loss.re_planned is None else _cell(loss.re_planned)


def _cell(left: Left | None) -> Text:
    if left is None:
        return Text(UNKNOWN)
    told = _told(left).replace(", ", "\n")
    return Text(told, style="" if left.stable else "bold red")


def _told(left: Left) -> str:
    if left.capacity_per_s <= 0:
        return "nothing served"
    if not left.stable:
        return f"{rate(left.capacity_per_s)}, lacks {rate(left.lacking_per_s)}"
    return f"{rate(left.capacity_per_s)}, wait {seconds(left.waiting_time_s)}"
