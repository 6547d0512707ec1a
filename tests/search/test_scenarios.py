"""Plans for many loads: as good in all of them as any plan for one."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.check.check import check
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.json_file import plan_from_dict
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Objective, Problem, Role
from e2llm_opt.report.page import plan_page
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.scenarios import measured
from e2llm_opt.search.search import Search
from e2llm_opt.search.standing import cuts_of
from e2llm_opt.solve import plan, plans
from e2llm_opt.workload.scenarios import Risk, Scenario
from e2llm_opt.workload.workload import Lengths
from tests.search.test_roles import cluster
from tests.strategies import problems, relabelled

if TYPE_CHECKING:
    from e2llm_opt.search.candidates import Candidate

NO_FINALS = Finals(arrivals=())
Load = tuple[float, float, float]
"""Rate, prompt and output."""


def with_scenarios(problem: Problem, loads: list[Load], risk: Risk) -> Problem:
    scenarios = tuple(
        Scenario(
            name=f"s{i}",
            weight=1.0 + i,
            rate_per_s=rate,
            prompt=Lengths(mean=prompt),
            output=Lengths(mean=output),
        )
        for i, (rate, prompt, output) in enumerate(loads)
    )
    workload = replace(problem.workload, context_tokens=2048, scenarios=scenarios, risk=risk)
    return replace(problem, workload=workload, objective=Objective.WAITING_TIME)


loads = st.lists(
    st.tuples(
        st.sampled_from((0.05, 0.5, 2.0)),
        st.sampled_from((64.0, 300.0, 900.0)),
        st.sampled_from((20.0, 100.0, 400.0)),
    ),
    min_size=1,
    max_size=3,
    unique=True,
)


def wait_of(found: Plan, problem: Problem) -> float:
    """What the risk makes of the waits of *found* in all scenarios, each evaluated on its own."""
    waits = []
    for scenario in problem.workload.scenarios:
        there = replace(problem, workload=problem.workload.in_scenario(scenario))
        search = Search(costs_of(there))
        replicas: list[Candidate] = []
        for replica, cut in zip(found.replicas, cuts_of(costs_of(there), found), strict=True):
            own = search.candidates.at_cut(cut, Role(replica.role), replica.slots)
            if own is None or own.slots < replica.slots:
                return np.inf
            replicas.append(own)
        waits.append(search.evaluator.outcome(replicas).waiting_time_s)
    return float(measured(np.array(waits), problem.workload))


@given(problem=problems(max_devices=4), drawn=loads, risk=st.sampled_from(Risk))
def test_no_plan_for_one_load_waits_less_over_all(
    problem: Problem, drawn: list[Load], risk: Risk
) -> None:
    asked = with_scenarios(problem, drawn, risk)
    found = plan(asked, finals=NO_FINALS)
    if not isinstance(found, Plan):
        return
    assert found.scenarios is not None
    assert not check(found, asked).violations
    workload = asked.workload
    rivals = []
    for load in (workload.alone, *map(workload.in_scenario, workload.scenarios)):
        others = plans(replace(asked, workload=load), top=1, finals=NO_FINALS)
        rivals += list(others) if isinstance(others, tuple) else []
    wait = found.scenarios.waiting_time_s
    least = min(wait_of(rival, asked) for rival in rivals)
    unit = Search(costs_of(asked)).evaluator.ranking.wait_unit_s
    assert (np.inf if wait is None else wait) <= least + unit
    if wait is not None and np.isfinite(wait_of(found, asked)):
        assert wait == pytest.approx(wait_of(found, asked), rel=1e-6, abs=1e-9)


@given(problem=problems(max_devices=4))
def test_one_scenario_that_is_the_workload_changes_nothing(problem: Problem) -> None:
    load = problem.workload
    same = Scenario(name="same", rate_per_s=load.rate_per_s, prompt=load.prompt, output=load.output)
    asked = replace(problem, workload=replace(load, scenarios=(same,)))
    one, two = plan(problem, finals=NO_FINALS), plan(asked, finals=NO_FINALS)
    assert isinstance(one, Plan) == isinstance(two, Plan)
    if isinstance(one, Plan) and isinstance(two, Plan):
        assert two.predicted.stable == one.predicted.stable
        assert two.predicted.capacity_per_s == pytest.approx(one.predicted.capacity_per_s)
        assert two.predicted.waiting_time_s == pytest.approx(one.predicted.waiting_time_s)
        assert two.scenarios is not None
        assert two.scenarios.waiting_time_s == two.predicted.waiting_time_s


@given(problem=problems(max_devices=4), drawn=loads, random=st.randoms(use_true_random=False))
def test_names_of_devices_change_nothing(problem: Problem, drawn: list[Load],
                                         random: object) -> None:  # fmt: skip
    asked = with_scenarios(problem, drawn, Risk.WORST)
    one = plan(asked, finals=NO_FINALS)
    two = plan(relabelled(asked, random), finals=NO_FINALS)  # type: ignore[arg-type] # a Random
    assert isinstance(one, Plan) == isinstance(two, Plan)
    if isinstance(one, Plan) and isinstance(two, Plan):
        assert one.scenarios is not None
        assert two.scenarios is not None
        assert one.scenarios.waiting_time_s == pytest.approx(two.scenarios.waiting_time_s)


def test_the_plan_for_the_worst_pays_off_in_the_worst() -> None:
    problem = with_scenarios(
        cluster(5, 0.5, seed=2), [(0.6, 2000.0, 20.0), (0.2, 50.0, 900.0)], Risk.WORST
    )
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    told = found.scenarios
    assert told is not None
    assert told.waiting_time_s == max(one.waiting_time_s or 0.0 for one in told.cases)
    mean = told.mean_plan_waiting_time_s
    assert mean is None or told.waiting_time_s <= mean + 1e-3
    assert any(line.startswith("Scenarios: requests wait") for line in found.explain)
    assert "s1" in plan_page(found)


def test_a_capacity_that_no_scenario_bears_out_is_a_violation() -> None:
    problem = with_scenarios(cluster(3, 0.5, seed=2), [(0.5, 300.0, 50.0)], Risk.EXPECTED)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    assert found.scenarios is not None
    assert not check(found, problem).violations
    (case,) = found.scenarios.cases

    stated = found.scenarios

    def told(**changes: object) -> str:
        changed = replace(case, **changes)  # type: ignore[arg-type] # fields of a case
        other = replace(found, scenarios=replace(stated, cases=(changed,)))
        return " ".join(str(one) for one in check(other, problem).violations)

    assert "scenario s0: predicted.capacity_per_s" in told(capacity_per_s=2 * case.capacity_per_s)
    assert "a scenario that the workload does not have" in told(name="other")


def test_a_plan_with_scenarios_reads_back() -> None:
    problem = with_scenarios(cluster(3, 0.5, seed=2), [(0.5, 300.0, 50.0)], Risk.CVAR)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    assert plan_from_dict(json.loads(found.to_json())) == found
