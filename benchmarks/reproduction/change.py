"""An abrupt change: the requests of the second half are unlike those of the first."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from benchmarks.reproduction.choice import ADAPTED, PAPER, SPLITWISE, Field, chosen
from benchmarks.reproduction.contenders import (
    OVERLOAD_PER_S,
    Contender,
    run,
    searched,
)
from benchmarks.reproduction.setting import at_rate, joined, later, testbed, with_workload
from benchmarks.reproduction.sheets import UNITS, Sheet, entry, rejections
from e2llm_opt import Lengths
from e2llm_opt.plan.plan import OURS
from e2llm_opt.workload.arrivals import draw_arrivals
from e2llm_opt.workload.trace import read_trace
from e2llm_opt.workload.workload import context_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from e2llm_opt import Problem
    from e2llm_opt.simulate.simulate import Simulation
    from e2llm_opt.workload.trace import Trace

SHARE: Final = 0.7
"""Arrivals of each half, as a share of what `splitwise-adapted` can serve of that half."""
RELOAD_S: Final = 30.0
"""Assumed: 22 GB of weights from a local disk at 0.7 GB/s or more."""
NUM_REQUESTS: Final = 2000
"""Of each half."""
ALL_MIXED: Final = "all-mixed"
_PLANNERS = (OURS, ALL_MIXED, PAPER, ADAPTED, SPLITWISE)
_NUM_CANDIDATES = 20
_CONVERSATION = Lengths(mean=1155, cv=0.96), Lengths(mean=211, cv=0.77)
_CODE = Lengths(mean=2048, cv=0.96), Lengths(mean=28, cv=2.15)
"""Azure LLM inference traces of November 2023: rounded means and cv of prompts and answers."""
FROZEN, MIXTURE, SWITCHED, RELOADED = "frozen", "mixture", "switched at once", "drained, reloaded"
WAYS: Final = (FROZEN, MIXTURE, SWITCHED, RELOADED)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Two kinds of requests, one after the other.

    Parameters
    ----------
    halves
        What arrives before and after the change, at any rate; the second begins at 0 again.
    """

    name: str
    halves: tuple[Trace, Trace]


class Outcome(NamedTuple):
    """Means over both halves, the wait of the second half, and who got nothing."""

    wait_s: float
    second_s: float
    latency_s: float
    tokens_per_s: float
    rejected: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """One planner through one scenario, in each of :data:`WAYS`; none where it lacks a plan."""

    scenario: str
    planner: str
    rates_per_s: tuple[float, float]
    ways: Mapping[str, Outcome]


def scenarios(num: int, conversation: Path | None, code: Path | None) -> list[Scenario]:
    """Return the synthetic change, and Azure's from conversation to code."""
    drawn = (
        _drawn(Lengths(mean=256), Lengths(mean=1024), num, 0),
        _drawn(Lengths(mean=3072), Lengths(mean=128), num, 1),
    )
    found = [Scenario(name="synthetic: 256/1024 tokens turn into 3072/128", halves=drawn)]
    if conversation is not None and code is not None:
        halves = read_trace(conversation, most=num), read_trace(code, most=num)
        name = "Azure traces of 2023: conversation turns into code"
    else:
        halves = _drawn(*_CONVERSATION, num, 2), _drawn(*_CODE, num, 3)
        name = "stand-in for Azure 2023 (drawn from its mean lengths): conversation turns into code"
    return [*found, Scenario(name=name, halves=halves)]


def changes_of(scenario: Scenario, hop_ms: float) -> list[Change]:
    """Return every planner through *scenario*."""
    print(f"hop {hop_ms:g} ms, {scenario.name}", file=sys.stderr, flush=True)
    problems = [_problem(half, scenario, hop_ms) for half in scenario.halves]
    rates = [SHARE * searched(ADAPTED, problem)[0].capacity_per_s for problem in problems]
    problems = [at_rate(p, rate) for p, rate in zip(problems, rates, strict=True)]
    first, second = (h.at_rate(r) for h, r in zip(scenario.halves, rates, strict=True))
    second = later(second, float(first.arrival_s[-1]) + 1 / rates[1])
    whole = joined(first, second)
    problems.append(at_rate(_problem(whole, scenario, hop_ms), whole.rate_per_s))
    seen = (first, second, whole)
    plans = [_plans(problem, trace) for problem, trace in zip(problems, seen, strict=True)]
    found = []
    for name in _PLANNERS:
        ways = {}
        if all(name in own for own in plans):
            before, after, mixture = (own[name] for own in plans)
            ways = {
                FROZEN: _frozen(before, whole, first.num_requests),
                MIXTURE: _frozen(mixture, whole, first.num_requests),
                SWITCHED: _switched(before, after, (first, second), None),
                RELOADED: _switched(before, after, (first, second), RELOAD_S),
            }
        found.append(
            Change(
                scenario=scenario.name, planner=name, rates_per_s=(rates[0], rates[1]), ways=ways
            )
        )
    return found


def _drawn(prompt: Lengths, output: Lengths, num: int, seed: int) -> Trace:
    workload = replace(testbed().workload, prompt=prompt, output=output, rate_per_s=1.0)
    return draw_arrivals(workload, num, seed=seed)


def _problem(trace: Trace, scenario: Scenario, hop_ms: float) -> Problem:
    """Return the testbed under the lengths of *trace*; slots hold requests of either half."""
    prompt, output = trace.workload_lengths()
    context = max(context_for(half.prompt_p95, half.output_p95) for half in scenario.halves)
    workload = replace(
        testbed().workload,
        prompt=prompt,
        output=output,
        context_tokens=context,
        rate_per_s=OVERLOAD_PER_S,
    )
    return with_workload(workload, hop_ms)


def _plans(problem: Problem, trace: Trace) -> dict[str, Contender]:
    """Return each planner's plan for *trace*; ours the one of the least wait on it."""
    found = {name: plan for name in _PLANNERS if name != OURS for plan in searched(name, problem)}
    field = Field(problem=problem, ours=searched(OURS, problem, _NUM_CANDIDATES), rivals=found)
    return {OURS: chosen(field, [trace])[0], **found}


def _frozen(plan: Contender, whole: Trace, num_first: int) -> Outcome:
    return _outcome([(run(plan, whole), 0.0)], num_first)


def _switched(
    before: Contender, after: Contender, halves: tuple[Trace, Trace], reload_s: float | None
) -> Outcome:
    """Return what becomes of requests that another plan serves from the change on.

    Without *reload_s* the second plan starts empty at the change while the first still finishes
    its requests, as if every machine were there twice: no switch is better. With it, the second
    plan starts when the first has finished and so much time has passed: arrivals wait.
    """
    first, second = halves
    one = run(before, first)
    if reload_s is None:
        return _outcome([(one, 0.0), (run(after, second), 0.0)], first.num_requests)
    end = float(np.nanmax(one.finish_s, initial=second.arrival_s[0]))
    held = replace(second, arrival_s=np.maximum(second.arrival_s, end + reload_s))
    return _outcome(
        [(one, 0.0), (run(after, held), held.arrival_s - second.arrival_s)], first.num_requests
    )


def _outcome(runs: Sequence[tuple[Simulation, np.ndarray | float]], num_first: int) -> Outcome:
    """Return means over *runs*, each with what its requests had waited before it [s]."""
    wait = np.concatenate([one.waiting_time_s + held for one, held in runs])
    latency = np.concatenate([one.latency_s + held for one, held in runs])
    speed = np.concatenate([1 / one.tpot_s for one, _ in runs])
    return Outcome(
        wait_s=float(np.nanmean(wait)),
        second_s=float(np.nanmean(wait[num_first:])),
        latency_s=float(np.nanmean(latency)),
        tokens_per_s=float(np.nanmean(speed)),
        rejected=sum(one.num_rejected for one, _ in runs),
    )


def change_sheets(changes: Sequence[Change], hop_ms: float) -> list[Sheet]:
    """Return a table a scenario."""
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(change.scenario, []).append(change)
    return [_sheet(name, group, hop_ms) for name, group in groups.items()]


def _sheet(name: str, group: Sequence[Change], hop_ms: float) -> Sheet:
    rows, seconds = [], []
    for change in group:
        done = list(change.ways.values())
        rows.append((change.planner, *(map(entry, done) if done else ["no plan"] * len(WAYS))))
        waits = ", ".join(f"{way} {found.second_s:.1f}" for way, found in change.ways.items())
        seconds += [f"{change.planner}: {waits}"] if waits else []
    first, second = group[0].rates_per_s
    rates = (
        f"{first:.3f} requests a second, then {second:.3f}: {100 * SHARE:.0f} % of what {ADAPTED} "
        "can serve of either half."
    )
    return Sheet(
        title=f"{name[0].upper()}{name[1:]}, hop {hop_ms:g} ms: {UNITS}",
        head=("planner", *WAYS),
        rows=rows,
        notes=[
            rates,
            *rejections(
                (f"{change.planner}, {way},", found)
                for change in group
                for way, found in change.ways.items()
            ),
            f"Mean waits of the second half [s]: {'; '.join(seconds)}.",
        ],
    )
