"""``e2llm-opt plan``: from an inventory file to a plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.group import EXIT_NO
from e2llm_opt.cli.problem import Amount, load_problem, problem_options
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import PLANNERS

if TYPE_CHECKING:
    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.search.islands import Islands
    from e2llm_opt.search.stop import Stop


PAPER = "e2llm-paper"


@click.command("plan")
@click.argument("inventory", shell_complete=words.files)
@click.option(
    "-o",
    "--output",
    help="Write the plan as JSON to this file; - is stdout.",
    shell_complete=words.files,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the report.")
@click.option("-q", "--quiet", is_flag=True, help="Print no report and no progress.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="So many plans that differ in groups or roles, the best first.",
)
@problem_options
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--planner",
    type=click.Choice(PLANNERS),
    default=OURS,
    show_default=True,
    help="Who plans; all but the default are other people's rules, for comparison.",
)
@click.option(
    "--method",
    type=click.Choice(["auto", "exact", "exhaustive", "ga", PAPER]),
    default="auto",
    show_default=True,
    help="Search over groupings; auto is exact for throughput, else exhaustive up to 8 devices. "
    "e2llm-paper is the planner.",
)
@click.option("--time-limit", type=Amount(min=0, min_open=True), help="Stop the search after [s].")
@click.option(
    "--gap",
    type=Amount(min=0, max=1, max_open=True),
    help="Stop once the plan is proven to be within this share of the best.",
)
@click.option("--max-evaluations", type=click.IntRange(min=1), help="Stop the search after.")
@click.option(
    "--islands",
    type=click.IntRange(min=1),
    help="So many genetic algorithms side by side, on all cores or with --dask.",
)
@click.option(
    "--dask",
    help="Address of a Dask scheduler, on whose workers the islands are; 4 unless said.",
)
def command(
    inventory: str,
    output: str | None,
    as_json: bool,
    quiet: bool,
    top: int,
    planner: str,
    seed: int,
    **options: Any,
) -> None:
    """Find the best plan for INVENTORY, a YAML file of devices, links, model and workload.

    Options win over the file. Ctrl-C ends the search and keeps the best plan so far. With --top,
    the second plan goes to plan-2.json and so on, and --json prints {"plans": [...]}.

    \b
    Examples:
      e2llm-opt plan homelab.yaml
      e2llm-opt plan homelab.yaml -o plan.json --rate 0.5
      e2llm-opt plan homelab.yaml --json --model llama-3.1-8b --weights q4_k_m
      e2llm-opt plan homelab.yaml --top 3 -o plan.json
      e2llm-opt plan campus.yaml --method ga --seed 1 --time-limit 20
      e2llm-opt plan campus.yaml --objective throughput --gap 0.01
      e2llm-opt plan campus.yaml --dask tcp://10.0.0.5:8786 --islands 8
      e2llm-opt plan testbed.yaml --planner splitwise-adapted
    """
    from e2llm_opt.cli.interruption import interruptible
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.plan.json_file import dump_json
    from e2llm_opt.plan.output import STANDARD_OUTPUT, refuse_unwritable, write_text_atomically
    from e2llm_opt.solve import plans

    planner = _planner(planner, options)
    problem = load_problem(inventory, options)
    files = _files(output, top)
    for file in files:
        refuse_unwritable(file, inventory)
    preparing = "preparing (the first plan ever compiles its kernels)"
    with (
        progress_line(sys.stderr, quiet=quiet, doing=preparing) as line,
        interruptible(line) as progress,
    ):
        answer = plans(
            problem,
            top=top,
            planner=planner,
            seed=seed,
            stop=_stop(options),
            islands=_islands(options),
            progress=progress,
        )
    answers: tuple[Plan | Infeasible, ...] = answer if isinstance(answer, tuple) else (answer,)
    for file, one in zip(files, answers, strict=False):
        write_text_atomically(file, one.to_json())
    if as_json or output == STANDARD_OUTPUT:
        is_list = top > 1 and isinstance(answer, tuple)
        sys.stdout.write(dump_json({"plans": answers}) if is_list else answers[0].to_json())
    elif not quiet:
        _print(answers)
    if not isinstance(answer, tuple):
        click.get_current_context().exit(EXIT_NO)


def _planner(planner: str, options: dict[str, Any]) -> str:
    """Return the planner; the paper's method is a planner of its own."""
    if options["method"] != PAPER:
        return planner
    if planner not in {OURS, PAPER}:
        message = f"--method {PAPER} is --planner {PAPER}; leave --planner {planner} out."
        raise click.UsageError(message)
    options["method"] = "auto"
    return PAPER


def _files(output: str | None, top: int) -> list[str]:
    """Return where each plan goes: plan.json, plan-2.json …; none for standard output."""
    from e2llm_opt.plan.output import STANDARD_OUTPUT

    if output is None or output == STANDARD_OUTPUT:
        return []
    path = Path(output)
    return [output, *(str(path.with_stem(f"{path.stem}-{i}")) for i in range(2, top + 1))]


def _stop(options: dict[str, Any]) -> Stop:
    from e2llm_opt.search.stop import Stop

    names = ("method", "max_evaluations", "time_limit", "gap")
    given = {name: options[name] for name in names if options[name] is not None}
    if "time_limit" in given:
        given["time_limit_s"] = given.pop("time_limit")
    return Stop(**given)


def _islands(options: dict[str, Any]) -> Islands | None:
    from e2llm_opt.search.islands import DEFAULT_ISLANDS, Islands

    num, dask = options["islands"], options["dask"]
    if num is None and dask is None:
        return None
    return Islands(num=num or DEFAULT_ISLANDS, dask=dask)


def _print(answers: tuple[Plan | Infeasible, ...]) -> None:
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.report.ranking import print_ranking
    from e2llm_opt.report.refusals import print_infeasible
    from e2llm_opt.report.terminal import print_plan

    best = answers[0]
    if isinstance(best, Plan):
        print_plan(best, sys.stdout)
        print_ranking([plan for plan in answers if isinstance(plan, Plan)], sys.stdout)
    else:
        print_infeasible(best, sys.stdout)
