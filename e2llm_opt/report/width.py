"""How wide a report or a line may be."""

from __future__ import annotations

import os
from typing import IO

DEFAULT_COLUMNS = 80


def columns(file: IO[str]) -> int:
    """Return the width of *file*: COLUMNS wins, then the terminal's; elsewhere 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(file.fileno()).columns or DEFAULT_COLUMNS
    except OSError:  # no terminal
        return DEFAULT_COLUMNS
