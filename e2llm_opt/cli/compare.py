"""``e2llm-opt compare``: every planner on the same inventory and the same arrivals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.arrivals import arrival_options, draw, read_arrivals
from e2llm_opt.cli.names import Names
from e2llm_opt.cli.problem import Amount, load_problem, problem_options
from e2llm_opt.planners import PLANNERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cli.progress import Line
    from e2llm_opt.compare import ComparisonRow, ComparisonTerms
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import Progress
    from e2llm_opt.workload.trace import Trace


@click.command("compare")
@click.argument("inventory", shell_complete=words.files)
@click.option(
    "--planners",
    type=Names("planner", PLANNERS),
    help="Some of them, separated by commas: all unless given.",
    shell_complete=words.planners,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report and no progress.")
@click.option("--csv", "csv_file", help="Write the rows to this file.", shell_complete=words.files)
@click.option(
    "--plot",
    help="Draw the waiting times into this .svg or .png file.",
    shell_complete=words.files,
)
@click.option(
    "--rank-by-formulas",
    is_flag=True,
    help="Our planner does not simulate its candidates and the others' plans to take the best.",
)
@click.option("--time-limit", type=Amount(min=0, min_open=True), help="Stop each search after [s].")
@click.option("--max-evaluations", type=click.IntRange(min=1), help="Stop each search after.")
@arrival_options
@problem_options
def command(
    inventory: str,
    planners: tuple[str, ...] | None,
    as_json: bool,
    quiet: bool,
    csv_file: str | None,
    plot: str | None,
    **options: Any,
) -> None:
    """Plan INVENTORY with every planner, and simulate each plan on the same requests.

    Our own planner is the row e2llm-opt. With --trace, planners plan for the trace's rate and
    lengths. Ctrl-C shows the rows that are done.

    \b
    Examples:
      e2llm-opt compare homelab.yaml
      e2llm-opt compare testbed.yaml --planners e2llm-opt,splitwise,hexgen --rate 0.3
      e2llm-opt compare testbed.yaml --trace azure.csv --scale 0.2 --csv rows.csv
    """
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.compare import traced
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.report.comparison import print_comparison

    trace = read_arrivals(options)
    problem = load_problem(inventory, options)
    if trace is not None:
        problem = traced(problem, trace)
    arrivals = draw(problem.workload, options) if trace is None else trace
    terms = _terms(options, arrivals)
    _refuse_files(csv_file, plot)
    with progress_line(sys.stderr, quiet=quiet, doing="preparing") as line:
        found = list(_rows(problem, arrivals, planners or PLANNERS, terms, line))
    if not found:
        raise KeyboardInterrupt
    _write_files(found, csv_file, plot)
    if as_json:
        sys.stdout.write(dump_json({"rows": [row.to_dict() for row in found]}))
    elif not quiet:
        print_comparison(found, arrivals.num_requests, sys.stdout)


def _rows(
    problem: Problem,
    arrivals: Trace,
    planners: tuple[str, ...],
    terms: ComparisonTerms,
    line: Line | None,
) -> Iterator[ComparisonRow]:
    """Yield the rows that are done before Ctrl-C; what a planner found until then is no row."""
    from e2llm_opt.cli.interruption import breakable
    from e2llm_opt.compare import rows

    with breakable(line) as breathe:
        is_interrupted = False

        def progress(state: Progress) -> None:
            nonlocal is_interrupted
            if line is not None:
                line(state)
            try:
                breathe()
            except KeyboardInterrupt:
                is_interrupted = True
                raise

        found = rows(problem, arrivals, planners=planners, terms=terms, progress=progress)
        for number, planner in enumerate(planners, start=1):
            if line is not None:
                line.say(f"planner {number} of {len(planners)}: {planner}")
            try:
                row = next(found)
                breathe()
            except KeyboardInterrupt:
                return
            if is_interrupted:
                return
            yield row


def _terms(options: dict[str, Any], arrivals: Trace) -> ComparisonTerms:
    from e2llm_opt.cli.arrivals import warmup_of
    from e2llm_opt.compare import ComparisonTerms
    from e2llm_opt.search.stop import Stop

    limits = {"max_evaluations": options["max_evaluations"], "time_limit_s": options["time_limit"]}
    num = arrivals.num_requests
    return ComparisonTerms(
        seed=options["seed"],
        stop=Stop(**{name: value for name, value in limits.items() if value is not None}),
        routing=options["routing"],
        mean_context=options["mean_context"],
        warmup=warmup_of(options, num, num),
        ranks_by_simulation=not options["rank_by_formulas"],
    )


def _refuse_files(csv_file: str | None, plot: str | None) -> None:
    from e2llm_opt.plan.output import refuse_unwritable
    from e2llm_opt.report.plots import refuse_plot_file

    if csv_file is not None:
        refuse_unwritable(csv_file)
    if plot is not None:
        refuse_plot_file(plot)


def _write_files(found: list[ComparisonRow], csv_file: str | None, plot: str | None) -> None:
    from e2llm_opt.plan.output import write_text_atomically
    from e2llm_opt.report.comparison import comparison_csv
    from e2llm_opt.report.plots import plot_comparison

    if csv_file is not None:
        write_text_atomically(csv_file, comparison_csv(found))
    if plot is not None:
        plot_comparison(found, plot)
