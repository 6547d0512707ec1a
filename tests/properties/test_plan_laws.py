"""What must hold of every answer of the planner, whatever the problem is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

import e2llm_opt
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.json_file import plan_from_dict
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Objective, Problem
from tests.oracles import World
from tests.strategies import problems, relabelled
from tests.suggestions import applied

if TYPE_CHECKING:
    from random import Random

    from e2llm_opt.plan.infeasible import Suggestion

anything = problems(max_devices=6, max_layers=6, is_constrained=True)
tight = problems(min_devices=2, max_devices=6, max_layers=6, is_tight=True, is_constrained=True)


@given(anything | tight)
def test_the_checker_finds_nothing_wrong_with_a_plan(problem: Problem) -> None:
    found = e2llm_opt.plan(problem)
    if isinstance(found, Plan):
        assert e2llm_opt.check(found, problem).violations == ()


@given(anything | tight)
def test_a_plan_covers_every_layer_once_and_fits_into_memory(problem: Problem) -> None:
    found = e2llm_opt.plan(problem)
    if isinstance(found, Infeasible):
        return
    rows = {device.name: d for d, device in enumerate(problem.devices)}
    world = World(problem)
    used = [stage.device for replica in found.replicas for stage in replica.stages]
    assert len(set(used)) == len(used)
    assert set(used) | {own.device for own in found.unused_devices} == set(rows)
    for replica in found.replicas:
        cut = tuple((rows[stage.device], *stage.layers) for stage in replica.stages)
        held = [layer for _, start, stop in cut for layer in range(start, stop)]
        assert held == list(range(problem.model.num_layers))
        assert world.fits(cut, replica.slots)
        for j, stage in enumerate(replica.stages):
            bytes_ = stage.memory_bytes
            need = bytes_.weights + bytes_.kv_cache + bytes_.overhead
            if problem.objective is not Objective.MAX_CONTEXT:  # which spills for a longer one
                assert set(stage.spilled_layers) == world.spilled(cut, j, replica.slots)
            away = sum(problem.model.layer_spillable_bytes[i] for i in stage.spilled_layers)
            whole = world.whole_stage_bytes(cut, j, replica.slots)
            assert need == pytest.approx(whole - away, abs=2)
            assert need + bytes_.free == pytest.approx(bytes_.capacity, abs=2)


@given(anything | tight, st.randoms(use_true_random=False))
def test_names_and_order_change_nothing_in_the_answer(problem: Problem, random: Random) -> None:
    other = relabelled(problem, random)
    old, new = e2llm_opt.plan(problem), e2llm_opt.plan(other)
    if isinstance(old, Infeasible) or isinstance(new, Infeasible):
        assert isinstance(old, Infeasible)
        assert isinstance(new, Infeasible)
        assert new.shortfall_bytes == old.shortfall_bytes
        assert nameless(other, new) == nameless(problem, old)
        return
    for name in ("capacity_per_s", "waiting_time_s", "ttft_s", "tpot_s", "latency_s"):
        before, after = getattr(old.predicted, name), getattr(new.predicted, name)
        assert (after is None) == (before is None)
        assert before is None or after == pytest.approx(before, rel=1e-9, abs=1e-12)
    assert shape(other, new) == shape(problem, old)


def nameless(problem: Problem, answer: Infeasible) -> list[Suggestion]:
    """Return the suggestions with a device's numbers in place of its name, in no order."""
    numbers = {
        device.name: repr(replace(device, name="any", host="any")) for device in problem.devices
    }

    def devices(match: re.Match[str]) -> str:
        return f"devices {sorted(numbers[name] for name in match[1].split(', '))}:"

    return [
        replace(suggestion, change=re.sub(r"^devices ([^:]*):", devices, suggestion.change))
        for suggestion in answer.suggestions
    ]


def shape(problem: Problem, plan: Plan) -> list[tuple[object, ...]]:
    """Return the role and layers of every stage with the numbers of its device."""
    devices = {device.name: device for device in problem.devices}
    return sorted(
        (
            replica.role,
            stage.layers,
            devices[stage.device].memory_bytes,
            devices[stage.device].reserved_bytes,
            devices[stage.device].memory_bandwidth_bytes_per_s,
            devices[stage.device].fp16_flop_per_s,
            devices[stage.device].layer_overhead_s,
        )
        for replica in plan.replicas
        for stage in replica.stages
    )


@given(anything | tight)
def test_a_plan_reads_back_from_json_as_it_was(problem: Problem) -> None:
    found = e2llm_opt.plan(problem)
    text = found.to_json()
    if isinstance(found, Plan):
        assert plan_from_dict(json.loads(text)) == found
        assert plan_from_dict(json.loads(text)).to_json() == text
    else:
        assert json.loads(text)["shortfall_bytes"] == found.shortfall_bytes


@given(anything | tight)
def test_requests_are_conserved_and_routes_add_up(problem: Problem) -> None:
    found = e2llm_opt.plan(problem)
    if isinstance(found, Infeasible):
        return
    rate = min(problem.workload.rate_per_s, found.predicted.capacity_per_s)
    served = {"PREFILL": 0.0, "DECODE": 0.0, "MIXED": 0.0}
    for replica in found.replicas:
        served[replica.role] += replica.arrival_rate_per_s
        assert replica.arrival_rate_per_s <= replica.service_rate_per_s * (1 + 1e-6)
        routed = sum(r.rate_per_s for r in found.routes if replica.id in {r.prefill, r.decode})
        if replica.role != "MIXED":
            assert routed == pytest.approx(replica.arrival_rate_per_s, rel=1e-6, abs=1e-9)
    assert served["PREFILL"] == pytest.approx(served["DECODE"], rel=1e-6, abs=1e-9)
    assert served["PREFILL"] + served["MIXED"] == pytest.approx(rate, rel=1e-6, abs=1e-9)
    assert found.predicted.stable == (problem.workload.rate_per_s < found.predicted.capacity_per_s)


@given(
    problems(max_devices=5, max_layers=6, is_tight=True, is_constrained=True)
    | problems(max_devices=3, max_layers=8, is_tight=True, is_linked=True)
)
def test_an_infeasible_answer_adds_up_and_its_suggestions_help(problem: Problem) -> None:
    found = e2llm_opt.plan(problem)
    if isinstance(found, Plan):
        return
    usable = sum(device.usable_bytes for device in problem.devices)
    slots = problem.workload.slots or 1
    kv_bytes = slots * problem.model.kv_bytes(problem.workload.context_tokens)
    assert found.kv_cache_bytes == pytest.approx(kv_bytes, abs=1)
    host = sum(d.host_memory_bytes for d in problem.devices if d.can_spill)
    usable += min(host, sum(problem.model.layer_spillable_bytes))
    if found.total_bytes > usable and problem.runtime.embedding == "first":
        assert found.shortfall_bytes == pytest.approx(found.total_bytes - usable, abs=1)
    assert found.shortfall_bytes >= 0
    assert found.reason
    assert {need.device for need in found.devices} == {d.name for d in problem.devices}
    for suggestion in found.suggestions:
        assert isinstance(e2llm_opt.plan(applied(problem, suggestion.change)), Plan), suggestion
