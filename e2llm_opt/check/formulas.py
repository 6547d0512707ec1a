"""The cost model once more, in plain Python, layer by layer, from DESIGN section 5 alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.inventory.device import MemoryKind

if TYPE_CHECKING:
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.model.model import Model
    from e2llm_opt.problem import Problem
    from e2llm_opt.runtime import Runtime

LOGIT_BYTES = 4
"""Bytes of one logit, and of one token id on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One stage: a device, its layers ``[start, stop)``, and what lies where.

    Where several devices share its layers, ``device`` is the first of them.
    """

    device: Device
    others: tuple[str, ...] = ()
    """Names of the devices that serve it beside ``device``, all like it."""
    start: int
    stop: int
    has_embedding: bool
    has_head: bool
    spilled: tuple[int, ...] = ()
    """Layers whose FFN or expert part lies in host RAM."""
    spills_as_needed: bool = False
    """Whether ``spilled`` follows from the slots; otherwise the plan states it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all its devices."""
        return (self.device.name, *self.others)

    @property
    def num_devices(self) -> int:
        """Devices that share its layers."""
        return 1 + len(self.others)

    @property
    def layers(self) -> range:
        """Indices of its layers."""
        return range(self.start, self.stop)


def head_stage(runtime: Runtime, num_stages: int) -> int:
    """Return the index of the stage that holds the output head."""
    return 0 if runtime.head == "first" else num_stages - 1


def embedding_stage(runtime: Runtime, num_stages: int) -> int:
    """Return the index of the stage that the embedding lies with."""
    return 0 if runtime.embedding == "first" else head_stage(runtime, num_stages)


def active_bytes(model: Model, layer: int, tokens: float) -> float:
    """Return A_i(n): weights read to push *tokens* tokens through a layer [bytes]."""
    untouched = math.pow(1.0 - model.layer_routed_fraction[layer], tokens)
    return model.layer_dense_bytes[layer] + model.layer_routed_bytes[layer] * (1.0 - untouched)


def spilled_bytes(model: Model, layer: int, tokens: float) -> float:
    """Return A^s_i(n): what of :func:`active_bytes` a spilled layer reads from host RAM [bytes]."""
    spillable = model.layer_spillable_bytes[layer]
    routed = min(spillable, model.layer_routed_bytes[layer])
    untouched = math.pow(1.0 - model.layer_routed_fraction[layer], tokens)
    return (spillable - routed) + routed * (1.0 - untouched)


def kv_bytes(model: Model, layer: int, context: float) -> float:
    """Return κ_i(c): KV cache of one request of *context* tokens in a layer [bytes]."""
    held = min(context, model.layer_window_tokens[layer])
    return model.layer_kv_bytes_per_token[layer] * held


def token_flops(model: Model, layer: int, context: float) -> float:
    """Return F_i(c): FLOPs of one token that sees *context* tokens."""
    seen = min(context, model.layer_window_tokens[layer])
    return model.layer_flops_per_token[layer] + model.layer_attention_flops[layer] * seen


def chunks(prompt_tokens: float, chunk_tokens: float) -> tuple[int, float]:
    """Return how many full chunks come first, and the size of the last one [tokens]."""
    num_full = math.ceil(prompt_tokens / chunk_tokens) - 1
    return num_full, prompt_tokens - num_full * chunk_tokens


def layer_prefill_s(problem: Problem, seat: Seat, layer: int) -> float:
    """Return the time of one layer for a whole mean prompt [s].

    The weights of a spilled layer come over the bus, once a chunk, and are then read as all are.
    """
    model, prompt = problem.model, problem.workload.prompt.mean
    chunk = problem.runtime.prefill_chunk_tokens
    num_full, last = chunks(prompt, chunk)
    computing = prompt * token_flops(model, layer, prompt / 2) / _flop_per_s(seat)
    read = num_full * active_bytes(model, layer, chunk) + active_bytes(model, layer, last)
    reading = read / _bytes_per_s(seat)
    moving = num_full * all_reduce_s(problem, seat, chunk) + all_reduce_s(problem, seat, last)
    if layer in seat.spilled:
        moved = num_full * spilled_bytes(model, layer, chunk) + spilled_bytes(model, layer, last)
        moving += moved / seat.device.bus_bytes_per_s
    return max(computing, reading) + moving + seat.device.layer_overhead_s


def layer_decode_s(problem: Problem, seat: Seat, layer: int, batch: int) -> float:
    """Return the time of one layer for one decode step of *batch* requests [s].

    The spilled part of a layer is read at the bandwidth of host RAM, after the rest.
    """
    model, workload = problem.model, problem.workload
    context = workload.prompt.mean + workload.output.mean / 2
    cache = batch * kv_bytes(model, layer, context) * kv_copies(problem, seat.num_devices)
    num_bytes = active_bytes(model, layer, batch) + cache
    computing = batch * token_flops(model, layer, context) / _flop_per_s(seat)
    is_spilled = layer in seat.spilled
    hosted = spilled_bytes(model, layer, batch) if is_spilled else 0.0
    from_host = hosted / seat.device.host_bandwidth_bytes_per_s if is_spilled else 0.0
    reading = (num_bytes - hosted) / _bytes_per_s(seat)
    talking = all_reduce_s(problem, seat, batch)
    return max(reading, computing) + from_host + talking + seat.device.layer_overhead_s


def head_s(problem: Problem, seat: Seat, tokens: int) -> float:
    """Return the time of the output projection for *tokens* tokens [s].

    Several devices share the vocabulary; then each passes its logits on t - 1 times.
    """
    model, others = problem.model, seat.num_devices - 1
    reading = model.head_bytes / _bytes_per_s(seat)
    time = max(reading, tokens * model.head_flops_per_token / _flop_per_s(seat))
    if others:
        part = tokens * model.vocab_size * problem.runtime.activation_bytes / seat.num_devices
        time += problem.runtime.collective_start_s + others * _step_s(problem, seat, part)
    return time


def all_reduce_s(problem: Problem, seat: Seat, tokens: float) -> float:
    """Return what the devices of a stage talk in one layer, for *tokens* tokens at once [s].

    Twice, after attention and after the feed-forward part, they add up their activations in a
    ring: t - 1 steps until each has the sum of a t-th, and t - 1 more until all have all of it.
    """
    if seat.num_devices == 1:
        return 0.0
    width = problem.model.hidden_size * problem.runtime.activation_bytes
    steps = 2 * (seat.num_devices - 1)
    step_s = _step_s(problem, seat, tokens * width / seat.num_devices)
    return 2 * (problem.runtime.collective_start_s + steps * step_s)


def _step_s(problem: Problem, seat: Seat, num_bytes: float) -> float:
    return problem.runtime.collective_step_s + num_bytes / seat.device.host_bus_bytes_per_s


def kv_heads(problem: Problem) -> int:
    """Return among how many heads the KV cache is shared out; a latent cache is not."""
    facts = problem.facts
    if facts.kv_lora_rank > 0:
        return 1 if problem.runtime.kv_layout == "latent" else facts.num_attention_heads
    return facts.num_key_value_heads or facts.num_attention_heads or 1


def kv_copies(problem: Problem, num_devices: int) -> float:
    """Return how often each KV head is kept: more than once where there are more devices."""
    return max(num_devices / kv_heads(problem), 1.0) if num_devices > 1 else 1.0


def stage_prefill_s(problem: Problem, seat: Seat) -> float:
    """Return the time of a stage for a whole mean prompt, the head once, without its hop [s]."""
    total = sum(layer_prefill_s(problem, seat, layer) for layer in seat.layers)
    return total + (head_s(problem, seat, 1) if seat.has_head else 0.0)


def stage_decode_s(problem: Problem, seat: Seat, batch: int) -> float:
    """Return the time of a stage for one decode step of *batch* requests, without its hop [s]."""
    total = sum(layer_decode_s(problem, seat, layer, batch) for layer in seat.layers)
    return total + (head_s(problem, seat, batch) if seat.has_head else 0.0)


def stage_weight_bytes(problem: Problem, seat: Seat) -> float:
    """Return all weights in a stage's device memory: layers, head, embedding [bytes].

    What is spilled lies in host RAM instead.
    """
    model = problem.model
    total = sum(
        model.layer_dense_bytes[layer] + model.layer_routed_bytes[layer] for layer in seat.layers
    )
    total -= sum(model.layer_spillable_bytes[layer] for layer in seat.spilled)
    if seat.has_head:
        total += model.head_bytes
    holds_both = seat.has_head and model.is_tied
    if seat.has_embedding and not is_in_host_ram(problem, seat) and not holds_both:
        total += model.embedding_bytes
    return total


def stage_host_bytes(problem: Problem, seat: Seat) -> float:
    """Return what a stage keeps in host RAM beside its device: embedding, spilled [bytes]."""
    spilled = sum(problem.model.layer_spillable_bytes[layer] for layer in seat.spilled)
    return spilled + (problem.model.embedding_bytes if is_in_host_ram(problem, seat) else 0.0)


def is_in_host_ram(problem: Problem, seat: Seat) -> bool:
    """Whether the embedding lies with this stage, but in host RAM."""
    is_discrete = seat.device.memory_kind is MemoryKind.DISCRETE
    return seat.has_embedding and is_discrete and problem.runtime.embedding == "host"


def stage_kv_bytes(problem: Problem, seat: Seat, slots: int, context: float) -> float:
    """Return the KV cache of *slots* requests of *context* tokens on a stage [bytes].

    All copies of it where more devices share a stage than there are KV heads.
    """
    whole = slots * sum(kv_bytes(problem.model, layer, context) for layer in seat.layers)
    return whole * kv_copies(problem, seat.num_devices)


def stage_overhead_bytes(problem: Problem, seat: Seat) -> float:
    """Return the engine's buffers on each device of a stage [bytes]."""
    runtime = problem.runtime
    total = runtime.overhead_bytes
    if seat.has_head and runtime.logits_buffer:
        total += runtime.prefill_chunk_tokens * problem.model.vocab_size * LOGIT_BYTES
    return total


def _flop_per_s(seat: Seat) -> float:
    device = seat.device
    return seat.num_devices * device.prefill_efficiency * device.fp16_flop_per_s


def _bytes_per_s(seat: Seat) -> float:
    device = seat.device
    return seat.num_devices * device.decode_efficiency * device.memory_bandwidth_bytes_per_s
