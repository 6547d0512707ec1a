"""The paper's search: against every grouping, and what holds of every plan that it makes."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import e2llm_opt
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import Costs
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import Plan, RunProvenance
from e2llm_opt.planners.e2llm_paper import PaperPlanner
from e2llm_opt.problem import Objective, Problem, Role
from e2llm_opt.runtime import runtime
from e2llm_opt.search.paper.fitness import MAX_GROUPS, best_roles
from e2llm_opt.search.paper.replicas import PaperReplica, PaperReplicas
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from tests.oracles import World, groupings
from tests.strategies import problems, relabelled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import Progress

TESTBED = Path(__file__).parents[3] / "examples" / "e2llm-testbed.yaml"
CUSTOM = {"prompt_tokens": 2284, "output_tokens": 1004, "context_tokens": 4096}
NAME = "e2llm-paper"
FULL = Stop()
QUICK = Stop(stagnation=2)
PROVENANCE = RunProvenance(e2llm_opt="", created="", elapsed_s=0.0)


def ran(problem: Problem, stop: Stop, seed: int = 0) -> PaperPlanner:
    planner = PaperPlanner(Costs(problem))
    planner.run(stop, seed)
    return planner


def best(planner: PaperPlanner) -> Outcome | None:
    return next(iter(planner.ranked(1)), None)


def eq_4(planner: PaperPlanner) -> float:
    return planner.paper.extra_wait_s


# ---------------------------------------------------------------- roles


def plainly(replicas: Sequence[PaperReplica], problem: Problem) -> float:
    """Return the least Eq. 4 over all roles, one after the other."""
    workload = problem.workload
    least = math.inf
    for roles in product((Role.PREFILL, Role.DECODE), repeat=len(replicas)):
        played = list(zip(replicas, roles, strict=True))
        if any(replica.in_role(role) is None for replica, role in played):
            continue
        reading = sum(r.prefill_per_s for r, role in played if role is Role.PREFILL)
        writing = sum(r.decode_per_s for r, role in played if role is Role.DECODE)
        if reading > 0 and writing > 0:
            phase = max(workload.prompt.mean / reading, workload.output.mean / writing)
            least = min(least, phase)
    return least - (1 / workload.rate_per_s if workload.rate_per_s > 0 else 0.0)


def made_up(search: Search, prefill_per_s: float, decode_per_s: float) -> PaperReplica:
    """Return a replica with these rates; which candidate stands behind it does not matter."""
    some = next(iter(search.baselines.values())).replicas[0]
    return PaperReplica(
        prefill_per_s=prefill_per_s,
        decode_per_s=decode_per_s,
        slots=1,
        prefill=some if prefill_per_s > 0 else None,
        decode=some if decode_per_s > 0 else None,
    )


@pytest.fixture(scope="module")
def testbed() -> Search:
    return Search(Costs(Problem.load(TESTBED)))


rates = st.tuples(st.sampled_from([0.0, 3.0, 90.0, 700.0]), st.sampled_from([0.0, 2.0, 60.0, 80.0]))


@given(st.lists(rates.filter(any), max_size=6))
def test_roles_are_the_best_of_all_and_playable(
    testbed: Search, drawn: list[tuple[float, float]]
) -> None:
    problem = testbed.evaluator.costs.problem
    replicas = [made_up(testbed, *pair) for pair in drawn]
    found = best_roles(replicas, problem.workload)
    assert found.extra_wait_s == pytest.approx(plainly(replicas, problem))
    assert len(found.roles) == (len(replicas) if math.isfinite(found.extra_wait_s) else 0)
    for replica, role in zip(replicas, found.roles, strict=False):
        assert replica.in_role(role) is not None


@given(st.lists(rates.filter(any), min_size=MAX_GROUPS + 1, max_size=MAX_GROUPS + 1))
def test_roles_of_many_groups_are_playable_and_near_the_divisible_optimum(
    testbed: Search, drawn: list[tuple[float, float]]
) -> None:
    """Of the split by advantage at most one group is on the wrong side."""
    workload = testbed.evaluator.costs.problem.workload
    replicas = [made_up(testbed, *pair) for pair in drawn]
    found = best_roles(replicas, replace(workload, rate_per_s=0.0))
    can_split = any(
        one[0] > 0 and other[1] > 0
        for i, one in enumerate(drawn)
        for other in drawn[:i] + drawn[i + 1 :]
    )
    assert bool(found.roles) == can_split
    played = list(zip(replicas, found.roles, strict=False))
    reading = sum(r.prefill_per_s for r, role in played if role is Role.PREFILL)
    writing = sum(r.decode_per_s for r, role in played if role is Role.DECODE)
    if played:
        assert found.extra_wait_s == pytest.approx(
            max(workload.prompt.mean / reading, workload.output.mean / writing)
        )
    for replica, role in played:
        assert replica.in_role(role) is not None


# ---------------------------------------------------------------- the genetic algorithm


@pytest.fixture(scope="module", params=[{}, CUSTOM], ids=["extended", "custom"])
def best_of_all(request: pytest.FixtureRequest) -> tuple[Problem, float]:
    """The testbed, and Eq. 4 of the best of its 877 groupings."""
    problem = Problem.load(TESTBED, workload=request.param)
    search = Search(Costs(problem))
    replicas = PaperReplicas(search.candidates)
    class_of = search.evaluator.costs.classes.class_of
    known, num_groupings = {}, 0
    for grouping in groupings(search.devices):
        if sum(map(len, grouping)) < len(search.devices):
            continue
        num_groupings += 1
        groups = sorted(tuple(sorted(class_of[d] for d in group)) for group in grouping)
        usable = [found for group in groups if (found := replicas.find(group)).is_usable]
        if tuple(groups) not in known:
            known[tuple(groups)] = plainly(usable, problem)
    assert num_groupings == 877
    return problem, min(known.values())


@pytest.mark.needs_jit
def test_most_seeds_find_the_best_of_all_groupings_of_the_testbed_and_none_finds_more(
    best_of_all: tuple[Problem, float],
) -> None:
    problem, least = best_of_all
    found = np.array([eq_4(ran(problem, FULL, seed)) for seed in range(8)])
    assert (found >= least - 1e-9).all()
    assert (found <= least + 1e-9).sum() >= 6


@pytest.mark.parametrize("seed", range(3))
def test_one_generation_is_not_better_than_all_groupings(
    best_of_all: tuple[Problem, float], seed: int
) -> None:
    problem, least = best_of_all
    assert eq_4(ran(problem, replace(FULL, max_evaluations=1), seed)) >= least - 1e-9


@pytest.mark.needs_jit
def test_generations_improve_on_the_first_one() -> None:
    problem = Problem.load(TESTBED)
    first, later = (eq_4(ran(problem, replace(FULL, max_evaluations=n), 1)) for n in (1, 2400))
    assert later < first


@pytest.mark.needs_jit
def test_the_same_seed_gives_the_same_plan_but_for_provenance() -> None:
    problem = Problem.load(TESTBED)
    texts = []
    for _ in range(2):
        found = e2llm_opt.plan(problem, seed=3, planner=NAME)
        assert isinstance(found, Plan)
        texts.append(replace(found, provenance=PROVENANCE).to_json())
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("stop", "most"),
    [
        (replace(FULL, max_evaluations=80), 80),
        (replace(FULL, stagnation=1), 2400),
        (replace(FULL, time_limit_s=1e-9), 80),
    ],
)
def test_a_search_ends_at_its_limits_and_tells_how_far_it_is(stop: Stop, most: int) -> None:
    seen: list[Progress] = []
    planner = PaperPlanner(Costs(Problem.load(TESTBED)), seen.append)
    planner.run(stop, 0)
    assert [one.done for one in seen] == list(range(1, len(seen) + 1))
    assert len(seen) <= most
    assert {one.planned for one in seen} == {stop.max_evaluations}
    assert "PREFILL" in seen[-1].best  # however late it is, some plan is found first
    found = best(planner)
    assert found is not None
    assert seen[-1].num_replicas == len(found.replicas)


def test_an_interrupted_search_returns_the_best_plan_so_far_with_a_warning() -> None:
    def interrupt(progress: Progress) -> None:
        if progress.num_replicas:
            raise KeyboardInterrupt

    found = e2llm_opt.plan(Problem.load(TESTBED), planner=NAME, progress=interrupt)
    assert isinstance(found, Plan)
    assert "interrupted" in found.warnings[0]
    assert len(found.replicas) >= 2


def test_an_interrupted_search_without_a_plan_is_interrupted() -> None:
    def interrupt(progress: Progress) -> None:
        assert progress.best == "none yet"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        e2llm_opt.plan(only("orin"), planner=NAME, progress=interrupt)


def only(name: str) -> Problem:
    """Return the testbed with one device left."""
    problem = Problem.load(TESTBED)
    devices = tuple(device for device in problem.devices if device.name == name)
    return replace(problem, inventory=Inventory(devices=devices, links=()))


# ---------------------------------------------------------------- the plans


def for_the_paper(problem: Problem) -> Problem:
    """Return *problem* on an engine that can disaggregate, with roles that it can have."""
    roles = "auto" if problem.constraints.roles == "mixed" else problem.constraints.roles
    return replace(
        problem,
        runtime=replace(problem.runtime, has_disaggregation=True),
        constraints=replace(problem.constraints, roles=roles),
    )


small = problems(min_devices=2, max_devices=5, max_layers=6, is_constrained=True, is_linked=True)
anything = problems(max_devices=5, max_layers=6, is_constrained=True)
splittable = (small | anything).map(for_the_paper)


@given(splittable)
def test_a_plan_is_valid_and_obeys_limits_and_constraints(problem: Problem) -> None:
    if best(ran(problem, QUICK)) is None:
        return  # what would help is tried elsewhere, and takes long
    found = e2llm_opt.plan(problem, planner=NAME, stop=QUICK)
    assert isinstance(found, Plan)
    assert e2llm_opt.check(found, problem).violations == ()
    assert {replica.role for replica in found.replicas} == {"PREFILL", "DECODE"}
    assert found.problem.options["planner"] == NAME
    used = [stage.device for replica in found.replicas for stage in replica.stages]
    assert len(used) == len(set(used))
    unused = {device.device for device in found.unused_devices}
    assert unused == {device.name for device in problem.devices} - set(used)
    constraints = problem.constraints
    assert not (constraints.use_all_devices and unused)
    assert constraints.replicas in {None, len(found.replicas)}
    for replica in found.replicas:
        if replica.role == "DECODE":
            assert replica.slots <= 16
            assert problem.workload.slots in {None, replica.slots}
            assert replica.decode.tpot_s <= problem.workload.slowest_tpot_s * (1 + 1e-9)


@given(splittable)
def test_no_grouping_has_a_smaller_eq_4(problem: Problem) -> None:
    """Few devices: the search sees every grouping, and reports the best it may."""
    planner = ran(problem, FULL)
    replicas = PaperReplicas(planner.candidates)
    class_of = planner.costs.classes.class_of
    least = math.inf
    for grouping in groupings(planner.search.devices):
        if sum(map(len, grouping)) < len(planner.search.devices):
            continue
        played = [(g, replicas.find(tuple(sorted(class_of[d] for d in g)))) for g in grouping]
        usable = [(group, replica) for group, replica in played if replica.is_usable]
        names = [{problem.devices[d].name for d in group} for group, _ in usable]
        if is_obeyed(problem.constraints, names, len(planner.search.devices)):
            least = min(least, plainly([replica for _, replica in usable], problem))
    assert eq_4(planner) == pytest.approx(least, rel=1e-9, abs=1e-9)


def is_obeyed(constraints: Constraints, replicas: list[set[str]], num_devices: int) -> bool:
    """Whether devices in these replicas are what replicas, use_all_devices, pin, layers ask for."""
    used = set().union(*replicas)
    must = {*constraints.fixed_layers, *constraints.pinned}
    homes = [
        [i for i, names in enumerate(replicas) if names & set(pinned)]
        for pinned in constraints.pins.values()
    ]
    return (
        must <= used
        and (not constraints.use_all_devices or len(used) == num_devices)
        and constraints.replicas in {None, len(replicas)}
        and all(len(places) == 1 for places in homes)
        and len({place for (place,) in homes}) == len(homes)
    )


@given(splittable)
def test_rates_follow_from_the_cut_by_the_papers_law(problem: Problem) -> None:
    """M·T by the formulas of the design page, T the slowest stage or link; b within Min TPS."""
    world, costs = World(problem), Costs(problem)
    search = Search(costs)
    found = PaperReplicas(search.candidates).find(tuple(sorted(costs.classes.class_of)))
    if found.prefill is not None:
        cut = found.prefill.cut
        times = world.prefill_stages(cut, problem.workload.prompt.mean, 1)
        pass_s = len(cut) * max(max(stage, hop) for stage, hop in times)
        assert found.prefill_per_s == pytest.approx(problem.workload.prompt.mean / pass_s)
    if found.decode is not None:
        cut = found.decode.cut
        times = world.decode_stages(cut, -(-found.slots // len(cut)), found.slots)
        slowest = max(*(stage for stage, _ in times), *(hop for _, hop in times[:-1]), 0.0)
        assert found.decode_per_s == pytest.approx(found.slots / (len(cut) * slowest))
        assert len(cut) * slowest <= problem.workload.slowest_tpot_s * (1 + 1e-9)
        assert 1 <= found.decode.slots <= found.slots
        assert len(cut) == len(problem.devices)


@given(splittable, st.randoms(use_true_random=False))
def test_names_and_order_change_nothing_in_the_figures(problem: Problem, random: Random) -> None:
    both = [ran(problem, QUICK), ran(relabelled(problem, random), QUICK)]
    assert eq_4(both[0]) == pytest.approx(eq_4(both[1]), rel=1e-9, abs=1e-9)
    old, new = map(best, both)
    assert (old is None) == (new is None)
    if old is not None and new is not None:
        assert new.traffic.capacity_per_s == pytest.approx(old.traffic.capacity_per_s, rel=1e-9)


def test_slots_are_lowered_to_what_is_legal_and_the_plan_says_so() -> None:
    """M·T hides slow hops: a token crosses each of them, beside each stage."""
    problem = Problem.load(TESTBED, workload=CUSTOM)
    engine = replace(problem.runtime, hop_overhead_s=8e-3)
    problem = replace(problem, runtime=engine)
    found = e2llm_opt.plan(problem, planner=NAME)
    assert isinstance(found, Plan)
    (line,) = (line for line in found.warnings if "in place of the paper's" in line)
    assert line.startswith("the replica that starts on ")
    assert e2llm_opt.check(found, problem).violations == ()


def test_idle_devices_are_named_with_the_reason() -> None:
    found = e2llm_opt.plan(Problem.load(TESTBED, workload=CUSTOM), planner=NAME)
    assert isinstance(found, Plan)
    (idle,) = found.unused_devices
    assert idle.device.startswith("m1-")
    assert idle.reason == (
        "holds 14 of 24 layers; in the grouping that e2llm-paper chose, its group cannot be a "
        "replica"
    )


def test_excluded_devices_are_not_used() -> None:
    constraints = {"exclude": ["orin", "rtx-5070"]}
    found = e2llm_opt.plan(Problem.load(TESTBED, constraints=constraints), planner=NAME)
    assert isinstance(found, Plan)
    assert {device.device for device in found.unused_devices} >= {"orin", "rtx-5070"}


@pytest.mark.needs_jit
def test_the_next_best_groupings_can_be_had_too() -> None:
    found = e2llm_opt.plans(Problem.load(TESTBED), top=3, planner=NAME)
    assert isinstance(found, tuple)
    assert len({plan.summary() for plan in found}) == 3
    first = e2llm_opt.plan(Problem.load(TESTBED), planner=NAME)
    assert isinstance(first, Plan)
    assert found[0].replicas == first.replicas


def test_pins_and_fixed_layers_are_obeyed() -> None:
    constraints = Constraints(pin={"home": ("m1-a", "orin")}, layers={"rtx-5070": 9})
    problem = replace(Problem.load(TESTBED), constraints=constraints)
    found = e2llm_opt.plan(problem, planner=NAME)
    assert isinstance(found, Plan)
    assert e2llm_opt.check(found, problem).violations == ()
    home = next(replica for replica in found.replicas if replica.id == "home")
    assert {"m1-a", "orin"} <= {stage.device for stage in home.stages}
    sizes = {s.device: s.layers[1] - s.layers[0] for r in found.replicas for s in r.stages}
    assert sizes["rtx-5070"] == 9


def test_a_rival_that_is_better_is_not_called_as_good() -> None:
    """Nothing but the paper's objective decides; the objective of the problem may prefer others."""
    problem = replace(Problem.load(TESTBED), objective=Objective.LATENCY)
    found = e2llm_opt.plan(problem, planner=NAME)
    assert isinstance(found, Plan)
    assert any("whatever the objective latency" in line for line in found.warnings)
    problem = Problem.load(TESTBED, workload={"rate_per_s": 0.01})
    found = e2llm_opt.plan(problem, planner=NAME)
    assert isinstance(found, Plan)
    reasons = {rival.name: rival.why_not for rival in found.alternatives}
    assert reasons["best single device"] == (
        "better, but not among the plans that this planner looks at"
    )


# ---------------------------------------------------------------- what it cannot do


def test_an_engine_that_cannot_disaggregate_is_refused_by_name() -> None:
    problem = replace(Problem.load(TESTBED), runtime=runtime("llama.cpp"))
    found = e2llm_opt.plan(problem, planner=NAME)
    assert isinstance(found, Infeasible)
    assert re.match(r"planner e2llm-paper .* llama\.cpp cannot move .* vllm", found.reason)


def test_mixed_roles_are_refused() -> None:
    problem = replace(Problem.load(TESTBED), constraints=Constraints(roles="mixed"))
    found = e2llm_opt.plan(problem, planner=NAME)
    assert isinstance(found, Infeasible)
    assert "constraints.roles cannot be mixed" in found.reason


def test_one_device_is_no_plan_and_another_planner_is_suggested() -> None:
    alone = only("orin")
    found = e2llm_opt.plan(alone, planner=NAME)
    assert isinstance(found, Infeasible)
    assert "needs a PREFILL and a DECODE replica" in found.reason
    assert [suggestion.change for suggestion in found.suggestions] == ["planner: e2llm-opt"]
    assert isinstance(e2llm_opt.plan(alone), Plan)


def test_where_no_planner_finds_a_plan_the_answer_is_the_usual_one() -> None:
    problem = only("m1-a")
    assert e2llm_opt.plan(problem, planner=NAME) == e2llm_opt.plan(problem)
