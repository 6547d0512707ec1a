"""Changes of a running plan: none without a reason, within limits, and worth their price."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt.check.check import check
from e2llm_opt.constraints import Constraints
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.json_file import dump_json
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Problem
from e2llm_opt.replan.answer import Replan
from e2llm_opt.replan.replan import replan
from e2llm_opt.replan.terms import ReplanTerms
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.solve import plan
from tests.replan.fleets import (
    MB,
    NO_FINALS,
    at_rate,
    bytes_to_get,
    fleet,
    moved,
    shape,
    slower,
    without,
)
from tests.strategies import problems

EAGER = ReplanTerms(hysteresis=0.0, noise=0.0, horizon_s=1e6)
"""Takes every change that gains more than it costs."""


def planned(problem: Problem) -> Plan:
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    return found


def replanned(old: Plan, problem: Problem, terms: ReplanTerms | None = None) -> Replan:
    found = replan(old, problem, terms=terms)
    assert isinstance(found, Replan)
    return found


@settings(max_examples=10)
@given(problem=problems(max_devices=3))
def test_nothing_moves_where_nothing_changed(problem: Problem) -> None:
    old = plan(problem, finals=NO_FINALS)
    if not isinstance(old, Plan):
        return
    same = replanned(old, problem)
    assert (same.plan, same.moves, same.role_changes, same.recommended) == (old, (), (), "none")


@settings(max_examples=10)
@given(problem=problems(max_devices=3), factor=st.sampled_from((0.98, 0.99, 1.01, 1.02)))
def test_noise_moves_nothing_and_changes_no_role(problem: Problem, factor: float) -> None:
    old = plan(problem, finals=NO_FINALS)
    if not isinstance(old, Plan):
        return
    rate = problem.workload.rate_per_s * factor
    for noisy in (at_rate(problem, rate), slower(problem, factor)):
        found = replan(old, noisy)
        if isinstance(found, Replan):  # a speed limit may leave no plan at all
            same = {one[2] for one in shape(found.plan)} <= {one[2] for one in shape(old)}
            if found.before.capacity_per_s > 0:
                assert (found.moves, found.role_changes) == ((), ())
                assert same


CHANGES = st.sampled_from(("rate up", "rate down", "one slower", "one excluded", "longer"))


@st.composite
def changed(draw: st.DrawFn, problem: Problem) -> Problem:
    """Return *problem* after something happened to it."""
    kind = draw(CHANGES)
    name = draw(st.sampled_from([device.name for device in problem.devices]))
    workload = problem.workload
    if kind == "rate up":
        return at_rate(problem, 3 * workload.rate_per_s + 0.1)
    if kind == "rate down":
        return at_rate(problem, 0.2 * workload.rate_per_s)
    if kind == "one slower":
        return slower(problem, 4.0, name)
    if kind == "one excluded" and len(problem.devices) > 1:
        return replace(problem, constraints=Constraints(exclude=(name,)))
    longer = replace(workload.output, mean=2 * workload.output.mean)
    return replace(problem, workload=replace(workload, output=longer, context_tokens=0))


@settings(max_examples=12)
@given(data=st.data(), problem=problems(max_devices=3, max_layers=5))
def test_bytes_are_those_of_layers_newly_held_and_plans_are_valid(
    data: st.DataObject, problem: Problem
) -> None:
    old = plan(problem, finals=NO_FINALS)
    if not isinstance(old, Plan):
        return
    after = data.draw(changed(problem))
    found = replan(old, after, terms=EAGER)
    if isinstance(found, Infeasible):
        assert not isinstance(plan(after, finals=NO_FINALS), Plan)
        return
    assert not check(found.plan, after).violations
    assert moved(found) == pytest.approx(bytes_to_get(old, found.plan, after), abs=10)
    assert all(move.seconds > 0 for move in found.moves)
    orders = [move.order for move in found.moves]
    assert orders == sorted(orders)
    for one in found.offers:
        assert one.step != found.recommended or one.gain >= one.price or not found.before.stable


@settings(max_examples=10)
@given(data=st.data(), problem=problems(max_devices=3, max_layers=5))
def test_limits_are_obeyed(data: st.DataObject, problem: Problem) -> None:
    old = plan(problem, finals=NO_FINALS)
    if not isinstance(old, Plan):
        return
    after = data.draw(changed(problem))
    most, most_bytes = data.draw(st.integers(0, 3)), data.draw(st.sampled_from((0.0, 2e8, 1e9)))
    most_down = data.draw(st.sampled_from((0.0, 3.0, 100.0)))
    terms = replace(EAGER, max_moves=most, max_move_bytes=most_bytes, max_downtime_s=most_down)
    try:
        found = replan(old, after, terms=terms)
    except InputError:  # nothing is possible within the limits, which another test reads
        return
    if isinstance(found, Infeasible):
        return
    assert len(found.moves) <= most
    assert moved(found) <= most_bytes + 1
    assert max((step.seconds for step in found.way if step.stopped), default=0) <= most_down


def renamed(problem: Problem, old: Plan, seed: int) -> tuple[Problem, Plan]:
    """Return both with other names and another order of devices."""
    random = Random(seed)  # noqa: S311 - a shuffle
    names = [device.name for device in problem.devices]
    shuffled = random.sample([f"x{i}" for i in range(len(names))], len(names))
    new = dict(zip(names, shuffled, strict=True))
    machines = [replace(d, name=new[d.name], host=new[d.host]) for d in problem.inventory.devices]
    random.shuffle(machines)
    links = [
        replace(one, ends=(new.get(one.ends[0], one.ends[0]), new.get(one.ends[1], one.ends[1])))
        for one in problem.inventory.links
    ]
    replicas = tuple(
        replace(own, stages=tuple(replace(s, device=new[s.device]) for s in own.stages))
        for own in old.replicas
    )
    inventory = Inventory(devices=tuple(machines), links=tuple(links))
    return replace(problem, inventory=inventory), replace(old, replicas=replicas)


@pytest.mark.parametrize("seed", range(3))
def test_other_names_move_as_many_bytes(seed: int) -> None:
    problem = fleet([350, 350, 700, 450, 450], 2.0)
    old, after = planned(problem), slower(problem, 3.0, "d1")
    first = replanned(old, after, EAGER)
    other, same = renamed(after, old, seed)
    second = replanned(same, other, EAGER)
    assert moved(first) == moved(second)
    assert first.plan.predicted.capacity_per_s == pytest.approx(
        second.plan.predicted.capacity_per_s
    )


def test_a_lost_device_is_replaced_by_an_idle_one_that_gets_its_layers_only() -> None:
    problem = fleet([350, 350, 350], 0.05)
    old = planned(problem)
    (used,) = [{stage.device for stage in own.stages} for own in old.replicas]
    assert len(used) == 2
    lost = max(used)
    found = replanned(old, without(problem, lost))
    assert found.recommended == "layers"
    (idle,) = {"d0", "d1", "d2"} - used
    assert {move.device for move in found.moves} <= {idle, *used}
    assert moved(found) <= 308 * MB
    assert {move.source for move in found.moves} <= {None, *used}
    assert {(one.what, one.name) for one in found.differences} == {("gone", lost)}


def test_a_new_device_joins_where_requests_queue() -> None:
    small, large = fleet([700], 1.0), fleet([700, 700], 1.0)
    old = planned(small)
    busy = at_rate(large, 0.97 * old.predicted.capacity_per_s)
    found = replanned(old, busy)
    assert found.recommended == "layers"
    assert {move.device for move in found.moves} == {"d1"}
    assert {move.source for move in found.moves} == {"d0"}
    assert all(step.stable for step in found.way)
    assert found.before.waiting_time_s is not None
    assert found.plan.predicted.waiting_time_s is not None
    assert found.plan.predicted.waiting_time_s < 0.5 * found.before.waiting_time_s


def test_weights_come_from_the_own_disk_where_every_device_has_the_file() -> None:
    small, large = fleet([700], 1.0), fleet([700, 700], 1.0)
    old = planned(small)
    busy = at_rate(large, 0.97 * old.predicted.capacity_per_s)
    over_network = replanned(old, busy)
    own = replanned(old, busy, ReplanTerms(weights_on="all-devices", load_bytes_per_s=2e9))
    assert {(move.device, move.source) for move in own.moves} == {("d1", "d1")}
    assert own.moves[0].seconds == pytest.approx(moved(own) / 2e9)
    assert {(move.device, move.source) for move in over_network.moves} == {("d1", "d0")}
    num_bytes = moved(over_network)
    assert over_network.moves[0].seconds == pytest.approx(num_bytes / 1e8 + num_bytes / 1e9, 1e-2)


def test_other_roles_are_enough_where_prompts_grow_longer() -> None:
    problem = fleet([700] * 4, 2.0)
    old = planned(replace(problem, constraints=Constraints(roles="disaggregated")))
    workload = replace(
        problem.workload,
        prompt=replace(problem.workload.prompt, mean=2000),
        output=replace(problem.workload.output, mean=20),
        context_tokens=8192,
        rate_per_s=2.5,
    )
    after = replace(problem, workload=workload, constraints=Constraints(roles="disaggregated"))
    found = replanned(old, after)
    assert found.recommended == "roles"
    assert found.moves == ()
    assert {one.new_role for one in found.role_changes} >= {"PREFILL"}


def test_a_rate_that_no_plan_serves_is_said_to_be_too_high() -> None:
    problem = fleet([700, 700], 0.5)
    old = planned(problem)
    far = replace(problem, workload=replace(problem.workload, rate_per_s=1e4))
    warnings = replanned(old, far).warnings
    assert any("cannot keep up" in line and "lower the rate" in line for line in warnings)
    assert not any("cannot keep up" in line for line in replanned(old, problem).warnings)


def test_another_model_moves_everything_and_says_so() -> None:
    problem = fleet([700, 700], 0.5)
    old = planned(problem)
    other = replace(problem, facts=replace(problem.facts, name="other"))
    found = replanned(old, other)
    assert moved(found) == pytest.approx(sum(608 * MB for _ in found.plan.replicas), abs=10)
    assert {move.source for move in found.moves} == {None}
    assert any("other weights" in line for line in found.warnings)
    with pytest.raises(InputError, match="max_moves 0"):
        replan(old, other, terms=ReplanTerms(max_moves=0))


def test_nothing_left_is_infeasible() -> None:
    problem = fleet([350, 350], 0.05)
    found = replan(planned(problem), without(problem, "d1"))
    assert isinstance(found, Infeasible)


def test_requests_that_went_to_a_lost_replica_go_elsewhere() -> None:
    problem = fleet([700, 700, 700], 1.0)
    old = planned(problem)
    assert len(old.replicas) == 3
    found = replanned(at := old, without(problem, "d2"))
    assert (at.predicted.stable, found.before.stable) == (True, False)
    assert found.recommended == "routing"
    assert found.plan.predicted.stable
    assert {move.device for move in found.moves} == set()


@pytest.mark.parametrize("step", ["routing", "roles", "layers"])
def test_no_step_is_taken_that_is_dearer_than_asked_for(step: str) -> None:
    small, large = fleet([700], 1.0), fleet([700, 700], 1.0)
    old = planned(small)
    busy = at_rate(large, 0.97 * old.predicted.capacity_per_s)
    found = replanned(old, busy, ReplanTerms(step=step))  # type: ignore[arg-type] # parametrised
    assert bool(found.moves) == (step == "layers")
    assert [one.step for one in found.offers] == ["routing", "roles", "layers"]


def test_a_step_goes_on_serving_what_it_can() -> None:
    problem = fleet([350, 350, 350, 350], 0.05)
    old = planned(problem)
    after = at_rate(slower(problem, 6.0, "d0"), 0.05)
    found = replanned(old, after, EAGER)
    for step in found.way:
        gone = {device for names in step.stopped for device in names}
        serving = {device for _, names in step.serving for device in names}
        assert not gone & serving or step.seconds == 0


def test_the_answer_has_the_keys_that_were_agreed() -> None:
    small, large = fleet([700], 1.0), fleet([700, 700], 1.0)
    old = planned(small)
    found = replanned(old, at_rate(large, 0.97 * old.predicted.capacity_per_s)).to_dict()
    assert {"moves", "role_changes", "gain", "plan"} <= set(found)
    assert {"device", "layers", "from", "bytes", "seconds"} <= set(found["moves"][0])
    assert set(found["gain"]["steps"]) == {"routing", "roles", "layers"}
    assert dump_json(found)


@pytest.mark.parametrize(
    ("terms", "path"),
    [
        ({"horizon_s": 0.0}, "horizon_s"),
        ({"max_moves": -1}, "max_moves"),
        ({"load_bytes_per_s": float("nan")}, "load_bytes_per_s"),
        ({"step": "everything"}, "step"),
    ],
)
def test_impossible_terms_are_named(terms: dict[str, object], path: str) -> None:
    with pytest.raises(InputError) as raised:
        ReplanTerms(**terms)  # type: ignore[arg-type] # impossible on purpose
    assert [fault.path for fault in raised.value.faults] == [path]


def test_nobody_is_called_as_weights_on_says() -> None:
    problem = fleet([700, 700], 0.5)
    with pytest.raises(InputError, match="nas"):
        replan(planned(problem), problem, terms=ReplanTerms(weights_on="nas"))


def test_a_plan_with_shared_stages_is_refused_by_name() -> None:
    problem = Problem.load(Path(__file__).parents[2] / "examples" / "gpu-server.yaml")
    old = plan(problem, finals=Finals(arrivals=()))
    assert isinstance(old, Plan)
    assert any(len(stage.devices) > 1 for replica in old.replicas for stage in replica.stages)
    with pytest.raises(InputError, match="share the layers of a stage"):
        replan(old, problem)
    whole = replace(problem, constraints=Constraints(tensor_parallel="off"))
    other = plan(whole, finals=Finals(arrivals=()))
    assert isinstance(other, Plan)
    found = replan(other, problem)
    assert isinstance(found, Replan)
    assert not found.moves
