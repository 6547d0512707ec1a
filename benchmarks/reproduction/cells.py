"""Tables VII and VIII: every plan in every cell, 100 requests, fixed period and Poisson."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction import printed
from benchmarks.reproduction.choice import (
    ADAPTED,
    NUM_CANDIDATES,
    PAPER,
    SPLITWISE,
    Field,
    chosen,
    field_of,
)
from benchmarks.reproduction.contenders import (
    Contender,
    Means,
    measured,
    printed_plan,
    searched,
)
from benchmarks.reproduction.setting import CELLS, PATTERNS, arrivals_of, problem_of
from e2llm_opt import Constraints
from e2llm_opt.plan.plan import OURS
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt import Problem
    from e2llm_opt.workload.arrivals import Pattern
    from e2llm_opt.workload.trace import Trace

E2LLM_BATCHES: Final = f"{printed.E2LLM}, its batches"
SPLITWISE_BATCHES: Final = f"{printed.SPLITWISE}, its batches"
SPLITWISE_JSQ: Final = f"{SPLITWISE}, JSQ"
NO_MIXED: Final = "ours without MIXED"
LONG_PAUSE: Final = "ours, MIXED stops longer"
ROWS: Final = (
    OURS,
    NO_MIXED,
    LONG_PAUSE,
    PAPER,
    ADAPTED,
    SPLITWISE,
    SPLITWISE_JSQ,
    printed.E2LLM,
    printed.SPLITWISE,
    E2LLM_BATCHES,
    SPLITWISE_BATCHES,
)
"""Plans of a cell, in the order of the tables."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell of the paper's tables at one cost of a hop and one pattern of arrivals.

    Parameters
    ----------
    means
        Of each plan, by its name.
    plans
        The replicas of each plan, in words.
    capacity_per_s
        Of each plan [requests/s].
    """

    hop_ms: float
    data_set: str
    period_s: float
    pattern: Pattern
    means: Mapping[str, Means]
    plans: Mapping[str, str]
    capacity_per_s: Mapping[str, float]

    def ratio(self, name: str, to: str) -> float:
        """Return the mean wait of one plan over that of another."""
        return self.means[name].wait_s / self.means[to].wait_s


def cells_of(
    hop_ms: float, data_set: str, num_seeds: int, periods_s: Sequence[float] = printed.PERIODS_S
) -> list[Cell]:
    """Return the cells of one data set at one cost of a hop, both patterns of arrivals."""
    found = []
    for period in periods_s:
        print(f"hop {hop_ms:g} ms, {data_set}, T = {period:g} s", file=sys.stderr, flush=True)
        problem = problem_of(data_set, hop_ms, 1 / period)
        fields = _fields(problem)
        fixed = _printed(problem, data_set)
        for pattern in PATTERNS:
            traces = arrivals_of(problem, printed.NUM_REQUESTS, pattern, range(num_seeds))
            plans = [*fixed, *_rivals(fields[OURS])]
            rows = {one.name: (one, measured(one, traces)) for one in plans}
            for name, field in fields.items():
                rows[name] = chosen(field, traces)
            found.append(
                Cell(
                    hop_ms=hop_ms,
                    data_set=data_set,
                    period_s=period,
                    pattern=pattern,
                    means={name: rows[name][1] for name in ROWS if name in rows},
                    plans={name: str(rows[name][0]) for name in ROWS if name in rows},
                    capacity_per_s={
                        name: rows[name][0].capacity_per_s for name in ROWS if name in rows
                    },
                )
            )
    return found


def _printed(problem: Problem, data_set: str) -> list[Contender]:
    """Return the paper's plans, in the batches that are best, and in the paper's own."""
    names = {printed.E2LLM: E2LLM_BATCHES, printed.SPLITWISE: SPLITWISE_BATCHES}
    plans = [printed_plan(who, problem, data_set) for who in names]
    own = [replace(one, name=names[one.name], has_paper_batches=True) for one in plans]
    return [*plans, *own]


def _rivals(field: Field) -> list[Contender]:
    """Return the searched plans that are rows; Splitwise also with its own routing."""
    found = [field.rivals[name] for name in (PAPER, ADAPTED, SPLITWISE) if name in field.rivals]
    found += [
        replace(one, name=SPLITWISE_JSQ, routing="jsq") for one in found if one.name == SPLITWISE
    ]
    return found


def _fields(problem: Problem) -> dict[str, Field]:
    """Return candidates of ours: all; PREFILL and DECODE only; and with a longer pause.

    The longer pause: decode stops for the whole prefill (``mixed_pause: latency``), and not until
    the next prompt could enter.
    """
    whole = field_of(problem)
    split = replace(problem, constraints=Constraints(roles="disaggregated"))
    plans = searched(OURS, split, NUM_CANDIDATES)
    narrow = Field(
        ours=tuple(plans),
        rivals={
            name: plan
            for name, plan in whole.rivals.items()
            if all(actor.role is not Role.MIXED for actor in plan.actors)
        },
    )
    runtime = replace(problem.runtime, mixed_pause=MixedPause.LATENCY)
    harder = replace(problem, runtime=runtime)
    long = Field(
        ours=(*searched(OURS, harder, NUM_CANDIDATES), *_under(harder, plans)),
        rivals={name: _under(harder, [plan])[0] for name, plan in whole.rivals.items()},
    )
    return {OURS: whole.with_more(plans), NO_MIXED: narrow, LONG_PAUSE: long}


def _under(problem: Problem, plans: Sequence[Contender]) -> list[Contender]:
    """Return the same replicas in another problem, their capacity as it was."""
    return [replace(plan, problem=problem) for plan in plans]


def cell_names() -> list[str]:
    """Return the eight cells as they head a table."""
    return [f"{data_set[:3]} {period:g}" for data_set, period in CELLS]


def traces_of(problem: Problem, pattern: Pattern, num_seeds: int) -> list[Trace]:
    """Return the arrivals of a cell."""
    return arrivals_of(problem, printed.NUM_REQUESTS, pattern, range(num_seeds))
