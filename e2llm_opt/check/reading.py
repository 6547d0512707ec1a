"""A plan document, written by the planner or by a person, read with all its faults at once."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from e2llm_opt.check.given import GivenPlan, GivenReplica, GivenRoute, GivenScenario, GivenStage
from e2llm_opt.check.values import (
    LARGEST,
    LARGEST_WHOLE,
    as_float,
    interval_of,
    is_layer,
    is_sequence,
    is_whole,
    short,
)
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.plan.plan import (
    PLAN_SCHEMA,
    Bound,
    DecodeFigures,
    Intervals,
    NextHop,
    Plan,
    PlanProblem,
    Predicted,
    PrefillFigures,
    Proof,
    Replica,
    Route,
    ScenarioCase,
    Scenarios,
    Stage,
    StageMemory,
    UnusedDevice,
)
from e2llm_opt.problem import Role

INTERVAL = "_interval_s"
"""Ending of the fields that are intervals of a time."""


def read_plan(plan: Plan | Mapping[str, Any]) -> GivenPlan:
    """Read a plan or a plan document.

    Parameters
    ----------
    plan
        Only ``replicas[].role`` and ``replicas[].stages[].{device, layers}`` are needed.

    Raises
    ------
    InputError
        With every fault, each naming its key path (``replicas[0].stages[1].layers``).
    """
    reader = _Reader()
    given = reader.plan(_document(plan))
    if given is None or reader.faults:
        raise InputError(reader.faults)
    return given


def _document(value: Any) -> Any:  # noqa: ANN401 - a plan, one of its parts, or any JSON value
    """Turn the dataclasses of a plan into mappings; leave everything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _document(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [_document(entry) for entry in value]
    return value


class _Reader:
    """Reads values by path and remembers what is wrong with them."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def plan(self, value: object) -> GivenPlan | None:
        document = self._mapping(value, "", Plan)
        if document is None:
            return None
        schema = document.get("schema", PLAN_SCHEMA)
        if schema != PLAN_SCHEMA:
            self._fault("schema", f"this is no plan but {short(schema)}", f"need {PLAN_SCHEMA}")
        replicas = [
            self._replica(entry, f"replicas[{index}]", f"r{index}")
            for index, entry in enumerate(self._entries(document, "replicas", ""))
        ]
        read = tuple(replica for replica in replicas if replica is not None)
        for name, times in Counter(replica.id for replica in read).items():
            if times > 1:
                self._fault("replicas", f"the id '{name}' is given {times} times", "must be unique")
        problem = self._part(document, "problem", PlanProblem)
        predicted = self._part(document, "predicted", Predicted)
        predictable = [field.name for field in fields(Intervals)]
        between = self._part(predicted, "intervals", Intervals)
        bound = self._part(document, "bound", Bound)
        proof = self._text(bound, "proof", "bound.", default=Proof.NONE)
        if proof not in set(Proof):
            self._fault(
                "bound.proof", f"unknown proof {short(proof)}", f"one of {', '.join(Proof)}"
            )
        return GivenPlan(
            replicas=read,
            routes=self._routes(document),
            unused_devices=self._unused(document),
            inventory_sha256=self._text(problem, "inventory_sha256", "problem.", default=""),
            capacity_per_s=self._number(predicted, "capacity_per_s", "predicted."),
            is_stable=self._flag(predicted, "stable", "predicted."),
            bound=self._numbers(bound, ("capacity_per_s", "gap"), "bound."),
            proof=proof,
            predicted=self._numbers(predicted, predictable, "predicted."),
            intervals={
                name: found
                for name in predictable
                if (found := self._interval(between, name, "predicted.intervals.")) is not None
            },
            scenarios=tuple(self._scenarios(document)),
        )

    def _scenarios(self, document: Mapping[str, Any]) -> Iterator[GivenScenario]:
        group = self._part(document, "scenarios", Scenarios) if document.get("scenarios") else {}
        for index, value in enumerate(self._entries(group, "cases", "scenarios.") if group else ()):
            at = f"scenarios.cases[{index}]"
            case = self._mapping(value, at, ScenarioCase)
            if case is not None:
                yield GivenScenario(
                    name=self._text(case, "name", f"{at}."),
                    capacity_per_s=self._number(case, "capacity_per_s", f"{at}."),
                    is_stable=self._flag(case, "stable", f"{at}."),
                )

    def _replica(self, value: object, path: str, default_id: str) -> GivenReplica | None:
        entry = self._mapping(value, path, Replica)
        if entry is None:
            return None
        at = f"{path}."
        stages = [
            self._stage(stage, f"{at}stages[{index}]")
            for index, stage in enumerate(self._entries(entry, "stages", at))
        ]
        name = self._text(entry, "role", at)
        if name and name not in set(Role):
            self._fault(f"{at}role", f"unknown role {short(name)}", f"one of {', '.join(Role)}")
        keys = ("arrival_rate_per_s", "service_rate_per_s", "utilisation")
        stated = self._numbers(entry, keys, at)
        stated |= self._group(entry, "prefill", at, PrefillFigures)
        stated |= self._group(entry, "decode", at, DecodeFigures)
        context = self._whole(entry, "max_context_tokens", at)
        return GivenReplica(
            id=self._text(entry, "id", at, default=default_id),
            role=Role(name) if name in set(Role) else Role.MIXED,
            slots=self._whole(entry, "slots", at),
            stages=tuple(stage for stage in stages if stage is not None),
            stated=stated if context is None else {**stated, "max_context_tokens": context},
            intervals={
                **self._phase_intervals(entry, "prefill", at, PrefillFigures),
                **self._phase_intervals(entry, "decode", at, DecodeFigures),
            },
        )

    def _stage(self, value: object, path: str) -> GivenStage | None:
        entry = self._mapping(value, path, Stage)
        if entry is None:
            return None
        at = f"{path}."
        start, stop = self._layers(entry, f"{at}layers")
        stated = self._numbers(entry, ("prefill_time_s", "decode_time_s"), at)
        stated |= self._group(entry, "memory_bytes", at, StageMemory)
        stated |= self._group(entry, "next_hop", at, NextHop, words=("device", "link"))
        hop = entry.get("next_hop")
        next_device = (
            self._text(hop, "device", f"{at}next_hop.") if isinstance(hop, Mapping) else None
        )
        return GivenStage(
            device=self._text(entry, "device", at),
            start=start,
            stop=stop,
            embedding=self._flag(entry, "embedding", at),
            head=self._flag(entry, "head", at),
            spilled_layers=self._spilled_layers(entry, at),
            next_device=next_device,
            stated=stated,
            intervals=self._intervals(entry, "", at, Stage),
        )

    def _layers(self, entry: Mapping[str, Any], path: str) -> tuple[int, int]:
        right = "two whole numbers [start, stop), 0 <= start < stop"
        layers = entry.get("layers")
        if layers is None:
            self._fault(path, "is missing", right)
        elif not is_sequence(layers) or len(layers) != 2 or not all(map(is_whole, layers)):  # noqa: PLR2004 - a pair
            self._fault(path, f"got {short(layers)}", right)
        elif not 0 <= layers[0] < layers[1] <= LARGEST_WHOLE:
            wrong = "are reversed" if layers[1] < layers[0] else "are no interval"
            self._fault(path, f"{wrong}: {short(layers)}", right)
        else:
            return int(layers[0]), int(layers[1])
        return 0, 1

    def _spilled_layers(self, entry: Mapping[str, Any], at: str) -> tuple[int, ...] | None:
        right = "a list of layers, each once; left out: as few as memory needs"
        layers = entry.get("spilled_layers")
        path = f"{at}spilled_layers"
        if layers is None:
            return None
        if not is_sequence(layers):
            self._fault(path, f"must be a list, got {short(layers)}", right)
            return None
        wrong = [index for index, layer in enumerate(layers) if not is_layer(layer)]
        for index in wrong:
            self._fault(f"{path}[{index}]", f"must be a layer, got {short(layers[index])}")
        if wrong:
            return None
        for layer, times in Counter(layers).items():
            if times > 1:
                self._fault(path, f"layer {layer} is given {times} times", right)
        return tuple(sorted(int(layer) for layer in layers))

    def _routes(self, document: Mapping[str, Any]) -> tuple[GivenRoute, ...] | None:
        entries = self._optional_entries(document, "routes", "")
        if entries is None:
            return None
        routes = []
        for index, value in enumerate(entries):
            at = f"routes[{index}]."
            entry = self._mapping(value, at[:-1], Route)
            if entry is not None:
                route = GivenRoute(
                    prefill=self._text(entry, "prefill", at),
                    decode=self._text(entry, "decode", at),
                    rate_per_s=self._number(entry, "rate_per_s", at),
                    stated=self._numbers(entry, ("kv_transfer_s", "kv_bytes"), at),
                )
                routes.append(route)
        return tuple(routes)

    def _unused(self, document: Mapping[str, Any]) -> tuple[str, ...] | None:
        entries = self._optional_entries(document, "unused_devices", "")
        if entries is None:
            return None
        names = []
        for index, value in enumerate(entries):
            path = f"unused_devices[{index}]"
            entry = self._mapping(value, path, UnusedDevice)
            if entry is not None:
                names.append(self._text(entry, "device", f"{path}."))
        return tuple(names)

    def _mapping(
        self, value: object, path: str, shape: type | None = None
    ) -> Mapping[str, Any] | None:
        """Return *value* where it is a mapping; keys must be fields of *shape*, if given."""
        if not isinstance(value, Mapping):
            self._fault(path, f"must be a mapping, got {short(value)}")
            return None
        known = [field.name for field in fields(shape)] if shape is not None else None
        for key in value if known is not None else ():
            if known is not None and key not in known:
                near = difflib.get_close_matches(str(key), known, n=1)
                at = f"{path}.{key}" if path else str(key)
                self._fault(at, "unknown key", f"did you mean {near[0]}?" if near else "")
        return value

    def _part(self, entry: Mapping[str, Any], key: str, shape: type) -> Mapping[str, Any]:
        value = entry.get(key)
        return {} if value is None else self._mapping(value, key, shape) or {}

    def _entries(self, entry: Mapping[str, Any], key: str, at: str) -> Sequence[Any]:
        found = self._optional_entries(entry, key, at)
        if found is None and entry.get(key) is None:
            self._fault(f"{at}{key}", "is missing", "a list with at least one entry")
        elif found is not None and not found:
            self._fault(f"{at}{key}", "is empty", "a list with at least one entry")
        return found or ()

    def _optional_entries(
        self, entry: Mapping[str, Any], key: str, at: str
    ) -> Sequence[Any] | None:
        value = entry.get(key)
        if value is None:
            return None
        if not is_sequence(value):
            self._fault(f"{at}{key}", f"must be a list, got {short(value)}")
            return None
        found: Sequence[Any] = value
        return found

    def _text(self, entry: Mapping[str, Any], key: str, at: str, default: str | None = None) -> str:
        value = entry.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            self._fault(f"{at}{key}", "is missing")
        elif not isinstance(value, str) or (not value and default is None):
            self._fault(f"{at}{key}", f"must be a name, got {short(value)}")
        else:
            return value
        return ""

    def _flag(self, entry: Mapping[str, Any], key: str, at: str) -> bool | None:
        value = entry.get(key)
        if value is not None and not isinstance(value, bool):
            self._fault(f"{at}{key}", f"must be true or false, got {short(value)}")
            return None
        return value

    def _whole(self, entry: Mapping[str, Any], key: str, at: str) -> int | None:
        value = entry.get(key)
        if value is None:
            return None
        if not is_whole(value) or not 0 <= value <= LARGEST_WHOLE:
            self._fault(f"{at}{key}", f"must be a whole number, zero or more, got {short(value)}")
            return None
        return int(value)

    def _number(self, entry: Mapping[str, Any], key: str, at: str) -> float | None:
        value = entry.get(key)
        if value is None:
            return None
        number = as_float(value)
        if number is None:
            self._fault(f"{at}{key}", f"must be a number, got {short(value)}")
        elif not abs(number) <= LARGEST:
            self._fault(f"{at}{key}", f"must be finite, got {short(value)}")
        elif number < 0 and key != "free":
            self._fault(f"{at}{key}", f"must be zero or more, got {short(value)}")
        else:
            return number
        return None

    def _numbers(self, entry: Mapping[str, Any], keys: Sequence[str], at: str) -> dict[str, float]:
        read = {key: self._number(entry, key, at) for key in keys}
        return {key: value for key, value in read.items() if value is not None}

    def _group(
        self,
        entry: Mapping[str, Any],
        key: str,
        at: str,
        shape: type,
        words: tuple[str, ...] = (),
    ) -> dict[str, float]:
        """Return the numbers of a nested mapping under their dotted keys."""
        value = entry.get(key)
        group = None if value is None else self._mapping(value, f"{at}{key}", shape)
        if group is None:
            return {}
        names = [
            field.name
            for field in fields(shape)
            if field.name not in words and not field.name.endswith(INTERVAL)
        ]
        whole = self._whole(group, "micro_batches", f"{at}{key}.")
        if whole == 0:
            self._fault(f"{at}{key}.micro_batches", "must be one or more, got 0")
        found = self._numbers(group, [n for n in names if n != "micro_batches"], f"{at}{key}.")
        if whole is not None:
            found["micro_batches"] = whole
        return {f"{key}.{name}": number for name, number in found.items()}

    def _phase_intervals(
        self, entry: Mapping[str, Any], key: str, at: str, shape: type
    ) -> dict[str, tuple[float, float]]:
        group = entry.get(key)
        if not isinstance(group, Mapping):
            return {}
        return self._intervals(group, f"{key}.", f"{at}{key}.", shape)

    def _intervals(
        self, entry: Mapping[str, Any], key: str, at: str, shape: type
    ) -> dict[str, tuple[float, float]]:
        """Return the intervals of *shape* among the values of a mapping under ``key + name``."""
        names = [field.name for field in fields(shape) if field.name.endswith(INTERVAL)]
        read = {f"{key}{name}": self._interval(entry, name, at) for name in names}
        return {name: interval for name, interval in read.items() if interval is not None}

    def _interval(self, entry: Mapping[str, Any], key: str, at: str) -> tuple[float, float] | None:
        value = entry.get(key)
        if value is None:
            return None
        found = interval_of(value)
        if found is None:
            right = "[low, high], high null where there is none"
            self._fault(f"{at}{key}", f"is no interval, got {short(value)}", right)
        return found

    def _fault(self, path: str, wrong: str, right: str = "") -> None:
        self.faults.append(Fault(wrong=wrong, right=right, path=path))
