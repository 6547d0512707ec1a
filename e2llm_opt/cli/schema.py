"""``e2llm-opt schema``: the JSON Schema of a plan."""

from __future__ import annotations

import json
import sys

import click


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of a plan.

    \b
    Examples:
      e2llm-opt schema > plan.schema.json
      e2llm-opt schema | jsonschema --instance plan.json /dev/stdin
    """
    from e2llm_opt.plan.json_file import plan_schema

    sys.stdout.write(json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n")
