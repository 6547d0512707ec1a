"""From measurements to a calibration: refuse contradictions, fit each device, doubt the odd."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from e2llm_opt.calibrate.calibration import Calibration, DeviceFit, Point, described
from e2llm_opt.calibrate.fit import expected, fitted_device
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.validate import nearest
from e2llm_opt.problem import Problem
from e2llm_opt.provenance import Provenance
from e2llm_opt.runtime import runtime
from e2llm_opt.speed import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.loading.measurements import Measurement
    from e2llm_opt.runtime import Runtime

CONTRADICTION = 1.5
"""Equal runs whose speeds differ by more than this factor contradict each other."""
MOST_TOKENS_PER_S = {Phase.PREFILL: 1e6, Phase.DECODE: 1e5}
"""A faster single device is hardly one: more likely another unit [tokens/s]."""
LEAST_SPEED, MOST_SPEED = 1e-6, 1e12
"""What is accepted at all, doubts aside [tokens/s]."""
MOST_TOKENS = 100_000_000
"""Longest prompt, answer or context [tokens]."""
MOST_SURPRISE = 20.0
"""So many times faster or slower than predicted is more likely another unit or device."""
_POOR_FIT = 0.25


def calibrate(
    machines: Problem | Inventory,
    measurements: Iterable[Measurement],
    *,
    engine: Runtime | None = None,
) -> Calibration:
    """Fit efficiencies and layer overheads to measured speeds, device by device.

    Parameters
    ----------
    machines
        Their devices as they are: the fit starts from the speeds that they are believed to have
        (:func:`e2llm_opt.speed.believed`), and stays near where measurements are few.
    measurements
        Speeds of single devices that held a whole model.
    engine
        What the measurements ran on; that of a problem, else ``generic``.

    Raises
    ------
    InputError
        Without measurements, where a device is not in the inventory, a speed or a length is
        impossible, or two measurements of the same run contradict each other.

    Notes
    -----
    Least squares of log(predicted / measured) / 0.05 and of the logarithms' distances from the
    present values in units of ``PRIOR_SD``: the most probable parameters under Gaussian noise
    and a Gaussian prior. A parameter that no measurement depends on keeps its value.
    """
    given = tuple(measurements)
    inventory = machines.inventory if isinstance(machines, Problem) else machines
    if engine is None:
        engine = machines.runtime if isinstance(machines, Problem) else runtime("generic")
    _refuse_faults(given, inventory)
    fits: list[DeviceFit] = []
    points: dict[int, Point] = {}
    notes: list[str] = []
    for name in dict.fromkeys(m.device for m in given):
        own = [i for i, m in enumerate(given) if m.device == name]
        fit, found = _fit_of(name, [given[i] for i in own], inventory, engine)
        fits.append(fit)
        points |= dict(zip(own, found, strict=True))
        notes += _notes(fit, found)
    fitted = {device: fit.changes() for fit in fits for device in fit.devices}
    return Calibration(
        inventory=replace(
            inventory,
            devices=tuple(_changed(d, fitted.get(d.name, {})) for d in inventory.devices),
        ),
        fits=tuple(fits),
        points=tuple(points[i] for i in range(len(given))),
        doubts=tuple(_doubts(points[i] for i in range(len(given)))),
        notes=tuple(notes),
    )


def devices_called(inventory: Inventory, name: str) -> tuple[Device, ...]:
    """Return the device *name*, or the alike ``name-1 … name-n`` of an item with a count."""
    exact = [device for device in inventory.devices if device.name == name]
    counted = re.compile(re.escape(name) + r"-\d+")
    return tuple(exact or (d for d in inventory.devices if counted.fullmatch(d.name)))


def _changed(device: Device, changes: Mapping[str, Any]) -> Device:
    """Return *device* with *changes*, which are no longer the defaults of its type."""
    unstated = tuple(name for name in device.unstated if name not in changes)
    return replace(device, **changes, unstated=unstated)


def _refuse_faults(given: Sequence[Measurement], inventory: Inventory) -> None:
    faults = [] if given else [Fault(wrong="there are no measurements")]
    names = [device.name for device in inventory.devices]
    for m in given:
        if not devices_called(inventory, m.device):
            wrong = f"no device of the inventory is called '{m.device}'"
            faults.append(Fault(file=m.where, wrong=wrong, right=nearest(m.device, names)))
        if not LEAST_SPEED <= m.tokens_per_s <= MOST_SPEED:
            wrong = f"{m.tokens_per_s:g} tokens/s is no speed"
            right = f"from {LEAST_SPEED:g} to {MOST_SPEED:g}"
            faults.append(Fault(file=m.where, wrong=wrong, right=right))
        lengths = (m.tokens, m.depth + 1, m.batch, m.chunk_tokens + 1)
        if not 1 <= min(lengths) <= max(lengths) <= MOST_TOKENS:
            wrong = f"{m.tokens} tokens at depth {m.depth}, batch {m.batch} are no run"
            faults.append(Fault(file=m.where, wrong=wrong))
    if not faults:
        faults = list(_contradictions(given))
    if faults:
        raise InputError(faults)


def _contradictions(given: Sequence[Measurement]) -> Iterator[Fault]:
    alike: dict[tuple[object, ...], list[Measurement]] = {}
    for m in given:
        run = m.phase, m.tokens, m.depth, m.batch, m.chunk_tokens
        alike.setdefault((m.device, m.facts, m.weights, m.kv_cache, *run), []).append(m)
    for runs in alike.values():
        slow = min(runs, key=lambda m: m.tokens_per_s)
        fast = max(runs, key=lambda m: m.tokens_per_s)
        if fast.tokens_per_s > CONTRADICTION * slow.tokens_per_s:
            yield Fault(
                file=fast.where,
                wrong=f"{described(fast)} is {fast.tokens_per_s:.4g} tokens/s here and "
                f"{slow.tokens_per_s:.4g} in {slow.where}",
                right="keep the one that holds",
            )


def _doubts(points: Iterable[Point]) -> Iterator[str]:
    for point in points:
        m, predicted = point.measurement, point.before_tokens_per_s
        surprise = max(m.tokens_per_s / predicted, predicted / m.tokens_per_s)
        if m.tokens_per_s > MOST_TOKENS_PER_S[m.phase] or surprise > MOST_SURPRISE:
            yield (
                f"{m.where}: {described(m)}: {m.tokens_per_s:.6g} tokens/s, where {predicted:.3g} "
                "are predicted: is the unit tokens a second, and this the device?"
            )


def _notes(fit: DeviceFit, points: Sequence[Point]) -> Iterator[str]:
    if len(points) == 1:
        yield (
            f"{fit.name}: one measurement only, so its values stay near those of its kind; a "
            "second model or length tells efficiency from overhead"
        )
    for phase, num in ((Phase.PREFILL, fit.num_prefill), (Phase.DECODE, fit.num_decode)):
        if num == 0:
            yield f"{fit.name}: {phase} was not measured, and still follows from specifications"
    worst = max(points, key=lambda point: abs(math.log(1 + point.error_after)))
    if abs(worst.error_after) > _POOR_FIT:
        m = worst.measurement
        yield f"{m.where}: {described(m)} is still {100 * worst.error_after:+.0f} % off"


def _fit_of(
    name: str, own: Sequence[Measurement], inventory: Inventory, engine: Runtime
) -> tuple[DeviceFit, list[Point]]:
    alike = devices_called(inventory, name)
    before = expected(alike[0], own, engine)
    after, speeds = fitted_device(before, own, engine)
    num = {phase: sum(m.phase is phase for m in own) for phase in Phase}
    if all(num.values()):
        after = replace(after, provenance=Provenance.MEASURED)
    points = [
        Point(measurement=m, before_tokens_per_s=old, after_tokens_per_s=new)
        for m, (old, new) in zip(own, speeds, strict=True)
    ]
    fit = DeviceFit(
        name=name,
        devices=tuple(device.name for device in alike),
        before=before,
        after=after,
        num_prefill=num[Phase.PREFILL],
        num_decode=num[Phase.DECODE],
    )
    return fit, points
