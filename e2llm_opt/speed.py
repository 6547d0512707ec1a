"""How fast one device is with one engine: physical terms times fitted factors.

A time is a sum of terms, each a physical amount (bytes over bandwidth, FLOPs over peak, layers)
times ``exp`` of a sum of effects: one of the term, and small ones of the device's group and
generation, of the engine, of the format. The effects stand in ``catalogue/speeds.csv``, fitted to
public measurements by ``benchmarks/fit.py``; a level that was never measured has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

from e2llm_opt.catalogue.catalogue import device_entry
from e2llm_opt.catalogue.silicon import effects, silicon, spreads
from e2llm_opt.inventory.device import (
    DEFAULT_DECODE_EFFICIENCY,
    DEFAULT_PREFILL_EFFICIENCY,
    SPEEDS,
)
from e2llm_opt.units import TFLOP_PER_S, US

if TYPE_CHECKING:
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.model.model import Model


class Phase(StrEnum):
    """Of serving a request: the prompt, or the answer."""

    PREFILL = "prefill"
    DECODE = "decode"


Terms: TypeAlias = dict[str, float]
"""Term -> what it amounts to before its effects [s]."""

FACTORS: dict[str, tuple[str, ...]] = {
    "decode.read": ("group", "generation", "engine", "wide", "moe", "group+engine"),
    "decode.cache": ("engine",),
    "decode.unpack": ("group", "generation", "engine", "wide"),
    "decode.layer": ("group", "engine", "generation", "group+engine"),
    "decode.spill": (),
    "prefill.compute": (
        "group",
        "generation",
        "engine",
        "group+engine",
        "group+wide",
        "flash",
        "size",
    ),
    "prefill.attention": ("engine", "flash", "group"),
    "prefill.layer": ("group", "engine", "generation", "group+engine"),
    "prefill.read": (),
    "prefill.spill": (),
}
"""Term -> what its coefficient depends on."""
SPILL_BYTES_PER_S = 2e10
"""Of weights that do not fit and are read from host RAM, before the fitted effect [bytes/s]."""
_HELD = 0.94
"""Share of a card's memory that weights and cache may fill before some go to host RAM."""
_SIZE = 5e13
"""A matrix peak from which the effect of ``size`` is counted [FLOP/s]."""
_WIDE_BITS = 12.0
"""Weights above so many bits a value are multiplied as they are: nothing is unpacked to 16 bits."""
_TYPICAL_TOKENS = 512.0
"""Prompt and context at which the cost model is as fast as this one."""
_LEAST_SHARE = 0.1
"""Share of a time that is left to reading or computing, however much fixed costs take."""
STATED = "stated"
"""Kind of a device whose efficiencies the inventory states: as good as one measured run."""
Z80 = 1.2815515655446004
"""80 % of what is normally distributed lie within so many standard deviations."""
MEDIAN = 0.5
"""Quantile of the most likely times."""
LIKELY = (0.1, 0.9)
"""Quantiles between which 80 % lie."""
_WORKING_SHARE = 1.03
"""Weights, and the buffers that come with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one measurement or prediction is about.

    Parameters
    ----------
    device
        Its peaks; its type says what silicon it is.
    model
        With weights in their format.
    engine
        ``llama.cpp``, ``vllm`` …; one without measurements has no effects.
    has_flash
        Whether attention is fused, so that a long context costs little more.
    is_limited
        Whether what does not fit into a card's memory is read from host RAM.
    """

    device: Device
    model: Model
    engine: str
    has_flash: bool = True
    is_limited: bool = True

    def without_limit(self) -> Setting:
        """Return the same where memory is no matter: others hold a part of the model."""
        return replace(self, is_limited=False)

    @property
    def bits(self) -> float:
        """Mean bits of a weight that a token reads."""
        return 8.0 * _read_bytes(self.model) / _num_values(self.model)

    def level(self, factor: str) -> tuple[str, float]:
        """Return the level of *factor*, and how much of its effect counts."""
        kind = silicon(self.device.type)
        is_wide = self.bits > _WIDE_BITS
        if factor == "size":
            return "log", math.log(_matrix(self.device) / _SIZE)
        names = {
            "group": kind.group,
            "generation": kind.generation,
            "engine": self.engine,
            "wide": "yes" if is_wide else "",
            "moe": "yes" if max(self.model.layer_routed_bytes) > 0 else "",
            "flash": "yes" if self.has_flash else "",
            "group+engine": f"{kind.group}+{self.engine}",
            "group+wide": f"{kind.group}+{'wide' if is_wide else 'narrow'}",
        }
        return names[factor], 1.0


def decode_terms(setting: Setting, context: float) -> Terms:
    """Return the terms of one decode step of one request at *context* tokens [s]."""
    device, model = setting.device, setting.model
    spilled = _spilled(setting, context)
    bandwidth = device.memory_bandwidth_bytes_per_s
    return {
        "decode.read": (1.0 - spilled) * _read_bytes(model) / bandwidth,
        "decode.cache": _cache_bytes(model, context) / bandwidth,
        "decode.unpack": 2.0 * _num_values(model) / _general(device),
        "decode.layer": float(model.num_layers),
        "decode.spill": spilled * _read_bytes(model) / SPILL_BYTES_PER_S,
    }


def prefill_terms(setting: Setting, tokens: float, chunk: int = 512) -> Terms:
    """Return the terms of a prompt of *tokens* tokens in chunks of *chunk* [s]."""
    device, model = setting.device, setting.model
    chunks = max(1.0, math.ceil(tokens / chunk))
    spilled = _spilled(setting, tokens)
    attention = _attention(model, tokens)
    held = _held_bytes(model)
    return {
        "prefill.compute": tokens * sum(model.layer_flops_per_token) / _matrix(device),
        "prefill.attention": tokens * attention / _matrix(device),
        "prefill.layer": chunks * model.num_layers,
        "prefill.read": chunks * held / device.memory_bandwidth_bytes_per_s,
        "prefill.spill": chunks * spilled * held / SPILL_BYTES_PER_S,
    }


def coefficient(term: str, setting: Setting) -> float:
    """Return what the amount of *term* is multiplied by."""
    known = effects()
    total = known.get((term, "base", ""), 0.0)
    for factor in FACTORS[term]:
        level, weight = setting.level(factor)
        total += weight * known.get((term, factor, level), 0.0)
    return math.exp(total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A predicted time with its parts.

    Parameters
    ----------
    seconds
        In all [s].
    parts
        Term -> its share of the time [s].
    sigma
        Standard deviation of the logarithm of measured over predicted speed, of devices that the
        fit had not seen.
    """

    seconds: float
    parts: Terms
    sigma: float


def decode_speed(setting: Setting, context: float) -> Speed:
    """Return the time of one decode step of one request [s]."""
    return _speed(Phase.DECODE, setting, decode_terms(setting, context))


def prefill_speed(setting: Setting, tokens: float, chunk: int = 512) -> Speed:
    """Return the time of a prompt of *tokens* tokens [s]."""
    return _speed(Phase.PREFILL, setting, prefill_terms(setting, tokens, chunk))


def believed(device: Device, model: Model, engine: str, quantile: float = MEDIAN) -> Device:
    """Return *device* as fast as it is believed to be with *model* on *engine*.

    Efficiencies and layer overhead that are the defaults of its type become those that were fitted
    for the model's format; others were measured, and stay. ``prefill_sigma`` and ``decode_sigma``,
    where the device has none, become how far measured speeds of such devices are from predicted
    ones.

    Parameters
    ----------
    quantile
        Of the times, if not the most likely ones: nine in ten such devices are at least as fast as
        at 0.9. Hops between devices stay as they are.
    """
    return _at_quantile(_with_sigmas(_fitted(device, model, engine), device, engine), quantile)


def _fitted(device: Device, model: Model, engine: str) -> Device:
    """Return *device* with fitted speeds wherever its own are the defaults of a known type.

    Layer overhead and efficiencies are such that a step at, and a prompt of, ``_TYPICAL_TOKENS``
    take as long by the roofline of the cost model as by the terms of this module, which it lacks:
    unpacking is a part of reading, and what a chunk costs beside its products is one of computing.
    """
    unknown = _unstated(device)
    if not unknown:
        return device
    setting = Setting(device=device, model=model, engine=engine, is_limited=False)
    overhead, decode, prefill = (getattr(device, name) for name in SPEEDS)
    if "layer_overhead_s" in unknown:
        overhead = coefficient("decode.layer", setting)
    overheads = model.num_layers * overhead
    if "decode_efficiency" in unknown:
        step = decode_speed(setting, _TYPICAL_TOKENS).seconds
        num_bytes = _read_bytes(model) + _cache_bytes(model, _TYPICAL_TOKENS)
        left = max(step - overheads, _LEAST_SHARE * step)
        decode = num_bytes / device.memory_bandwidth_bytes_per_s / left
    if "prefill_efficiency" in unknown:
        head = model.head_bytes / (device.memory_bandwidth_bytes_per_s * decode)
        prompt = prefill_speed(setting, _TYPICAL_TOKENS).seconds
        left = max(prompt - overheads - head, _LEAST_SHARE * prompt)
        flops = sum(model.layer_flops_per_token) + _attention(model, _TYPICAL_TOKENS)
        prefill = _TYPICAL_TOKENS * flops / device.fp16_flop_per_s / left
    return replace(
        device, layer_overhead_s=overhead, decode_efficiency=decode, prefill_efficiency=prefill
    )


def _unstated(device: Device) -> set[str]:
    """Return those of ``SPEEDS`` that are still the defaults of the device's type."""
    if not (device.type and device.unstated):
        return set()
    entry = device_entry(device.type)
    defaults = entry.layer_overhead_us * US, entry.decode_efficiency, entry.prefill_efficiency
    return {
        name
        for name, value in zip(SPEEDS, defaults, strict=True)
        if name in device.unstated and getattr(device, name) == value
    }


def _with_sigmas(device: Device, given: Device, engine: str) -> Device:
    """Return *device* with the spreads of its kind; *given* is what the inventory says of it.

    An efficiency that is not the default was stated by somebody who measured it.
    """
    if device.prefill_sigma and device.decode_sigma:
        return device
    unknown = _unstated(given)
    if not given.type:
        defaults = DEFAULT_PREFILL_EFFICIENCY, DEFAULT_DECODE_EFFICIENCY
        names = "prefill_efficiency", "decode_efficiency"
        unknown = {n for n, v in zip(names, defaults, strict=True) if getattr(given, n) == v}
    kind = silicon(device.type).group
    found: dict[str, Any] = {}
    for phase in Phase:
        group = kind if f"{phase}_efficiency" in unknown else STATED
        own = getattr(device, f"{phase}_sigma")
        found[f"{phase}_sigma"] = own or spread(phase, group, engine)
    return replace(device, **found)


def _at_quantile(device: Device, quantile: float) -> Device:
    """Return *device* slower by so many standard deviations of its speed's logarithm.

    Peaks stay: the achieved share of them changes, and with it the fixed cost of a layer.
    """
    if quantile == MEDIAN:
        return device
    z = NormalDist().inv_cdf(quantile)
    prefill, decode = math.exp(-z * device.prefill_sigma), math.exp(-z * device.decode_sigma)
    return replace(
        device,
        prefill_efficiency=device.prefill_efficiency * prefill,
        decode_efficiency=device.decode_efficiency * decode,
        layer_overhead_s=device.layer_overhead_s / decode,
        host_bandwidth_bytes_per_s=device.host_bandwidth_bytes_per_s * decode,
        bus_bytes_per_s=device.bus_bytes_per_s * prefill,
    )


def _speed(phase: Phase, setting: Setting, terms: Terms) -> Speed:
    parts = {term: amount * coefficient(term, setting) for term, amount in terms.items()}
    group = silicon(setting.device.type).group
    return Speed(
        seconds=sum(parts.values()), parts=parts, sigma=spread(phase, group, setting.engine)
    )


def spread(phase: Phase, group: str, engine: str) -> float:
    """Return sigma of a group and engine; of the group, or of all, where too few were measured."""
    known = spreads()
    keys = ((phase, group, engine), (phase, group, ""), (phase, "", ""))
    return next((known[key] for key in keys if key in known), 0.0)


def _matrix(device: Device) -> float:
    """Peak of matrix products in the format that engines use [FLOP/s]."""
    return silicon(device.type).matrix_tflops * TFLOP_PER_S or device.fp16_flop_per_s


def _general(device: Device) -> float:
    """Peak of everything that is no matrix product [FLOP/s]."""
    return silicon(device.type).general_tflops * TFLOP_PER_S or device.fp16_flop_per_s


def _spilled(setting: Setting, context: float) -> float:
    """Share of the weights that does not fit into a card's memory."""
    device, model = setting.device, setting.model
    if device.memory_kind != "discrete" or not setting.is_limited:
        return 0.0
    need = _WORKING_SHARE * _held_bytes(model) + _cache_bytes(model, context)
    have = _HELD * device.memory_bytes
    return min(1.0, max(0.0, need - have) / need)


@cache
def _read_bytes(model: Model) -> float:
    """Weights that one token reads, head included [bytes]."""
    routed = zip(model.layer_routed_bytes, model.layer_routed_fraction, strict=True)
    dense = sum(model.layer_dense_bytes)
    return dense + sum(num_bytes * share for num_bytes, share in routed) + model.head_bytes


@cache
def _held_bytes(model: Model) -> float:
    """Weights in memory: all experts, head, and the input table where it is one of its own."""
    table = 0.0 if model.is_tied else model.embedding_bytes
    return sum(model.layer_dense_bytes) + sum(model.layer_routed_bytes) + model.head_bytes + table


@cache
def _num_values(model: Model) -> float:
    """Weights that one token multiplies: half of its FLOPs."""
    return (sum(model.layer_flops_per_token) + model.head_flops_per_token) / 2.0


def _attention(model: Model, tokens: float) -> float:
    """FLOPs of attention a token, mean over a prompt of *tokens* tokens."""
    pairs = zip(model.layer_attention_flops, model.layer_window_tokens, strict=True)
    return sum(flops * min(tokens / 2.0, window) for flops, window in pairs)


def _cache_bytes(model: Model, context: float) -> float:
    """KV cache of a request of *context* tokens [bytes]."""
    pairs = zip(model.layer_kv_bytes_per_token, model.layer_window_tokens, strict=True)
    return sum(num_bytes * min(context, window) for num_bytes, window in pairs)
