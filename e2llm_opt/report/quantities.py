"""Numbers for people: three figures and the unit that suits their size, in plain ASCII."""

from __future__ import annotations

from e2llm_opt.units import GIB, MIB, MS, US

UNKNOWN = "-"
"""What stands where there is no number."""
_TIMES = ((7200.0, 3600.0, "h"), (600.0, 60.0, "min"), (1.0, 1.0, "s"), (MS, MS, "ms"))
"""From this time on, divided by this, in this unit [s, s]."""


def number(value: float | None) -> str:
    """Return *value* with three significant figures and no exponent where it has a usual size."""
    if value is None:
        return UNKNOWN
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text  # noqa: PLR2004


def seconds(value: float | None) -> str:
    """Return a time [s] as ``913 ms``, ``25.5 s`` or ``1.2 h``."""
    if value is None:
        return UNKNOWN
    if value == 0:
        return "0 s"
    for least, factor, unit in _TIMES:
        if value >= least:
            return f"{number(value / factor)} {unit}"
    return f"{number(value / US)} us"


def span(low: float, high: float | None) -> str:
    """Return an interval of times [s] in the unit of its upper end: ``55.7-128 ms``."""
    if high is None:
        return f"from {seconds(low)}"
    factor = next((factor for least, factor, _ in _TIMES if high >= least), US)
    shown = seconds(high)
    return f"{number(low / factor)}-{shown}" if high > 0 else shown


def size(value: float | None) -> str:
    """Return a number of bytes as ``6.5 GiB`` or ``72 MiB``."""
    if value is None:
        return UNKNOWN
    if abs(value) >= GIB / 10:
        return f"{number(value / GIB)} GiB"
    return f"{number(value / MIB)} MiB"


def gib(value: float) -> str:
    """Return a number of bytes in GiB with one decimal, for columns [GiB]."""
    return f"{value / GIB:.1f}"


def rate(value: float | None) -> str:
    """Return requests a second as ``0.31/s``."""
    return UNKNOWN if value is None else f"{number(value)}/s"


def percent(value: float | None) -> str:
    """Return a fraction as ``74 %``, ``0.4 %`` or ``<0.1 %``."""
    if value is None:
        return UNKNOWN
    if 0 < value < 0.0005:  # noqa: PLR2004 - half of the last figure shown
        return "<0.1 %"
    decimals = 1 if 0 < value < 0.01 else 0  # noqa: PLR2004
    return f"{100 * value:.{decimals}f} %"
