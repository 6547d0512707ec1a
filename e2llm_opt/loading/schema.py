"""What an inventory file may say (DESIGN section 4.1): people's units in, SI out, only here."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from e2llm_opt.constraints import Roles  # noqa: TC001 - pydantic reads it
from e2llm_opt.errors import InputError
from e2llm_opt.loading.fields import (
    AllHosts,
    AsList,
    AsMapping,
    AsNumber,
    AsRange,
    AsWord,
    Number,
    NumberMappingOrRange,
    NumberOrMapping,
    NumberOrRange,
    Section,
    Switch,
    Text,
    Tokens,
    Whole,
    WordOrList,
    fault,
    shown,
)
from e2llm_opt.provenance import Provenance
from e2llm_opt.units import GB_PER_S, GIB, MBIT_PER_S, MS, TFLOP_PER_S, US
from e2llm_opt.workload.scenarios import Risk
from e2llm_opt.workload.workload import DEFAULT_CV, Lengths

# Bounds catch typos and numbers that would overflow further on; hardware is well inside.
Gib = Annotated[Number, Field(ge=0.001, le=1e5)]
GbPerS = Annotated[Number, Field(ge=0.001, le=1e7)]
Mbit = Annotated[Number, Field(ge=0.001, le=1e8)]
Fraction = Annotated[Number, Field(ge=0.0001, le=2)]
Seconds = Annotated[Number, Field(ge=1e-6, le=1e6)]

_SI: dict[str, tuple[str, float]] = {
    "memory_gib": ("memory_bytes", GIB),
    "reserved_gib": ("reserved_bytes", GIB),
    "memory_bandwidth_gb_s": ("memory_bandwidth_bytes_per_s", GB_PER_S),
    "fp16_tflops": ("fp16_flop_per_s", TFLOP_PER_S),
    "layer_overhead_us": ("layer_overhead_s", US),
    "host_bus_gb_s": ("host_bus_bytes_per_s", GB_PER_S),
    "host_memory_gib": ("host_memory_bytes", GIB),
    "host_bandwidth_gb_s": ("host_bandwidth_bytes_per_s", GB_PER_S),
    "bus_gb_s": ("bus_bytes_per_s", GB_PER_S),
    "power_w": ("power_w", 1.0),
    "cost_per_hour": ("cost_per_hour", 1.0),
    "overhead_gib": ("overhead_bytes", GIB),
    "hop_overhead_ms": ("hop_overhead_s", MS),
}
"""File key: name in the domain object, and the factor between them."""
_RENAMED = {"pipelined": "is_pipelined", "disaggregation": "has_disaggregation"}


def _in_si(section: Section, *leave_out: str) -> dict[str, Any]:
    """Return what the file gives, under the domain object's names and in SI."""
    values = {}
    for key, value in section.given(*type(section).model_fields).items():
        if key in _SI:
            name, factor = _SI[key]
            values[name] = value * factor
        elif key not in leave_out:
            values[_RENAMED.get(key, key)] = value
    return values


class EfficiencyEntry(Section):
    """``efficiency: {prefill: 0.45, decode: 0.70}``; either may be left out."""

    prefill: Fraction = 0.45
    decode: Fraction = 0.70


def _day(value: Any) -> str:  # noqa: ANN401 - what the file says
    try:
        return date.fromisoformat(value).isoformat()
    except (TypeError, ValueError):
        fault(f"must be a date, got {shown(value)}", "write it as 2026-01-31")


class CalibratedEntry(Section):
    """``calibrated: {date: , sources: [], prefill: 2, decode: 3}``: what speeds rest on.

    *prefill* and *decode* are the numbers of measurements.
    """

    date: Annotated[str, BeforeValidator(_day)]
    sources: list[Text] = Field(default_factory=list)
    prefill: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0
    decode: Annotated[Whole, Field(ge=0, le=1_000_000)] = 0


class DeviceEntry(Section):
    """One item of ``devices``."""

    name: Text
    type: Text | None = None
    memory_gib: Gib | None = None
    reserved_gib: Annotated[Number, Field(ge=0, le=1e5)] | None = None
    memory_bandwidth_gb_s: GbPerS | None = None
    fp16_tflops: Annotated[Number, Field(ge=1e-6, le=1e6)] | None = None
    efficiency: EfficiencyEntry | None = None
    layer_overhead_us: Annotated[Number, Field(ge=0, le=1e6)] | None = None
    calibrated: CalibratedEntry | None = None
    uuid: Text | None = None
    host: Text | None = None
    host_bus_gb_s: GbPerS | None = None
    host_memory_gib: Annotated[Number, Field(ge=0, le=1e5)] | None = None
    host_bandwidth_gb_s: Annotated[Number, Field(ge=0, le=1e7)] | None = None
    bus_gb_s: Annotated[Number, Field(ge=0, le=1e7)] | None = None
    power_w: Annotated[Number, Field(ge=0, le=1e6)] | None = None
    cost_per_hour: Annotated[Number, Field(ge=0, le=1e6)] | None = None
    count: Annotated[Whole, Field(ge=1, le=10_000)] = 1

    def names(self) -> tuple[str, ...]:
        """Return the names of the devices this item stands for."""
        return counted(self.name, self.count)

    def si(self) -> dict[str, Any]:
        """Return the fields of a Device, but name and type."""
        values = _in_si(self, "name", "type", "count", "efficiency", "calibrated")
        if self.efficiency is not None:
            given = self.efficiency.given("prefill", "decode")
            values |= {f"{phase}_efficiency": value for phase, value in given.items()}
        # The worst origin counts: both phases were measured, or the device was not.
        if self.calibrated is not None and min(self.calibrated.prefill, self.calibrated.decode):
            values["provenance"] = Provenance.MEASURED
        return values


def counted(name: str, count: int) -> tuple[str, ...]:
    """Return ``name`` itself, or ``name-1 … name-n`` for several."""
    return (name,) if count == 1 else tuple(f"{name}-{i}" for i in range(1, count + 1))


class DirectionsEntry(Section):
    """``{forward: 100, backward: 20}``: from the first end to the second, and back."""

    forward: Mbit
    backward: Mbit


class LinkEntry(Section):
    """One item of ``links``."""

    between: Annotated[Annotated[AllHosts, AsWord] | Annotated[list[Text], AsList], WordOrList]
    via: Text | None = None
    bandwidth_mbit_s: Annotated[
        Annotated[Mbit, AsNumber] | Annotated[DirectionsEntry, AsMapping], NumberOrMapping
    ]
    latency_ms: Annotated[Number, Field(ge=0, le=1e5)]
    interface: Text | None = None
    duplex: Literal["full", "half"] = "full"

    def si(self) -> dict[str, Any]:
        """Return the fields of a Link, but its ends."""
        both = self.bandwidth_mbit_s
        forward, backward = (
            (both.forward, both.backward) if isinstance(both, DirectionsEntry) else (both, both)
        )
        return {
            "forward_bytes_per_s": forward * MBIT_PER_S,
            "backward_bytes_per_s": backward * MBIT_PER_S,
            "latency_s": self.latency_ms * MS,
            "interface": self.interface or "",
            "is_half_duplex": self.duplex == "half",
        }


class RuntimeEntry(Section):
    """``runtime`` as a mapping: an engine's name and what is different here."""

    name: Text = "generic"
    overhead_gib: Annotated[Number, Field(ge=0, le=1e4)] | None = None
    hop_overhead_ms: Annotated[Number, Field(ge=0, le=1e5)] | None = None
    pipelined: Switch | None = None
    max_slots: Annotated[Whole, Field(ge=1, le=100_000)] | None = None
    prefill_chunk_tokens: Annotated[Whole, Field(ge=1, le=10_000_000)] | None = None
    activation_bytes: Annotated[Number, Field(ge=0.125, le=16)] | None = None
    topology: Literal["ring", "star"] | None = None
    mixed_pause: Literal["latency", "occupancy"] | None = None
    layerwise_kv: Switch | None = None
    head: Literal["first", "last"] | None = None
    embedding: Literal["first", "host"] | None = None
    kv_layout: Literal["expanded", "latent"] | None = None
    disaggregation: Switch | None = None

    def si(self) -> dict[str, Any]:
        """Return the fields of a Runtime that the file overrides, but its name."""
        return _in_si(self, "name")


class LengthsEntry(Section):
    """``{mean: 576, cv: 0.5}`` or ``{mean: 576, p95: 1200}``."""

    mean: Tokens
    cv: Annotated[Number, Field(ge=0, le=100)] | None = None
    p95: Tokens | None = None

    @model_validator(mode="after")
    def _cv_or_p95(self) -> LengthsEntry:
        if self.cv is not None and self.p95 is not None:
            fault("gives both cv and p95", "they say the same thing; keep one")
        try:
            self.lengths()
        except InputError as error:
            fault(*(str(error).rstrip(".").split(": ")))
        return self

    def lengths(self) -> Lengths:
        """Return the distribution."""
        if self.p95 is not None:
            return Lengths.from_p95(self.mean, self.p95)
        return Lengths(mean=self.mean) if self.cv is None else Lengths(mean=self.mean, cv=self.cv)


Rate = Annotated[Number, Field(ge=0, le=1e6)]
LengthsValue = Annotated[
    Annotated[Tokens, AsNumber] | Annotated[LengthsEntry, AsMapping], NumberOrMapping
]


class RateRange(Section):
    """``{low: 0.2, high: 0.9}``: anything between may come."""

    low: Rate
    high: Rate

    @model_validator(mode="after")
    def _in_order(self) -> RateRange:
        _check_order(self.low, self.high)
        return self


class LengthsRange(Section):
    """``{low: 200, high: 3000}``: means between which the length moves, and its cv."""

    low: Tokens
    high: Tokens
    cv: Annotated[Number, Field(ge=0, le=100)] = DEFAULT_CV

    @model_validator(mode="after")
    def _in_order(self) -> LengthsRange:
        _check_order(self.low, self.high)
        return self


def _check_order(low: float, high: float) -> None:
    if low > high:
        fault(f"low is {low:g}, above high, which is {high:g}", "swap them")


LengthsOrRange = Annotated[
    Annotated[Tokens, AsNumber]
    | Annotated[LengthsEntry, AsMapping]
    | Annotated[LengthsRange, AsRange],
    NumberMappingOrRange,
]


class ScenarioEntry(Section):
    """One of ``workload.scenarios``; what it leaves out is as in the workload."""

    name: Text
    weight: Annotated[Number, Field(gt=0, le=1e9)] = 1.0
    rate_per_s: Rate | None = None
    prompt_tokens: LengthsValue | None = None
    output_tokens: LengthsValue | None = None


class SloEntry(Section):
    """Service levels."""

    ttft_s: Seconds | None = None
    tpot_s: Seconds | None = None


class WorkloadEntry(Section):
    """``workload``."""

    rate_per_s: (
        Annotated[Annotated[Rate, AsNumber] | Annotated[RateRange, AsRange], NumberOrRange] | None
    ) = None
    prompt_tokens: LengthsOrRange | None = None
    output_tokens: LengthsOrRange | None = None
    scenarios: list[ScenarioEntry] = Field(default_factory=list)
    risk: Literal["expected", "worst", "cvar"] = "expected"
    cvar_level: Annotated[Number, Field(ge=0, lt=1)] = 0.8
    trace: Text | None = None
    context_tokens: Annotated[Whole, Field(ge=1, le=1_000_000_000)] | None = None
    slots: Annotated[Whole, Field(ge=1, le=100_000)] | None = None
    min_tokens_per_s: Annotated[Number, Field(ge=0, le=1e6)] | None = None
    slo: SloEntry | None = None

    def si(self) -> dict[str, Any]:
        """Return the fields of a Workload, but the load."""
        values = self.given("context_tokens", "slots", "min_tokens_per_s", "cvar_level")
        values["risk"] = Risk(self.risk)
        slo = self.slo or SloEntry()
        return {**values, "slo_ttft_s": slo.ttft_s, "slo_tpot_s": slo.tpot_s}


class ConstraintsEntry(Section):
    """``constraints``; all optional."""

    replicas: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    use_all_devices: Switch = False
    roles: Roles = "auto"
    pin: dict[Text, list[Text]] = Field(default_factory=dict)
    layers: dict[Text, Annotated[Whole, Field(ge=1, le=100_000)]] = Field(default_factory=dict)
    exclude: list[Text] = Field(default_factory=list)


ObjectiveWord = Literal["waiting_time", "latency", "throughput", "max_context", "cost"]
SECTIONS = (
    "devices",
    "links",
    "model",
    "weights",
    "kv_cache",
    "runtime",
    "workload",
    "objective",
    "constraints",
    "pessimistic",
)
"""The top-level keys of a file."""
