"""A file to a Problem: every fault at once, each with line and key path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.loading.document import Document, Faults, from_mapping, merged
from e2llm_opt.loading.inventory_part import read_inventory
from e2llm_opt.loading.model_part import read_formats, read_model, read_runtime
from e2llm_opt.loading.schema import SECTIONS, ConstraintsEntry, RuntimeEntry, WorkloadEntry
from e2llm_opt.loading.validate import unknown_key
from e2llm_opt.loading.workload_part import (
    read_constraints,
    read_objective,
    read_pessimistic,
    read_workload,
)
from e2llm_opt.loading.yaml_file import read_document
from e2llm_opt.problem import Problem

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.loading.fields import Section

_ASKED = {"workload", "objective", "constraints"}
"""Sections that say what is wanted of the machines, not what they are and what they run."""


def load_problem(
    path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None
) -> Problem:
    """Return the problem that an inventory file states.

    Parameters
    ----------
    path
        The YAML file (DESIGN section 4.1).
    overrides
        Top-level keys that win over the file, as they would stand in it; mappings are merged.
        Their faults name ``command line`` as the file.

    Raises
    ------
    InputError
        With every fault of file and overrides.
    """
    document, faults = read_document(path)
    _refuse_answers(document)
    if overrides:
        faults = faults.moved(merged(document, overrides))
    return problem_of(faults)


def _refuse_answers(document: Document) -> None:
    """Refuse a plan, or another answer, in the place of an inventory."""
    schema = document.value.get("schema")
    is_ours = isinstance(schema, str) and schema.startswith("e2llm-opt/")
    is_written = "replicas" in document.value and "devices" not in document.value
    if is_ours or is_written:
        wrong = f"this is no inventory but {schema if is_ours else 'a plan'}"
        right = "where a command takes both, the plan comes first"
        raise InputError([Fault(file=document.file, wrong=wrong, right=right)])


def load_servers(
    path: str | os.PathLike[str], overrides: Mapping[str, Any] | None = None
) -> Problem:
    """Return the problem of a file whose workload, objective and constraints are not looked at.

    Parameters
    ----------
    path, overrides
        As of :func:`load_problem`; *overrides* state the workload.

    Raises
    ------
    InputError
        With every fault of the other sections and of the overrides.
    """
    document, found = read_document(path)
    wanted = {key: value for key, value in document.value.items() if key not in _ASKED}
    servers = Document(value=wanted, places=document.places, file=document.file)
    return problem_of(found.moved(merged(servers, overrides or {})))


def problem_from_mapping(mapping: Mapping[str, Any]) -> Problem:
    """Return the problem that *mapping*, a file's content as plain Python values, states.

    Paths in it are relative to the working directory.

    Raises
    ------
    InputError
        With every fault.
    """
    return problem_of(Faults(from_mapping(mapping)))


def load_inventory(path: str | os.PathLike[str]) -> Inventory:
    """Return the devices and links of an inventory file; other sections are not looked at.

    Raises
    ------
    InputError
        With every fault of those two sections.
    """
    document, found = read_document(path)
    wanted: dict[str, Any] = {
        key: document.value[key] for key in ("devices", "links") if key in document.value
    }
    faults = found.moved(Document(value=wanted, places=document.places, file=document.file))
    inventory, _ = read_inventory(faults)
    faults.raise_if_any()
    if inventory is None:
        msg = "an inventory without a fault was not built"
        raise RuntimeError(msg)
    return inventory


def problem_of(faults: Faults) -> Problem:
    """Return the problem that ``faults.document`` states.

    Raises
    ------
    InputError
        With every fault, those known before among them.
    """
    for key in faults.document.value:
        if key not in SECTIONS:
            faults.add((key,), *_unknown_section(key))
    inventory, names = read_inventory(faults)
    facts = read_model(faults)
    runtime = read_runtime(faults)
    parts: dict[str, Any] = {
        "inventory": inventory,
        "facts": facts,
        "runtime": runtime,
        **read_formats(facts, runtime, faults),
        "workload": read_workload(faults),
        "objective": read_objective(faults),
        "constraints": read_constraints(names, faults),
        "pessimistic": read_pessimistic(faults),
    }
    faults.raise_if_any()
    try:
        return Problem(**parts)
    except InputError as error:
        faults.absorb(error, ())
        faults.raise_if_any()
        raise


def _unknown_section(key: str) -> tuple[str, str]:
    """Return what is wrong with a top-level key, and where it belongs."""
    inner: dict[str, type[Section]] = {
        "workload": WorkloadEntry,
        "runtime": RuntimeEntry,
        "constraints": ConstraintsEntry,
    }
    for section, entry in inner.items():
        if key in entry.model_fields:
            return "unknown key", f"it belongs under {section}"
    return unknown_key(key, SECTIONS)
