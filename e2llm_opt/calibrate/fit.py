"""The most probable efficiencies and layer overhead of one device, given its measurements."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from e2llm_opt.cost.one_device import OneDevice
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.model.build import build_model
from e2llm_opt.problem import Problem
from e2llm_opt.speed import Phase, believed
from e2llm_opt.units import US
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.loading.measurements import Measurement
    from e2llm_opt.model.facts import ModelFacts
    from e2llm_opt.runtime import Runtime

    Floats = NDArray[np.float64]

PRIOR_SD = (0.4, 0.25, 0.7)
"""How far prefill efficiency, decode efficiency and layer overhead of a device usually are from
those of its kind: standard deviations of the logarithm."""
NOISE_SD = 0.05
"""Scatter of a measured speed, standard deviation of the logarithm."""
MOST_EFFICIENCY = 2.0
LEAST_EFFICIENCY = 1e-4
"""Bounds of an efficiency; some cards compute faster than the peak that their maker states."""
_STILL = 1e-6
"""A logarithm that moved less than this did not: no measurement depends on it."""
_HARDLY = 0.01
"""The same for an efficiency whose own phase was not measured."""
_FIGURES = 4
"""Significant figures of a fitted value, and of the file."""


def expected(device: Device, own: Sequence[Measurement], engine: Runtime) -> Device:
    """Return *device* as fast as it is believed to be with the models of its *own* measurements.

    Formats and models differ in what they reach; the mean of the logarithms is where a fit of one
    number for all of them starts.
    """
    kinds = dict.fromkeys((m.facts, m.weights, m.kv_cache) for m in own)
    models = [
        build_model(facts, weights=weights, kv_cache=cache, kv_layout=engine.kv_layout)
        for facts, weights, cache in kinds
    ]
    found = [believed(device, model, engine.name) for model in models]

    def mean(name: str) -> float:
        values = [getattr(one, name) for one in found]
        return statistics.geometric_mean(values) if min(values) > 0 else values[0]

    return replace(
        device,
        prefill_efficiency=mean("prefill_efficiency"),
        decode_efficiency=mean("decode_efficiency"),
        layer_overhead_s=mean("layer_overhead_s"),
    )


def fitted_device(
    device: Device, own: Sequence[Measurement], engine: Runtime
) -> tuple[Device, list[tuple[float, float]]]:
    """Return *device* as its *own* measurements fit it, and their speeds before and after.

    The speeds are those the cost model predicts with the old and the new device [tokens/s].
    """
    cases = _cases(device, own, engine)
    after = _moved(device, _least_squares(cases, device), {m.phase for m in own})
    logs = _logs(device, after)
    speeds = {
        run: (case.predicted((0.0, 0.0, 0.0)), case.predicted(logs))
        for run, case in {case.run: case for case in cases}.items()
    }
    return after, [speeds[case.run] for case in cases]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A measurement with the tables that predict it."""

    measurement: Measurement
    device: OneDevice
    chunk: int

    @property
    def run(self) -> tuple[object, ...]:
        """What was run: equal runs have equal predictions."""
        m = self.measurement
        return id(self.device), m.phase, m.tokens, m.depth, m.batch, self.chunk

    def predicted(self, logs: Sequence[float] | Floats) -> float:
        """Return the speed with parameters exp(*logs*) times the present ones [tokens/s]."""
        prefill, decode, overhead = (math.exp(value) for value in logs)
        device = self.device.scaled(prefill=prefill, decode=decode, overhead=overhead)
        m = self.measurement
        if m.phase is Phase.PREFILL:
            return device.prefill_tokens_per_s(m.tokens, chunk=self.chunk, depth=m.depth)
        return device.decode_tokens_per_s(m.batch, m.depth + m.tokens / 2)


def _cases(device: Device, own: Sequence[Measurement], engine: Runtime) -> list[_Case]:
    built: dict[tuple[ModelFacts, str, str], OneDevice] = {}
    lone = Inventory(devices=(replace(device, host=device.name),))
    lengths = Lengths(mean=1.0)  # a problem needs a workload, the tables of a device do not
    workload = Workload(prompt=lengths, output=lengths)
    for m in own:
        key = m.facts, m.weights, m.kv_cache
        if key not in built:
            built[key] = OneDevice.of(
                Problem(
                    inventory=lone,
                    facts=m.facts,
                    runtime=engine,
                    workload=workload,
                    weights=m.weights,
                    kv_cache=m.kv_cache,
                )
            )
    return [
        _Case(
            measurement=m,
            device=built[m.facts, m.weights, m.kv_cache],
            chunk=m.chunk_tokens or engine.prefill_chunk_tokens,
        )
        for m in own
    ]


def _least_squares(cases: Sequence[_Case], device: Device) -> tuple[float, float, float]:
    """Return the logarithms of new / present prefill and decode efficiency and layer overhead.

    From two starts, because max(reading, computing) has a kink at which a descent may stop.
    """
    import numpy as np  # noqa: PLC0415 - heavy, and only needed once there is something to fit
    from scipy.optimize import least_squares  # noqa: PLC0415 - the same

    measured = np.log([case.measurement.tokens_per_s for case in cases])
    different = {case.run: case for case in cases}
    rows = {run: row for row, run in enumerate(different)}
    row_of = np.array([rows[case.run] for case in cases])

    def misses(logs: Floats) -> Floats:
        predicted = np.log([case.predicted(logs) for case in different.values()])
        missed: Floats = predicted[row_of] - measured
        return missed

    def residuals(logs: Floats) -> Floats:
        return np.concatenate([misses(logs) / NOISE_SD, logs / np.array(PRIOR_SD)])

    limits = _bounds(device.prefill_efficiency), _bounds(device.decode_efficiency)
    low, high = np.array([*limits, (-np.inf, np.inf)]).T
    solve = partial(
        least_squares, residuals, bounds=(low, high), x_scale=PRIOR_SD, xtol=1e-10, ftol=1e-10
    )
    starts = np.zeros(3), np.clip(_guess(cases, -misses(np.zeros(3))), low, high)
    best = min((solve(start) for start in starts), key=lambda found: float(found.cost))
    prefill, decode, overhead = (float(value) for value in best.x)
    return prefill, decode, overhead


def _guess(cases: Sequence[_Case], gains: Floats) -> Floats:
    """Return the logarithms if efficiencies alone explained the *gains* of measured speeds [3]."""
    import numpy as np  # noqa: PLC0415 - see above

    guess = np.zeros(3)
    for i, phase in enumerate((Phase.PREFILL, Phase.DECODE)):
        is_of = np.array([case.measurement.phase is phase for case in cases])
        guess[i] = gains[is_of].mean() if is_of.any() else 0.0
    return guess


def _bounds(efficiency: float) -> tuple[float, float]:
    """Return the least and the largest logarithm that an efficiency may move by; 0 is inside."""
    least, most = math.log(LEAST_EFFICIENCY / efficiency), math.log(MOST_EFFICIENCY / efficiency)
    return min(least, -_STILL), max(most, _STILL)


def _moved(device: Device, logs: tuple[float, float, float], phases: set[Phase]) -> Device:
    """Return *device* with its parameters moved, rounded to what a file shows.

    Nothing moves that no measurement depends on, nor an efficiency that those of the other phase
    hardly say anything of.
    """
    changes: dict[str, Any] = {}
    for phase, log in zip((Phase.PREFILL, Phase.DECODE), logs, strict=False):
        name = f"{phase}_efficiency"
        if abs(log) > (_STILL if phase in phases else _HARDLY):
            changes[name] = _round(getattr(device, name) * math.exp(log))
    if abs(logs[2]) > _STILL and device.layer_overhead_s > 0:
        changes["layer_overhead_s"] = _round(device.layer_overhead_s * math.exp(logs[2]) / US) * US
    return replace(device, **changes)


def _logs(before: Device, after: Device) -> tuple[float, float, float]:
    overhead = after.layer_overhead_s / before.layer_overhead_s if before.layer_overhead_s else 1.0
    return (
        math.log(after.prefill_efficiency / before.prefill_efficiency),
        math.log(after.decode_efficiency / before.decode_efficiency),
        math.log(overhead),
    )


def _round(value: float) -> float:
    return float(f"{value:.{_FIGURES}g}")
