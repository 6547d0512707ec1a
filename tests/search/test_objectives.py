"""The objectives cost and max_context, pinned devices, fixed layers, and ranked plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

import e2llm_opt
from benchmarks import optimality_set
from e2llm_opt import (
    Constraints,
    Device,
    Infeasible,
    InputError,
    Inventory,
    Lengths,
    Objective,
    Plan,
)
from e2llm_opt.model.hf_config import facts
from tests.oracles import World
from tests.strategies import problems

if TYPE_CHECKING:
    from e2llm_opt import Problem
    from tests.oracles import Cut

GB = 1e9


def mixed(problem: Problem, objective: Objective) -> Problem:
    """Return *problem* with MIXED replicas only, and no requests waiting."""
    workload = replace(problem.workload, rate_per_s=0.0)
    limits = replace(problem.constraints, roles="mixed")
    return replace(problem, workload=workload, constraints=limits, objective=objective)


# ---------------------------------------------------------------- max_context


def holds(problem: Problem, cut: Cut, tokens: int) -> bool:
    """Whether *cut* holds requests of *tokens* tokens, and still decodes fast enough."""
    workload = problem.workload
    slots = workload.slots or 1
    world = World(replace(problem, workload=replace(workload, context_tokens=tokens)))
    if not world.fits(cut, slots):
        return False
    pause = world.pause(cut, workload.prompt.mean, slots)
    effective = world.rounds(cut, slots, slots) + slots * pause / workload.output.mean
    return effective <= min(workload.slowest_tpot_s, 1e30)


def longest(problem: Problem, cut: Cut) -> int:
    """Return the longest request that *cut* holds; 0 where not even the one asked for."""
    low = problem.workload.context_tokens
    if not holds(problem, cut, low):
        return 0
    high = 2 * low
    while high < 2**40 and holds(problem, cut, high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(problem, cut, middle) else (low, middle)
    return low


@given(
    problems(max_devices=3, max_layers=4, is_tight=True)
    | problems(max_devices=2, max_layers=4, is_tight=True, has_host_ram=True)
)
def test_no_cut_holds_a_longer_request_than_the_plan(problem: Problem) -> None:
    if (problem.workload.slots or 1) > 1:  # speeds of several slots are not searched exactly
        problem = replace(problem, workload=replace(problem.workload, slots=None))
    asked = mixed(problem, Objective.MAX_CONTEXT)
    found = e2llm_opt.plan(asked)
    cuts = World(asked).cuts(range(len(asked.devices)))
    most = max((longest(asked, cut) for cut in cuts), default=0)
    if isinstance(found, Infeasible):
        assert most == 0
        return
    assert max(replica.max_context_tokens for replica in found.replicas) == min(most, 2**40 - 1)
    assert e2llm_opt.check(found, asked).violations == ()


# ---------------------------------------------------------------- cost


def fleet(*prices: float | None, power_w: float | None = None) -> Inventory:
    """Return alike devices that each hold the model, at these prices an hour."""
    return Inventory(
        devices=tuple(
            Device(
                name=f"d{i}",
                memory_bytes=8 * GB,
                memory_bandwidth_bytes_per_s=100 * GB,
                fp16_flop_per_s=10e12,
                cost_per_hour=price,
                power_w=None if power_w is None else power_w * (i + 1),
            )
            for i, price in enumerate(prices)
        )
    )


def llama(inventory: Inventory, **workload: Any) -> Problem:
    return e2llm_opt.Problem(
        inventory=inventory,
        facts=facts("llama-3.2-3b"),
        runtime=e2llm_opt.runtime("llama.cpp"),
        workload=e2llm_opt.Workload(
            prompt=e2llm_opt.Lengths(mean=300), output=e2llm_opt.Lengths(mean=200), **workload
        ),
        weights="q4_k_m",
        objective=Objective.COST,
    )


def used(found: Plan | Infeasible) -> set[str]:
    assert isinstance(found, Plan), found.reason
    return {stage.device for replica in found.replicas for stage in replica.stages}


def test_the_cheapest_device_that_is_stable_is_enough() -> None:
    found = e2llm_opt.plan(llama(fleet(0.3, 0.1, 0.2), rate_per_s=0.05))
    assert used(found) == {"d1"}
    assert isinstance(found, Plan)
    assert found.predicted.cost_per_hour == pytest.approx(0.1)


def test_a_second_device_is_paid_for_only_where_one_is_not_stable() -> None:
    one = e2llm_opt.plan(llama(fleet(0.1), rate_per_s=0.05))
    assert isinstance(one, Plan)
    rate = 1.5 * one.predicted.capacity_per_s
    assert used(e2llm_opt.plan(llama(fleet(0.3, 0.1, 0.2), rate_per_s=rate))) == {"d1", "d2"}


def test_power_counts_where_a_price_is_missing_and_devices_where_power_is_missing_too() -> None:
    assert used(e2llm_opt.plan(llama(fleet(None, 0.1, power_w=10.0), rate_per_s=0.05))) == {"d0"}
    found = e2llm_opt.plan(llama(fleet(None, None, 0.1), rate_per_s=0.05))
    assert len(used(found)) == 1


def test_the_time_to_first_token_is_hard_for_cost_and_only_for_cost() -> None:
    asked = llama(fleet(0.1), rate_per_s=0.05, slo_ttft_s=1e-3)
    found = e2llm_opt.plan(asked)
    assert isinstance(found, Infeasible)
    assert "slo.ttft_s" in found.reason
    assert [suggestion.change for suggestion in found.suggestions][:1] == [
        "slo.ttft_s: leave it out"
    ]
    assert isinstance(e2llm_opt.plan(replace(asked, objective=Objective.LATENCY)), Plan)


# ---------------------------------------------------------------- pins and fixed layers


def test_a_pinned_device_joins_its_replica_which_bears_the_name_of_the_pin() -> None:
    inventory = replace(fleet(None, None, None), links=())
    hosts = tuple(replace(device, host="rack") for device in inventory.devices)
    asked = replace(
        llama(Inventory(devices=hosts), rate_per_s=0.05),
        objective=Objective.WAITING_TIME,
        constraints=Constraints(pin={"chat": ["d2", "d0"]}, layers={"d0": 3}),
    )
    found = e2llm_opt.plan(asked)
    assert isinstance(found, Plan)
    chat = next(replica for replica in found.replicas if replica.id == "chat")
    held = {stage.device: stage.layers[1] - stage.layers[0] for stage in chat.stages}
    assert held == {"d0": 3, "d2": 25}
    assert e2llm_opt.check(found, asked).violations == ()


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"pin": {"a": ["nobody"]}}, "no device is called 'nobody'"),
        ({"pin": {"a": ["d0"], "b": ["d0"]}}, "'d0' is pinned 2 times"),
        ({"pin": {"a": []}}, "'a' names no device"),
        ({"pin": {"a": ["d0"]}, "exclude": ("d0",)}, "'d0' is excluded"),
        ({"pin": {"a": ["d0"], "b": ["d1"]}, "replicas": 1}, "2 replicas are pinned"),
        ({"layers": {"d0": 0}}, "must be 1 to 28"),
        ({"layers": {"d0": 29}}, "must be 1 to 28"),
        ({"layers": {"nobody": 2}}, "no device is called 'nobody'"),
        ({"exclude": ("d0", "d1")}, "every device is excluded"),
    ],
)
def test_contradictions_are_refused(limits: dict[str, object], words: str) -> None:
    asked = llama(fleet(None, None), rate_per_s=0.05)
    with pytest.raises(InputError, match=words):
        replace(asked, constraints=Constraints(**limits))  # type: ignore[arg-type]


# ---------------------------------------------------------------- ranked plans


@given(problems(max_devices=4, max_layers=5, is_constrained=True))
def test_ranked_plans_differ_and_the_first_is_the_plan(problem: Problem) -> None:
    found = e2llm_opt.plans(problem, top=4)
    single = e2llm_opt.plan(problem)
    if isinstance(found, Infeasible):
        assert isinstance(single, Infeasible)
        return
    assert isinstance(single, Plan)
    assert 1 <= len(found) <= 4
    assert found[0].replicas == single.replicas
    shapes = [
        frozenset(
            Counter((r.role, frozenset(s.device for s in r.stages)) for r in one.replicas).items()
        )
        for one in found
    ]
    assert len(set(shapes)) == len(shapes)
    stable = [one.predicted.stable for one in found]
    assert stable == sorted(stable, reverse=True)
    for one in found:
        assert e2llm_opt.check(one, problem).violations == ()


def test_no_plans_at_all_cannot_be_asked_for() -> None:
    with pytest.raises(InputError, match="top must be at least 1"):
        e2llm_opt.plans(llama(fleet(None), rate_per_s=0.05), top=0)


def test_a_long_prompt_goes_through_a_pipeline_though_nothing_arrives_yet() -> None:
    """Chunks overlap: two equal devices take 13 s, one alone 23 s; the least sum is one's."""
    problem = optimality_set.instance("classes-2-in-1-0")
    workload = replace(
        problem.workload, prompt=Lengths(mean=4096.0), output=Lengths(mean=4.0), rate_per_s=0.0
    )
    problem = replace(problem, objective=Objective.WAITING_TIME, workload=workload)
    found = e2llm_opt.plan(problem)
    assert isinstance(found, Plan)
    assert [len(replica.stages) for replica in found.replicas] == [2]
    assert found.predicted.latency_s == pytest.approx(13.226, rel=1e-3)
