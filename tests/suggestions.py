"""A suggestion of an infeasible answer, applied to its problem as a reader would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import yaml

from e2llm_opt.runtime import runtime

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem

_NEUTRAL: dict[str, Any] = {
    "replicas": None,
    "use_all_devices": False,
    "roles": "auto",
    "layers": {},
    "pin": {},
}


def applied(problem: Problem, change: str) -> Problem:  # noqa: C901, PLR0911 - one case a kind
    """Return *problem* with one change made."""
    if change.startswith("min_tokens_per_s: ") and ", slo." in change:
        first, _, second = change.partition(", ")
        return applied(applied(problem, first), second)
    key, _, text = change.partition(": ")
    value = yaml.safe_load(text)
    workload, constraints = problem.workload, problem.constraints
    match key.split("."):
        case ["context_tokens" | "slots" as name]:
            number: dict[str, Any] = {name: value}
            return replace(problem, workload=replace(workload, **number))
        case ["min_tokens_per_s"]:
            slower = replace(workload, min_tokens_per_s=float(value))
            return replace(problem, workload=slower)
        case ["slo", "tpot_s"]:
            return replace(problem, workload=replace(workload, slo_tpot_s=float(value)))
        case ["weights"]:
            return replace(problem, weights=value)
        case ["runtime"]:
            return replace(problem, runtime=runtime(value))
        case ["slo", "ttft_s"]:
            return replace(problem, workload=replace(workload, slo_ttft_s=None))
        case ["constraints", "exclude"]:
            return replace(problem, constraints=replace(constraints, exclude=tuple(value)))
        case ["constraints", name]:
            free = {name: _NEUTRAL[name]}
            return replace(problem, constraints=replace(constraints, **free))
        case [words] if words.startswith("devices "):
            return _with_host_ram(problem, words.removeprefix("devices ").split(", "), value)
    message = f"unknown suggestion: {change}"
    raise AssertionError(message)


def _with_host_ram(problem: Problem, names: list[str], value: dict[str, float]) -> Problem:
    devices = tuple(
        replace(
            device,
            host_memory_bytes=value["host_memory_gib"] * 2**30,
            host_bandwidth_bytes_per_s=value["host_bandwidth_gb_s"] * 1e9,
            bus_bytes_per_s=value["bus_gb_s"] * 1e9,
        )
        if device.name in names
        else device
        for device in problem.devices
    )
    return replace(problem, inventory=replace(problem.inventory, devices=devices))
