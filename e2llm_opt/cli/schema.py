"""``e2llm-opt schema``: the JSON Schemas of our files."""

from __future__ import annotations

import json
import sys

import click


@click.command("schema")
@click.argument("kind", type=click.Choice(["plan", "inventory"]), default="plan")
def command(kind: str) -> None:
    """Print the JSON Schema of a plan, or of an inventory.

    \b
    Examples:
      e2llm-opt schema > plan.schema.json
      e2llm-opt schema inventory > inventory.schema.json
    """
    if kind == "plan":
        from e2llm_opt.plan.json_file import plan_schema as schema
    else:
        from e2llm_opt.loading.inventory_schema import inventory_schema as schema

    sys.stdout.write(json.dumps(schema(), indent=2, ensure_ascii=False) + "\n")
