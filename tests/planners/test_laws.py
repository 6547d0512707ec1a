"""What holds of every planner, and of each by an oracle: brute force over what it chooses from."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import e2llm_opt
from e2llm_opt.cost.costs import Costs
from e2llm_opt.errors import InputError
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import OURS, Plan, RunProvenance
from e2llm_opt.planners import PLANNERS, planner_named
from e2llm_opt.planners.edgeshard import request_demand, throughput_cut
from e2llm_opt.planners.hexgen import HexGen, canonical, mutate
from e2llm_opt.planners.parallax import fewest_stages
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.stop import Stop
from tests.oracles import World, groupings
from tests.strategies import problems, relabelled

if TYPE_CHECKING:
    from random import Random

    from e2llm_opt.planners.planner import Planner
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.ranking import Key

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "e2llm_opt" / "planners"
SHARED = {"__init__", "planner", "judge", "refusal"}
QUICK = Stop(stagnation=3)
PROVENANCE = RunProvenance(e2llm_opt="", created="", elapsed_s=0.0)
MIXED_ONLY = {
    *("all-mixed", "hexgen", "parallax", "edgeshard"),
    *("best-single-device", "memory-proportional", "equal-layers"),
}
SPLIT_ONLY = {"e2llm-paper", "splitwise-adapted"}
ONE_PIPELINE = {"edgeshard", "best-single-device", "memory-proportional", "equal-layers"}
small = problems(max_devices=4, max_layers=6)


def ran(problem: Problem, name: str, stop: Stop = QUICK, seed: int = 0) -> Planner:
    planner = planner_named(name)(Costs(problem))
    planner.run(stop, seed)
    return planner


def best_key(planner: Planner) -> Key | None:
    return next((planner.evaluator.key(outcome) for outcome in planner.ranked(1)), None)


# ---------------------------------------------------------------- the list


def test_the_list_names_every_planner_of_the_folder() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")} - SHARED
    assert {name.replace("-", "_") for name in PLANNERS} == files
    assert [planner_named(name).NAME for name in PLANNERS] == list(PLANNERS)
    assert PLANNERS[0] == OURS


def test_every_planner_is_described_with_its_source() -> None:
    page = (ROOT / "docs" / "planners.md").read_text(encoding="utf-8")
    assert [name for name in PLANNERS if f"`{name}`" not in page] == []


def test_an_unknown_planner_is_refused_with_the_nearest_names() -> None:
    problem = e2llm_opt.Problem.load(ROOT / "examples" / "two-macs.yaml")
    with pytest.raises(InputError, match=r"unknown planner 'splitwis'.*splitwise"):
        e2llm_opt.plan(problem, planner="splitwis")


# ---------------------------------------------------------------- every planner


@pytest.mark.parametrize("name", PLANNERS)
@given(problem=problems(max_devices=4, max_layers=6, is_constrained=True))
def test_a_plan_is_valid_and_says_who_made_it(name: str, problem: Problem) -> None:
    planner = ran(problem, name)
    if not planner.ranked(1):
        assert name == OURS or planner.reason
        return  # whether our own search finds one takes long
    plan = e2llm_opt.plan(problem, planner=name, stop=QUICK)
    assert isinstance(plan, Plan)
    assert e2llm_opt.check(plan, problem).violations == ()
    assert plan.problem.options["planner"] == name
    roles = {replica.role for replica in plan.replicas}
    assert name not in MIXED_ONLY or roles == {"MIXED"}
    assert name not in SPLIT_ONLY or roles == {"PREFILL", "DECODE"}
    assert name not in ONE_PIPELINE or len(plan.replicas) == 1
    used = {stage.device for replica in plan.replicas for stage in replica.stages}
    unused = {device.device: device.reason for device in plan.unused_devices}
    assert unused.keys() == {device.name for device in problem.devices} - used
    assert all(unused.values())


@pytest.mark.parametrize("name", PLANNERS)
def test_the_same_seed_gives_the_same_plan_but_for_provenance(name: str) -> None:
    problem = e2llm_opt.Problem.load(ROOT / "examples" / "e2llm-testbed.yaml")
    texts = []
    for _ in range(2):
        plan = e2llm_opt.plan(problem, planner=name, seed=3, stop=QUICK)
        assert isinstance(plan, Plan)
        texts.append(replace(plan, provenance=PROVENANCE).to_json())
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["splitwise", "splitwise-adapted", "hexgen", "edgeshard"])
@given(problem=small, random=st.randoms(use_true_random=False))
def test_names_and_order_change_nothing_in_the_figures(
    name: str, problem: Problem, random: Random
) -> None:
    old, new = (best_key(ran(one, name, Stop())) for one in (problem, relabelled(problem, random)))
    assert (old is None) == (new is None)
    if old is not None and new is not None:
        assert list(old) == pytest.approx(list(new), rel=1e-6, abs=1e-6)


@given(problems(max_devices=4, max_layers=6, is_constrained=True))
def test_our_own_search_is_never_worse_than_another_planner(problem: Problem) -> None:
    others = {name: best_key(ran(problem, name)) for name in PLANNERS if name != OURS}
    found = {name: key for name, key in others.items() if key is not None}
    ours = best_key(ran(problem, OURS))
    assert ours is not None or not found
    assert {name: key for name, key in found.items() if ours is None or key < ours} == {}


@pytest.mark.parametrize(
    ("workload", "capacity"),
    [({}, 0.469), ({"prompt_tokens": 2284, "output_tokens": 1004, "context_tokens": 4096}, 0.256)],
)
def test_the_best_plan_under_the_rule_is_that_of_an_independent_enumeration(
    workload: dict[str, int], capacity: float
) -> None:
    """A prototype in plain Python tried all groupings and roles of the paper's testbed."""
    problem = e2llm_opt.Problem.load(
        ROOT / "examples" / "e2llm-testbed.yaml",
        workload=workload,
        objective="throughput",
    )
    (best,) = ran(problem, "splitwise-adapted", Stop()).ranked(1)
    assert best.traffic.capacity_per_s == pytest.approx(capacity, abs=1e-3)


@given(problem=problems(max_devices=4, max_layers=6, is_constrained=True))
def test_a_planner_that_does_not_split_says_so(problem: Problem) -> None:
    assume(not problem.runtime.has_disaggregation)
    for name in ("e2llm-paper", "splitwise", "splitwise-adapted"):
        planner = ran(problem, name)
        assert planner.ranked(1) == []
        assert "cannot move a KV cache" in planner.reason


def test_an_interrupted_planner_keeps_its_best_plan() -> None:
    def interrupt(progress: e2llm_opt.Progress) -> None:
        if progress.num_replicas:
            raise KeyboardInterrupt

    problem = e2llm_opt.Problem.load(ROOT / "examples" / "e2llm-testbed.yaml")
    plan = e2llm_opt.plan(problem, planner="hexgen", progress=interrupt)
    assert isinstance(plan, Plan)
    assert "interrupted" in plan.warnings[0]


def test_where_nobody_finds_a_plan_the_answer_is_the_usual_one() -> None:
    problem = e2llm_opt.Problem.load(ROOT / "examples" / "two-macs.yaml", weights="f32")
    usual = e2llm_opt.plan(problem)
    assert isinstance(usual, Infeasible)
    assert e2llm_opt.plan(problem, planner="equal-layers") == usual


# ---------------------------------------------------------------- the adapted Splitwise


def prompts_per_s(problem: Problem, rows: list[int]) -> float:
    """Return the most prompts a second that a PREFILL replica of *rows* reads; 0 for none."""
    is_pipelined = problem.runtime.is_pipelined
    criterion: Literal["bottleneck", "sum"] = "bottleneck" if is_pipelined else "sum"
    best = e2llm_opt.partition(problem, rows, "PREFILL", slots=1, criterion=criterion)
    if best is None:
        return 0.0
    chunk = best.bottleneck_s if is_pipelined else best.latency_s
    chunks = World(problem).num_chunks(problem.workload.prompt.mean)
    return 1 / (chunk * chunks)


@given(small)
def test_no_decode_replica_would_be_faster_at_prompts(problem: Problem) -> None:
    rows = {device.name: d for d, device in enumerate(problem.devices)}
    planner = ran(problem, "splitwise-adapted")
    if not planner.ranked(1):
        return
    plan = e2llm_opt.plan(problem, planner="splitwise-adapted", stop=QUICK)
    assert isinstance(plan, Plan)
    slowest = min(
        replica.prefill.tokens_per_s for replica in plan.replicas if replica.role == "PREFILL"
    )
    for replica in plan.replicas:
        if replica.role == "DECODE":
            own = prompts_per_s(problem, [rows[stage.device] for stage in replica.stages])
            assert slowest >= own * problem.workload.prompt.mean * (1 - 1e-6)


# ---------------------------------------------------------------- EdgeShard


def slowest_step(world: World, problem: Problem, cut: tuple[tuple[int, int, int], ...]) -> float:
    """Return the slowest stage or hop of one request alone, by the formulas of the design page."""
    slots = problem.workload.slots or 1
    tokens, output = problem.workload.prompt.mean, problem.workload.output.mean
    reading = world.prefill_stages(cut, tokens, slots)
    writing = world.decode_stages(cut, 1, slots)
    if not math.isfinite(writing[-1][1]):
        return math.inf
    stages = [r + output * w for (r, _), (w, _) in zip(reading, writing, strict=True)]
    hops = [r + output * w for (_, r), (_, w) in zip(reading[:-1], writing[:-1], strict=True)]
    return max(*stages, *hops, 0.0)


@given(problems(max_devices=4, max_layers=5))
def test_no_cut_has_a_faster_slowest_step(problem: Problem) -> None:
    world, costs = World(problem), Costs(problem)
    rows = tuple(range(len(problem.devices)))
    slots = problem.workload.slots or 1
    least = min(
        (slowest_step(world, problem, cut) for cut in world.cuts(rows) if world.fits(cut, slots)),
        default=math.inf,
    )
    cut = throughput_cut(costs, rows, request_demand(costs))
    assert (cut is None) == (least == math.inf)
    if cut is not None:
        assert slowest_step(world, problem, cut) == pytest.approx(least, rel=1e-9)


# ---------------------------------------------------------------- Parallax


@given(st.lists(st.integers(0, 7), max_size=6), st.integers(1, 7), st.integers(1, 3))
def test_no_pipelines_have_fewer_stages(capacity: list[int], num_layers: int, k: int) -> None:
    least = min(
        (
            sum(map(len, groups))
            for groups in groupings(range(len(capacity)))
            if len(groups) == k
            and all(sum(capacity[i] for i in group) >= num_layers for group in groups)
        ),
        default=0,
    )
    found = fewest_stages(capacity, num_layers, k)
    assert sum(map(len, found)) == least
    used = [i for group in found for i in group]
    assert len(used) == len(set(used))
    assert all(sum(capacity[i] for i in group) >= num_layers for group in found)


def test_many_devices_take_no_longer() -> None:
    capacity = [1 + i % 13 for i in range(60)]
    found = fewest_stages(capacity, 32, 8)
    assert len(found) == 8
    assert all(sum(capacity[i] for i in group) >= 32 for group in found)


# ---------------------------------------------------------------- HexGen


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=1), st.integers(0))
def test_mutations_keep_every_device(groups: list[list[int]], seed: int) -> None:
    grouping = canonical(groups)
    child = mutate(grouping, np.random.default_rng(seed))
    assert sorted(d for group in child for d in group) == sorted(d for g in groups for d in g)
    assert child == canonical(child)
    assert abs(len(child) - len(grouping)) <= 1


@given(problems(max_devices=4, max_layers=6, is_linked=True))
def test_no_grouping_of_few_devices_is_better(problem: Problem) -> None:
    planner = HexGen(Costs(problem))
    planner.run(Stop(), 0)
    class_of = planner.costs.classes.class_of
    every = [
        planner._rank(canonical([[class_of[d] for d in group] for group in grouping]))[0]
        for grouping in groupings(planner.search.devices)
        if sum(map(len, grouping)) == len(planner.search.devices)
    ]
    least = min(every)
    found = min((key for key, _ in planner._known.values()), default=(IMPOSSIBLE,))
    assert found == least
