"""Tables of text, for a terminal and for a page."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.text import Text

from e2llm_opt.report.screen import section, table

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = 120
"""Least width, so that no row is broken where the output is no terminal."""


UNITS = "wait [s] · latency [s] · tokens/s of a stream"
"""What the three numbers of an entry are, all means."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A titled table.

    Parameters
    ----------
    title, notes
        Above and below it.
    head
        Of the columns; the first names the row.
    rows
        As many texts each as the head.
    is_on_page
        Whether the page has it, too.
    """

    title: str
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = field(default=())
    is_on_page: bool = True


class Timed(Protocol):
    """What an entry shows."""

    @property
    def wait_s(self) -> float: ...
    @property
    def latency_s(self) -> float: ...
    @property
    def tokens_per_s(self) -> float: ...
    @property
    def rejected(self) -> int: ...


def entry(means: Timed) -> str:
    """Return wait, latency and speed, as :data:`UNITS` says."""
    lost = f" ({means.rejected} rejected)" if means.rejected else ""
    wait = f"{means.wait_s:.1f}" if means.wait_s >= 10 else f"{means.wait_s:.2f}"
    return f"{wait} · {means.latency_s:.1f} · {means.tokens_per_s:.1f}{lost}"


def show(sheets: Sequence[Sheet]) -> None:
    """Print *sheets* on stdout."""
    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    console = Console(file=sys.stdout, **plain)
    console = Console(file=sys.stdout, width=max(console.width, _COLUMNS), **plain)
    for sheet in sheets:
        if sheet.rows:
            body = table(*sheet.head, right=range(1, len(sheet.head)))
            for row in sheet.rows:
                body.add_row(*row)
            console.print(*section(sheet.title, body), sep="\n")
        else:
            console.print(Text(""), Text(sheet.title, style="bold underline"), sep="\n")
        for note in sheet.notes:
            console.print(Text(f"  {note}"))


def markdown(sheets: Sequence[Sheet]) -> str:
    """Return the *sheets* of the page as Markdown."""
    parts = []
    for sheet in sheets:
        if not sheet.is_on_page:
            continue
        parts.append(f"### {sheet.title}")
        if sheet.rows:
            rule = "|".join(["---", *["---:"] * (len(sheet.head) - 1)])
            lines = [f"| {' | '.join(row)} |" for row in (sheet.head, *sheet.rows)]
            parts.append("\n".join([lines[0], f"|{rule}|", *lines[1:]]))
        parts.extend(sheet.notes)
    return "\n\n".join(parts)
