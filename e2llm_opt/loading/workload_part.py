"""``workload``, ``objective`` and ``constraints`` to their domain objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.constraints import Constraints
from e2llm_opt.errors import InputError
from e2llm_opt.loading.fields import shown
from e2llm_opt.loading.scenarios_part import read_scenarios
from e2llm_opt.loading.schema import (
    ConstraintsEntry,
    ObjectiveWord,
    WorkloadEntry,
)
from e2llm_opt.loading.validate import checked, nearest
from e2llm_opt.problem import Objective
from e2llm_opt.speed import MEDIAN
from e2llm_opt.workload.trace import read_trace
from e2llm_opt.workload.workload import Workload, context_for

if TYPE_CHECKING:
    from e2llm_opt.loading.document import Faults, KeyPath
    from e2llm_opt.loading.links_part import Names

_LENGTHS = ("prompt_tokens", "output_tokens")


def read_workload(faults: Faults) -> Workload | None:
    """Return the workload of ``faults.document``; None, and more faults, where it is wrong."""
    value = faults.document.value.get("workload", {})
    entry: WorkloadEntry | None = checked(WorkloadEntry, value, ("workload",), faults)
    _check_lengths(value, faults)
    if entry is None:
        return None
    traced = _traced(entry, faults) if entry.trace is not None else {}
    values = {**traced, **entry.si(), **read_scenarios(entry, _load_of(traced), faults)}
    if faults.at(("workload",)):
        return None
    _check_context(entry, values, faults)
    try:
        return Workload(**values)
    except InputError as error:
        faults.absorb(error, ("workload",))
        return None


def read_pessimistic(faults: Faults) -> float:
    """Return the quantile of the predicted times to plan on; the median where none is given."""
    value = faults.document.value.get("pessimistic", MEDIAN)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and MEDIAN <= value < 1):
        wrong = f"must be a number from {MEDIAN} to below 1, got {shown(value)}"
        faults.add(("pessimistic",), wrong, "0.9: nine in ten such devices are at least as fast")
        return MEDIAN
    return float(value)


def read_objective(faults: Faults) -> Objective | None:
    """Return the objective; waiting time where none is given."""
    value = faults.document.value.get("objective", Objective.WAITING_TIME.value)
    word = checked(ObjectiveWord, value, ("objective",), faults)
    if word is None:
        return None
    return Objective(word)


def read_constraints(names: Names, faults: Faults) -> Constraints | None:
    """Return the constraints, with counted devices' base names expanded."""
    value = faults.document.value.get("constraints", {})
    entry: ConstraintsEntry | None = checked(ConstraintsEntry, value, ("constraints",), faults)
    if entry is None:
        return None
    path: KeyPath = ("constraints",)
    exclude = _devices(entry.exclude, (*path, "exclude"), names, faults)
    if names.hosts and set(names.hosts) <= set(exclude):
        faults.add(("constraints", "exclude"), "every device is excluded")
    pin = {
        replica: _devices(devices, (*path, "pin", replica), names, faults)
        for replica, devices in entry.pin.items()
    }
    layers = {
        device: count
        for name, count in entry.layers.items()
        for device in _devices([name], (*path, "layers"), names, faults)
    }
    return Constraints(
        replicas=entry.replicas,
        use_all_devices=entry.use_all_devices,
        roles=entry.roles,
        exclude=exclude,
        pin=pin,
        layers=layers,
    )


def _devices(given: list[str], path: KeyPath, names: Names, faults: Faults) -> tuple[str, ...]:
    """Return the devices that *given* names stand for, each once; note the unknown ones."""
    found: dict[str, None] = {}
    for i, name in enumerate(given):
        if name not in names.hosts and name not in names.groups:
            guess = nearest(name, [*names.hosts, *names.groups])
            below = (*path, i) if path[-1] != "layers" else (*path, name)
            faults.add(below, f"no device is called '{name}'", guess)
        found |= dict.fromkeys([name] if name in names.hosts else names.groups.get(name, ()))
    return tuple(found)


def _check_lengths(value: Any, faults: Faults) -> None:  # noqa: ANN401 - what the file says
    """Want prompt and output lengths, or a trace in place of both."""
    given = value if isinstance(value, dict) else {}
    has_scenarios = bool(given.get("scenarios"))  # which may give them, one by one
    for key in _LENGTHS if not has_scenarios else ():
        if "trace" not in given and key not in given:
            use = f"mean tokens; here, or with --{key.replace('_', '-')}, or give a trace"
            faults.add(("workload", key), "missing", use)
        elif "trace" in given and key in given:
            faults.add(("workload", key), "a trace gives the lengths already", "keep one of them")


def _load_of(traced: dict[str, Any]) -> dict[str, Any]:
    return {name: traced[name] for name in ("rate_per_s", "prompt", "output") if name in traced}


def _traced(entry: WorkloadEntry, faults: Faults) -> dict[str, Any]:
    """Return prompt, output, and what else a trace says where the file does not."""
    path = ("workload", "trace")
    try:
        trace = read_trace(faults.document.beside(path, entry.trace or ""))
    except InputError as error:
        faults.absorb(error, path)
        return {}
    prompt, output = trace.workload_lengths()
    values: dict[str, Any] = {"prompt": prompt, "output": output}
    if entry.rate_per_s is None:
        values["rate_per_s"] = trace.rate_per_s
    if entry.context_tokens is None:
        values["context_tokens"] = context_for(trace.prompt_p95, trace.output_p95)
    return values


def _check_context(entry: WorkloadEntry, values: dict[str, Any], faults: Faults) -> None:
    """Refuse slots in which not even a mean request has room, and want room in all scenarios."""
    loads = [(one.prompt, one.output) for one in values.get("scenarios", ())]
    mean = max(
        prompt.mean + output.mean
        for prompt, output in [(values["prompt"], values["output"]), *loads]
    )
    if entry.context_tokens is None and "context_tokens" in values:
        known = [context_for(prompt.p95, output.p95) for prompt, output in loads]
        values["context_tokens"] = max(values["context_tokens"], *known, 0)
    if entry.context_tokens is not None and entry.context_tokens < mean:
        faults.add(
            ("workload", "context_tokens"),
            f"a mean request has {mean:g} tokens, got room for {entry.context_tokens}",
            "give the longest request, prompt and answer together",
        )
