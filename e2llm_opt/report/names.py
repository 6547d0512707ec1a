"""Many device names on one line: runs of numbered names become ``pi-1 to pi-8``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBERED = re.compile(r"(.*-)([1-9][0-9]*)")
_SHORTEST_RUN = 3


def listed(names: Iterable[str]) -> str:
    """Return *names* in their order, separated by commas, runs of at least three shortened."""
    runs: list[list[str]] = []
    for name in names:
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if len(run) >= _SHORTEST_RUN else ", ".join(run) for run in runs
    )


def _follows(name: str, after: str) -> bool:
    first, second = _NUMBERED.fullmatch(name), _NUMBERED.fullmatch(after)
    if first is None or second is None:
        return False
    return first[1] == second[1] and int(second[2]) == int(first[2]) + 1
