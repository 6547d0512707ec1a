"""What the package knows of devices, models, weight formats and engines, found by name."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from e2llm_opt.catalogue.names import find, index_of, matches

if TYPE_CHECKING:
    from collections.abc import Mapping

Row = dict[str, str]
FactValue = int | float | bool | str | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceEntry:
    """A device as its maker describes it, with planning defaults of its kind.

    Parameters
    ----------
    key, aliases, name
        The catalogue's name, others that mean the same, and the one for people.
    memory_kind
        ``discrete``, ``unified`` or ``cpu``.
    memory_gib, reserved_gib
        All memory, and what is never planned on [GiB].
    memory_bandwidth_gb_s, fp16_tflops
        Peaks [GB/s, dense TFLOPS].
    prefill_efficiency, decode_efficiency, layer_overhead_us
        Defaults of the kind, from ``device_defaults.csv`` [-, -, µs].
    power_w, price_usd
        None where unknown.
    note, source, verified
        What else to know, where the figures come from, and how far to trust them.
    sourced
        Names of the fields that stand in *source*; the other figures are from memory.
    default_source
        Where the defaults come from.
    """

    key: str
    aliases: tuple[str, ...]
    name: str
    memory_kind: str
    memory_gib: float
    reserved_gib: float
    memory_bandwidth_gb_s: float
    fp16_tflops: float
    prefill_efficiency: float
    decode_efficiency: float
    layer_overhead_us: float
    power_w: float | None
    price_usd: float | None
    note: str
    source: str
    verified: str
    sourced: tuple[str, ...]
    default_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """A model's architecture under the names of ``config.json``.

    Parameters
    ----------
    key, aliases, name
        The catalogue's name, others that mean the same, and the full Hugging Face name.
    facts
        ``config.json`` names → values; ``layer_types`` has one entry a layer.
    params_b, active_params_b
        Published parameter counts, all and a token's [10^9]; None where unknown.
    max_context_tokens
        Longest context the model was made for; None where unknown.
    source, verified
        Where the facts come from, and how far to trust them.
    """

    key: str
    aliases: tuple[str, ...]
    name: str
    facts: Mapping[str, FactValue]
    params_b: float | None
    active_params_b: float | None
    max_context_tokens: int | None
    source: str
    verified: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormatRow:
    """Bits a parameter of a weight format, by tensor class.

    Parameters
    ----------
    key, aliases
        Names.
    attention_bits, ffn_bits, experts_bits, embedding_bits, head_bits, small_bits
        Bits a parameter; *small* are norms, biases and MoE routers.
    kv_cache_bits
        Bits a value where the format also serves the KV cache, else None.
    note, source, verified
        How the figures came about.
    """

    key: str
    aliases: tuple[str, ...]
    attention_bits: float
    ffn_bits: float
    experts_bits: float
    embedding_bits: float
    head_bits: float
    small_bits: float
    kv_cache_bits: float | None
    note: str
    source: str
    verified: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRow:
    """An engine's defaults (DESIGN section 5) in people's units, with their evidence."""

    key: str
    aliases: tuple[str, ...]
    overhead_gib: float
    logits_buffer: bool
    hop_overhead_ms: float
    bus_hop_overhead_ms: float
    pipelined: bool
    max_slots: int
    prefill_chunk_tokens: int
    activation_bytes: float
    topology: str
    mixed_pause: str
    layerwise_kv: bool
    head: str
    embedding: str
    kv_layout: str
    disaggregation: bool
    sends_logits: bool
    tensor_parallel: str
    collective_start_us: float
    collective_step_us: float
    evidence: str
    source: str
    verified: str


def device_entry(name: str) -> DeviceEntry:
    """Return the device called *name*.

    Raises
    ------
    UnknownNameError
        When there is none.
    """
    return _devices()[find("device", name, _device_index())]


def model_entry(name: str) -> ModelEntry:
    """Return the model called *name*: a key, an alias or the full Hugging Face name.

    Raises
    ------
    UnknownNameError
        When there is none.
    """
    return _models()[find("model", name, _model_index())]


def weight_format_row(name: str) -> WeightFormatRow:
    """Return the weight format called *name*.

    Raises
    ------
    UnknownNameError
        When there is none.
    """
    return _weight_formats()[find("weight format", name, _weight_format_index())]


def kv_cache_format_row(name: str) -> WeightFormatRow:
    """Return the format called *name*, if a KV cache can be kept in it.

    Raises
    ------
    UnknownNameError
        When there is none.
    """
    return _weight_formats()[find("KV cache format", name, _kv_cache_format_index())]


def runtime_row(name: str) -> RuntimeRow:
    """Return the defaults of the engine called *name*.

    Raises
    ------
    UnknownNameError
        When there is none.
    """
    return _runtimes()[find("runtime", name, _runtime_index())]


def device_entries(search: str = "") -> tuple[DeviceEntry, ...]:
    """Return the devices in whose names every word of *search* occurs."""
    found = _devices().values()
    return tuple(own for own in found if matches(search, (own.key, own.name, *own.aliases)))


def model_entries(search: str = "") -> tuple[ModelEntry, ...]:
    """Return the models in whose names every word of *search* occurs."""
    found = _models().values()
    return tuple(own for own in found if matches(search, (own.key, own.name, *own.aliases)))


def weight_format_rows(search: str = "") -> tuple[WeightFormatRow, ...]:
    """Return the weight formats in whose names every word of *search* occurs."""
    return tuple(
        row for row in _weight_formats().values() if matches(search, (row.key, *row.aliases))
    )


def runtime_rows(search: str = "") -> tuple[RuntimeRow, ...]:
    """Return the engines in whose names every word of *search* occurs."""
    return tuple(row for row in _runtimes().values() if matches(search, (row.key, *row.aliases)))


def rows_of(file: str) -> list[Row]:
    """Return the rows of one of the catalogue's files."""
    text = files("e2llm_opt.catalogue").joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _float(text: str) -> float | None:
    return float(text) if text else None


def _is_yes(text: str) -> bool:
    return text == "yes"


@cache
def _devices() -> dict[str, DeviceEntry]:
    defaults = {row["memory_kind"]: row for row in rows_of("device_defaults.csv")}
    return {
        row["key"]: _device(row, defaults[row["memory_kind"]]) for row in rows_of("devices.csv")
    }


def _device(row: Row, default: Row) -> DeviceEntry:
    memory_gib = float(row["memory_gib"])
    share = float(default["reserved_share_percent"]) / 100
    return DeviceEntry(
        key=row["key"],
        aliases=tuple(row["aliases"].split()),
        name=row["name"],
        memory_kind=row["memory_kind"],
        memory_gib=memory_gib,
        reserved_gib=float(default["reserved_gib"]) + share * memory_gib,
        memory_bandwidth_gb_s=float(row["memory_bandwidth_gb_s"]),
        fp16_tflops=float(row["fp16_tflops"]),
        prefill_efficiency=float(default["prefill_efficiency"]),
        decode_efficiency=float(default["decode_efficiency"]),
        layer_overhead_us=float(default["layer_overhead_us"]),
        power_w=_float(row["power_w"]),
        price_usd=_float(row["price_usd"]),
        note=row["note"],
        source=row["source"],
        verified=row["verified"],
        sourced=tuple(row["sourced"].split()),
        default_source=default["source"],
    )


_ABOUT = ("key", "aliases", "name", "params_b", "active_params_b", "source", "verified")
_NO_FACTS = (*_ABOUT, "max_context_tokens", "layer_pattern", "sliding_window_tokens")


@cache
def _models() -> dict[str, ModelEntry]:
    return {row["key"]: _model(row) for row in rows_of("models.csv")}


def _model(row: Row) -> ModelEntry:
    facts: dict[str, FactValue] = {
        name: text == "yes" if text in {"yes", "no"} else int(text)
        for name, text in row.items()
        if text and name not in _NO_FACTS
    }
    pattern = row["layer_pattern"].split()
    if pattern:
        num_layers = int(row["num_hidden_layers"])
        facts["layer_types"] = tuple(
            f"{pattern[layer % len(pattern)]}_attention" for layer in range(num_layers)
        )
    if row["sliding_window_tokens"]:
        facts["sliding_window"] = int(row["sliding_window_tokens"])
    context = row["max_context_tokens"]
    return ModelEntry(
        key=row["key"],
        aliases=tuple(row["aliases"].split()),
        name=row["name"],
        facts=facts,
        params_b=_float(row["params_b"]),
        active_params_b=_float(row["active_params_b"]),
        max_context_tokens=int(context) if context else None,
        source=row["source"],
        verified=row["verified"],
    )


@cache
def _weight_formats() -> dict[str, WeightFormatRow]:
    return {
        row["key"]: WeightFormatRow(
            key=row["key"],
            aliases=tuple(row["aliases"].split()),
            attention_bits=float(row["attention_bits"]),
            ffn_bits=float(row["ffn_bits"]),
            experts_bits=float(row["experts_bits"]),
            embedding_bits=float(row["embedding_bits"]),
            head_bits=float(row["head_bits"]),
            small_bits=float(row["small_bits"]),
            kv_cache_bits=_float(row["kv_cache_bits"]),
            note=row["note"],
            source=row["source"],
            verified=row["verified"],
        )
        for row in rows_of("weight_formats.csv")
    }


@cache
def _runtimes() -> dict[str, RuntimeRow]:
    return {
        row["key"]: RuntimeRow(
            key=row["key"],
            aliases=tuple(row["aliases"].split()),
            overhead_gib=float(row["overhead_gib"]),
            logits_buffer=_is_yes(row["logits_buffer"]),
            hop_overhead_ms=float(row["hop_overhead_ms"]),
            bus_hop_overhead_ms=float(row["bus_hop_overhead_ms"]),
            pipelined=_is_yes(row["pipelined"]),
            max_slots=int(row["max_slots"]),
            prefill_chunk_tokens=int(row["prefill_chunk_tokens"]),
            activation_bytes=float(row["activation_bytes"]),
            topology=row["topology"],
            mixed_pause=row["mixed_pause"],
            layerwise_kv=_is_yes(row["layerwise_kv"]),
            head=row["head"],
            embedding=row["embedding"],
            kv_layout=row["kv_layout"],
            disaggregation=_is_yes(row["disaggregation"]),
            sends_logits=_is_yes(row["sends_logits"]),
            tensor_parallel=row["tensor_parallel"],
            collective_start_us=float(row["collective_start_us"]),
            collective_step_us=float(row["collective_step_us"]),
            evidence=row["evidence"],
            source=row["source"],
            verified=row["verified"],
        )
        for row in rows_of("runtimes.csv")
    }


@cache
def _device_index() -> dict[str, str]:
    return index_of({key: (entry.name, *entry.aliases) for key, entry in _devices().items()})


@cache
def _model_index() -> dict[str, str]:
    return index_of({key: (entry.name, *entry.aliases) for key, entry in _models().items()})


@cache
def _weight_format_index() -> dict[str, str]:
    return index_of({key: row.aliases for key, row in _weight_formats().items()})


@cache
def _kv_cache_format_index() -> dict[str, str]:
    rows = _weight_formats().items()
    return index_of({key: row.aliases for key, row in rows if row.kv_cache_bits is not None})


@cache
def _runtime_index() -> dict[str, str]:
    return index_of({key: row.aliases for key, row in _runtimes().items()})
