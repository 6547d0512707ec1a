"""The JSON Schema of an inventory: what the loader takes, it takes, and not much more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from e2llm_opt.cli import command_line
from e2llm_opt.loading.inventory_schema import inventory_schema
from e2llm_opt.loading.schema import SECTIONS

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(inventory_schema())


def small(**changes: Any) -> dict[str, Any]:
    document = {
        "devices": [{"name": "tower", "type": "rtx-3060-12gb"}],
        "model": "llama-3.1-8b",
        "workload": {"prompt_tokens": 500, "output_tokens": {"mean": 200, "cv": 0.5}},
    }
    return {**document, **changes}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_valid(file: Path) -> None:
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert [error.message for error in VALIDATOR.iter_errors(document)] == []


def test_it_has_the_sections_of_the_loader_and_is_a_schema() -> None:
    schema = inventory_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == set(SECTIONS)
    assert set(schema["required"]) == {"devices", "model", "workload"}


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": []},
        {"devices": [{"type": "rtx-4090"}]},
        {"devices": [{"name": "tower", "memory": 12}]},
        {"devices": [{"name": "tower", "memory_gib": "much"}]},
        {"links": [{"between": ["a", "b"], "bandwidth_mbit_s": 100}]},
        {"runtime": {"name": "vllm", "topology": "tree"}},
        {"workload": {"rate": 1}},
        {"constraints": {"roles": "some"}},
        {"objective": "speed"},
        {"pessimistic": 1.0},
        {"unknown": 1},
    ],
)
def test_what_is_wrong_is_refused(changes: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(small())
    assert not VALIDATOR.is_valid(small(**changes))


def test_the_command_prints_it() -> None:
    done = CliRunner().invoke(command_line, ["schema", "inventory"])
    assert json.loads(done.stdout) == inventory_schema()
