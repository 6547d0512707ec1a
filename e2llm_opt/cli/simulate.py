"""``e2llm-opt simulate``: a plan, run on requests one by one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.arrivals import arrival_options, described, draw, read_arrivals, warmup_of
from e2llm_opt.cli.changes import (
    change_options,
    described_changes,
    read_changes,
    warn_of_late_failures,
)
from e2llm_opt.cli.group import EXIT_NO
from e2llm_opt.cli.problem import load_problem, problem_options
from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.check.verdict import Report
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.simulate.changes import Changes
    from e2llm_opt.simulate.simulate import Simulation
    from e2llm_opt.workload.trace import Trace


@click.command("simulate")
@click.argument("plan", shell_complete=words.files)
@click.argument("inventory", shell_complete=words.files)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report and no progress.")
@click.option(
    "--records",
    help="Write one row a request to this .csv or .parquet file.",
    shell_complete=words.files,
)
@click.option(
    "--plot",
    help="Draw waiting time over time into this .svg or .png file.",
    shell_complete=words.files,
)
@change_options
@arrival_options
@problem_options
def command(
    plan: str,
    inventory: str,
    as_json: bool,
    quiet: bool,
    records: str | None,
    plot: str | None,
    **options: Any,
) -> None:
    """Run PLAN, a JSON file, on requests, and say how long they wait and take.

    Requests are drawn from the workload of INVENTORY, or read from a trace. PLAN may be written by
    hand, as for check, and is refused where check refuses it; a plan made with options is
    simulated with the same options, all but --rate.

    \b
    Examples:
      e2llm-opt simulate plan.json homelab.yaml
      e2llm-opt simulate plan.json homelab.yaml --rate 0.2 --arrivals bursty --seed 3
      e2llm-opt simulate plan.json homelab.yaml --trace azure.csv --scale 0.2
      e2llm-opt simulate plan.json homelab.yaml --records requests.csv --plot waits.svg
      e2llm-opt simulate plan.json homelab.yaml --fail tower@600 --recover tower@900
    """
    from e2llm_opt.cli.interruption import breakable
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.report.refusals import print_check
    from e2llm_opt.report.simulation import print_simulation

    changes, trace = read_changes(options), read_arrivals(options)
    problem = load_problem(inventory, options)
    arrivals = draw(problem.workload, options) if trace is None else trace
    warn_of_late_failures(changes, arrivals, quiet=quiet)
    _refuse_files(records, plot)
    with progress_line(sys.stderr, quiet=quiet, doing="checking the plan") as line:
        found, report = _checked(plan, problem)
        if found is not None:
            with breakable(line) as breathe:

                def tell(num: int) -> None:
                    breathe()
                    if line is not None and num > 0:
                        line.say(f"simulated {num} of {arrivals.num_requests} requests")
                    elif line is not None:
                        line.say("loading the simulator (the first time ever compiles it)")

                simulation = _simulate(found, problem, arrivals, (options, changes), tell)
    if found is None:
        if as_json:
            sys.stdout.write(dump_json(report.to_dict()))
        elif not quiet:
            print_check(report, sys.stdout)
        click.get_current_context().exit(EXIT_NO)
    summary = simulation.summary(found, problem)
    _write_files(simulation, records, plot)
    if as_json:
        asked = described(options, arrivals)
        asked |= {} if changes is None else described_changes(changes)
        sys.stdout.write(dump_json({**summary.to_dict(), "options": asked}))
    elif not quiet:
        print_simulation(summary, problem.workload, arrivals.num_requests, sys.stdout)


def _checked(path: str, problem: Problem) -> tuple[Plan | None, Report]:
    """Return the plan, complete, and what the checker says; None where the plan is not valid."""
    from e2llm_opt.check.check import check
    from e2llm_opt.check.complete import completed
    from e2llm_opt.plan.json_file import plan_from_dict, read_json_document

    document = read_json_document(path)
    # Any rate may be tried on any plan, so that a plan's claim to be stable is not looked at.
    free = replace(problem, workload=replace(problem.workload, rate_per_s=0.0))
    try:
        report = check(document, free)
    except InputError as error:
        raise InputError(replace(fault, file=path) for fault in error.faults) from None
    if not report.valid:
        return None, report
    if isinstance(document, Mapping) and "schema" in document:
        return plan_from_dict(document, file=path), report
    return completed(report, problem), report


def _simulate(
    plan: Plan,
    problem: Problem,
    arrivals: Trace,
    how: tuple[dict[str, Any], Changes | None],
    breathe: Callable[[int], None],
) -> Simulation:
    from e2llm_opt.simulate.simulate import simulate

    (options, changes), total = how, arrivals.num_requests
    run = simulate(
        plan,
        problem,
        arrivals,
        routing=options["routing"],
        mean_context=options["mean_context"],
        warmup=warmup_of(options, total, total),
        breathe=breathe,
        changes=changes,
    )
    return replace(run, warmup=warmup_of(options, total, run.arrivals.num_requests))


def _refuse_files(records: str | None, plot: str | None) -> None:
    from e2llm_opt.plan.table_file import refuse_table_file
    from e2llm_opt.report.plots import refuse_plot_file

    if records is not None:
        refuse_table_file(records, "records")
    if plot is not None:
        refuse_plot_file(plot)


def _write_files(simulation: Simulation, records: str | None, plot: str | None) -> None:
    from e2llm_opt.report.plots import plot_waits

    if records is not None:
        simulation.write_records(records)
    if plot is not None:
        plot_waits(simulation, plot)
