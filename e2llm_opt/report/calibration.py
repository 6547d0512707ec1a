"""A calibration as two tables: what was measured and predicted, and the fitted numbers."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.quantities import number, percent
from e2llm_opt.report.screen import section, show, table
from e2llm_opt.speed import Phase
from e2llm_opt.units import US

if TYPE_CHECKING:
    from rich.table import Table

    from e2llm_opt.calibrate.calibration import Calibration, Point
    from e2llm_opt.inventory.device import Device

MAX_SHOWN = 40
"""Measurements that are listed; of more, those that fit worst."""


def print_calibration(calibration: Calibration, notes: tuple[str, ...], file: IO[str]) -> None:
    """Print the tables, the *notes* of the reading and those of the fit, and the errors."""
    notes = (*notes, *calibration.notes)
    parts = [
        *section("Measured and predicted", _points(calibration)),
        *section("Devices", _devices(calibration)),
    ]
    if notes:
        parts += section("Notes", Text("\n".join(f"- {note}" for note in notes)))
    show(file, *parts[1:], Text(""), *map(Text, _errors(calibration)))


def _points(calibration: Calibration) -> Table:
    answer = table(
        *("device", "phase", "tokens", "model", "measured\ntok/s", "before", "after"),
        right=(2, 4, 5, 6),
        dense=True,
    )
    points = calibration.points
    if len(points) > MAX_SHOWN:
        points = tuple(sorted(points, key=lambda point: -abs(point.error_after))[:MAX_SHOWN])
    for point in points:
        answer.add_row(*_row(point))
    if len(points) < len(calibration.points):
        answer.add_row(f"... {len(calibration.points) - len(points)} more that fit better")
    return answer


def _row(point: Point) -> tuple[str, ...]:
    m = point.measurement
    depth = f"@{m.depth}" if m.depth else ""
    batch = f"{m.batch}x" if m.batch > 1 else ""
    return (
        m.device,
        str(m.phase),
        f"{batch}{m.tokens}{depth}",
        f"{m.facts.name} {m.weights}",
        number(m.tokens_per_s),
        _error(point.before_tokens_per_s, point.error_before),
        _error(point.after_tokens_per_s, point.error_after),
    )


def _error(tokens_per_s: float, error: float) -> str:
    return f"{number(tokens_per_s)} {100 * error:+.0f}%"


def _devices(calibration: Calibration) -> Table:
    answer = table(
        *(
            "device",
            "measured",
            "prefill\nefficiency",
            "decode\nefficiency",
            "overhead\nus a layer",
        ),
        right=(2, 3, 4),
    )
    for fit in calibration.fits:
        pairs = zip(_parameters(fit.before), _parameters(fit.after), strict=True)
        count = f"{fit.num_prefill} prefill, {fit.num_decode} decode"
        alike = f" x{len(fit.devices)}" if len(fit.devices) > 1 else ""
        cells = (old if old == new else f"{old} -> {new}" for old, new in pairs)
        answer.add_row(f"{fit.name}{alike}", count, *cells)
    return answer


def _parameters(device: Device) -> tuple[str, ...]:
    values = (device.prefill_efficiency, device.decode_efficiency, device.layer_overhead_s / US)
    return tuple(map(number, values))


def _errors(calibration: Calibration) -> list[str]:
    lines = []
    for phase in Phase:
        before = calibration.median_error(phase, after=False)
        after = calibration.median_error(phase)
        if after is not None:
            lines.append(f"median error of {phase}: {percent(before)} before, {percent(after)} now")
    return lines
