"""What each catalogue device is made of, and the fitted effects on speed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from e2llm_opt.catalogue.catalogue import device_entry, rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Silicon:
    """What decides a device's speed beside its peaks.

    Parameters
    ----------
    group, generation
        Devices whose kernels and memory are of one kind, and of one generation of it; empty where
        the type is unknown.
    matrix_tflops
        Peak of matrix products that engines reach for: on NVIDIA cards a quarter of the dense int8
        peak, which does not depend on how fp16 is advertised; 0 where the type is unknown.
    general_tflops
        Peak in fp32, dual issue left out; 0 where the type is unknown.
    """

    group: str = ""
    generation: str = ""
    matrix_tflops: float = 0.0
    general_tflops: float = 0.0


@cache
def silicon(device_type: str) -> Silicon:
    """Return the silicon of a catalogue type; an empty one for no type."""
    return _silicon()[device_entry(device_type).key] if device_type else Silicon()


@cache
def _silicon() -> dict[str, Silicon]:
    return {
        row["key"]: Silicon(
            group=row["group"],
            generation=row["generation"],
            matrix_tflops=float(row["matrix_tflops"]),
            general_tflops=float(row["general_tflops"]),
        )
        for row in rows_of("device_silicon.csv")
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRuns:
    """How many runs of one device the effects were fitted to, and where these stand."""

    prefill: int = 0
    decode: int = 0
    sources: tuple[str, ...] = ()


@cache
def measured_runs(device_type: str) -> MeasuredRuns:
    """Return the runs of a catalogue type; none of one that nobody measured."""
    for row in rows_of("speed_runs.csv"):
        if row["key"] == device_type:
            return MeasuredRuns(
                prefill=int(row["prefill"]),
                decode=int(row["decode"]),
                sources=tuple(row["sources"].split()),
            )
    return MeasuredRuns()


@cache
def effects() -> dict[tuple[str, str, str], float]:
    """Return (term, factor, level) -> effect on the logarithm of the term's coefficient."""
    return {
        (row["term"], row["factor"], row["level"]): float(row["effect"])
        for row in rows_of("speeds.csv")
    }


@cache
def spreads() -> dict[tuple[str, str, str], float]:
    """Return (phase, group, engine) -> sigma of the logarithm of a speed; empty: of all."""
    return {
        (row["phase"], row["group"], row["engine"]): float(row["sigma"])
        for row in rows_of("speed_spreads.csv")
    }
