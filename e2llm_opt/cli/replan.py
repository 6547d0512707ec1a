"""``e2llm-opt replan``: from the plan that runs to the next one, moving as little as pays."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.group import EXIT_NO
from e2llm_opt.cli.problem import Amount, load_problem, problem_options

if TYPE_CHECKING:
    from e2llm_opt.replan.answer import Replan
    from e2llm_opt.replan.terms import ReplanTerms
    from e2llm_opt.search.stop import Stop

_STEPS = ("routing", "roles", "layers")


@click.command("replan")
@click.argument("plan", shell_complete=words.files)
@click.argument("inventory", shell_complete=words.files)
@click.option(
    "-o",
    "--output",
    help="Write the new plan as JSON to this file; - is stdout.",
    shell_complete=words.files,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report and no progress.")
@click.option(
    "--step",
    type=click.Choice(_STEPS),
    default="layers",
    show_default=True,
    help="The dearest step that may be taken.",
)
@click.option("--max-moves", type=click.IntRange(min=0), help="Most moves of layers.")
@click.option("--max-move-gib", type=Amount(min=0), help="Most weights that move [GiB].")
@click.option(
    "--max-downtime", type=Amount(min=0), help="Longest time that a replica may be stopped [s]."
)
@click.option(
    "--horizon",
    type=Amount(min=0, min_open=True),
    default=3600.0,
    show_default=True,
    help="Time within which a gain counts [s].",
)
@click.option(
    "--hysteresis",
    type=Amount(min=0),
    default=0.1,
    show_default=True,
    help="A change must gain so much more than its price, and than this share of what is lost.",
)
@click.option(
    "--noise",
    type=Amount(min=0),
    default=0.03,
    show_default=True,
    help="Changes of figures up to this share are no reason to change what serves.",
)
@click.option(
    "--load-gb-s",
    type=Amount(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="How fast weights load into a device [GB/s].",
)
@click.option(
    "--weights-on",
    metavar="all-devices|DEVICE",
    help="Who has the whole model file on disk.",
)
@click.option(
    "--plot",
    help="Draw what serves while weights move into this .svg or .png file.",
    shell_complete=words.files,
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--time-limit",
    type=Amount(min=0, min_open=True),
    help="Let an ordinary search look for plans, too, for so long [s].",
)
@problem_options
def command(
    plan: str,
    inventory: str,
    output: str | None,
    as_json: bool,
    quiet: bool,
    plot: str | None,
    seed: int,
    **options: Any,
) -> None:
    """Change PLAN, which runs, as far as a change of INVENTORY or workload makes worthwhile.

    Offers other routes, other roles, and other layers, each with its gain and its price, and
    recommends one; then lists the moves in order. PLAN is a JSON file that plan or replan wrote.

    \b
    Examples:
      e2llm-opt replan plan.json homelab.yaml
      e2llm-opt replan plan.json homelab.yaml --rate 2 -o next.json
      e2llm-opt replan plan.json homelab.yaml --exclude laptop --max-move-gib 4
      e2llm-opt replan plan.json homelab.yaml --step roles --json
      e2llm-opt replan plan.json homelab.yaml --weights-on all-devices --max-downtime 30
    """
    from e2llm_opt.cli.interruption import interruptible
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.plan.json_file import load_plan
    from e2llm_opt.plan.output import STANDARD_OUTPUT
    from e2llm_opt.replan.answer import Replan
    from e2llm_opt.replan.replan import replan
    from e2llm_opt.report.refusals import print_infeasible
    from e2llm_opt.report.replan import print_replan

    if as_json and output == STANDARD_OUTPUT:
        message = "--json and -o - both write to standard output; the answer holds the plan."
        raise click.UsageError(message)
    terms = _terms(options)
    problem = load_problem(inventory, options)
    old = load_plan(plan)
    _refuse_files(output, plot)
    preparing = "looking near the plan (the first time ever compiles kernels)"
    with (
        progress_line(sys.stderr, quiet=quiet, doing=preparing) as line,
        interruptible(line) as progress,
    ):
        answer = replan(
            old, problem, terms=terms, seed=seed, stop=_stop(options), progress=progress
        )
    if not isinstance(answer, Replan):
        if as_json or output == STANDARD_OUTPUT:
            sys.stdout.write(answer.to_json())
        elif not quiet:
            print_infeasible(answer, sys.stdout)
        click.get_current_context().exit(EXIT_NO)
    _write_files(answer, output, plot)
    if output == STANDARD_OUTPUT:
        sys.stdout.write(answer.plan.to_json())
    elif as_json:
        sys.stdout.write(answer.to_json())
    elif not quiet:
        print_replan(answer, sys.stdout)


def _refuse_files(output: str | None, plot: str | None) -> None:
    from e2llm_opt.plan.output import STANDARD_OUTPUT, refuse_unwritable
    from e2llm_opt.report.plots import refuse_plot_file

    if output is not None and output != STANDARD_OUTPUT:
        refuse_unwritable(output)
    if plot is not None:
        refuse_plot_file(plot)


def _write_files(answer: Replan, output: str | None, plot: str | None) -> None:
    from e2llm_opt.plan.output import STANDARD_OUTPUT, write_text_atomically
    from e2llm_opt.report.plots import plot_way

    if output is not None and output != STANDARD_OUTPUT:
        write_text_atomically(output, answer.plan.to_json())
    if plot is not None:
        plot_way(answer, plot)


def _terms(options: dict[str, Any]) -> ReplanTerms:
    from e2llm_opt.replan.terms import ReplanTerms
    from e2llm_opt.units import GB_PER_S, GIB

    gib = options["max_move_gib"]
    return ReplanTerms(
        horizon_s=options["horizon"],
        hysteresis=options["hysteresis"],
        noise=options["noise"],
        load_bytes_per_s=options["load_gb_s"] * GB_PER_S,
        weights_on=options["weights_on"],
        max_moves=options["max_moves"],
        max_move_bytes=None if gib is None else gib * GIB,
        max_downtime_s=options["max_downtime"],
        step=options["step"],
    )


def _stop(options: dict[str, Any]) -> Stop | None:
    from e2llm_opt.search.stop import Stop

    limit = options["time_limit"]
    return None if limit is None else Stop(time_limit_s=limit)
