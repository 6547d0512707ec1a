"""Long runs below capacity, where 100 requests say little: waits once they no longer grow."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction import printed
from benchmarks.reproduction.choice import ADAPTED, PAPER, SPLITWISE, Field, chosen
from benchmarks.reproduction.contenders import (
    OVERLOAD_PER_S,
    Contender,
    Means,
    measured,
    printed_plan,
    searched,
)
from benchmarks.reproduction.setting import PATTERNS, arrivals_of, at_rate, problem_of
from benchmarks.reproduction.sheets import UNITS, Sheet, entry, rejections
from e2llm_opt.plan.plan import OURS
from e2llm_opt.simulate.simulate import default_warmup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt import Problem
    from e2llm_opt.workload.arrivals import Pattern

SHARES: Final = (0.5, 0.7, 0.85, 0.95)
SAME_SHARE: Final = 0.85
"""Of the printed Splitwise plan's capacity: the rate at which all plans are compared."""
NUM_REQUESTS: Final = 20_000
_SEARCHED = (PAPER, ADAPTED, SPLITWISE)
_NUM_CANDIDATES = 20
_TRIAL_REQUESTS, _TRIAL_SEED = 4000, 1
"""Our candidates are chosen on requests that are not those of the report."""
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class Steady:
    """One plan's long runs under one data set, cost of a hop and pattern.

    Parameters
    ----------
    own
        Capacity [requests/s].
    at_own
        Means at each share of its own capacity; planned anew for each rate.
    at_same
        Means at the rate that is the same for all plans; above its capacity they say how long the
        run was.
    """

    name: str
    hop_ms: float
    data_set: str
    pattern: Pattern
    own: float
    at_own: Mapping[float, Means]
    at_same: Means


def steady_of(
    hop_ms: float, data_set: str, num_requests: int, shares: Sequence[float] = SHARES
) -> list[Steady]:
    """Return the long runs of every plan."""
    print(f"hop {hop_ms:g} ms, {data_set}, long runs", file=sys.stderr, flush=True)
    base = problem_of(data_set, hop_ms, OVERLOAD_PER_S)
    fixed = {who: printed_plan(who, base, data_set) for who in (printed.E2LLM, printed.SPLITWISE)}
    capacity = {name: plan.capacity_per_s for name, plan in fixed.items()}
    for name in (OURS, *_SEARCHED):
        for plan in searched(name, base):
            capacity[name] = plan.capacity_per_s
    same = SAME_SHARE * capacity[printed.SPLITWISE]
    means: dict[tuple[str, Pattern, float], Means] = {}
    for name, own in capacity.items():
        for rate in (*(share * own for share in shares), same):
            means |= _runs(name, at_rate(base, rate), fixed.get(name), num_requests)
    return [
        Steady(
            name=name,
            hop_ms=hop_ms,
            data_set=data_set,
            pattern=pattern,
            own=own,
            at_own={share: means[name, pattern, share * own] for share in shares},
            at_same=means[name, pattern, same],
        )
        for pattern in PATTERNS
        for name, own in capacity.items()
    ]


def _runs(
    name: str, problem: Problem, fixed: Contender | None, num: int
) -> dict[tuple[str, Pattern, float], Means]:
    """Return the means of one planner's plan at the problem's rate, by pattern."""
    rate = problem.workload.rate_per_s
    found: dict[tuple[str, Pattern, float], Means] = {}
    field = None if fixed is not None else _field(name, problem)
    for pattern in PATTERNS:
        plan = fixed if field is None else _choice(name, field, problem, pattern)
        assert plan is not None
        traces = arrivals_of(problem, num, pattern, range(_SEED, _SEED + 1))
        found[name, pattern, rate] = measured(plan, traces, default_warmup(num))
    return found


def _field(name: str, problem: Problem) -> Field:
    own = searched(name, problem, _NUM_CANDIDATES if name == OURS else 1)
    rivals = {who: plan for who in _SEARCHED for plan in searched(who, problem)}
    return Field(problem=problem, ours=own, rivals=rivals if name == OURS else {})


def _choice(name: str, field: Field, problem: Problem, pattern: Pattern) -> Contender:
    if name != OURS:
        return field.ours[0]
    traces = arrivals_of(problem, _TRIAL_REQUESTS, pattern, range(_TRIAL_SEED, _TRIAL_SEED + 1))
    return chosen(field, traces, default_warmup(_TRIAL_REQUESTS))[0]


def steady_sheets(runs: Sequence[Steady], num_requests: int) -> list[Sheet]:
    """Return a table for each data set, cost of a hop and pattern."""
    groups: dict[tuple[float, str, Pattern], list[Steady]] = {}
    for run in runs:
        groups.setdefault((run.hop_ms, run.data_set, run.pattern), []).append(run)
    return [_sheet(key, group, num_requests) for key, group in groups.items()]


def _sheet(key: tuple[float, str, Pattern], group: Sequence[Steady], num_requests: int) -> Sheet:
    hop, data_set, pattern = key
    shares = list(group[0].at_own)
    rate = SAME_SHARE * next(run.own for run in group if run.name == printed.SPLITWISE)
    kind = f"{data_set.capitalize()}, {pattern} arrivals, hop {hop:g} ms"
    rows, lost = [], []
    for run in group:
        own = [entry(means) for means in run.at_own.values()]
        same = entry(run.at_same) if rate < run.own else "above capacity"
        rows.append((run.name, f"{run.own:.3f}", *own, same))
        lost += [(f"{run.name} at {share:g}", means) for share, means in run.at_own.items()]
        lost.append((f"{run.name} at {rate:.3f}/s", run.at_same))
    return Sheet(
        title=f"{kind}, {num_requests} requests: {UNITS}",
        head=(
            *("plan", "capacity [1/s]"),
            *(f"{100 * share:.0f} % of it" for share in shares),
            f"all at {rate:.3f}/s",
        ),
        rows=rows,
        notes=rejections(lost),
        is_on_page=pattern == "poisson",
    )
