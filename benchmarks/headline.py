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
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if __name__ == "__main__":  # started as a file: the folder above is not on the path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.reproduction import printed, results
from benchmarks.reproduction.cells import Cell, cells_of
from benchmarks.reproduction.change import NUM_REQUESTS, change_sheets, changes_of, scenarios
from benchmarks.reproduction.choice import NUM_CANDIDATES
from benchmarks.reproduction.figures import verdicts
from benchmarks.reproduction.page import write_page
from benchmarks.reproduction.setting import HOPS_MS
from benchmarks.reproduction.sheets import Sheet, show
from benchmarks.reproduction.steady import NUM_REQUESTS as NUM_STEADY
from benchmarks.reproduction.steady import SHARES, Steady, steady_of, steady_sheets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from benchmarks.reproduction.change import Change


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is run.

    Parameters
    ----------
    seeds
        Runs of each cell.
    steady, shares
        Requests of a long run, and the shares of capacity.
    change
        Requests of each half of an abrupt change.
    candidates
        Plans of our search that are simulated in each cell.
    """

    hops_ms: tuple[float, ...] = HOPS_MS
    seeds: int = 20
    steady: int = NUM_STEADY
    shares: tuple[float, ...] = SHARES
    change: int = NUM_REQUESTS
    candidates: int = NUM_CANDIDATES


QUICK = Effort(hops_ms=(20.0,), seeds=2, steady=2000, shares=(0.85,), change=300, candidates=24)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that was run."""

    effort: Effort
    cells: list[Cell]
    steady: list[Steady]
    changes: list[Change]

    @property
    def change_hop_ms(self) -> float:
        """Cost of a hop in the abrupt change [ms]."""
        return change_hop(self.effort)

    def sheets(self) -> list[Sheet]:
        """Return all tables in reading order."""
        return [
            results.paper_sheet(),
            *results.wait_sheets(self.cells),
            *results.ratio_sheets(self.cells),
            *results.part_sheets(self.cells),
            *steady_sheets(self.steady, self.effort.steady),
            *change_sheets(self.changes, self.change_hop_ms),
            results.verdict_sheet(self.cells),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "effort": asdict(self.effort),
            "cells": [_named(cell, "means") for cell in self.cells],
            "steady": [_named(run, "at_own", "at_same") for run in self.steady],
            "changes": [_named(change, "ways") for change in self.changes],
            "figures": [asdict(verdict) for verdict in verdicts(self.cells)],
        }


def change_hop(effort: Effort) -> float:
    """Return the cost of a hop in the abrupt change: the middle one [ms]."""
    return sorted(effort.hops_ms)[len(effort.hops_ms) // 2]


def run(effort: Effort, traces: tuple[Path | None, Path | None], jobs: int) -> Results:
    """Run everything, *jobs* parts at a time."""
    asked = [(hop, data_set) for hop in effort.hops_ms for data_set in printed.LENGTHS]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        how = partial(cells_of, num_seeds=effort.seeds, num_candidates=effort.candidates)
        cells = [pool.submit(how, *key) for key in asked]
        steady = [pool.submit(steady_of, *key, effort.steady, effort.shares) for key in asked]
        changes = [
            pool.submit(changes_of, scenario, change_hop(effort))
            for scenario in scenarios(effort.change, *traces)
        ]
        return Results(
            effort=effort,
            cells=_together(cells),
            steady=_together(steady),
            changes=_together(changes),
        )


def _together(parts: Sequence[Future[list[Any]]]) -> list[Any]:
    return [one for part in parts for one in part.result()]


def _named(record: Any, *names: str) -> dict[str, Any]:  # noqa: ANN401 - any of the records
    """Return *record* with its named tuples as mappings, too."""

    def plain(value: Any) -> Any:  # noqa: ANN401 - what JSON takes
        if hasattr(value, "_asdict"):
            return value._asdict()
        return {str(key): plain(one) for key, one in value.items()}

    fields = {name: getattr(record, name) for name in record.__dataclass_fields__}
    return {**fields, **{name: plain(fields[name]) for name in names}}


@click.command()
@click.option("--hop", "hops", type=float, multiple=True, help="Fixed cost a hop [ms]; repeatable.")
@click.option("--seeds", type=click.IntRange(1), help="Runs of each cell; default 20.")
@click.option("--quick", is_flag=True, help="One cost of a hop, few seeds, short runs.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="Processes.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures.")
@click.option("--write-docs", is_flag=True, help="Write the figures of docs/headline.md anew.")
@click.option("--azure-conversation", type=click.Path(exists=True, path_type=Path))
@click.option("--azure-code", type=click.Path(exists=True, path_type=Path))
def main(  # noqa: PLR0917 - one parameter an option
    hops: tuple[float, ...],
    seeds: int | None,
    quick: bool,  # noqa: FBT001 - click calls by keyword
    jobs: int,
    json_file: Path | None,
    write_docs: bool,  # noqa: FBT001 - the same
    azure_conversation: Path | None,
    azure_code: Path | None,
) -> None:
    """Reproduce the E2LLM paper's headline: Tables VII and VIII, and what they leave out."""
    if (azure_conversation is None) != (azure_code is None):
        raise click.UsageError("--azure-conversation and --azure-code belong together")
    effort = QUICK if quick else Effort()
    effort = replace(effort, hops_ms=hops or effort.hops_ms, seeds=seeds or effort.seeds)
    began = time.monotonic()
    found = run(effort, (azure_conversation, azure_code), jobs)
    sheets = found.sheets()
    took = f"{(time.monotonic() - began) / 60:.1f} minutes"
    show(sheets)
    print(f"\n{effort.seeds} seeds a cell; {took}.")
    if json_file is not None:
        json_file.write_text(json.dumps(found.to_dict(), indent=1), encoding="utf-8")
    if write_docs:
        write_page(_introduction(effort, took), sheets)
    if any(verdict.is_reached is False for verdict in verdicts(found.cells)):
        sys.exit(1)


def _introduction(effort: Effort, took: str) -> str:
    hops = ", ".join(f"{hop:g}" for hop in effort.hops_ms)
    return (
        f"Written by `python benchmarks/headline.py --write-docs`; do not edit. Run on "
        f"{datetime.now(UTC).date().isoformat()} in {took}: hops of {hops} ms, {effort.seeds} "
        f"seeds a cell, {effort.steady} requests a long run, {effort.change} in each half of a "
        "change."
    )


if __name__ == "__main__":
    main()
