"""``e2llm-opt check``: a second opinion on a plan."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.group import EXIT_NO
from e2llm_opt.cli.problem import load_problem, problem_options
from e2llm_opt.cli.progress import progress_line
from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from e2llm_opt.check.verdict import Report
    from e2llm_opt.problem import Problem


@click.command("check")
@click.argument("plan", shell_complete=words.files)
@click.argument("inventory", shell_complete=words.files)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code says it.")
@problem_options
def command(plan: str, inventory: str, as_json: bool, quiet: bool, **options: Any) -> None:
    """Recompute PLAN, a JSON file, for INVENTORY, and list every violation.

    PLAN may be written by hand: replicas with role and stages (device, layers) are enough.
    A plan made with options is checked with the same options.

    \b
    Examples:
      e2llm-opt check plan.json homelab.yaml
      e2llm-opt check plan.json homelab.yaml --json
      e2llm-opt plan lab.yaml --json | e2llm-opt check /dev/stdin lab.yaml
    """
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.report.refusals import print_check

    problem = load_problem(inventory, options)
    with progress_line(sys.stderr, quiet=quiet, doing="checking the plan"):
        report = _report(plan, problem)
    if as_json:
        sys.stdout.write(dump_json(report.to_dict()))
    elif not quiet:
        print_check(report, sys.stdout)
    if not report.valid:
        click.get_current_context().exit(EXIT_NO)


def _report(path: str, problem: Problem) -> Report:
    from e2llm_opt.check.check import check
    from e2llm_opt.plan.json_file import read_json_document

    document = read_json_document(path)
    try:
        return check(document, problem)
    except InputError as error:
        raise InputError(replace(fault, file=path) for fault in error.faults) from None
