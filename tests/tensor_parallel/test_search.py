"""Plans with shared stages: valid, as good as brute force finds, and never below their bound."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings

import e2llm_opt
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import Costs
from e2llm_opt.plan.json_file import plan_from_dict
from e2llm_opt.plan.plan import Plan, Proof
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.columns import CLOSE, EXACT
from e2llm_opt.search.roles import engine_roles
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.simulate.summary import summarise
from tests.oracles import groupings
from tests.search.cuts import best_rate
from tests.tensor_parallel.servers import servers
from tests.tensor_parallel.test_errors import FACTS, server

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.problem import Problem

FEW = Stop(max_evaluations=60)
small = servers((1, 2, 3, 4), max_hosts=1, max_layers=4)
pairs = servers((1, 2), max_hosts=2, max_layers=4)


def ways(costs: Costs, devices: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to form equal units of *devices*: as they are, twos and fours of a host."""
    yield tuple(devices)
    hosts: dict[str, list[int]] = {}
    for d in devices:
        hosts.setdefault(costs.problem.devices[d].host, []).append(d)
    for t in (2, 4):
        if t in costs.units.degrees and all(len(own) % t == 0 for own in hosts.values()):
            blocks = [own[i : i + t] for own in hosts.values() for i in range(0, len(own), t)]
            yield tuple(costs.units.known(block) for block in blocks)


def best_of(search: Search, devices: Sequence[int], role: Role) -> float:
    """Return the best rate of *devices*; it is that of others of their classes."""
    costs = search.evaluator.costs
    group = tuple(sorted(costs.classes.class_of[d] for d in devices))
    alike = search.candidates.concrete(group)
    return max(best_rate(search.candidates.figures, own, role) for own in ways(costs, alike))


@settings(max_examples=12)
@given(small)
def test_refined_columns_are_the_best_of_all_units_cuts_slots_and_micro_batches(
    problem: Problem,
) -> None:
    search = Search(Costs(problem))
    search.exact.bind(Stop())
    bound, costs = search.exact.bound, search.evaluator.costs
    assert bound is not None
    group = tuple(sorted(costs.classes.class_of[d] for d in search.devices))
    devices = search.candidates.concrete(group)
    for role in engine_roles(problem):
        best = best_of(search, devices, role)
        relaxation, counts = bound.relaxation, bound.relaxation.counts(group)[None]
        assert best <= relaxation.rates(role, counts)[0] * (1 + 1e-9)
        bound.refiner.refine(group, role)
        columns = search.candidates.columns
        assert best <= columns.upper(group, role) * (1 + 1e-9)
        if columns.is_exact(group, role):
            assert columns.rate(group, role) == pytest.approx(best, rel=2 * EXACT)


def capacities(search: Search) -> Iterator[float]:
    """Yield the capacity, links left out, of every grouping in every role with the best units."""
    roles = engine_roles(search.evaluator.costs.problem)
    known: dict[tuple[tuple[int, ...], Role], float] = {}
    for grouping in groupings(search.devices):
        groups = [tuple(sorted(group)) for group in grouping]
        for chosen in product(roles, repeat=len(groups)):
            total = dict.fromkeys(Role, 0.0)
            for key in zip(groups, chosen, strict=True):
                if key not in known:
                    known[key] = best_of(search, *key)
                total[key[1]] += known[key]
            yield min(total[Role.PREFILL], total[Role.DECODE]) + total[Role.MIXED]


@settings(max_examples=12)
@given(small | pairs)
def test_the_bound_is_the_best_capacity_of_all_groupings_roles_units_and_cuts(
    problem: Problem,
) -> None:
    problem = replace(problem, objective=Objective.THROUGHPUT)
    search = Search(Costs(problem))
    search.run(Stop(method="exact"), 0)
    best = max(capacities(search), default=0.0)
    assert search.exact.limit is not None
    assert search.exact.limit >= best * (1 - 1e-9)
    assert search.exact.limit <= best * (1 + CLOSE) or not search.exact.is_closed


@settings(max_examples=6)
@given(servers((1, 2, 4), max_hosts=2))
def test_the_pooled_roofline_of_large_groups_is_no_lower_than_small_groups(
    problem: Problem,
) -> None:
    """With few groups enumerated, the over-estimate of the others covers what they leave out."""
    search = Search(Costs(replace(problem, objective=Objective.THROUGHPUT)))
    whole = search.exact._built()
    for _ in whole.run(0.0, refinements=20):
        pass
    crude = search.exact._built(1)
    for _ in crude.run(0.0, refinements=20):
        pass
    assert crude.value >= whole.known * (1 - 1e-6)


@settings(max_examples=10)
@given(servers((1, 2, 4), is_constrained=True))
def test_a_plan_is_valid_and_reads_back(problem: Problem) -> None:
    found = e2llm_opt.plan(problem, stop=FEW)
    if isinstance(found, Plan):
        assert e2llm_opt.check(found, problem).violations == ()
        assert plan_from_dict(json.loads(found.to_json())) == found
        assert found.bound.capacity_per_s is not None
        assert found.bound.capacity_per_s >= found.predicted.capacity_per_s * (1 - 1e-6)


def text(problem: Problem) -> dict[str, Any]:
    """Return the answer as JSON, but for what made it and how it was asked."""
    found = e2llm_opt.plan(problem, stop=FEW)
    document: dict[str, Any] = {"reason": getattr(found, "reason", "")}
    if isinstance(found, Plan):
        document = json.loads(found.to_json())
    document.pop("provenance", None)
    document.get("problem", {}).get("options", {}).pop("tensor_parallel", None)
    return document


@settings(max_examples=6)
@given(servers((1, 2, 3)))
def test_off_is_what_an_engine_that_cannot_share_does(problem: Problem) -> None:
    alone = replace(problem, runtime=replace(problem.runtime, tensor_parallel="no"))
    limits = replace(problem.constraints, tensor_parallel="off")
    assert text(replace(problem, constraints=limits)) == text(alone)


@settings(max_examples=6)
@given(servers((1,), max_hosts=3))
def test_without_twins_on_a_host_nothing_changes(problem: Problem) -> None:
    alone = replace(problem, runtime=replace(problem.runtime, tensor_parallel="no"))
    assert text(problem) == text(alone)


@settings(max_examples=8)
@given(small)
def test_a_faster_bus_never_hurts(problem: Problem) -> None:
    problem = replace(problem, objective=Objective.THROUGHPUT)
    devices = [
        replace(own, host_bus_bytes_per_s=4 * own.host_bus_bytes_per_s)
        for own in problem.inventory.devices
    ]
    found = [e2llm_opt.plan(one) for one in (problem, problem.with_devices(devices))]
    if all(isinstance(one, Plan) and one.bound.proof is Proof.OPTIMAL for one in found):
        slow, fast = (one.predicted.capacity_per_s for one in found if isinstance(one, Plan))
        assert fast >= slow * (1 - CLOSE)


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("engine", ["vllm", "sglang", "generic", "exo"])
def test_every_stage_has_the_number_asked_for(engine: str, degree: Any) -> None:
    problem = server(4, engine, degree)
    found = e2llm_opt.plan(problem)
    assert isinstance(found, Plan)
    stages = [stage for replica in found.replicas for stage in replica.stages]
    assert {len(stage.devices) for stage in stages} == {degree}
    assert e2llm_opt.check(found, problem).violations == ()
    assert found.problem.options["tensor_parallel"] == degree


def test_one_stream_is_quicker_on_four_cards_of_one_stage() -> None:
    large = replace(FACTS, hidden_size=4096, intermediate_size=14336)
    found, alone = (
        e2llm_opt.plan(replace(server(4, "vllm", asked, large), objective=Objective.LATENCY))
        for asked in ("auto", "off")
    )
    assert isinstance(found, Plan)
    assert isinstance(alone, Plan)
    assert found.replicas[0].stages[0].devices == ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
    assert found.predicted.tpot_s < 0.6 * alone.predicted.tpot_s
    assert {one.device for one in found.unused_devices} == {"odd"}
    assert "share every layer" in " ".join(found.explain)


def test_a_model_that_fits_no_card_alone_is_served_by_two() -> None:
    """The head alone would not fit beside half of the layers: its vocabulary is shared."""
    facts = replace(
        FACTS,
        layer_weight_bytes=1e9,
        kv_bytes_per_token=1e3,
        layer_flops_per_token=1e9,
        embedding_bytes=2e9,
        head_bytes=5e9,
    )
    limits: dict[str, Any] = {"exclude": ("odd",)}
    found = e2llm_opt.plan(server(4, "vllm", 4, facts, **limits))
    assert isinstance(found, Plan)
    assert not isinstance(e2llm_opt.plan(server(2, "vllm", "off", facts, **limits)), Plan)


def test_a_simulation_runs_on_shared_stages() -> None:
    problem = server(4, "vllm", 2)
    problem = replace(problem, workload=replace(problem.workload, rate_per_s=1.0))
    found = e2llm_opt.plan(problem)
    assert isinstance(found, Plan)
    arrivals = e2llm_opt.draw_arrivals(problem.workload, 400)
    simulation = e2llm_opt.simulate(found, problem, arrivals)
    assert simulation.latency_s.mean() == pytest.approx(found.predicted.latency_s, rel=0.05)
    summary = summarise(simulation, found, problem)
    used = {name for own in found.replicas for stage in own.stages for name in stage.devices}
    assert {one.device for one in summary.devices} == used


def test_pinned_devices_share_a_stage_with_those_of_their_pin_alone() -> None:
    problem = server(4, "vllm", 2, pin={"chat": ("gpu-1", "gpu-2")})
    found = e2llm_opt.plan(problem)
    assert isinstance(found, Plan)
    chat = next(one for one in found.replicas if one.id == "chat")
    assert {name for stage in chat.stages for name in stage.devices} == {"gpu-1", "gpu-2"}
    assert e2llm_opt.check(found, problem).violations == ()


def test_constraints_are_kept_as_given() -> None:
    assert Constraints().tensor_parallel == "auto"
    assert hash(Constraints(tensor_parallel=4)) != hash(Constraints())
