"""What the site adds to the pages: every public name, and addresses outside docs/ as plain text."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import e2llm_opt

_EVERY_NAME = "<!-- every public name -->"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return the text of a page with the names of the package in place of their mark."""
    if _EVERY_NAME in markdown:
        markdown = markdown.replace(_EVERY_NAME, "\n".join(_directives()))
    return re.sub(r"\[([^\]]*)\]\((\.\./[^)]*)\)", _outside, markdown)


def _directives() -> list[str]:
    names = sorted(set(e2llm_opt.__all__) - {"__version__"})
    homes = {name: getattr(getattr(e2llm_opt, name), "__module__", "") for name in names}
    homes |= {"PLANNERS": "e2llm_opt.planners"}  # a constant does not know where it stands
    return [f"::: {home}.{name}\n" for name, home in homes.items()]


def _outside(match: re.Match[str]) -> str:
    """Return a link out of docs/ as the name of the file: the site does not have it."""
    return f"{match[1]} (`{PurePosixPath(match[2]).relative_to('..')}`)"
