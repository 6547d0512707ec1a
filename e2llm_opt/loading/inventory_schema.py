"""The JSON Schema of an inventory file, made from what the loader checks."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from e2llm_opt.loading import schema as entries  # noqa: TC001 - pydantic reads the annotations
from e2llm_opt.loading.fields import Number, Section, Text

INVENTORY_SCHEMA = "e2llm-opt/inventory/v1"


class _InventoryFile(Section):
    """Machines, their links, and what they are asked to serve."""

    devices: Annotated[list[entries.DeviceEntry], Field(min_length=1)]
    links: list[entries.LinkEntry] = Field(default_factory=list)
    model: Text | dict[str, Any]
    weights: Text | None = None
    kv_cache: Text = "f16"
    runtime: Text | entries.RuntimeEntry = "generic"
    workload: entries.WorkloadEntry
    objective: entries.ObjectiveWord = "waiting_time"
    constraints: entries.ConstraintsEntry | None = None
    pessimistic: Annotated[Number, Field(ge=0.5, lt=1)] = 0.5


def inventory_schema() -> dict[str, Any]:
    """Return the JSON Schema of an inventory, for editors and other programs.

    What it allows may still be refused: names that do not fit together, types that the catalogue
    does not have. What it refuses, the loader refuses.
    """
    schema = _InventoryFile.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{INVENTORY_SCHEMA.replace('/', ':')}",
        "title": "An inventory of e2llm-opt",
        **{key: _spelled(value) for key, value in schema.items() if key != "title"},
    }


_BOUNDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
"""pydantic's bounds of a value that is converted first, in JSON Schema's words."""


def _spelled(value: Any) -> Any:  # noqa: ANN401 - any part of a schema
    if isinstance(value, dict):
        return {_BOUNDS.get(key, key): _spelled(part) for key, part in value.items()}
    return [_spelled(part) for part in value] if isinstance(value, list) else value
