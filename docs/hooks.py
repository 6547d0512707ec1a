"""What the site adds to the pages: every public name, and addresses outside docs/ as plain text."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import e2llm_opt

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_EVERY_NAME = "<!-- every public name -->"


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return the text of *page* with the names of the package in place of their mark."""
    if _EVERY_NAME in markdown:
        markdown = markdown.replace(_EVERY_NAME, "\n".join(_directives()))
    return re.sub(r"\[([^\]]*)\]\((\.\./[^)]*)\)", _outside, markdown)


def _directives() -> list[str]:
    names = sorted(set(e2llm_opt.__all__) - {"__version__"})
    return [f"::: e2llm_opt.{e2llm_opt._HOME[name]}.{name}\n" for name in names]


def _outside(match: re.Match[str]) -> str:
    """Return a link out of docs/ as the name of the file: the site does not have it."""
    return f"{match[1]} (`{PurePosixPath(match[2]).relative_to('..')}`)"
