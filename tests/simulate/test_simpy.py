"""The event loop equals a plain SimPy model, request by request."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Problem
from e2llm_opt.simulate.simulate import Routing, simulate
from e2llm_opt.solve import plan
from e2llm_opt.workload.arrivals import draw_arrivals
from tests.oracles import World
from tests.simulate.cases import ROUTINGS, Case, assert_equal, cases, requests_of
from tests.simulate.simpy_model import Model
from tests.simulate.times import Replica

EXAMPLES = Path(__file__).parents[2] / "examples"
some = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
many = settings(some, max_examples=1000)


@some
@given(cases(roles="P/D"))
def test_prefill_and_decode_pools(case: Case) -> None:
    assert_equal(case.fast(), case.plain())


@some
@given(cases(roles="MIXED"))
def test_mixed_replicas(case: Case) -> None:
    assert_equal(case.fast(), case.plain())


@some
@given(cases())
def test_replicas_of_all_roles(case: Case) -> None:
    assert_equal(case.fast(), case.plain())


@pytest.mark.slow
@many
@given(cases())
def test_replicas_of_all_roles_a_thousand_times(case: Case) -> None:
    assert_equal(case.fast(), case.plain())


@pytest.mark.slow
@pytest.mark.parametrize("roles", ["mixed", "disaggregated"])
@pytest.mark.parametrize("routing", ROUTINGS)
def test_a_whole_plan(roles: str, routing: Routing) -> None:
    problem = Problem.load(
        EXAMPLES / "e2llm-testbed.yaml",
        workload={"rate_per_s": 0.2},
        constraints={"roles": roles},
    )
    found = plan(problem)
    assert isinstance(found, Plan)
    arrivals = draw_arrivals(problem.workload, 60, seed=3)
    rows = {device.name: d for d, device in enumerate(problem.devices)}
    replicas = [
        Replica(
            role=str(own.role),
            cut=tuple((rows[stage.device], *stage.layers) for stage in own.stages),
            slots=own.slots,
            max_context=own.max_context_tokens,
            rate=own.arrival_rate_per_s,
        )
        for own in found.replicas
    ]
    index = {own.id: r for r, own in enumerate(found.replicas)}
    rates = {
        (index[route.prefill], index[route.decode]): route.rate_per_s for route in found.routes
    }
    requests = requests_of(arrivals)
    Model(World(problem), replicas, routing=routing, route_rates=rates).run(requests)
    assert_equal(simulate(found, problem, arrivals, routing=routing), requests)
