"""``e2llm-opt explain``: a plan in plain sentences."""

from __future__ import annotations

import json
import sys

import click

from e2llm_opt.cli import words


@click.command("explain")
@click.argument("plan", shell_complete=words.files)
@click.option("--json", "as_json", is_flag=True, help="Print the sentences as a JSON list.")
def command(plan: str, as_json: bool) -> None:
    """Say in plain sentences what PLAN, a JSON file, does and why.

    Who is grouped with whom and in which roles, what limits it, what would help most, what to
    beware of. Each sentence was computed when the plan was made.

    \b
    Examples:
      e2llm-opt explain plan.json
      e2llm-opt plan homelab.yaml --json | e2llm-opt explain /dev/stdin
    """
    from e2llm_opt.plan.json_file import load_plan
    from e2llm_opt.report.sentences import sentences

    found = sentences(load_plan(plan))
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    else:
        click.echo("\n".join(found))
