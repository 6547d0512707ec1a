"""The problem as flat arrays: everything that the formulas need, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from e2llm_opt.degrees import kv_copies
from e2llm_opt.inventory.device import MemoryKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_T = TypeVar("_T", bound="NDArray[Any]")


class Tables(NamedTuple):
    """Row d of every array is ``problem.devices[d]``; column l is layer l of ``problem.model``.

    Behind the D devices come the units of several devices: R rows in all, each t times its devices
    (:mod:`e2llm_opt.cost.units`). All arrays are C-contiguous, read-only and in SI units.
    """

    usable: Floats
    """Memory that may be planned on [R] [bytes]."""
    compute: Floats
    """Achieved FLOP/s of prefill [R]."""
    bandwidth: Floats
    """Achieved memory bandwidth of decode [R] [bytes/s]."""
    layer_overhead: Floats
    """Fixed cost a layer and step [R] [s]."""
    host_memory: Floats
    """Host RAM for spilled weights; 0 where nothing can spill [R] [bytes]."""
    host_bandwidth: Floats
    """Achieved bandwidth of host RAM, infinite where nothing can spill [R] [bytes/s]."""
    bus: Floats
    """From host RAM to the device, infinite where nothing can spill [R] [bytes/s]."""
    is_discrete: Bools
    """Memory apart from host RAM [R]."""
    num_devices: Floats
    """Devices of the row, t [R]."""
    kv_copies: Floats
    """How many times the row keeps each byte of KV cache [R]."""
    reduce_start: Floats
    """Latency of a layer's all-reduces, each step or chunk; 0 for one device [R] [s]."""
    reduce_token: Floats
    """What they take longer for each token [R] [s]."""
    gather_start: Floats
    """Latency of gathering the logits [R] [s]."""
    gather_token: Floats
    """What that takes longer for each token [R] [s]."""
    dense: Floats
    """Weights of a layer that every token reads [L] [bytes]."""
    routed: Floats
    """Weights of all routed experts of a layer [L] [bytes]."""
    fraction: Floats
    """Share of the routed bytes that one token reads [L]."""
    spill_dense: Floats
    """Part of *dense* that may lie in host RAM [L] [bytes]."""
    spill_routed: Floats
    """Part of *routed* that may lie in host RAM [L] [bytes]."""
    flops: Floats
    """Projections of one token [L] [FLOP]."""
    attention: Floats
    """FLOPs of one token for each token of its context [L]."""
    kv: Floats
    """KV cache of one token [L] [bytes]."""
    window: Floats
    """Sliding window [L] [tokens]."""


def build_tables(problem: Problem, members: Sequence[tuple[int, ...]] = ()) -> Tables:
    """Return the tables of *problem*, a row for each of *members*; by default for each device."""
    model = problem.model
    members = members or [(d,) for d in range(len(problem.devices))]
    devices = [problem.devices[rows[0]] for rows in members]
    num = np.array([float(len(rows)) for rows in members])
    spill_routed = np.minimum(model.layer_spillable_bytes, model.layer_routed_bytes)
    can_spill = [d.can_spill and len(m) == 1 for d, m in zip(devices, members, strict=True)]
    copies = [kv_copies(problem.facts, problem.runtime, len(rows)) for rows in members]
    return Tables(
        usable=_frozen(num * [device.usable_bytes for device in devices]),
        compute=_frozen(num * [d.prefill_efficiency * d.fp16_flop_per_s for d in devices]),
        bandwidth=_frozen(
            num * [d.decode_efficiency * d.memory_bandwidth_bytes_per_s for d in devices]
        ),
        layer_overhead=_array([device.layer_overhead_s for device in devices]),
        host_memory=_frozen(np.where(can_spill, [d.host_memory_bytes for d in devices], 0.0)),
        host_bandwidth=_frozen(
            np.where(can_spill, [device.host_bandwidth_bytes_per_s for device in devices], np.inf)
        ),
        bus=_frozen(np.where(can_spill, [device.bus_bytes_per_s for device in devices], np.inf)),
        is_discrete=_frozen(np.array([d.memory_kind == MemoryKind.DISCRETE for d in devices])),
        num_devices=_frozen(num),
        kv_copies=_array(copies),
        **_collectives(problem, devices, num),
        dense=_array(model.layer_dense_bytes),
        routed=_array(model.layer_routed_bytes),
        spill_dense=_frozen(np.asarray(model.layer_spillable_bytes) - spill_routed),
        spill_routed=_frozen(spill_routed),
        fraction=_array(model.layer_routed_fraction),
        flops=_array(model.layer_flops_per_token),
        attention=_array(model.layer_attention_flops),
        kv=_array(model.layer_kv_bytes_per_token),
        window=_array(model.layer_window_tokens),
    )


def _collectives(problem: Problem, devices: Sequence[Device], num: Floats) -> dict[str, Floats]:
    """Return what t devices of a host spend on talking, by a ring over its bus.

    A layer has two all-reduces of its activations (Megatron-LM, arXiv 1909.08053, section 3). In a
    ring each takes 2 (t - 1) steps and sends 2 (t - 1) / t of the bytes; gathering the logits takes
    half of both (Thakur, Rabenseifner, Gropp 2005).
    """
    engine, model = problem.runtime, problem.model
    hidden, logits = (n * engine.activation_bytes for n in (model.hidden_size, model.vocab_size))
    bus = np.array([device.host_bus_bytes_per_s for device in devices])
    start = np.where(num > 1, engine.collective_start_s, 0.0)
    steps, share = (num - 1.0) * engine.collective_step_s, (num - 1.0) / num
    return {
        "reduce_start": _frozen(2.0 * (start + 2.0 * steps)),
        "reduce_token": _frozen(2.0 * 2.0 * share * hidden / bus),
        "gather_start": _frozen(start + steps),
        "gather_token": _frozen(share * logits / bus),
    }


def _array(values: list[float] | tuple[float, ...]) -> Floats:
    return _frozen(np.array(values, dtype=np.float64))


def _frozen(array: _T) -> _T:
    array.flags.writeable = False
    return array
