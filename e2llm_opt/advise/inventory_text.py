"""An inventory file of the devices that a sizing found, for ``e2llm-opt plan``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from e2llm_opt.loading.inventory_items import written
from e2llm_opt.units import MBIT_PER_S, MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from e2llm_opt.advise.sizing import Sizing

_SERVED = ("model", "weights", "kv_cache", "runtime", "pessimistic")


def inventory_text(sizing: Sizing, served: Mapping[str, Any]) -> str:
    """Return the YAML text of the devices found, linked as they were planned.

    Parameters
    ----------
    sizing
        The answer.
    served
        The file's content that the problem was read from: model, formats, engine and workload are
        taken from it.
    """
    return "\n".join(_lines(sizing, served)) + "\n"


def _lines(sizing: Sizing, served: Mapping[str, Any]) -> Iterator[str]:
    problem, target = sizing.problem, sizing.target
    yield f"# The cheapest catalogue devices found for {target.rate_per_s:g} requests/s."
    yield "# Prices and power of the catalogue are assumed; so are the links."
    yield ""
    yield "devices:"
    for device in problem.inventory.devices:
        yield f"  - {{name: {written(device.name)}, type: {written(device.type)}}}"
    if problem.inventory.links:
        link = problem.inventory.links[0]
        speed = written(link.forward_bytes_per_s / MBIT_PER_S)
        yield ""
        yield "links:"
        yield (
            f"  - {{between: all, via: {link.ends[1]}, bandwidth_mbit_s: {speed}, "
            f"latency_ms: {written(link.latency_s / MS)}}}"
        )
    yield ""
    yield from (f"{key}: {_value(served[key])}" for key in _SERVED if key in served)
    yield f"workload: {_value(_workload(sizing, served))}"
    yield f"objective: {problem.objective}"
    constraints = {"roles": problem.constraints.roles, "replicas": problem.constraints.replicas}
    yield f"constraints: {_value({key: v for key, v in constraints.items() if v is not None})}"


def _workload(sizing: Sizing, served: Mapping[str, Any]) -> dict[str, Any]:
    workload = sizing.problem.workload
    given = dict(served.get("workload") or {})
    levels = {"ttft_s": workload.slo_ttft_s, "tpot_s": workload.slo_tpot_s}
    slo = {key: value for key, value in levels.items() if value is not None}
    given["rate_per_s"] = workload.rate_per_s
    return {**given, "slo": slo} if slo else given


def _value(value: Any) -> str:  # noqa: ANN401 - any value of a file
    """Return *value* on one line; JSON is YAML, too."""
    return written(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
