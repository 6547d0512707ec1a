"""Which layers of a stage lie in host RAM: those a plan states, or as few as memory needs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.check.verdict import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from e2llm_opt.check.formulas import Seat
    from e2llm_opt.check.given import GivenReplica, GivenStage
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.model.model import Model
    from e2llm_opt.problem import Problem

WHOLE_BYTE = 0.5
"""Sums of bytes are exact to less than this, whatever their order [bytes]."""


def missing_keys(device: Device) -> tuple[str, ...]:
    """Return what the inventory must say of a device before it can spill, and does not."""
    values = {
        "host_memory_gib": device.host_memory_bytes,
        "host_bandwidth_gb_s": device.host_bandwidth_bytes_per_s,
        "bus_gb_s": device.bus_bytes_per_s,
    }
    return tuple(key for key, value in values.items() if value <= 0)


def spill_as_needed(model: Model, seat: Seat, excess_bytes: float) -> Seat:
    """Return the stage with the fewest layers spilled that make it fit, all where none do.

    Parameters
    ----------
    model
        Says what of each layer may lie in host RAM.
    seat
        The stage; what it spills now does not matter.
    excess_bytes
        How far it is over its device's memory with nothing spilled [bytes].

    Notes
    -----
    The largest parts go first, so no smaller number of layers would do; of equal ones the later
    layer goes. A device without host RAM spills nothing.
    """
    sizes = model.layer_spillable_bytes
    chosen: list[int] = []
    if not missing_keys(seat.device):
        order = sorted(seat.layers, key=lambda layer: (sizes[layer], layer), reverse=True)
        for layer in order:
            if excess_bytes - sum(sizes[i] for i in chosen) <= WHOLE_BYTE or sizes[layer] <= 0:
                break
            chosen.append(layer)
    return replace(seat, spilled=tuple(sorted(chosen)))


def possible(model: Model, stage: GivenStage, device: Device) -> tuple[int, ...]:
    """Return what a stage can spill of the layers that it states; the rest stays on the device."""
    if missing_keys(device) or stage.tensor_parallel:
        return ()
    return tuple(
        layer
        for layer in stage.spilled_layers or ()
        if stage.start <= layer < stage.stop and model.layer_spillable_bytes[layer] > 0
    )


def spill_rules(replica: GivenReplica, problem: Problem) -> Iterator[Violation]:
    """Yield stated spilled layers that cannot be."""
    devices = {device.name: device for device in problem.devices}
    sizes = problem.model.layer_spillable_bytes
    for stage in replica.stages:
        spilled = stage.spilled_layers or ()
        own = [layer for layer in spilled if stage.start <= layer < stage.stop]
        claims = (
            ("spilled layers outside the stage", stage.layers, sorted({*spilled} - {*own})),
            (
                "spilled layers without FFN or expert weights that may spill",
                "others",
                [layer for layer in own if layer < len(sizes) and sizes[layer] <= 0],
            ),
        )
        for what, need, layers in claims:
            if layers:
                yield Violation(
                    what=f"{replica.id}: {what}",
                    device=stage.device,
                    need=need,
                    have=some(layers),
                )
        missing = missing_keys(devices[stage.device]) if stage.device in devices else ()
        if spilled and missing:
            yield Violation(
                what=f"{replica.id}: spilled layers on a device without {' and '.join(missing)}",
                device=stage.device,
                need=0,
                have=len(spilled),
            )


def some(layers: Iterable[int]) -> str:
    """Return the first few of a list of layers, for messages."""
    most = 8
    texts = [str(layer) for layer in layers]
    return ", ".join(texts[:most]) + (", …" if len(texts) > most else "")
