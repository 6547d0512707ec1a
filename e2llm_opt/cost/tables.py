"""The problem as flat arrays: everything that the formulas need, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from e2llm_opt.inventory.device import MemoryKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_T = TypeVar("_T", bound="NDArray[Any]")


class Tables(NamedTuple):
    """Row d of every array is ``problem.devices[d]``; column l is layer l of ``problem.model``.

    All arrays are C-contiguous, read-only and in SI units.
    """

    usable: Floats
    """Memory that may be planned on [D] [bytes]."""
    compute: Floats
    """Achieved FLOP/s of prefill [D]."""
    bandwidth: Floats
    """Achieved memory bandwidth of decode [D] [bytes/s]."""
    layer_overhead: Floats
    """Fixed cost a layer and step [D] [s]."""
    host_memory: Floats
    """Host RAM for spilled weights; 0 where nothing can spill [D] [bytes]."""
    host_bandwidth: Floats
    """Achieved bandwidth of host RAM, infinite where nothing can spill [D] [bytes/s]."""
    bus: Floats
    """From host RAM to the device, infinite where nothing can spill [D] [bytes/s]."""
    is_discrete: Bools
    """Memory apart from host RAM [D]."""
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


def build_tables(problem: Problem) -> Tables:
    """Return the tables of *problem*."""
    devices, model = problem.devices, problem.model
    spill_routed = np.minimum(model.layer_spillable_bytes, model.layer_routed_bytes)
    can_spill = [device.can_spill for device in devices]
    return Tables(
        usable=_array([device.usable_bytes for device in devices]),
        compute=_array([d.prefill_efficiency * d.fp16_flop_per_s for d in devices]),
        bandwidth=_array([d.decode_efficiency * d.memory_bandwidth_bytes_per_s for d in devices]),
        layer_overhead=_array([device.layer_overhead_s for device in devices]),
        host_memory=_array([device.host_memory_bytes * device.can_spill for device in devices]),
        host_bandwidth=_frozen(
            np.where(can_spill, [device.host_bandwidth_bytes_per_s for device in devices], np.inf)
        ),
        bus=_frozen(np.where(can_spill, [device.bus_bytes_per_s for device in devices], np.inf)),
        is_discrete=_frozen(np.array([d.memory_kind == MemoryKind.DISCRETE for d in devices])),
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


def _array(values: list[float] | tuple[float, ...]) -> Floats:
    return _frozen(np.array(values, dtype=np.float64))


def _frozen(array: _T) -> _T:
    array.flags.writeable = False
    return array
