"""Names, times and sizes inside sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.units import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMES = 4


def named(names: Sequence[str]) -> str:
    """Return ``a, b and c``; of many names the first three, and how many more."""
    shown = list(dict.fromkeys(names))
    if len(shown) > _MOST_NAMES:
        shown = [*shown[: _MOST_NAMES - 1], f"{len(shown) - _MOST_NAMES + 1} more"]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def time_text(value: float) -> str:
    """Return seconds as ``1.2 s``, ``35 ms`` or ``8 us``."""
    for least, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "us")):
        if value >= least:
            return f"{factor * value:.3g} {unit}" if value else "0 s"
    return f"{value:.3g} s"


def size_text(value: float) -> str:
    """Return bytes as ``3.2 GiB`` or ``12 MiB``."""
    return f"{value / GIB:.3g} GiB" if value >= GIB / 10 else f"{value / MIB:.3g} MiB"


def percent(share: float) -> str:
    """Return a share as ``74 %`` or ``<1 %``."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"  # noqa: PLR2004 - rounds to 0


def number_text(value: float) -> str:
    """Return a number with three figures, without an exponent."""
    return f"{float(f'{value:.3g}'):.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004
