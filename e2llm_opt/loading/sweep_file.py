"""A sweep file: what to plan, as a grid of values and as rows of their own."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.document import Document, Faults, KeyPath, Place, merged, spelled
from e2llm_opt.loading.fields import Text, Whole, shown
from e2llm_opt.loading.load import problem_of
from e2llm_opt.loading.validate import checked, unknown_key
from e2llm_opt.loading.yaml_file import read_document

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from typing import Final

    from e2llm_opt.problem import Problem

AXES: Final = {
    "inventories": "inventory",
    "models": "model",
    "weights": "weights",
    "kv_caches": "kv_cache",
    "runtimes": "runtime",
    "workloads": "workload",
    "rates_per_s": "rate_per_s",
    "objectives": "objective",
    "constraints": "constraints",
    "planners": "planner",
    "seeds": "seed",
}
"""Key of a list in a sweep file: key of one value of it in a row. Later ones vary faster."""
ROW_KEYS: Final = ("name", *AXES.values())
MAX_SCENARIOS: Final = 100_000
"""Most rows of one sweep."""
_NAMED: Final = ("inventory", "workload", "constraints")
"""Mappings that may have a name, which says nothing to the planner."""
_NAME: Final = Annotated[Text, Field()]
_SEED: Final = Annotated[Whole, Field(ge=0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One value of a row: what the file says, a few words for it, and where it stands."""

    value: Any
    label: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One row of a sweep.

    Parameters
    ----------
    name
        Of a row of its own; empty in the grid.
    asked
        What it says, by the keys of :data:`ROW_KEYS`.
    faults
        What is wrong with it as it stands in the file.
    """

    name: str
    asked: dict[str, Asked]
    faults: tuple[Fault, ...] = ()

    def label(self, key: str) -> str:
        """Return a few words for what the row says of *key*; empty where it says nothing."""
        return self.asked[key].label if key in self.asked else ""

    def said(self, key: str) -> Any:  # noqa: ANN401 - a file's value may be anything
        """Return what the row says of *key*, or None."""
        return self.asked[key].value if key in self.asked else None


class SweepFile:
    """The scenarios of a sweep file, and the problem that each of them states.

    Parameters
    ----------
    path
        The YAML file.

    Attributes
    ----------
    scenarios
        The grid's, the last list varying fastest, then the rows.

    Raises
    ------
    InputError
        When the file as a whole is no sweep. What is wrong with one value of a list or with one
        row is a fault of the scenarios that have it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._document, self._faults = read_document(path)
        self._inventories: dict[str, tuple[Document, Faults]] = {}
        _check_lists(self._document, self._faults)
        self._faults.shallow(2).raise_if_any()
        self.scenarios = (*self._grid(), *self._rows())

    def problem(self, scenario: Scenario) -> Problem:
        """Return the problem of *scenario*; files that it names are read, inventories once.

        Raises
        ------
        InputError
            With every fault.
        """
        if scenario.faults:
            raise InputError(scenario.faults)
        document, known = self._inventory(scenario.asked["inventory"])
        for key in ("inventory", *AXES.values()):
            asked = scenario.asked.get(key)
            if asked is not None:
                document = merged(document, _overrides(key, asked.value), asked.place)
        return problem_of(known.moved(document))

    def _inventory(self, asked: Asked) -> tuple[Document, Faults]:
        """Return what the inventory's file says, if it has one."""
        name = asked.value.get("file") if isinstance(asked.value, dict) else asked.value
        if name is None:
            empty = Document(value={}, file=self._document.file)
            return empty, Faults(empty)
        if not isinstance(name, str):
            wrong = f"must be a path or a mapping, got {shown(name)}"
            raise InputError([_fault(wrong, "inventory", asked.place)])
        path = str(self._document.beside((), name))
        if path not in self._inventories:
            self._inventories[path] = read_document(path)
        return self._inventories[path]

    def _grid(self) -> Iterator[Scenario]:
        if "inventories" not in self._document.value:
            return
        axes = [
            [(key, *self._item((axis, i), key, value)) for i, value in enumerate(values)]
            for axis, key in AXES.items()
            if (values := self._document.value.get(axis))
        ]
        for chosen in itertools.product(*axes):
            yield Scenario(
                name="",
                asked={key: asked for key, asked, _ in chosen},
                faults=tuple(fault for _, _, faults in chosen for fault in faults),
            )

    def _rows(self) -> Iterator[Scenario]:
        seen: dict[str, int] = {}
        for i, row in enumerate(self._document.value.get("rows", ())):
            path: KeyPath = ("rows", i)
            if not isinstance(row, dict):
                self._faults.add(path, f"must be a mapping of keys to values, got {shown(row)}")
                yield Scenario(name="", asked={}, faults=self._faults.inside(path))
                continue
            first = seen.setdefault(_text(row), i)
            if first != i:
                self._faults.add(path, f"says the same as rows[{first}]", "keep one of them")
            for key in row:
                if key not in ROW_KEYS:
                    self._faults.add((*path, key), *unknown_key(key, ROW_KEYS))
            if "inventory" not in row:
                self._faults.add((*path, "inventory"), "missing", "the path of an inventory file")
            name = (
                checked(_NAME, row["name"], (*path, "name"), self._faults) if "name" in row else ""
            )
            asked = {
                key: self._item((*path, key), key, row[key])[0]
                for key in AXES.values()
                if key in row
            }
            yield Scenario(name=name or "", asked=asked, faults=self._faults.inside(path))

    def _item(self, path: KeyPath, key: str, value: Any) -> tuple[Asked, tuple[Fault, ...]]:  # noqa: ANN401
        if value is None:
            self._faults.add(path, "has no value", "give one or remove it")
        if key == "seed" and value is not None:
            value = checked(_SEED, value, path, self._faults)
        asked = Asked(value=value, label=_label(value), place=self._document.place(path))
        return asked, self._faults.inside(path)


def _check_lists(document: Document, faults: Faults) -> None:
    """Note what is wrong with the file's own keys, and values that stand in a list twice."""
    known = (*AXES, "rows")
    num = 1
    for key, value in document.value.items():
        if key not in known:
            faults.add((key,), *unknown_key(key, known))
        elif not isinstance(value, list) or not value:
            faults.add((key,), f"must be a list with at least one value, got {shown(value)}")
        elif key in AXES:
            num *= len(value)
            seen: dict[str, int] = {}
            for i, one in enumerate(value):
                first = seen.setdefault(_text(one), i)
                if first != i:
                    wrong = f"{spelled((key, i))} is the same as {spelled((key, first))}"
                    faults.add((key,), wrong, "keep one of them")
    if "inventories" not in document.value and any(key in AXES for key in document.value):
        faults.add(("inventories",), "missing", "list the inventory files of the grid")
    if not document.value.keys() & {"inventories", "rows"}:
        faults.add((), "there is nothing to plan", "list inventories, or rows")
    if num > MAX_SCENARIOS:
        faults.add((), f"the grid has {num} rows, more than {MAX_SCENARIOS}", "split it")


def _text(value: Any) -> str:  # noqa: ANN401
    return json.dumps(value, sort_keys=True, default=str)


def _overrides(key: str, value: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return what a value says in the words of an inventory file."""
    if isinstance(value, dict) and key in _NAMED:
        value = {inner: item for inner, item in value.items() if inner != "name"}
    if key == "inventory":
        inline = value if isinstance(value, dict) else {}
        return {inner: item for inner, item in inline.items() if inner != "file"}
    if key == "rate_per_s":
        return {"workload": {"rate_per_s": value}}
    return {} if key in {"planner", "seed"} else {key: value}


def _label(value: Any) -> str:  # noqa: ANN401
    """Return a few words for a value.

    Examples
    --------
    >>> _label({"rate_per_s": 0.5, "slo": {"tpot_s": 0.1}})
    'rate_per_s=0.5 slo=(tpot_s=0.1)'
    """
    if isinstance(value, dict):
        if isinstance(value.get("name"), str):
            return str(value["name"])
        return " ".join(f"{key}={_inner(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ",".join(map(_inner, value))
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.12g}" if math.isfinite(value) else str(value)
    return str(value)


def _inner(value: Any) -> str:  # noqa: ANN401
    return f"({_label(value)})" if isinstance(value, (dict, list)) else _label(value)


def _fault(wrong: str, path: str, place: Place) -> Fault:
    return Fault(wrong=wrong, path=path, file=place.file, line=place.line)
