"""Plans whose predicted waits are compared with simulated ones: many inventories, many planners."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.inventories import EXAMPLES
from e2llm_opt import Lengths, Problem, Role
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.planners import planner_named
from e2llm_opt.runtime import MixedPause
from e2llm_opt.search.stop import Stop
from e2llm_opt.units import MS
from tests.check.paper_plans import paper_plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.constraints import Roles
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.search.evaluate import Outcome

STOP = Stop(max_evaluations=400, stagnation=5)
PLANNERS: tuple[tuple[str, Roles, int], ...] = (
    ("e2llm-opt", "auto", 3),
    ("e2llm-opt", "disaggregated", 2),
    ("splitwise", "auto", 1),
    ("splitwise-adapted", "auto", 1),
    ("all-mixed", "auto", 2),
    ("best-single-device", "auto", 1),
    ("memory-proportional", "auto", 1),
)
"""Planner, roles allowed, and how many of its best plans are taken."""
LOADS_PLANNED_FOR = (0.5, 0.85)
"""Shares of the highest capacity that plans are made for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One replica of a plan: its stages, role and slots."""

    cut: Cut
    role: Role
    slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A plan and the problem it is for.

    Parameters
    ----------
    instance, planner
        Names, for the reader.
    problem
        Without limits on speed, so that printed plans that break them can be judged.
    seats
        Its replicas.
    """

    instance: str
    planner: str
    problem: Problem
    seats: tuple[Seat, ...]

    @property
    def kind(self) -> str:
        """What the formulas tell apart."""
        roles = [seat.role for seat in self.seats]
        mixed, first = roles.count(Role.MIXED), roles.count(Role.PREFILL)
        if mixed and first:
            return "P/D and MIXED"
        if mixed:
            return "MIXED, one replica" if mixed == 1 else "MIXED, several replicas"
        return "P/D, one PREFILL" if first == 1 else "P/D, several PREFILL"


def problems(*, quick: bool) -> Iterator[tuple[str, Problem]]:
    """Yield named problems; the first ones alone if *quick*."""
    for prompt, output in ((576, 588), (2284, 1004)):
        for cv in (0.5,) if quick else (0.0, 0.5, 1.0):
            yield f"testbed {prompt}/{output} cv {cv:g}", _testbed(prompt, output, cv)
    if quick:
        yield "homelab", Problem.load(EXAMPLES / "homelab.yaml")
        return
    for cv in (0.0, 0.5, 1.0):
        tight = replace(_testbed(576, 588, cv).workload, context_tokens=1280)
        yield f"testbed 576/588 cv {cv:g}, 1280 a slot", replace(_testbed(), workload=tight)
    for prompt, output in ((576, 588), (2284, 1004)):
        asked = _testbed(prompt, output)
        slow = replace(asked.runtime, hop_overhead_s=20 * MS)
        yield f"testbed {prompt}/{output}, hop 20 ms", replace(asked, runtime=slow)
        alone = replace(asked.runtime, is_pipelined=False, mixed_pause=MixedPause.LATENCY)
        yield f"testbed {prompt}/{output}, no overlap", replace(asked, runtime=alone)
    for name in ("homelab", "jetson-fleet", "raspberry-cluster", "two-macs"):
        yield name, Problem.load(EXAMPLES / f"{name}.yaml")
    homelab = Problem.load(EXAMPLES / "homelab.yaml")
    parted = replace(homelab.runtime, has_disaggregation=True)
    yield "homelab, phases apart", replace(homelab, runtime=parted)


def _testbed(prompt: float = 576, output: float = 588, cv: float = 0.5) -> Problem:
    """Return the testbed with these mean lengths, and slots that hold nearly all requests."""
    asked = Problem.load(EXAMPLES / "e2llm-testbed.yaml")
    workload = replace(
        asked.workload,
        context_tokens=0,
        prompt=Lengths(mean=prompt, cv=cv),
        output=Lengths(mean=output, cv=cv),
    )
    return replace(asked, workload=workload)


def subjects(*, quick: bool) -> Iterator[Subject]:
    """Yield all plans; equal ones once."""
    for name, problem in problems(quick=quick):
        seen: set[tuple[Seat, ...]] = set()
        for planner, outcome in _planned(problem, LOADS_PLANNED_FOR[-1:] if quick else None):
            seats = _seats(outcome)
            if seats not in seen:
                seen.add(seats)
                yield Subject(instance=name, planner=planner, problem=_free(problem), seats=seats)
    for who in ("e2llm", "splitwise"):
        for dataset, prompt, output in (("extended", 576, 588), ("custom", 2284, 1004)):
            for hop_ms in (0,) if quick else (0, 20):
                problem = _testbed(prompt, output)
                slow = replace(problem.runtime, hop_overhead_s=hop_ms * MS)
                yield Subject(
                    instance=f"testbed {prompt}/{output}, hop {hop_ms} ms",
                    planner=f"the paper's {who}",
                    problem=_free(replace(problem, runtime=slow)),
                    seats=_printed(problem, paper_plan(who, dataset)["replicas"]),
                )


def _planned(problem: Problem, loads: Sequence[float] | None) -> Iterator[tuple[str, Outcome]]:
    capacity = 0.0
    for name, roles, num in PLANNERS:
        if roles == "disaggregated" and not problem.runtime.has_disaggregation:
            continue
        ruled = replace(problem, constraints=replace(problem.constraints, roles=roles))
        for load in (0.0, *(loads or LOADS_PLANNED_FOR)):
            rate = load * capacity or problem.workload.rate_per_s
            if load == 0.0 and name != PLANNERS[0][0]:
                continue
            asked = replace(ruled, workload=replace(ruled.workload, rate_per_s=rate))
            planner = planner_named(name)(costs_of(asked))
            planner.run(STOP, 0)
            for outcome in planner.ranked(num):
                capacity = max(capacity, outcome.traffic.capacity_per_s)
                yield name, outcome


def _seats(outcome: Outcome) -> tuple[Seat, ...]:
    return tuple(Seat(cut=c.cut, role=c.role, slots=c.slots) for c in outcome.replicas)


def _printed(problem: Problem, replicas: list[dict[str, Any]]) -> tuple[Seat, ...]:
    rows = {device.name: d for d, device in enumerate(problem.devices)}
    return tuple(
        Seat(
            cut=tuple((rows[s["device"]], *s["layers"]) for s in replica["stages"]),
            role=Role(replica["role"]),
            slots=replica["slots"],
        )
        for replica in replicas
    )


def _free(problem: Problem) -> Problem:
    """Return *problem* without limits on speed, which only the planners need."""
    free = replace(problem.workload, min_tokens_per_s=0.0, slo_tpot_s=None, slots=None)
    return replace(problem, workload=free)
