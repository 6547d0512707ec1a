"""Values of a plan document: what they are, and how they are shown in a message."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeIs

LARGEST = 1e30
"""Numbers beyond this are typing errors, and would overflow."""
LARGEST_WHOLE = 2**53


def is_sequence(value: object) -> TypeIs[Sequence[Any]]:
    """Whether a value is a list."""
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_layer(value: object) -> bool:
    """Whether a value can be the number of a layer."""
    return isinstance(value, Integral) and is_whole(value) and 0 <= int(value) <= LARGEST_WHOLE


def as_float(value: object) -> float | None:
    """Return a number as a float, infinite where it is too large for one; None for the rest."""
    if not isinstance(value, bool) and isinstance(value, Integral):
        return float(value) if abs(int(value)) <= LARGEST else math.inf
    return float(value) if isinstance(value, float) else None


def interval_of(value: object) -> tuple[float, float] | None:
    """Return the ends of an interval, no upper one as infinity; None where it is none."""
    if not is_sequence(value) or len(value) != 2:  # noqa: PLR2004 - a pair
        return None
    low, high = value
    ends = as_float(low), math.inf if high is None else as_float(high)
    if ends[0] is None or ends[1] is None or not 0 <= ends[0] <= ends[1]:
        return None
    return ends[0], ends[1]


class _Brief(reprlib.Repr):
    """Shortens any value, also a number with more digits than Python likes to print."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxstring, self.maxother = 1, 3, 40, 40

    def repr_int(self, x: int, level: int) -> str:
        """Show a whole number, unless it is absurd."""
        return super().repr_int(x, level) if abs(x) <= LARGEST else "a huge number"


def short(value: object) -> str:
    """Show a value in a message: at most one level of it, and not much of that."""
    if isinstance(value, Mapping):
        return "a mapping"
    if value is None:
        return "nothing"
    if isinstance(value, tuple):
        value = list(value)
    return _Brief().repr(value)


def document_of(value: Any) -> Any:  # noqa: ANN401 - a plan, one of its parts, or any JSON value
    """Turn the dataclasses of a plan into mappings; leave everything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: document_of(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [document_of(entry) for entry in value]
    return value
