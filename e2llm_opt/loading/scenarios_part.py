"""``workload.scenarios``, and ranges, to scenarios and the load that stands for them all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from e2llm_opt.loading.schema import LengthsEntry, LengthsRange, RateRange
from e2llm_opt.workload.scenarios import Scenario, corners
from e2llm_opt.workload.workload import Lengths

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.loading.document import Faults
    from e2llm_opt.loading.schema import ScenarioEntry, WorkloadEntry

_LOAD = {"rate_per_s": "rate_per_s", "prompt_tokens": "prompt", "output_tokens": "output"}
"""Key of a load in the file: field of a Workload."""


def read_scenarios(
    entry: WorkloadEntry, known: Mapping[str, Any], faults: Faults
) -> dict[str, Any]:
    """Return rate, lengths and scenarios of a workload, as fields of a Workload.

    Parameters
    ----------
    entry
        As the file gives it.
    known
        What a trace says of the load; empty without one.
    faults
        Takes what is missing or said twice.
    """
    load = {**known, **_given(entry)}
    ranges = [key for key in _LOAD if _is_range(getattr(entry, key))]
    if not entry.scenarios:
        return {**load, "scenarios": _of_ranges(entry, load)} if ranges else load
    for key in ranges:
        wrong = "a range, beside scenarios"
        faults.add(("workload", key), wrong, "give one number, or leave the scenarios out")
    found = []
    names: set[str] = set()
    for i, one in enumerate(entry.scenarios):
        path = ("workload", "scenarios", i)
        own = {**load, **_given(one)}
        missing = [key for key, name in _LOAD.items() if name not in own and name != "rate_per_s"]
        for key in missing:
            faults.add((*path, key), "missing", "give it here, or once in the workload")
        if one.name in names:
            faults.add((*path, "name"), f"there is a scenario '{one.name}' already", "rename one")
        names.add(one.name)
        if not missing:
            found.append(Scenario(name=one.name, weight=one.weight, **{"rate_per_s": 0.0, **own}))
    return {**_together(found), **load, "scenarios": tuple(found)} if found else load


def _given(entry: WorkloadEntry | ScenarioEntry) -> dict[str, Any]:
    values = {key: getattr(entry, key) for key in _LOAD}
    return {
        _LOAD[key]: _rate(value) if key == "rate_per_s" else _lengths(value)
        for key, value in values.items()
        if value is not None
    }


def _is_range(value: object) -> bool:
    return isinstance(value, RateRange | LengthsRange)


def _rate(rate: float | RateRange) -> float:
    """Return a rate; of a range the middle."""
    return (rate.low + rate.high) / 2 if isinstance(rate, RateRange) else rate


def _lengths(value: float | LengthsEntry | LengthsRange) -> Lengths:
    """Return lengths; of a range what stands in its middle."""
    if isinstance(value, LengthsEntry):
        return value.lengths()
    if isinstance(value, LengthsRange):
        return Lengths(mean=(value.low + value.high) / 2, cv=value.cv)
    return Lengths(mean=value)


def _of_ranges(entry: WorkloadEntry, load: Mapping[str, Any]) -> tuple[Scenario, ...]:
    """Return the middle of all ranges and every combination of their ends, alike in weight."""
    keys = [key for key in _LOAD if _is_range(getattr(entry, key))]
    ranges = [(getattr(entry, key).low, getattr(entry, key).high) for key in keys]
    found = []
    for values in corners(ranges):
        own = {"rate_per_s": 0.0, **load}
        words: list[str] = []
        for key, value in zip(keys, values, strict=True):
            name, words = _LOAD[key], [*words, f"{key} {value:.6g}"]
            is_rate = name == "rate_per_s"
            own[name] = value if is_rate else Lengths(mean=value, cv=load[name].cv)
        found.append(Scenario(name=", ".join(words), **own))
    return tuple(found)


def _together(scenarios: Sequence[Scenario]) -> dict[str, Any]:
    """Return the mean rate, and the lengths of requests of all scenarios by how often they come."""
    total = sum(one.weight for one in scenarios)
    rate = sum(one.weight * one.rate_per_s for one in scenarios) / total
    arrives = any(one.rate_per_s > 0 for one in scenarios)
    weights = [one.weight * (one.rate_per_s if arrives else 1.0) for one in scenarios]
    return {
        "rate_per_s": rate,
        "prompt": _mixture([one.prompt for one in scenarios], weights),
        "output": _mixture([one.output for one in scenarios], weights),
    }


def _mixture(lengths: Sequence[Lengths], weights: Sequence[float]) -> Lengths:
    """Return the mean and cv of a mixture of lengths."""
    total = sum(weights)
    mean = sum(w * one.mean for w, one in zip(weights, lengths, strict=True)) / total
    square = sum(w * one.mean**2 * (1 + one.cv**2) for w, one in zip(weights, lengths, strict=True))
    return Lengths(mean=mean, cv=math.sqrt(max(square / total / mean**2 - 1.0, 0.0)))
