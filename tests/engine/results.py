"""What was predicted and measured with the real engine: shown, and kept as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A speed, predicted and measured [tokens/s]."""

    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1

    def to_dict(self) -> dict[str, float]:
        return {"predicted": self.predicted, "measured": self.measured, "error": self.error}

    def __str__(self) -> str:
        return f"{self.predicted:9.2f} {self.measured:9.2f} {100 * self.error:+6.1f} %"


HEADING = f"{'predicted':>9} {'measured':>9} {'error':>8}"
"""Of the columns of a :class:`Pair`."""


class Results:
    """Collects tables by name; each is printed and written when it comes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables: dict[str, Any] = {}

    def add(self, name: str, facts: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep a table with the *facts* that hold for all of it."""
        self._tables[name] = {**facts, "rows": list(rows)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(self._tables, indent=1) + "\n", encoding="utf-8")


def shown(title: str, lines: Sequence[str]) -> None:
    """Print a table."""
    print("\n".join(("", title, *lines)), flush=True)
