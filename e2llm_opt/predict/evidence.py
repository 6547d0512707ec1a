"""How far each number of a device can be trusted: sourced, from memory, fitted, or a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from e2llm_opt.catalogue.silicon import measured_runs
from e2llm_opt.inventory.device import device_of_type
from e2llm_opt.model.build import build_model
from e2llm_opt.model.named import model_facts
from e2llm_opt.speed import believed
from e2llm_opt.units import US

if TYPE_CHECKING:
    from e2llm_opt.catalogue.catalogue import DeviceEntry

Evidence = Literal["sourced", "from memory", "fitted", "default"]
"""``sourced``: it stands in the source; ``from memory``: written down without one, unverified;
``fitted``: to measured speeds; ``default``: of the kind of memory, the same for all such devices.
"""
_EXAMPLE, _WEIGHTS, _ENGINE = "llama-3.1-8b", "q4_k_m", "llama.cpp"
"""What fitted numbers are shown for: they depend on model, format and engine."""
STATED = ("memory_gib", "memory_bandwidth_gb_s", "fp16_tflops", "power_w", "price_usd")
"""Numbers that a maker states."""
ACHIEVED = ("prefill_efficiency", "decode_efficiency", "layer_overhead_us")
"""Numbers that only a running engine shows."""
_NO_SOURCE = "none: from memory, unverified"


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberEvidence:
    """One number of a device and where it comes from.

    Parameters
    ----------
    number
        Its name, with the unit.
    value
        None where it is unknown.
    evidence, source
        Its kind, and what stands behind it.
    """

    number: str
    value: float | None
    evidence: Evidence
    source: str


def device_evidence(entry: DeviceEntry) -> tuple[NumberEvidence, ...]:
    """Return every number of *entry* with its evidence; numbers that are unknown are left out."""
    found = [_stated(entry, number) for number in STATED]
    found += _achieved(entry)
    found.append(_default(entry, "reserved_gib"))
    return tuple(one for one in found if one.value is not None)


def _stated(entry: DeviceEntry, number: str) -> NumberEvidence:
    is_sourced = number in entry.sourced
    return NumberEvidence(
        number=number,
        value=getattr(entry, number),
        evidence="sourced" if is_sourced else "from memory",
        source=entry.source if is_sourced else _NO_SOURCE,
    )


def _achieved(entry: DeviceEntry) -> list[NumberEvidence]:
    """Return what is believed of the device on the example; the defaults are where a fit starts."""
    model = build_model(model_facts(_EXAMPLE), weights=_WEIGHTS)
    device = believed(device_of_type(entry.key, name=entry.key), model, _ENGINE)
    values = device.prefill_efficiency, device.decode_efficiency, device.layer_overhead_s / US
    runs = measured_runs(entry.key)
    source = (
        f"public measurements, {runs.prefill} of prefill and {runs.decode} of decode on this "
        f"device itself; shown for {_EXAMPLE} {_WEIGHTS} on {_ENGINE}"
    )
    return [
        NumberEvidence(
            number=number,
            value=float(f"{value:.4g}"),
            evidence="fitted",
            source=", ".join((source, *runs.sources)),
        )
        for number, value in zip(ACHIEVED, values, strict=True)
    ]


def _default(entry: DeviceEntry, number: str) -> NumberEvidence:
    return NumberEvidence(
        number=number,
        value=getattr(entry, number),
        evidence="default",
        source=entry.default_source,
    )
