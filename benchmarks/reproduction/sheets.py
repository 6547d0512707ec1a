"""Tables of text, for a terminal and for a page."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from e2llm_opt.report.screen import section, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_COLUMNS = 170
"""Width where the output is no terminal, so that no row is broken."""


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
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
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
    """Return wait, latency and speed, as :data:`UNITS` says; marked where requests got lost."""
    lost = "*" if means.rejected else ""
    wait = f"{means.wait_s:.1f}" if means.wait_s >= 10 else f"{means.wait_s:.2f}"
    return f"{wait} · {means.latency_s:.1f} · {means.tokens_per_s:.1f}{lost}"


def rejections(entries: Iterable[tuple[str, Timed]]) -> list[str]:
    """Return a note on the requests that named entries rejected, if any."""
    lost = [f"{name} {means.rejected}" for name, means in entries if means.rejected]
    if not lost:
        return []
    return [f"\\* Without requests that are too long for the plan: {'; '.join(lost)}."]


def show(sheets: Sequence[Sheet]) -> None:
    """Print *sheets* on stdout."""
    plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
    console = Console(file=sys.stdout, **plain)
    if not console.is_terminal:
        console = Console(file=sys.stdout, width=_COLUMNS, **plain)
    for sheet in sheets:
        body = table(*sheet.head)
        for column in body.columns[1:]:
            column.justify = "right"
        for row in sheet.rows:
            body.add_row(*row)
        console.print(*section(sheet.title, body), sep="\n")
        for note in sheet.notes:
            console.print(Padding(Text(note.lstrip("\\")), (0, 0, 0, 2)))


def markdown(sheets: Sequence[Sheet]) -> str:
    """Return the *sheets* of the page as Markdown."""
    parts = []
    for sheet in sheets:
        if not sheet.is_on_page:
            continue
        parts.append(f"### {sheet.title}")
        rule = "|".join(["---", *["---:"] * (len(sheet.head) - 1)])
        lines = [f"| {' | '.join(row)} |" for row in (sheet.head, *sheet.rows)]
        parts.append("\n".join([lines[0], f"|{rule}|", *lines[1:]]))
        parts.extend(sheet.notes)
    return "\n\n".join(parts)
