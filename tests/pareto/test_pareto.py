"""A front of plans: valid, none better than another, no worse than single plans, and repeatable."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import e2llm_opt
from e2llm_opt import Finals, Front, Infeasible, InputError, Plan, Problem, Stop, check
from e2llm_opt.pareto.front import load_front
from e2llm_opt.plan.plan import RunProvenance
from e2llm_opt.problem import Objective
from e2llm_opt.report.page import plan_page
from tests.report.test_page import read
from tests.strategies import problems, relabelled
from tests.worlds import worlds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from e2llm_opt import Progress

EXAMPLES = Path(__file__).parents[2] / "examples"
NO_FINALS = Finals(arrivals=())
LESS_IS_BETTER = {"capacity": -1.0}
PREDICTED = {
    "waiting_time": "waiting_time_s",
    "ttft": "ttft_s",
    "tpot": "tpot_s",
    "latency": "latency_s",
    "capacity": "capacity_per_s",
    "cost_per_hour": "cost_per_hour",
    "power_w": "power_w",
}


@pytest.fixture(scope="module")
def homelab() -> Front:
    found = e2llm_opt.pareto(Problem.load(EXAMPLES / "homelab.yaml"))
    assert isinstance(found, Front)
    return found


def world() -> Problem:
    """Five unlike devices, all with a power, and requests."""
    problem = next(iter(worlds(num_worlds=1)))
    powers = (20.0, 60.0, 35.0, 90.0, 45.0)
    machines = tuple(
        replace(d, power_w=power) for d, power in zip(problem.devices, powers, strict=True)
    )
    return replace(
        problem,
        inventory=replace(problem.inventory, devices=machines),
        workload=replace(problem.workload, rate_per_s=0.5),
    )


def rows(front: Front) -> list[list[float]]:
    """Return what is minimised."""
    return [
        [LESS_IS_BETTER.get(name, 1.0) * figures[name] for name in front.objectives]
        for figures in front.figures
    ]


def without_time(front: Front) -> Front:
    made = RunProvenance(e2llm_opt="", created="", elapsed_s=0.0)
    return replace(front, plans=tuple(replace(plan, provenance=made) for plan in front.plans))


def refusal(problem: Problem, objectives: Sequence[str] | None = None, size: int = 30) -> str:
    with pytest.raises(InputError) as caught:
        e2llm_opt.pareto(problem, objectives=objectives, size=size)
    return str(caught.value)


@settings(max_examples=8)
@given(problems(max_devices=4, max_layers=5, is_constrained=True))
def test_every_plan_is_valid_and_none_is_better_than_another(problem: Problem) -> None:
    front = e2llm_opt.pareto(problem)
    single = e2llm_opt.plan(problem, finals=NO_FINALS)
    assert isinstance(front, Infeasible) is isinstance(single, Infeasible)
    if isinstance(front, Infeasible):
        assert front == single
        return
    for plan, figures in zip(front.plans, front.figures, strict=True):
        report = check(plan, problem)
        assert report.valid, report.violations
        for name, value in figures.items():
            if name in PREDICTED:
                assert value == pytest.approx(getattr(plan.predicted, PREDICTED[name]))
        used = {stage.device for replica in plan.replicas for stage in replica.stages}
        assert figures.get("devices", len(used)) == len(used)
    for one, other in product(rows(front), rows(front)):
        assert one == other or not all(a < b for a, b in zip(one, other, strict=True))
    assert 0 <= front.knee < len(front.plans)


@settings(max_examples=5)
@given(problems(min_devices=2, max_devices=4, max_layers=5))
def test_the_ends_are_no_worse_than_the_single_objectives_plans(problem: Problem) -> None:
    names = ("waiting_time", "latency", "capacity", "devices")
    front = e2llm_opt.pareto(problem, objectives=names)
    if isinstance(front, Infeasible):
        return
    for name, objective in (
        ("waiting_time", Objective.WAITING_TIME),
        ("latency", Objective.LATENCY),
        ("capacity", Objective.THROUGHPUT),
    ):
        single = e2llm_opt.plan(replace(problem, objective=objective), finals=NO_FINALS)
        assert isinstance(single, Plan)
        if name not in front.objectives or not single.predicted.stable:
            continue
        value = getattr(single.predicted, PREDICTED[name])
        best = [figures[name] for figures in front.figures]
        if name == "capacity":
            assert max(best) >= value * (1 - 1e-3)
        else:  # a wait that is too little to count is as good as none
            unit = max(1e-3, 0.01 * (single.predicted.latency_s or 0.0))
            assert min(best) <= value * (1 + 1e-3) + unit


@pytest.mark.slow
@settings(max_examples=8)
@given(problems(min_devices=2, max_devices=4, max_layers=5), st.randoms(use_true_random=False))
def test_names_and_their_order_change_nothing(problem: Problem, random: Random) -> None:
    one = e2llm_opt.pareto(problem)
    other = e2llm_opt.pareto(relabelled(problem, random))
    assert isinstance(one, Infeasible) is isinstance(other, Infeasible)
    if isinstance(one, Front) and isinstance(other, Front):
        assert one.objectives == other.objectives
        assert np.array(rows(one)) == pytest.approx(np.array(rows(other)), rel=1e-6, abs=1e-9)
        assert one.knee == other.knee


def test_equal_seeds_and_budgets_give_equal_fronts() -> None:
    problem = world()
    limits = Stop(method="ga", max_evaluations=45, max_refinements=5)
    found = [
        e2llm_opt.pareto(problem, stop=limits, seed=3, objectives=("waiting_time", *others))
        for others in 2 * [("power_w",)] + 2 * [("power_w", "devices", "lost_capacity")]
    ]
    texts = [without_time(one).to_json() for one in found if isinstance(one, Front)]
    assert texts[0] == texts[1]
    assert texts[2] == texts[3]


def test_a_front_reads_back_as_it_was_written(homelab: Front, tmp_path: Path) -> None:
    path = tmp_path / "front.json"
    path.write_text(homelab.to_json(), encoding="utf-8")
    assert load_front(path) == homelab
    document = json.loads(homelab.to_json())
    assert len(document["plans"]) == len(homelab.plans)
    assert document["knee"] == homelab.knee
    assert [homelab.place_of(plan) for plan in homelab.plans] == list(range(len(homelab.plans)))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "e2llm-opt/plan/v1"}, "not a front"),
        ({"plans": []}, "plans: must be a list with something in it"),
        ({"knee": 99}, "knee: must be the index of one of the 3 plans"),
        ({"knee": True}, "knee: must be the index"),
        ({"figures": [{}]}, "figures[0].power_w: must be a number"),
        ({"explain": None}, "explain: must be a list of sentences"),
    ],
)
def test_a_damaged_front_is_refused(
    homelab: Front, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    path = tmp_path / "front.json"
    path.write_text(json.dumps(json.loads(homelab.to_json()) | change), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_front(path)
    assert says in str(caught.value)


def test_what_nobody_priced_is_left_out_or_refused(homelab: Front) -> None:
    assert homelab.objectives == ("waiting_time", "power_w", "devices", "lost_capacity")
    problem = Problem.load(EXAMPLES / "homelab.yaml")
    text = refusal(problem, ("waiting_time", "cost_per_hour", "powr_w"))
    assert "cost_per_hour is not known of desktop, laptop, mac-mini and pi" in text
    assert "unknown 'powr_w'" in text
    assert "power_w?" in text


def test_fronts_of_too_little_are_refused() -> None:
    problem = Problem.load(EXAMPLES / "homelab.yaml")
    assert "a front needs at least two" in refusal(problem, ("ttft",))
    assert "one is named twice" in refusal(problem, ("ttft", "ttft", "devices"))
    assert "size must be at least 2, got 1" in refusal(problem, size=1)
    with pytest.raises(InputError, match="a front needs ga or exhaustive"):
        e2llm_opt.pareto(problem, stop=Stop(method="exact"))


def test_without_requests_latency_stands_for_the_wait() -> None:
    problem = Problem.load(EXAMPLES / "homelab.yaml", workload={"rate_per_s": 0})
    front = e2llm_opt.pareto(problem)
    assert isinstance(front, Front)
    assert front.objectives[0] == "latency"


def test_objectives_that_do_not_conflict_are_said() -> None:
    problem = Problem.load(EXAMPLES / "homelab.yaml")
    front = e2llm_opt.pareto(problem, objectives=("ttft", "latency", "power_w"))
    assert isinstance(front, Front)
    table = np.array([[row[name] for name in ("ttft", "latency")] for row in front.figures])
    is_said = any("ttft and latency do not conflict" in line for line in front.explain)
    trades = any(a[0] < b[0] * 0.99 and a[1] > b[1] * 1.01 for a, b in product(table, table))
    assert is_said is not trades


def test_a_small_front_keeps_the_ends() -> None:
    problem = world()
    names = ("waiting_time", "power_w")
    whole = e2llm_opt.pareto(problem, objectives=names)
    small = e2llm_opt.pareto(problem, objectives=names, size=2)
    assert isinstance(whole, Front)
    assert isinstance(small, Front)
    assert len(small.plans) == 2 < len(whole.plans)
    assert small.figures == (whole.figures[0], whole.figures[-1])


def test_ctrl_c_leaves_the_front_so_far() -> None:
    problem = world()
    sizes: list[int] = []

    def interrupt(state: Progress) -> None:
        if state.front_size is not None:
            sizes.append(state.front_size)
            assert state.hypervolume is not None
            if len(sizes) == 3:
                raise KeyboardInterrupt

    front = e2llm_opt.pareto(problem, progress=interrupt)
    assert isinstance(front, Front)
    assert len(sizes) == 3
    assert all("interrupted" in plan.warnings[0] for plan in front.plans)
    assert all(check(plan, problem).valid for plan in front.plans)


def test_ctrl_c_before_any_plan_is_an_interruption() -> None:
    def interrupt(_: Progress) -> None:
        raise KeyboardInterrupt

    lab = Problem.load(EXAMPLES / "e2llm-testbed.yaml", constraints={"replicas": 3})
    with pytest.raises(KeyboardInterrupt):
        e2llm_opt.pareto(lab, progress=interrupt)


def test_the_plot_marks_the_knee(homelab: Front, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = homelab.plot(tmp_path / "front.svg")
    assert len(figure.axes) == len(homelab.objectives) - 1
    text = (tmp_path / "front.svg").read_text(encoding="utf-8")
    assert text.startswith("<?xml")
    labels = figure.axes[0].get_legend_handles_labels()[1]
    assert f"knee, plan {homelab.knee + 1}" in labels
    with pytest.raises(InputError, match="no format for a plot"):
        homelab.plot(tmp_path / "front.txt")


def test_a_page_with_the_front_is_whole_and_marks_the_plan(homelab: Front) -> None:
    page = plan_page(homelab.plans[1], front=homelab)
    reader = read(page)
    assert len(reader.ids) == len(set(reader.ids))
    assert all(address.startswith("#") for address in reader.addresses)
    text = " ".join(reader.text)
    assert "This is plan 2." in text
    assert homelab.explain[0] in text
    other = replace(homelab.plans[1], replicas=homelab.plans[1].replicas[:1])
    assert "This plan is not one of them." in " ".join(read(plan_page(other, front=homelab)).text)
