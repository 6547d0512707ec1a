"""Tables of text, for a terminal and for a page."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from e2llm_opt.report.screen import section, table

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = 132
"""Width where the output is no terminal; a terminal may break lines."""


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


def show(sheets: Sequence[Sheet]) -> None:
    """Print *sheets* on stdout."""
    console = Console(file=sys.stdout, markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console = Console(
            file=sys.stdout, width=_COLUMNS, markup=False, emoji=False, highlight=False
        )
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
