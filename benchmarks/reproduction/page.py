"""The block of docs/headline.md that this benchmark writes: no figure there is typed by hand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction.sheets import markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.reproduction.sheets import Sheet

PAGE: Final = Path(__file__).parents[2] / "docs" / "headline.md"
_BLOCK: Final = re.compile(r"(<!-- measured -->\n).*?(<!-- end of measured -->)", re.DOTALL)


def write_page(introduction: str, sheets: Sequence[Sheet], path: Path = PAGE) -> None:
    """Replace the marked block of the page.

    Raises
    ------
    ValueError
        When the page has no such block.
    """
    text = path.read_text(encoding="utf-8")
    if not _BLOCK.search(text):
        raise ValueError(f"{path.name} has no block between the marks 'measured'")
    block = f"\n{introduction}\n\n{markdown(sheets)}\n\n"
    path.write_text(_BLOCK.sub(lambda m: m[1] + block + m[2], text), encoding="utf-8")
