"""``e2llm-opt pareto``: from an inventory file to a front of plans."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.group import EXIT_NO
from e2llm_opt.cli.problem import Amount, load_problem, problem_options

if TYPE_CHECKING:
    from e2llm_opt.pareto.front import Front
    from e2llm_opt.search.stop import Stop


@click.command("pareto")
@click.argument("inventory", shell_complete=words.files)
@click.option(
    "--objectives",
    help="What plans are compared by, separated by commas: waiting_time, ttft, tpot, latency, "
    "capacity, cost_per_hour, power_w, devices, lost_capacity.",
    shell_complete=words.objectives,
)
@click.option(
    "--size", type=click.IntRange(min=2), default=30, show_default=True, help="Plans at most."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the table.")
@click.option("-q", "--quiet", is_flag=True, help="Print no table and no progress.")
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    help="Write plan-01.json ..., and front.json with all of them, into this folder.",
    shell_complete=words.files,
)
@click.option(
    "--plot", help="Draw the front into this .svg or .png file.", shell_complete=words.files
)
@problem_options
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--method",
    type=click.Choice(["auto", "exhaustive", "ga"]),
    default="auto",
    show_default=True,
    help="Search over groupings; auto is exhaustive up to 8 devices.",
)
@click.option("--time-limit", type=Amount(min=0, min_open=True), help="Stop the search after [s].")
@click.option("--max-evaluations", type=click.IntRange(min=1), help="Stop the search after.")
def command(
    inventory: str,
    objectives: str | None,
    size: int,
    as_json: bool,
    quiet: bool,
    output: str | None,
    plot: str | None,
    seed: int,
    **options: Any,
) -> None:
    """Find plans for INVENTORY of which none is better than another in everything.

    Options win over the file. Ctrl-C ends the search and keeps the front so far. The knee is the
    plan that is closest to the best of all objectives together.

    \b
    Examples:
      e2llm-opt pareto homelab.yaml
      e2llm-opt pareto homelab.yaml --objectives ttft,power_w
      e2llm-opt pareto campus.yaml --size 12 -o front --plot front.svg
      e2llm-opt pareto campus.yaml --json --time-limit 60 > front.json
    """
    from e2llm_opt.cli.interruption import interruptible
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.pareto.pareto import pareto
    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.report.front import print_front
    from e2llm_opt.report.plots import refuse_plot_file
    from e2llm_opt.report.refusals import print_infeasible

    problem = load_problem(inventory, options)
    if plot is not None:
        refuse_plot_file(plot)
    if output is not None:
        _make_folder(output)
    preparing = "preparing (the first plan ever compiles its kernels)"
    with (
        progress_line(sys.stderr, quiet=quiet, doing=preparing) as line,
        interruptible(line) as progress,
    ):
        answer = pareto(
            problem,
            objectives=None if objectives is None else _names(objectives),
            size=size,
            seed=seed,
            stop=_stop(options),
            progress=progress,
        )
    if isinstance(answer, Infeasible):
        if as_json:
            sys.stdout.write(answer.to_json())
        elif not quiet:
            print_infeasible(answer, sys.stdout)
        click.get_current_context().exit(EXIT_NO)
    if output is not None:
        _write(answer, Path(output))
    if plot is not None:
        answer.plot(plot)
    if as_json:
        sys.stdout.write(answer.to_json())
    elif not quiet:
        print_front(answer, sys.stdout)


def _names(objectives: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in objectives.split(",") if name.strip())


def _stop(options: dict[str, Any]) -> Stop:
    from e2llm_opt.search.stop import Stop

    limits = {
        "method": options["method"],
        "max_evaluations": options["max_evaluations"],
        "time_limit_s": options["time_limit"],
    }
    return Stop(**{name: value for name, value in limits.items() if value is not None})


def _make_folder(output: str) -> None:
    """Make the folder, before a search is spent on what goes into it."""
    from e2llm_opt.errors import Fault, InputError

    try:
        Path(output).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wrong = f"cannot be made a folder: {error.strerror or error}"
        raise InputError([Fault(file=output, wrong=wrong, right="name another one")]) from None


def _write(front: Front, folder: Path) -> None:
    from e2llm_opt.plan.output import write_text_atomically

    for number, plan in enumerate(front.plans, start=1):
        write_text_atomically(str(folder / f"plan-{number:02}.json"), plan.to_json())
    write_text_atomically(str(folder / "front.json"), front.to_json())
