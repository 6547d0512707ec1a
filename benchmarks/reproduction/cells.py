"""Tables VII and VIII: every plan in every cell, 100 requests, fixed period and Poisson."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction import printed
from benchmarks.reproduction.choice import (
    ADAPTED,
    NUM_CANDIDATES,
    PAPER,
    SPLITWISE,
    Field,
    chosen,
    rivals_of,
)
from benchmarks.reproduction.contenders import (
    WHOLE,
    Contender,
    Means,
    measured,
    printed_plan,
    searched,
)
from benchmarks.reproduction.setting import PATTERNS, arrivals_of, problem_of
from e2llm_opt import Constraints
from e2llm_opt.plan.plan import OURS
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt import Problem, Stop
    from e2llm_opt.workload.arrivals import Pattern

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
    hop_ms: float,
    data_set: str,
    num_seeds: int,
    periods_s: Sequence[float] = printed.PERIODS_S,
    num_candidates: int = NUM_CANDIDATES,
    stop: Stop = WHOLE,
) -> list[Cell]:
    """Return the cells of one data set at one cost of a hop, both patterns of arrivals.

    Of our search, *num_candidates* plans are simulated; *stop* limits every search.
    """
    found = []
    for period in periods_s:
        print(f"hop {hop_ms:g} ms, {data_set}, T = {period:g} s", file=sys.stderr, flush=True)
        problem = problem_of(data_set, hop_ms, 1 / period)
        draw = partial(arrivals_of, problem, printed.NUM_REQUESTS)
        few = [trace for pattern in PATTERNS for trace in draw(pattern, range(1))]
        fields = {
            name: field.sifted(few)
            for name, field in _fields(problem, num_candidates, stop).items()
        }
        fields[OURS] = replace(fields[OURS], ours=fields[OURS].ours + fields[NO_MIXED].ours)
        fixed = [*_printed(problem, data_set), *_rivals(fields[OURS])]
        for pattern in PATTERNS:
            traces = draw(pattern, range(num_seeds))
            rows = {one.name: (one, measured(one, traces)) for one in fixed}
            rows |= {name: chosen(field, traces) for name, field in fields.items()}
            done = {name: rows[name] for name in ROWS if name in rows}
            found.append(
                Cell(
                    hop_ms=hop_ms,
                    data_set=data_set,
                    period_s=period,
                    pattern=pattern,
                    means={name: means for name, (_, means) in done.items()},
                    plans={name: str(plan) for name, (plan, _) in done.items()},
                    capacity_per_s={name: plan.capacity_per_s for name, (plan, _) in done.items()},
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
    own = [replace(p, name=SPLITWISE_JSQ, routing="jsq") for p in found if p.name == SPLITWISE]
    return found + own


def _fields(problem: Problem, num: int, stop: Stop) -> dict[str, Field]:
    """Return candidates of ours: all; PREFILL and DECODE only; and with a longer pause.

    The longer pause: decode stops for the whole prefill (``mixed_pause: latency``), and not until
    the next prompt could enter.
    """
    rivals = rivals_of(problem, stop)
    own = searched(OURS, problem, num, stop)
    constraints = Constraints(roles="disaggregated")
    split = searched(OURS, replace(problem, constraints=constraints), num // 2, stop)
    runtime = replace(problem.runtime, mixed_pause=MixedPause.LATENCY)
    harder = replace(problem, runtime=runtime)
    slower = searched(OURS, harder, num // 2, stop)
    narrow = {name: plan for name, plan in rivals.items() if not _has_mixed(plan)}
    return {
        OURS: Field(problem=problem, ours=(*own, *split), rivals=rivals),
        NO_MIXED: Field(problem=problem, ours=split, rivals=narrow),
        LONG_PAUSE: Field(problem=harder, ours=(*slower, *split), rivals=narrow),
    }


def _has_mixed(plan: Contender) -> bool:
    return any(actor.role is Role.MIXED for actor in plan.actors)
