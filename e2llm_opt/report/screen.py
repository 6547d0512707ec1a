"""Where a report is printed: colours and lines on a terminal, plain ASCII in a pipe."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.box import Box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from e2llm_opt.report.width import columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

# Only a line below the header; unlike rich's own SIMPLE it survives every encoding.
_HEADER_LINE = Box(
    "    \n    \n -- \n    \n    \n    \n    \n    \n",
    ascii=True,
)

_LEAST_COLUMNS = 72
"""Tables lose columns below: then the terminal may break the lines."""
_HEIGHT = 25
"""Of no use, but rich takes the width only with it."""


def show(file: IO[str], *parts: RenderableType) -> None:
    """Print *parts* below each other on *file*, every text literally.

    Colours only on a terminal, and not where ``NO_COLOR`` is set or the terminal is dumb; a pipe
    gets no padding either.
    """
    console = Console(
        file=file,
        width=max(columns(file), _LEAST_COLUMNS),
        height=_HEIGHT,
        markup=False,
        emoji=False,
        highlight=False,
    )
    if console.is_terminal:
        console.print(*parts, sep="\n")
        return
    with console.capture() as printed:
        console.print(*parts, sep="\n")
    file.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))


def table(*headers: str, right: Iterable[int] = (), dense: bool = False) -> Table:
    """Return an empty table; columns whose index is in *right* hold numbers.

    The first column names the row; it and the numbers are never broken. *dense* tables leave one
    space between columns instead of two.
    """
    numbers = set(right)
    answer = Table(
        box=_HEADER_LINE,
        header_style="bold",
        pad_edge=False,
        padding=(0, 0 if dense else 1, 0, 0),
        show_edge=False,
    )
    for index, header in enumerate(headers):
        answer.add_column(
            header,
            justify="right" if index in numbers else "left",
            overflow="fold",
            vertical="top",
            no_wrap=index == 0 or index in numbers,
        )
    return answer


def section(title: str, body: RenderableType) -> tuple[RenderableType, ...]:
    """Return a titled part of a report, with an empty line above."""
    return (Text(""), Text(title, style="bold underline"), Padding(body, (0, 0, 0, 2)))
