"""How far each number of a device can be trusted: sourced, from memory, fitted, or a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from e2llm_opt.catalogue.catalogue import DeviceEntry

Evidence = Literal["sourced", "from memory", "fitted", "default"]
"""``sourced``: it stands in the source; ``from memory``: written down without one, unverified;
``fitted``: to measured speeds; ``default``: of the kind of memory, the same for all such devices.
"""
STATED = ("memory_gib", "memory_bandwidth_gb_s", "fp16_tflops", "power_w", "price_usd")
"""Numbers that a maker states."""
ACHIEVED = ("prefill_efficiency", "decode_efficiency", "layer_overhead_us", "reserved_gib")
"""Numbers that only a running engine shows, and what is left free for others."""
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
    found += [_achieved(entry, number) for number in ACHIEVED]
    return tuple(one for one in found if one.value is not None)


def _stated(entry: DeviceEntry, number: str) -> NumberEvidence:
    is_sourced = number in entry.sourced
    return NumberEvidence(
        number=number,
        value=getattr(entry, number),
        evidence="sourced" if is_sourced else "from memory",
        source=entry.source if is_sourced else _NO_SOURCE,
    )


def _achieved(entry: DeviceEntry, number: str) -> NumberEvidence:
    return NumberEvidence(
        number=number,
        value=getattr(entry, number),
        evidence="default",
        source=entry.default_source,
    )
