"""Devices, models and measurements that follow from known parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.calibrate.calibrate import calibrate
from e2llm_opt.inventory.device import Device, device_of_type
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.loading.measurements import Measurement
from e2llm_opt.model.build import build_model
from e2llm_opt.model.named import model_facts
from e2llm_opt.speed import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

FACTS = {name: model_facts(name) for name in ("llama-3.1-8b", "llama-3.2-1b", "qwen3-30b-a3b")}
TOWER = device_of_type(
    "rtx-3060-12gb",
    name="tower",
    prefill_efficiency=0.46,
    decode_efficiency=0.71,
    layer_overhead_s=16e-6,
)
"""Its owner stated speeds: what is fitted starts from these, and from nothing else."""
BOARD = device_of_type("raspberry-pi-5-8gb", name="board")
LAB = Inventory(devices=(TOWER, BOARD))
CHUNK = 512


def run(
    phase: Phase, tokens: int, model: str = "llama-3.1-8b", *, speed: float = 1.0, depth: int = 0
) -> Measurement:
    return Measurement(
        device="tower",
        facts=FACTS[model],
        weights="q4_k_m",
        phase=phase,
        tokens_per_s=speed,
        tokens=tokens,
        depth=depth,
        where=f"{phase}-{tokens}",
    )


DESIGN = tuple(
    run(phase, tokens, model, depth=depth)
    for model in ("llama-3.1-8b", "llama-3.2-1b")
    for phase, tokens in ((Phase.PREFILL, 512), (Phase.PREFILL, 64), (Phase.DECODE, 128))
    for depth in (0, 2048)
)
"""Two models, lengths and depths: what tells efficiencies from overhead."""


def speed(device: Device, m: Measurement) -> float:
    """Return the speed of *m* on *device* by the formulas of the cost model, in plain Python."""
    model = build_model(m.facts, weights=m.weights)
    compute = device.prefill_efficiency * device.fp16_flop_per_s
    bandwidth = device.decode_efficiency * device.memory_bandwidth_bytes_per_s
    time_s = max(model.head_bytes / bandwidth, model.head_flops_per_token / compute)
    for i in range(model.num_layers):
        read, work = _of_layer(model, i, m)
        time_s += max(work / compute, read / bandwidth) + device.layer_overhead_s
    return (m.tokens if m.phase is Phase.PREFILL else 1) / time_s


def _of_layer(model: object, i: int, m: Measurement) -> tuple[float, float]:
    """Return bytes and FLOPs of layer *i* in one run."""

    def of(name: str) -> float:
        return float(getattr(model, name)[i])

    def weights(tokens: int) -> float:
        touched = 1 - (1 - of("layer_routed_fraction")) ** tokens
        return of("layer_dense_bytes") + of("layer_routed_bytes") * touched

    if m.phase is Phase.PREFILL:
        full, rest = divmod(m.tokens, CHUNK)
        context = m.depth + m.tokens / 2
        read = full * weights(CHUNK) + (weights(rest) if rest else 0.0)
        work = of("layer_flops_per_token") + of("layer_attention_flops") * context
        return read, m.tokens * work
    context = m.depth + m.tokens / 2
    read = weights(1) + of("layer_kv_bytes_per_token") * context
    return read, of("layer_flops_per_token") + of("layer_attention_flops") * context


def measured(truth: Device, runs: Iterable[Measurement]) -> list[Measurement]:
    """Return *runs* as they would be measured on *truth*, without noise."""
    return [replace(m, tokens_per_s=speed(truth, m)) for m in runs]


def fitted(runs: Iterable[Measurement]) -> Device:
    return calibrate(LAB, runs).fits[0].after
