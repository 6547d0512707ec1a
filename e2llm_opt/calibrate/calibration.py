"""The answer of a calibration: fitted devices, and how well they predict what was measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.loading.measurements import Measurement
    from e2llm_opt.speed import Phase


_PARAMETERS = ("prefill_efficiency", "decode_efficiency", "layer_overhead_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A measurement, and what the cost model predicts for it [tokens/s]."""

    measurement: Measurement
    before_tokens_per_s: float
    after_tokens_per_s: float

    @property
    def error_before(self) -> float:
        """Relative error of the prediction with the old parameters."""
        return self.before_tokens_per_s / self.measurement.tokens_per_s - 1

    @property
    def error_after(self) -> float:
        """Relative error of the prediction with the fitted parameters."""
        return self.after_tokens_per_s / self.measurement.tokens_per_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFit:
    """What was fitted of one device.

    Parameters
    ----------
    name, devices
        As measurements name it, and the alike devices of the inventory that it stands for.
    before, after
        The first of them as it was believed to be, and as it was fitted.
    num_prefill, num_decode
        Measurements of each phase.
    """

    name: str
    devices: tuple[str, ...]
    before: Device
    after: Device
    num_prefill: int
    num_decode: int

    def changes(self) -> dict[str, Any]:
        """Return the fields that were fitted; where nothing was measured, nothing changes."""
        names = (*_PARAMETERS, "provenance")
        pairs = ((name, getattr(self.before, name), getattr(self.after, name)) for name in names)
        return {name: new for name, old, new in pairs if new != old}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Fitted devices, and how well they predict what was measured.

    Parameters
    ----------
    inventory
        The inventory with the fitted devices.
    fits
        One a measured device.
    points
        One a measurement, in the order given.
    doubts
        Measurements that hardly are what they say, a sentence each: ask before using them.
    notes
        What else to know, a sentence each.
    """

    inventory: Inventory
    fits: tuple[DeviceFit, ...]
    points: tuple[Point, ...]
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def median_error(self, phase: Phase, *, after: bool = True) -> float | None:
        """Return the median relative error of *phase*, signs aside; None without measurements."""
        errors = [
            abs(point.error_after if after else point.error_before)
            for point in self.points
            if point.measurement.phase is phase
        ]
        return statistics.median(errors) if errors else None

    def to_dict(self) -> dict[str, Any]:
        """Return the calibration as plain values, in SI units."""
        return {
            "schema": "e2llm-opt/calibration/v1",
            "devices": [_fit_dict(fit) for fit in self.fits],
            "measurements": [_point_dict(point) for point in self.points],
            "doubts": list(self.doubts),
            "notes": list(self.notes),
        }


def described(m: Measurement) -> str:
    """Return what was run: ``prefill of 512 tokens of llama-3.1-8b q4_k_m on tower``."""
    depth = f" at depth {m.depth}" if m.depth else ""
    batch = f", {m.batch} at once," if m.batch > 1 else ""
    return (
        f"{m.phase} of {m.tokens} tokens{depth}{batch} of {m.facts.name} {m.weights} on {m.device}"
    )


def _fit_dict(fit: DeviceFit) -> dict[str, Any]:
    return {
        "device": fit.name,
        "devices": list(fit.devices),
        "measurements": {"prefill": fit.num_prefill, "decode": fit.num_decode},
        "before": _parameters(fit.before),
        "after": _parameters(fit.after),
    }


def _parameters(device: Device) -> dict[str, float]:
    return {name: getattr(device, name) for name in _PARAMETERS}


def _point_dict(point: Point) -> dict[str, Any]:
    m = point.measurement
    return {
        "device": m.device,
        "model": m.facts.name,
        "weights": m.weights,
        "kv_cache": m.kv_cache,
        "phase": str(m.phase),
        "tokens": m.tokens,
        "depth": m.depth,
        "batch": m.batch,
        "where": m.where,
        "measured_tokens_per_s": m.tokens_per_s,
        "before_tokens_per_s": point.before_tokens_per_s,
        "after_tokens_per_s": point.after_tokens_per_s,
        "error_before": point.error_before,
        "error_after": point.error_after,
    }
