"""One machine, card or board that can hold layers, in SI units."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from e2llm_opt.catalogue.catalogue import device_entry
from e2llm_opt.errors import InputError
from e2llm_opt.provenance import Provenance
from e2llm_opt.units import GB_PER_S, GIB, TFLOP_PER_S, US


class MemoryKind(StrEnum):
    """What the device's memory is: decides where an embedding kept in host RAM is counted."""

    DISCRETE = "discrete"
    """A card with memory of its own; host RAM is somewhere else."""
    UNIFIED = "unified"
    """GPU and CPU share one memory (Apple silicon, Jetson, Strix Halo)."""
    CPU = "cpu"
    """A CPU-only board or PC."""


DEFAULT_PREFILL_EFFICIENCY = 0.45
DEFAULT_DECODE_EFFICIENCY = 0.70
"""Achieved shares of the peaks where nothing is known (DESIGN section 5)."""
SPEEDS = ("layer_overhead_s", "decode_efficiency", "prefill_efficiency")
"""What only measurements tell of a device."""
DEFAULT_BUS_BYTES_PER_S = 8e9
"""Bandwidth between devices of one host where nothing is given (DESIGN section 5) [bytes/s]."""

_POSITIVE = (
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "fp16_flop_per_s",
    "prefill_efficiency",
    "decode_efficiency",
    "host_bus_bytes_per_s",
)
_NOT_NEGATIVE = (
    "reserved_bytes",
    "layer_overhead_s",
    "prefill_sigma",
    "decode_sigma",
    "host_memory_bytes",
    "host_bandwidth_bytes_per_s",
    "bus_bytes_per_s",
    "power_w",
    "cost_per_hour",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of the inventory.

    Parameters
    ----------
    name
        Unique name.
    memory_bytes, reserved_bytes
        All memory, and the part that is never planned on [bytes].
    memory_bandwidth_bytes_per_s, fp16_flop_per_s
        Peaks [bytes/s, FLOP/s].
    prefill_efficiency, decode_efficiency
        Achieved fraction of the compute and of the bandwidth peak.
    layer_overhead_s
        Fixed cost a layer and step [s].
    prefill_sigma, decode_sigma
        Standard deviation of the logarithm of the true speed around the predicted one; 0: that of
        its kind (:func:`e2llm_opt.speed.believed`). For intervals and pessimistic plans; the
        inventory's digest does not depend on them.
    host
        Devices of one host talk over its bus and share its network card; default: its own name.
    host_bus_bytes_per_s
        This device's bandwidth to the other devices of its host [bytes/s].
    host_memory_bytes, host_bandwidth_bytes_per_s, bus_bytes_per_s
        Host RAM for spilled weights, its bandwidth, and the bus to it; 0 where there is none.
    uuid
        Identity of the physical card; two devices of one uuid are an error.
    power_w, cost_per_hour
        For reports and for the objective ``cost``; None where unknown.
    type
        Catalogue entry it was made from, or empty.
    provenance
        The worst origin of the numbers above.
    unstated
        Those of :data:`SPEEDS` that are the defaults of the type, because nobody stated them.

    Raises
    ------
    InputError
        When a number is not finite, not positive where it must be, memory is all reserved, or
        host RAM is given to a device whose own memory it is.
    """

    name: str
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    fp16_flop_per_s: float
    reserved_bytes: float = 0.0
    prefill_efficiency: float = DEFAULT_PREFILL_EFFICIENCY
    decode_efficiency: float = DEFAULT_DECODE_EFFICIENCY
    layer_overhead_s: float = 15e-6
    prefill_sigma: float = 0.0
    decode_sigma: float = 0.0
    memory_kind: MemoryKind = MemoryKind.DISCRETE
    host: str = ""
    host_bus_bytes_per_s: float = DEFAULT_BUS_BYTES_PER_S
    host_memory_bytes: float = 0.0
    host_bandwidth_bytes_per_s: float = 0.0
    bus_bytes_per_s: float = 0.0
    uuid: str = ""
    power_w: float | None = None
    cost_per_hour: float | None = None
    type: str = ""
    provenance: Provenance = Provenance.ASSUMED
    unstated: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Fill in the host and refuse impossible numbers."""
        if not self.host:
            object.__setattr__(self, "host", self.name)
        if not self.name:
            raise InputError("A device needs a name.")
        for field in (*_POSITIVE, *_NOT_NEGATIVE):
            value = getattr(self, field)
            if value is None:
                continue
            least = "positive" if field in _POSITIVE else "zero or more"
            if not math.isfinite(value) or value < 0 or (field in _POSITIVE and value == 0):
                raise InputError(
                    f"Device '{self.name}': {field} must be {least} and finite, got {value}."
                )
        if self.host_memory_bytes > 0 and self.memory_kind != MemoryKind.DISCRETE:
            raise InputError(
                f"Device '{self.name}': its memory is the host's RAM, host_memory_bytes would "
                "count twice; raise memory_bytes instead."
            )
        if self.usable_bytes <= 0:
            raise InputError(
                f"Device '{self.name}': reserved_bytes {self.reserved_bytes:g} leave nothing of "
                f"memory_bytes {self.memory_bytes:g}."
            )

    @property
    def usable_bytes(self) -> float:
        """Memory that may be planned on [bytes]."""
        return self.memory_bytes - self.reserved_bytes

    @property
    def can_spill(self) -> bool:
        """Whether feed-forward and expert weights may lie in host RAM."""
        speeds = self.host_bandwidth_bytes_per_s, self.bus_bytes_per_s
        return self.host_memory_bytes > 0 and min(speeds) > 0


def device_of_type(
    type: str,  # noqa: A002 - the inventory's own word
    *,
    name: str,
    **overrides: Any,  # noqa: ANN401 - one type a field
) -> Device:
    """Return a device made from the catalogue entry called *type*.

    Parameters
    ----------
    type
        Name in the catalogue, whatever its case, vendor prefix and punctuation.
    name
        Name in the inventory.
    **overrides
        Fields of :class:`Device` that differ. The reserve of a unified memory is a share of it,
        and follows *memory_bytes* unless *reserved_bytes* is given too.

    Raises
    ------
    UnknownNameError
        When the catalogue has no such type.
    InputError
        When a number is impossible.

    Examples
    --------
    >>> device_of_type("RTX 3060 12GB", name="tower").memory_bandwidth_bytes_per_s
    360000000000.0
    """
    entry = device_entry(type)
    fields: dict[str, Any] = {
        "memory_bytes": entry.memory_gib * GIB,
        "reserved_bytes": entry.reserved_gib * GIB,
        "memory_bandwidth_bytes_per_s": entry.memory_bandwidth_gb_s * GB_PER_S,
        "fp16_flop_per_s": entry.fp16_tflops * TFLOP_PER_S,
        "prefill_efficiency": entry.prefill_efficiency,
        "decode_efficiency": entry.decode_efficiency,
        "layer_overhead_s": entry.layer_overhead_us * US,
        "memory_kind": MemoryKind(entry.memory_kind),
        "power_w": entry.power_w,
        "type": entry.key,
        "provenance": Provenance.CATALOGUE,
    }
    if "memory_bytes" in overrides and entry.memory_kind == MemoryKind.UNIFIED:
        share = entry.reserved_gib / entry.memory_gib
        fields["reserved_bytes"] = share * overrides["memory_bytes"]
    fields["unstated"] = tuple(speed for speed in SPEEDS if speed not in overrides)
    return Device(name=name, **(fields | overrides))
