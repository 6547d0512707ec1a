"""Plans that survive, verified by simulation: each device lost in turn, the rest at the full rate.

Lost from the start, and on the way, with all that is inside its replica.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.search.rank_by_simulation import actors_of_outcome
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.spare import remaining
from e2llm_opt.search.stop import Stop
from e2llm_opt.simulate.simulate import Simulator
from e2llm_opt.simulate.timeline import Moment, Timeline
from e2llm_opt.workload.arrivals import draw_arrivals
from tests.search.test_roles import cluster
from tests.search.test_survive import surviving

if TYPE_CHECKING:
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.simulate.simulate import Simulation

EXAMPLES = Path(__file__).parents[2] / "examples"
NUM_REQUESTS = 20_000


def at_rate(problem: Problem, rate_per_s: float) -> Problem:
    return replace(problem, workload=replace(problem.workload, rate_per_s=rate_per_s))


def asked() -> dict[str, Problem]:
    """Return problems whose rate is near what a plan can serve after its worst loss."""
    home = Problem.load(EXAMPLES / "homelab.yaml")
    testbed = Problem.load(EXAMPLES / "e2llm-testbed.yaml")
    return {
        "homelab": at_rate(home, 0.3),
        "testbed": at_rate(testbed, 0.3),
        "six": replace(cluster(6, 5.8, seed=1), objective=Objective.WAITING_TIME),
        "cheap": replace(cluster(6, 3.0, seed=2), objective=Objective.COST),
    }


def best(problem: Problem) -> tuple[Search, Outcome]:
    search = Search(costs_of(problem))
    search.run(Stop(max_evaluations=200), 0)
    found = search.best(Scope.ANY)
    assert found is not None
    return search, found


def run_without(search: Search, outcome: Outcome, device: int | None) -> Simulation:
    """Simulate the replicas that *device* is not part of, in their roles, at the full rate."""
    lost = {i for i, c in enumerate(outcome.replicas) if device in {d for d, _, _ in c.cut}}
    left = search.evaluator.outcome(remaining(outcome.replicas, lost))
    costs = search.evaluator.costs
    arrivals = draw_arrivals(costs.problem.workload, NUM_REQUESTS, seed=5)
    actors = actors_of_outcome(costs, left)
    return Simulator(costs, arrivals).run(actors, how=("shortest-wait", False, 0))


def run_failing(search: Search, outcome: Outcome, device: int) -> Simulation:
    """Simulate the replicas; *device* fails when a quarter of the requests have come."""
    costs = search.evaluator.costs
    arrivals = draw_arrivals(costs.problem.workload, NUM_REQUESTS, seed=5)
    actors = actors_of_outcome(costs, outcome)
    at_s = float(arrivals.arrival_s[NUM_REQUESTS // 4])
    timeline = Timeline(
        begin=tuple(range(len(actors))),
        moments=(Moment(at_s, "fail", (device,)),),
        drains=True,
        load_bytes_per_s=np.inf,
        start_s=0.0,
    )
    return Simulator(costs, arrivals).run(
        actors, how=("shortest-wait", False, 0), timeline=timeline
    )


def is_bounded(run: Simulation) -> bool:
    """Whether the queue does not grow: waits of the last quarter are like those of the second.

    At a rate 2 % above what is served the waits of the last quarter would be longer by 1 % of the
    span of all arrivals.
    """
    span = float(run.arrivals.arrival_s[-1] - run.arrivals.arrival_s[0])
    quarters = [np.nanmean(part) for part in np.array_split(run.waiting_time_s, 4)]
    return bool(quarters[3] <= 2 * quarters[1] + 0.005 * span)


@pytest.mark.parametrize("name", list(asked()))
def test_each_device_may_be_lost_and_the_queue_stays_bounded(name: str) -> None:
    search, outcome = best(surviving(asked()[name], 1))
    whole = run_without(search, outcome, None)
    assert is_bounded(whole)
    for device in sorted({d for c in outcome.replicas for d, _, _ in c.cut}):
        run = run_without(search, outcome, device)
        assert run.num_rejected <= whole.num_rejected  # none is lost that was served before
        assert np.isfinite(run.latency_s[run.entry >= 0]).all()
        assert is_bounded(run)


@pytest.mark.parametrize("name", list(asked()))
def test_a_device_that_fails_on_the_way_takes_no_request_along(name: str) -> None:
    search, outcome = best(surviving(asked()[name], 1))
    whole = run_without(search, outcome, None)
    num_retried = 0
    for device in sorted({d for c in outcome.replicas for d, _, _ in c.cut}):
        run = run_failing(search, outcome, device)
        assert run.course is not None
        assert not run.course.unserved.any()
        assert run.num_rejected <= whole.num_rejected
        assert np.isfinite(run.latency_s[run.entry >= 0]).all()
        assert is_bounded(run)
        num_retried += int((run.course.retries > 0).sum())
    assert num_retried > 0


def test_without_the_constraint_a_loss_makes_the_queue_grow() -> None:
    """The best plan at home has two replicas; the laptop alone cannot serve 0.3 requests/s."""
    search, outcome = best(asked()["homelab"])
    names = [device.name for device in search.evaluator.costs.problem.devices]
    assert not is_bounded(run_without(search, outcome, names.index("desktop")))
