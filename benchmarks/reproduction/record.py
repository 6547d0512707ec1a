"""One whole run of the benchmark: how much was run, what came out, as tables and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from benchmarks.reproduction import results
from benchmarks.reproduction.cells import Cell
from benchmarks.reproduction.change import NUM_REQUESTS, Change, Outcome, change_sheets
from benchmarks.reproduction.choice import NUM_CANDIDATES
from benchmarks.reproduction.contenders import Means
from benchmarks.reproduction.figures import verdicts
from benchmarks.reproduction.setting import HOPS_MS
from benchmarks.reproduction.steady import NUM_REQUESTS as NUM_STEADY
from benchmarks.reproduction.steady import SHARES, Steady, steady_sheets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.reproduction.sheets import Sheet


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is run.

    Parameters
    ----------
    seeds
        Runs of each cell.
    steady, shares
        Requests of a long run, and the shares of capacity.
    change, scenarios
        Requests of each half of an abrupt change, and how many changes.
    candidates
        Plans of our search that are simulated in each cell.
    """

    hops_ms: tuple[float, ...] = HOPS_MS
    seeds: int = 20
    steady: int = NUM_STEADY
    shares: tuple[float, ...] = SHARES
    change: int = NUM_REQUESTS
    scenarios: int = 2
    candidates: int = NUM_CANDIDATES

    @property
    def change_hop_ms(self) -> float:
        """Cost of a hop in the abrupt change: the middle one [ms]."""
        return sorted(self.hops_ms)[len(self.hops_ms) // 2]


QUICK = Effort(
    hops_ms=(20.0,),
    seeds=2,
    steady=2000,
    shares=(0.85,),
    change=300,
    scenarios=1,
    candidates=24,
)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that was run, when, and how long it took."""

    effort: Effort
    cells: Sequence[Cell] = ()
    steady: Sequence[Steady] = ()
    changes: Sequence[Change] = ()
    date: str = ""
    minutes: float = 0.0

    def sheets(self) -> list[Sheet]:
        """Return all tables in reading order."""
        return [
            results.paper_sheet(),
            *results.wait_sheets(self.cells),
            *results.ratio_sheets(self.cells),
            *results.part_sheets(self.cells),
            *steady_sheets(self.steady, self.effort.steady),
            *change_sheets(self.changes, self.effort.change_hop_ms),
            results.verdict_sheet(self.cells),
        ]

    @property
    def introduction(self) -> str:
        """How all this was made, in a paragraph."""
        effort = self.effort
        hops = ", ".join(f"{hop:g}" for hop in effort.hops_ms)
        return (
            "Written by `python benchmarks/headline.py --write-docs`; do not edit. Run on "
            f"{self.date} in {self.minutes:.0f} minutes: hops of {hops} ms, {effort.seeds} seeds a "
            f"cell, {effort.steady} requests a long run, {effort.change} in each half of a change."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {
            "date": self.date,
            "minutes": self.minutes,
            "effort": asdict(self.effort),
            "cells": [_plain(cell) for cell in self.cells],
            "steady": [_plain(run) for run in self.steady],
            "changes": [_plain(change) for change in self.changes],
            "figures": [asdict(verdict) for verdict in verdicts(self.cells)],
        }

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Results:
        """Return what :meth:`to_dict` wrote."""
        effort = {name: _frozen(value) for name, value in given["effort"].items()}
        return Results(
            date=given["date"],
            minutes=given["minutes"],
            effort=Effort(**effort),
            cells=[Cell(**{**one, "means": _means(one["means"])}) for one in given["cells"]],
            steady=[
                Steady(
                    **{
                        **one,
                        "at_own": {float(k): Means(**m) for k, m in one["at_own"].items()},
                        "at_same": Means(**one["at_same"]),
                    }
                )
                for one in given["steady"]
            ],
            changes=[
                Change(
                    scenario=one["scenario"],
                    planner=one["planner"],
                    rates_per_s=(one["rates_per_s"][0], one["rates_per_s"][1]),
                    ways={way: Outcome(**found) for way, found in one["ways"].items()},
                )
                for one in given["changes"]
            ],
        )


def _means(given: Mapping[str, Any]) -> dict[str, Means]:
    return {name: Means(**figures) for name, figures in given.items()}


def _frozen(value: Any) -> Any:  # noqa: ANN401 - a number or a list of them
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:  # noqa: ANN401 - records, and what is in them
    """Return *value* as JSON has it: records and named tuples as mappings."""
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    return value
