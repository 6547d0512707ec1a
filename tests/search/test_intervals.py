"""Intervals and pessimistic plans against devices that were slowed down by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings

from e2llm_opt import Objective, Problem
from e2llm_opt.check.check import check
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import Plan
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan
from tests.oracles import World
from tests.strategies import problems

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Replica

ROOT = Path(__file__).parents[2]
QUICK = Stop(max_evaluations=200)
Z80 = 1.2815515655446004


def by_hand(problem: Problem, z: float) -> Problem:
    """All devices slower by *z* standard deviations; that of their speeds must be known."""
    return problem.with_devices(
        replace(
            device,
            prefill_efficiency=device.prefill_efficiency * math.exp(-z * device.prefill_sigma),
            decode_efficiency=device.decode_efficiency * math.exp(-z * device.decode_sigma),
            layer_overhead_s=device.layer_overhead_s * math.exp(z * device.decode_sigma),
            host_bandwidth_bytes_per_s=device.host_bandwidth_bytes_per_s
            * math.exp(-z * device.decode_sigma),
            bus_bytes_per_s=device.bus_bytes_per_s * math.exp(-z * device.prefill_sigma),
        )
        for device in problem.devices
    )


def planned(problem: Problem) -> Plan | None:
    found = plan(problem, stop=QUICK, finals=Finals(arrivals=()))
    return found if isinstance(found, Plan) else None


def stage_times(problem: Problem, replica: Replica) -> list[tuple[float, float]]:
    """(prefill, decode) of each stage by the oracle, a micro-batch of all slots."""
    names = [device.name for device in problem.devices]
    cut = tuple((names.index(stage.device), *stage.layers) for stage in replica.stages)
    world = World(problem)
    first = world.prefill_stages(cut, problem.workload.prompt.mean, replica.slots)
    second = world.decode_stages(cut, replica.slots, replica.slots)
    return [(one, other) for (one, _), (other, _) in zip(first, second, strict=True)]


@settings(max_examples=25)
@given(problems(max_devices=4, is_linked=True) | problems(max_devices=3, has_host_ram=True))
def test_stages_are_as_fast_and_as_slow_as_the_oracle_says(problem: Problem) -> None:
    problem = replace(problem, runtime=replace(problem.runtime, is_pipelined=False))
    # The longest context spills more than the workload's, which the oracle goes by.
    assume(problem.objective is not Objective.MAX_CONTEXT)
    found = planned(problem)
    assume(found is not None)
    assert found is not None
    fast, slow = by_hand(problem, -Z80), by_hand(problem, Z80)
    for replica in found.replicas:
        low, high = stage_times(fast, replica), stage_times(slow, replica)
        for j, stage in enumerate(replica.stages):
            assert stage.prefill_time_interval_s == pytest.approx((low[j][0], high[j][0]), 1e-8)
            assert stage.decode_time_interval_s == pytest.approx((low[j][1], high[j][1]), 1e-8)


@settings(max_examples=25)
@given(problems(max_devices=4, is_linked=True))
def test_every_interval_holds_its_figure_and_passes_the_check(problem: Problem) -> None:
    found = planned(problem)
    assume(found is not None)
    assert found is not None
    assert check(found, problem).violations == ()
    between = found.predicted.intervals
    assert between is not None
    for name in ("capacity_per_s", "waiting_time_s", "ttft_s", "tpot_s", "latency_s"):
        value, interval = getattr(found.predicted, name), getattr(between, name)
        if value is not None:
            low, high = interval
            assert low <= value <= (math.inf if high is None else high)
        elif interval is not None:
            assert interval[1] is None


def test_no_upper_end_where_slow_devices_do_not_keep_up() -> None:
    testbed = Problem.load(ROOT / "examples" / "homelab.yaml")
    capacity = planned(testbed).predicted.capacity_per_s  # type: ignore[union-attr]
    for share, is_known, has_end in ((0.5, True, True), (0.97, True, False), (1.8, False, False)):
        asked = replace(testbed, workload=replace(testbed.workload, rate_per_s=capacity * share))
        found = planned(asked)
        assert found is not None
        assert found.predicted.stable is is_known
        wait = found.predicted.intervals.waiting_time_s  # type: ignore[union-attr]
        assert (wait is not None) is is_known
        if wait is not None:
            assert (wait[1] is not None) is has_end


@settings(max_examples=15)
@given(problems(max_devices=4, is_linked=True))
def test_a_pessimistic_plan_is_that_of_devices_slowed_by_hand(problem: Problem) -> None:
    """By the checker: which of two equal plans is taken may hang on a rounding."""
    pessimistic = replace(problem, pessimistic=0.9)
    one, other = planned(pessimistic), planned(by_hand(problem, Z80))
    assert (one is None) == (other is None)
    assume(one is not None)
    assert one is not None
    assert one.problem.options["pessimistic"] == 0.9
    assert check(one, pessimistic).violations == ()
    found = [violation.what for violation in check(one, by_hand(problem, Z80)).violations]
    assert [what for what in found if "interval" not in what and "inventory" not in what] == []
    assert any("as recomputed" in violation.what for violation in check(one, problem).violations)


@pytest.mark.parametrize("quantile", [0.0, 1.0, -0.5, math.nan, math.inf])
def test_impossible_quantiles_are_refused(quantile: float) -> None:
    problem = Problem.load(ROOT / "examples" / "two-macs.yaml")
    with pytest.raises(InputError, match="pessimistic must be between 0 and 1"):
        replace(problem, pessimistic=quantile)


@pytest.mark.parametrize("value", [0.3, 1, "often", True, [0.9]])
def test_a_file_with_an_impossible_quantile_says_which_are_possible(value: object) -> None:
    with pytest.raises(InputError, match=r"pessimistic: must be a number from 0\.5 to below 1"):
        Problem.load(ROOT / "examples" / "two-macs.yaml", pessimistic=value)


@settings(max_examples=15)
@given(problems(max_devices=4, is_linked=True))
def test_the_load_curve_rises_and_is_what_other_rates_get(problem: Problem) -> None:
    asked = replace(problem, objective=Objective.THROUGHPUT)
    found = planned(asked)
    assume(found is not None)
    assert found is not None
    curve = found.predicted.load_curve
    rates = [point.rate_per_s for point in curve]
    assert rates == sorted(rates)
    assert 0 < rates[-1] < found.predicted.capacity_per_s
    for point in curve:
        low, high = point.waiting_time_interval_s
        assert low <= point.waiting_time_s <= (math.inf if high is None else high)
    assert curve[-1].waiting_time_s >= curve[0].waiting_time_s
    some = curve[8]
    there = planned(replace(asked, workload=replace(asked.workload, rate_per_s=some.rate_per_s)))
    assert there is not None
    if [r.stages for r in there.replicas] == [r.stages for r in found.replicas]:
        assert there.predicted.waiting_time_s == pytest.approx(some.waiting_time_s, rel=1e-6)


def test_the_check_refuses_intervals_that_are_not_as_recomputed() -> None:
    problem = Problem.load(ROOT / "examples" / "two-macs.yaml")
    found = planned(problem)
    assert found is not None
    document = json.loads(found.to_json())
    stage, phase = document["replicas"][0]["stages"][0], document["replicas"][0]["decode"]
    for group, key in (
        (stage, "prefill_time_interval_s"),
        (stage, "decode_time_interval_s"),
        (phase, "tpot_interval_s"),
        (document["predicted"]["intervals"], "ttft_s"),
    ):
        right = group[key]
        group[key] = [right[1] * 1.01, right[1] * 1.02]
        violations = check(document, problem).violations
        assert [key in violation.what for violation in violations] == [True]
        for wrong in (3.0, [1.0], [2.0, 1.0], ["a", 1.0], [-1.0, 1.0]):
            group[key] = wrong
            with pytest.raises(InputError, match=f"{key}: is no interval"):
                check(document, problem)
        group[key] = right
    assert check(document, problem).valid
