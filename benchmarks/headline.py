"""The E2LLM paper's headline, reproduced: its plans, ours, and both kinds of Splitwise, simulated.

``python benchmarks/headline.py`` runs everything: Tables VII and VIII of the paper, long runs below
capacity, and an abrupt change of the workload. It ends with the figures that were promised, each
reached or missed, and with exit code 1 where one is missed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if __name__ == "__main__":  # started as a file: the folder above is not on the path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reproduction import printed
from benchmarks.reproduction.cells import cells_of
from benchmarks.reproduction.change import changes_of, scenarios
from benchmarks.reproduction.figures import verdicts
from benchmarks.reproduction.page import write_page
from benchmarks.reproduction.record import QUICK, Effort, Results
from benchmarks.reproduction.sheets import show
from benchmarks.reproduction.steady import steady_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future


PARTS = ("cells", "steady", "changes")


def run(
    effort: Effort,
    traces: tuple[Path | None, Path | None],
    jobs: int,
    parts: Sequence[str] = PARTS,
) -> Results:
    """Run everything, or some parts, in *jobs* processes."""
    began = time.monotonic()
    asked = [(hop, data_set) for hop in effort.hops_ms for data_set in printed.LENGTHS]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        how = partial(cells_of, num_seeds=effort.seeds, num_candidates=effort.candidates)
        cells = [pool.submit(how, *key) for key in asked if "cells" in parts]
        steady = [
            pool.submit(steady_of, *key, effort.steady, effort.shares)
            for key in asked
            if "steady" in parts
        ]
        changes = [
            pool.submit(changes_of, scenario, effort.change_hop_ms)
            for scenario in scenarios(effort.change, *traces)[: effort.scenarios]
            if "changes" in parts
        ]
        return Results(
            effort=effort,
            cells=_together(cells),
            steady=_together(steady),
            changes=_together(changes),
            date=datetime.now(UTC).date().isoformat(),
            minutes=(time.monotonic() - began) / 60,
        )


def _together(parts: Sequence[Future[list[Any]]]) -> list[Any]:
    return [one for part in parts for one in part.result()]


@click.command()
@click.option("--hop", "hops", type=float, multiple=True, help="Fixed cost a hop [ms]; repeatable.")
@click.option("--seeds", type=click.IntRange(1), help="Runs of each cell; default 20.")
@click.option("--quick", is_flag=True, help="One cost of a hop, few seeds, short runs.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures.")
@click.option(
    "--from-json", type=click.Path(exists=True, path_type=Path), help="Show a former run."
)
@click.option("--only", type=click.Choice(PARTS), multiple=True, help="Run these parts only.")
@click.option("--write-docs", is_flag=True, help="Write the figures of docs/headline.md anew.")
@click.option("--azure-conversation", type=click.Path(exists=True, path_type=Path))
@click.option("--azure-code", type=click.Path(exists=True, path_type=Path))
def main(  # noqa: PLR0913, PLR0917 - one parameter an option
    hops: tuple[float, ...],
    seeds: int | None,
    quick: bool,  # noqa: FBT001 - click calls by keyword
    jobs: int,
    json_file: Path | None,
    from_json: Path | None,
    only: tuple[str, ...],
    write_docs: bool,  # noqa: FBT001 - the same
    azure_conversation: Path | None,
    azure_code: Path | None,
) -> None:
    """Reproduce the E2LLM paper's headline: Tables VII and VIII, and what they leave out."""
    if (azure_conversation is None) != (azure_code is None):
        raise click.UsageError("--azure-conversation and --azure-code belong together")
    effort = QUICK if quick else Effort()
    effort = replace(effort, hops_ms=hops or effort.hops_ms, seeds=seeds or effort.seeds)
    found = Results(effort=effort)
    if from_json is not None:
        found = Results.from_dict(json.loads(from_json.read_text(encoding="utf-8")))
    parts = only or (PARTS if from_json is None else ())
    if parts:
        anew = run(found.effort, (azure_conversation, azure_code), jobs, parts)
        found = replace(
            found,
            **{part: getattr(anew, part) for part in parts},
            date=anew.date,
            minutes=found.minutes + anew.minutes,
        )
    sheets = found.sheets()
    show(sheets)
    print(f"\n{found.effort.seeds} seeds a cell; {found.minutes:.1f} minutes.")
    if json_file is not None:
        json_file.write_text(json.dumps(found.to_dict(), indent=1), encoding="utf-8")
    if write_docs:
        write_page(found.introduction, [sheets[-1], *sheets[:-1]])
    if any(verdict.is_reached is False for verdict in verdicts(found.cells)):
        sys.exit(1)


if __name__ == "__main__":
    main()
