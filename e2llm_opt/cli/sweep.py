"""``e2llm-opt sweep``: a grid of problems, planned by many workers into one table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from e2llm_opt.cli import words
from e2llm_opt.cli.group import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from e2llm_opt.cli.problem import Amount

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2llm_opt.cli.progress import Line
    from e2llm_opt.search.stop import Stop
    from e2llm_opt.sweep.sweep import SweepProgress


@click.command("sweep")
@click.argument("sweep_file", metavar="SWEEP", shell_complete=words.files)
@click.option(
    "-o",
    "--output",
    required=True,
    help="The table, .csv or .parquet; a journal beside it is what a later run goes on from.",
    shell_complete=words.files,
)
@click.option("--workers", type=click.IntRange(min=1), help="Processes here; default: all cores.")
@click.option("--dask", help="Address of a Dask scheduler, whose workers plan instead.")
@click.option("--plans", help="Folder that takes every plan as JSON.", shell_complete=words.files)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Where the file gives none.",
)
@click.option(
    "--method",
    type=click.Choice(["auto", "exact", "exhaustive", "ga"]),
    default="auto",
    show_default=True,
    help="Search over groupings, as of plan.",
)
@click.option("--time-limit", type=Amount(min=0, min_open=True), help="Stop each search after [s].")
@click.option(
    "--gap",
    type=Amount(min=0, max=1, max_open=True),
    help="Stop each search once its plan is proven to be within this share of the best.",
)
@click.option("--max-evaluations", type=click.IntRange(min=1), help="Stop each search after.")
@click.option("-q", "--quiet", is_flag=True, help="Print no summary and no progress.")
def command(
    sweep_file: str,
    output: str,
    workers: int | None,
    dask: str | None,
    plans: str | None,
    seed: int,
    quiet: bool,
    **options: Any,
) -> None:
    """Plan every row of SWEEP, a YAML file of inventories, models, workloads ... and rows.

    Every answer is kept at once: the same command goes on after Ctrl-C, a crash or a full disk,
    plans only what is missing or whose input has changed, and tries failed rows again. A row that
    cannot be read or planned fails with its reason, and the rest runs; then the exit code is 2.

    \b
    Examples:
      e2llm-opt sweep sweep.yaml -o results.csv
      e2llm-opt sweep sweep.yaml -o results.parquet --workers 8 --time-limit 20
      e2llm-opt sweep sweep.yaml -o results.csv --plans plans/
      e2llm-opt sweep sweep.yaml -o results.csv --dask tcp://10.0.0.5:8786
    """
    from e2llm_opt.cli.interruption import breakable
    from e2llm_opt.cli.progress import progress_line
    from e2llm_opt.report.sweep import print_sweep
    from e2llm_opt.sweep.sweep import sweep

    if workers is not None and dask is not None:
        raise click.UsageError("give --workers or --dask, not both.")
    last: list[SweepProgress] = []
    try:
        with (
            progress_line(sys.stderr, quiet=quiet, doing="starting workers") as line,
            breakable(line) as breathe,
        ):
            rows = sweep(
                sweep_file,
                output,
                seed=seed,
                stop=_stop(options),
                workers=workers,
                dask=dask,
                plans=plans,
                progress=_progress(line, breathe, last),
            )
    except KeyboardInterrupt:
        _say_interrupted(last, output)
        click.get_current_context().exit(EXIT_INTERRUPTED)
    if not quiet:
        print_sweep(rows, output, sys.stdout)
    failed = [row for row in rows if row.status == "failed"]
    for row in failed:
        for reason in row.reason.splitlines():
            click.echo(f"row {row.row}: {reason}", err=True)
    if failed:
        click.get_current_context().exit(EXIT_BAD_INPUT)


def _stop(options: dict[str, Any]) -> Stop:
    from e2llm_opt.search.stop import Stop

    given = {name: value for name, value in options.items() if value is not None}
    if "time_limit" in given:
        given["time_limit_s"] = given.pop("time_limit")
    return Stop(**given)


def _progress(
    line: Line | None, breathe: Callable[[], None], last: list[SweepProgress]
) -> Callable[[SweepProgress], None]:
    """Return what keeps the last state, shows it, and listens for Ctrl-C."""

    def tell(state: SweepProgress) -> None:
        last[:] = [state]
        if line is not None:
            more = [f"{state.resumed} of an earlier run"] if state.resumed else []
            more += [f"{state.failed} failed"] if state.failed else []
            words = f"row {state.done} of {state.rows}{''.join(f', {part}' for part in more)}"
            line.say(f"{words} | {state.workers} workers | Ctrl-C keeps what is done")
        breathe()

    return tell


def _say_interrupted(last: list[SweepProgress], output: str) -> None:
    done, rows = (last[0].done, last[0].rows) if last else (0, 0)
    click.echo(
        f"Interrupted: {done} of {rows} rows are done and kept beside {output}; "
        "the same command goes on from there.",
        err=True,
    )
