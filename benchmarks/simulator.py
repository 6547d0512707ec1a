"""How fast the simulator is: a million requests, the memory they take, and a plain model beside it.

Each row is a process of its own that has compiled everything; the fastest of some runs counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if not __package__:  # run as a file
    sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import inventories
from e2llm_opt import Plan, Role, draw_arrivals, plan
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.simulate import kernel
from e2llm_opt.simulate.arrays import DECODE, MIXED, PREFILL, SHORTEST
from e2llm_opt.simulate.cast import actors_of
from e2llm_opt.simulate.simulate import Simulator
from e2llm_opt.simulate.system import Actor, Systems
from tests.oracles import World
from tests.simulate.cases import assert_equal, requests_of
from tests.simulate.simpy_model import Model
from tests.simulate.times import Replica

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt import Problem
    from e2llm_opt.simulate.arrays import Run

MANY = 1_000_000
FEW = 40
"""Requests of the plain model, which goes token by token."""
MOST_MB = 600.0
LEAST_RATIO = 500.0
_RUNS = 5
_LOAD = 0.8


class System(NamedTuple):
    """Replicas of a problem."""

    problem: Problem
    actors: list[Actor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Replicas, how rounds are timed, and what a million requests may take."""

    name: str
    system: str
    is_mean: bool
    most_s: float


CASES = (
    Case(name="testbed, 4 MIXED, mean context", system="testbed", is_mean=True, most_s=0.6),
    Case(name="testbed, 4 MIXED", system="testbed", is_mean=False, most_s=2.0),
    Case(name="8 MIXED of 16 slots, mean context", system="eight", is_mean=True, most_s=0.6),
    Case(name="8 MIXED of 16 slots", system="eight", is_mean=False, most_s=2.0),
    Case(name="2 PREFILL, 6 DECODE, mean context", system="pools", is_mean=True, most_s=0.6),
    Case(name="2 PREFILL, 6 DECODE", system="pools", is_mean=False, most_s=2.0),
    Case(name="100 MIXED of 128 slots, mean context", system="hundred", is_mean=True, most_s=1.5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One case in figures: event loop, everything with arrays made and read [s], memory [MB]."""

    name: str
    most_s: float
    loop_s: float
    whole_s: float
    peak_mb: float


def system_named(name: str) -> System:
    """Return the replicas of :data:`CASES`."""
    if name == "testbed":
        problem = inventories.testbed()
        found = plan(problem)
        if not isinstance(found, Plan):
            raise SystemExit(found.reason)
        return System(problem, actors_of(found, problem, costs_of(problem)))
    num, slots = {"eight": (8, 16), "pools": (8, 16), "hundred": (100, 128)}[name]
    problem = inventories.in_classes(num, min(num, 8))
    problem = replace(problem, runtime=replace(problem.runtime, max_slots=slots))
    roles = [Role.MIXED] * num
    if name == "pools":
        roles = [Role.PREFILL] * 2 + [Role.DECODE] * 6
    layers = problem.model.num_layers
    return System(
        problem,
        [
            Actor(
                role=role,
                cut=((d, 0, layers),),
                slots=1 if role is Role.PREFILL else slots,
                spilled=((),),
                max_context_tokens=4096,
            )
            for d, role in enumerate(roles)
        ],
    )


def measure(case: Case, num: int = MANY, runs: int = _RUNS) -> Measured:
    """Measure *case* in this process; the peak is that of everything the process did."""
    problem, actors = system_named(case.system)
    costs = costs_of(problem)
    law = SHORTEST, case.is_mean
    few = draw_arrivals(problem.workload, 10)
    system, _ = Systems(costs, few).build(actors, law=law)
    kernel.run(system, 0, 10, float("inf"))
    rate = _LOAD * _capacity(system)
    arrivals = draw_arrivals(problem.workload, num, rate_per_s=rate)
    loop_s, whole_s = [], []
    for _ in range(runs):
        system, _ = Systems(costs, arrivals).build(actors, law=law)
        began = time.perf_counter()
        kernel.run(system, 0, num, float("inf"))
        loop_s.append(time.perf_counter() - began)
        del system
        began = time.perf_counter()
        Simulator(costs, arrivals).run(actors, how=("shortest-wait", case.is_mean, 0))
        whole_s.append(time.perf_counter() - began)
    return Measured(
        name=case.name,
        most_s=case.most_s * num / MANY,
        loop_s=min(loop_s),
        whole_s=min(whole_s),
        peak_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    )


def _capacity(system: Run) -> float:
    """Return the requests a second that replicas serve with all slots full."""
    roles = system.replicas["role"]
    both = float(system.replicas["rate"][roles == MIXED].sum())
    decode = float(system.replicas["rate"][roles == DECODE].sum())
    prefill = float((1 / system.pause[:, roles == PREFILL].mean(axis=0)).sum())
    return both + min(decode, prefill)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """The same requests in the event loop and in the plain model [s]."""

    requests: int
    fast_s: float
    plain_s: float

    @property
    def ratio(self) -> float:
        """How many times as fast the event loop is, with arrays made and read."""
        return self.plain_s / self.fast_s


def against_the_plain_model(num: int = FEW) -> Ratio:
    """Run the testbed's plan token by token as SimPy processes, and here."""
    problem, actors = system_named("testbed")
    arrivals = draw_arrivals(problem.workload, num)
    fast_s = []
    for _ in range(_RUNS + 1):  # the first one may compile
        began = time.perf_counter()
        fast = Simulator(costs_of(problem), arrivals).run(actors)
        fast_s.append(time.perf_counter() - began)
    replicas = [
        Replica(role=str(a.role), cut=a.cut, slots=a.slots, max_context=a.max_context_tokens)
        for a in actors
    ]
    requests = requests_of(arrivals)
    began = time.perf_counter()
    model = Model(
        World(problem), replicas, routing="shortest-wait", mean_context=False, route_rates={}
    )
    model.run(requests)
    plain_s = time.perf_counter() - began
    assert_equal(fast, requests)
    return Ratio(requests=num, fast_s=min(fast_s), plain_s=plain_s)


def measured() -> list[Measured]:
    """Measure every case in a process of its own."""
    found = []
    for k in range(len(CASES)):
        command = [sys.executable, "-m", "benchmarks.simulator", "--case", str(k)]
        print(f"{CASES[k].name} …", file=sys.stderr, flush=True)
        done = subprocess.run(
            command, cwd=inventories.EXAMPLES.parent, capture_output=True, text=True, check=True
        )
        found.append(Measured(**json.loads(done.stdout)))
    return found


def table(rows: Sequence[Measured], ratio: Ratio) -> str:
    """Return the figures beside their limits as Markdown."""
    lines = [
        "| 1,000,000 requests | event loop [s] | limit [s] | with arrays [s] | peak [MB] |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.name} | {row.loop_s:.2f} | {row.most_s:g} | {row.whole_s:.2f} "
        f"| {row.peak_mb:.0f} |"
        for row in rows
    ]
    sentence = (
        f"The peak is that of the whole process, at most {MOST_MB:.0f} MB wanted. "
        f"{ratio.requests} requests take the plain model {ratio.plain_s:.1f} s and the simulator "
        f"{1e3 * ratio.fast_s:.1f} ms, with the same answer for each: {ratio.ratio:.0f} times as "
        f"fast, at least {LEAST_RATIO:.0f} wanted."
    )
    return "\n".join([*lines, "", sentence])


def failures(rows: Sequence[Measured], ratio: Ratio) -> list[str]:
    """Return what misses its limit."""
    late = [f"{r.name}: {r.loop_s:.2f} s > {r.most_s:g} s" for r in rows if r.loop_s > r.most_s]
    large = [f"{r.name}: {r.peak_mb:.0f} MB" for r in rows if r.peak_mb > MOST_MB]
    slow = [f"only {ratio.ratio:.0f} times the plain model"] if ratio.ratio < LEAST_RATIO else []
    return late + large + slow


def main() -> int:
    """Print the table; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", type=int, help="measure one case here and print JSON")
    asked = parser.parse_args()
    if asked.case is not None:
        print(json.dumps(asdict(measure(CASES[asked.case]))))
        return 0
    rows, ratio = measured(), against_the_plain_model()
    print(table(rows, ratio))
    missed = failures(rows, ratio)
    for line in missed:
        print(f"MISSED: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
