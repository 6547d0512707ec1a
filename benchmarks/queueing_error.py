"""Waiting times that plans state against simulated ones: many plans, loads, lengths and engines."""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.queueing_plans import Subject, subjects
from e2llm_opt import Role
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.context import max_context
from e2llm_opt.search.evaluate import Evaluator
from e2llm_opt.simulate.simulate import Simulator
from e2llm_opt.simulate.system import Actor
from e2llm_opt.workload.arrivals import draw_arrivals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.search.candidate import Candidate

LOADS = (0.3, 0.5, 0.7, 0.8, 0.85, 0.9, 0.95)
"""Utilisation: arrival rate over the capacity that the plan states."""
REQUESTS, WARMUP = 40_000, 4_000
"""Of one run."""
MIN_RUNS, MAX_RUNS = 3, 8
PRECISION = 0.02
"""Runs are added until the standard error is this part of the mean."""
JUDGED_UP_TO = 0.9
DISAGGREGATED, MIXED, MIXED_S = 0.15, 0.30, 0.4
"""The figure: largest relative errors, and what a wait with MIXED replicas may be off [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One plan under one load.

    Parameters
    ----------
    kind, instance, planner, replicas
        What it is.
    load
        Utilisation.
    predicted_s, simulated_s, error_s
        Mean waits and the standard error of the simulated one [s].
    rejected
        Share of requests that no slot is long enough for.
    is_stable
        Whether the simulation has a steady state: waits of later requests are no longer.
    """

    kind: str
    instance: str
    planner: str
    replicas: str
    load: float
    predicted_s: float
    simulated_s: float
    error_s: float
    rejected: float
    is_stable: bool

    @property
    def off_s(self) -> float:
        """Predicted less simulated [s]."""
        return self.predicted_s - self.simulated_s

    @property
    def relative(self) -> float:
        """The same over the simulated wait."""
        return self.off_s / max(self.simulated_s, 1e-9)

    @property
    def misses(self) -> bool:
        """Whether the figure is missed."""
        if "MIXED" in self.kind:
            return abs(self.relative) > MIXED and abs(self.off_s) > MIXED_S
        return abs(self.relative) > DISAGGREGATED


def measured(*, quick: bool) -> Iterator[Cell]:
    """Yield every plan under every load."""
    for subject in subjects(quick=quick):
        replicas = _replicas(subject, 0.0)
        if replicas is not None:
            yield from _cells(subject, replicas, quick=quick)


def _cells(
    subject: Subject, found: tuple[Evaluator, list[Candidate]], *, quick: bool
) -> Iterator[Cell]:
    evaluator, replicas = found
    capacity = evaluator.outcome(replicas).traffic.capacity_per_s
    actors = [_actor(evaluator, replica) for replica in replicas]
    shown = " ".join(f"{r.role[0]}{r.slots}/{len(r.cut)}" for r in replicas)
    for load in LOADS if capacity > 0 else ():
        rate = load * capacity
        again = _replicas(subject, rate)
        if again is None:
            continue
        runs = _simulated(subject, actors, rate, max_runs=MIN_RUNS if quick else MAX_RUNS)
        means = [mean for mean, _, _ in runs]
        yield Cell(
            kind=subject.kind,
            instance=subject.instance,
            planner=subject.planner,
            replicas=shown,
            load=load,
            predicted_s=again[0].outcome(again[1]).waiting_time_s,
            simulated_s=statistics.mean(means),
            error_s=statistics.stdev(means) / math.sqrt(len(means)),
            rejected=statistics.mean(rejected for _, rejected, _ in runs),
            is_stable=statistics.median(growth for _, _, growth in runs) < 1.5,
        )


def _simulated(
    subject: Subject, actors: Sequence[Actor], rate: float, *, max_runs: int
) -> list[tuple[float, float, float]]:
    """Return (mean wait [s], share rejected, second half over first) of runs with unlike seeds."""
    runs: list[tuple[float, float, float]] = []
    for seed in range(max_runs):
        workload = subject.problem.workload
        arrivals = draw_arrivals(workload, REQUESTS, rate_per_s=rate, seed=seed)
        simulator = Simulator(costs_of(subject.problem), arrivals)
        run = simulator.run(actors, how=("shortest-wait", False, WARMUP))
        waits = run.waiting_time_s[run.counted]
        early, late = np.array_split(waits, 2)
        growth = float(late.mean()) / max(float(early.mean()), 1e-9)
        runs.append((float(waits.mean()), run.num_rejected / REQUESTS, growth))
        means = [mean for mean, _, _ in runs]
        if seed + 1 >= MIN_RUNS:
            error = statistics.stdev(means) / math.sqrt(len(means))
            if error < PRECISION * statistics.mean(means):
                break
    return runs


def _replicas(subject: Subject, rate: float) -> tuple[Evaluator, list[Candidate]] | None:
    """Return the plan's replicas as the planner judges them; None where it would not have them."""
    workload = replace(subject.problem.workload, rate_per_s=rate)
    costs = costs_of(replace(subject.problem, workload=workload))
    candidates = Candidates(costs, costs.classes.order)
    found = []
    for seat in subject.seats:
        replica = candidates.at_cut(seat.cut, seat.role, seat.slots)
        if replica is None or (seat.role is not Role.PREFILL and replica.slots != seat.slots):
            return None
        found.append(replica)
    return Evaluator(candidates), found


def _actor(evaluator: Evaluator, replica: Candidate) -> Actor:
    return Actor(
        role=replica.role,
        cut=replica.cut,
        slots=replica.slots,
        spilled=replica.spilled,
        max_context_tokens=max_context(
            evaluator.costs, replica.cut, replica.slots, replica.spilled
        ),
    )


HEAD = ("plans", "load", "cells", "median", "bias", "worst", "worst [s]", "noise", "misses")


def summary(cells: Sequence[Cell]) -> list[tuple[str, ...]]:
    """Return a row for each kind of plan and load; unstable simulations are left out."""
    groups: dict[tuple[str, float], list[Cell]] = {}
    for cell in cells:
        if cell.is_stable:
            groups.setdefault((cell.kind, cell.load), []).append(cell)
    rows: list[tuple[str, ...]] = []
    for (kind, load), group in sorted(groups.items()):
        errors = [cell.relative for cell in group]
        noise = statistics.median(c.error_s / max(c.simulated_s, 1e-9) for c in group)
        rows.append(
            (
                kind,
                f"{load:g}",
                str(len(group)),
                f"{statistics.median(map(abs, errors)):.0%}",
                f"{statistics.median(errors):+.0%}",
                f"{max(map(abs, errors)):.0%}",
                f"{max(abs(cell.off_s) for cell in group):.2f}",
                f"{noise:.1%}",
                str(sum(cell.misses for cell in group)) if load <= JUDGED_UP_TO else "",
            )
        )
    return rows


def misses(cells: Sequence[Cell]) -> list[Cell]:
    """Return the cells up to the judged load that miss the figure, the farthest off first."""
    found = [c for c in cells if c.is_stable and c.load <= JUDGED_UP_TO and c.misses]
    return sorted(found, key=lambda cell: -abs(cell.relative))


def table(cells: Sequence[Cell]) -> str:
    """Return the summary as a Markdown table."""
    lines = [f"| {' | '.join(HEAD)} |", "|---|" + "---:|" * (len(HEAD) - 1)]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in summary(cells)])


def missed_table(cells: Sequence[Cell], most: int = 12) -> str:
    """Return the plans that miss most as a Markdown table, their worst load each."""
    worst: dict[tuple[str, str], Cell] = {}
    for cell in misses(cells):
        worst.setdefault((cell.instance, cell.replicas), cell)
    lines = [
        "| instance | replicas | load | predicted [s] | simulated [s] | error |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {c.instance} | {c.replicas} | {c.load:g} | {c.predicted_s:.3g} | {c.simulated_s:.3g} "
        f"| {c.relative:+.0%} |"
        for c in list(worst.values())[:most]
    ]
    return "\n".join(lines)


def totals(cells: Sequence[Cell]) -> dict[str, int]:
    """Return how many cells were judged, how many miss, and how many have no steady state."""
    judged = [cell for cell in cells if cell.load <= JUDGED_UP_TO]
    return {
        "num_cells": sum(cell.is_stable for cell in judged),
        "num_missed": len(misses(cells)),
        "num_unstable": sum(not cell.is_stable for cell in judged),
        "num_plans": len({(cell.instance, cell.replicas) for cell in cells}),
    }


_PAGE = """\
# Predicted and simulated waits

Written by `python -m benchmarks.queueing_error {options}`; do not edit.

A plan's waiting time comes from formulas ([Cost model](cost-model.md#queueing)); the
[simulator](simulator.md) plays the plan out on Poisson arrivals at shares of the plan's
capacity, with {requests} requests a run. {num_plans} plans of several planners, inventories,
engines and lengths. `bias` is the median of the relative errors, `median` that of their absolute
values, `noise` the standard error of the simulated mean. Wanted up to {judged:.0%} utilisation:
{disaggregated:.0%} for P/D plans, {mixed:.0%} or {mixed_s:g} s with MIXED replicas. {num_missed} of
{num_cells} cells miss that; {num_unstable} have no steady state in the simulation.

{table}

{missed}
"""


def _write_page(cells: Sequence[Cell], *, is_quick: bool) -> None:
    page = Path(__file__).parents[1] / "docs" / "waits.md"
    text = _PAGE.format(
        options="--quick --write-docs" if is_quick else "--write-docs",
        requests=REQUESTS,
        judged=JUDGED_UP_TO,
        disaggregated=DISAGGREGATED,
        mixed=MIXED,
        mixed_s=MIXED_S,
        table=table(cells),
        missed=missed_table(cells) if misses(cells) else "",
        **totals(cells),
    )
    page.write_text(text.rstrip() + "\n", encoding="utf-8")


def main() -> None:
    """Print the table, or all cells as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few plans, few requests")
    parser.add_argument("--json", action="store_true", help="every cell, and the totals")
    parser.add_argument("--write-docs", action="store_true", help="write docs/waits.md anew")
    asked = parser.parse_args()
    console, cells = Console(stderr=True), []
    for cell in measured(quick=asked.quick):
        cells.append(cell)
        console.print(f"{len(cells)} cells, {cell.instance}", end="\r")
    if asked.write_docs:
        _write_page(cells, is_quick=asked.quick)
    if asked.json:
        rows = [{**asdict(cell), "misses": cell.misses} for cell in cells]
        json.dump({"cells": rows, **totals(cells)}, sys.stdout, indent=1)
        return
    shown = Table(title="predicted against simulated mean wait")
    for name in HEAD:
        shown.add_column(name, no_wrap=True)
    for row in summary(cells):
        shown.add_row(*row)
    out = Console()
    out.print(shown)
    for cell in misses(cells):
        out.print(
            f"{cell.instance}: {cell.replicas} at {cell.load:g}: {cell.predicted_s:.3g} s, "
            f"simulated {cell.simulated_s:.3g} s ({cell.relative:+.0%})"
        )
    out.print(" · ".join(f"{name[4:]}: {value}" for name, value in totals(cells).items()))


if __name__ == "__main__":
    main()
