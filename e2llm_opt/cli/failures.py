"""``e2llm-opt failures``: what each loss of a device, host, switch or link does to a plan."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.problem import Amount, load_problem, problem_options
from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from e2llm_opt.failures.failures import FailureTerms
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem

_KINDS = ("device", "host", "switch", "link")


@click.command("failures")
@click.argument("plan", shell_complete=words.files)
@click.argument("inventory", shell_complete=words.files)
@click.option(
    "--k",
    type=click.IntRange(min=1, max=2),
    default=1,
    show_default=True,
    help="So many things are lost at once.",
)
@click.option(
    "--lost",
    type=click.Choice(_KINDS),
    multiple=True,
    help="What is lost; may be repeated. All, and of pairs devices, unless given.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Plan anew for, and show, so many losses, the worst first.",
)
@click.option(
    "--replan-time",
    type=Amount(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds for each new plan of what is left.",
)
@click.option("--no-replan", is_flag=True, help="Plan nothing anew.")
@click.option(
    "--max-evaluations",
    type=click.IntRange(min=1),
    default=600,
    show_default=True,
    help="Groupings tried at most for each new plan.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report and no progress.")
@problem_options
def command(
    plan: str, inventory: str, as_json: bool, quiet: bool, top: int, **options: Any
) -> None:
    """Say what each loss of a device, host, switch or link does to PLAN, the worst first.

    For each: which replicas go; capacity and wait of the others as they are, in the best roles
    without moving weights, and planned anew. Users are taken to reach every device that is left.
    Ctrl-C shows the losses that are done.

    \b
    Examples:
      e2llm-opt failures plan.json homelab.yaml
      e2llm-opt failures plan.json homelab.yaml --rate 0.5 --no-replan
      e2llm-opt failures plan.json campus.yaml --lost switch --lost link
      e2llm-opt failures plan.json campus.yaml --k 2 --top 5 --json
    """
    from e2llm_opt.cli.interruption import breakable
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.failures.failures import failures
    from e2llm_opt.report.failures import print_failures

    problem = load_problem(inventory, options)
    found = _read(plan, problem)
    with (
        progress_line(sys.stderr, quiet=quiet, doing="preparing") as line,
        breakable(line) as breathe,
    ):

        def tell(doing: str) -> None:
            if line is not None:
                line.say(doing)
            breathe()

        answer = failures(
            found,
            problem,
            terms=_terms(options, top),
            tell=tell,
            progress=lambda _: breathe(),
        )
    if as_json:
        sys.stdout.write(answer.to_json())
    elif not quiet:
        print_failures(answer, top, sys.stdout)


def _terms(options: dict[str, Any], top: int) -> FailureTerms:
    from e2llm_opt.failures.failures import FailureTerms
    from e2llm_opt.inventory.loss import LossKind
    from e2llm_opt.search.stop import Stop

    stop = Stop(
        time_limit_s=options["replan_time"],
        max_evaluations=options["max_evaluations"],
        max_refinements=0,
    )
    return FailureTerms(
        k=options["k"],
        kinds=tuple(LossKind(kind) for kind in options["lost"]) or None,
        stop=None if options["no_replan"] else stop,
        top=top,
        seed=options["seed"],
    )


def _read(path: str, problem: Problem) -> Plan:
    """Return the plan; one written by hand is completed where the checker finds nothing wrong."""
    from e2llm_opt.check.check import check
    from e2llm_opt.check.complete import completed
    from e2llm_opt.plan.json_file import plan_from_dict, read_json_document

    document = read_json_document(path)
    if not isinstance(document, Mapping) or "schema" in document:
        return plan_from_dict(document, file=path)
    # Any rate may be tried, and what does not survive is what is asked about.
    free = replace(
        problem,
        workload=replace(problem.workload, rate_per_s=0.0),
        constraints=replace(problem.constraints, survive=0),
    )
    try:
        report = check(document, free)
    except InputError as error:
        raise InputError(replace(fault, file=path) for fault in error.faults) from None
    if not report.valid:
        raise InputError(
            Fault(file=path, wrong=f"{one.what}: need {one.need}, have {one.have}")
            for one in report.violations
        )
    return completed(report, problem)
