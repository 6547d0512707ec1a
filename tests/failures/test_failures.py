"""What each loss leaves: as planning sees it, never better by re-roling than anew, in one order."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given, settings

import e2llm_opt
from e2llm_opt.adapt.judge import Judge
from e2llm_opt.adapt.regime import Regime
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.failures.failures import FailureTerms, failures
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.loss import LossKind
from e2llm_opt.plan.plan import Plan
from e2llm_opt.planners import planner_named
from e2llm_opt.problem import Objective, Problem, Role
from e2llm_opt.replan.answer import Replan
from e2llm_opt.replan.replan import replan
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import Asked, document, plan
from tests.inventory.test_loss import link
from tests.search.test_roles import cluster
from tests.search.test_survive import alike, surviving
from tests.strategies import problems

if TYPE_CHECKING:
    from e2llm_opt.failures.answer import Failures, LossReport
    from e2llm_opt.search.evaluate import Outcome

NO_FINALS = Finals(arrivals=())
SHORT = Stop(max_evaluations=50, max_refinements=0)


def planned(problem: Problem) -> tuple[Plan, Outcome] | None:
    """Return the best plan and its outcome; None where there is none, without asking why."""
    run = planner_named("e2llm-opt")(costs_of(problem))
    run.run(Stop(), 0)
    best = run.ranked(1)
    return (document(run, best[0], Asked()), best[0]) if best else None


def of_device(found: Failures, name: str) -> LossReport:
    return next(loss for loss in found.losses if loss.name == f"device {name}")


@settings(max_examples=12)
@given(problem=problems(min_devices=2, max_devices=4, is_constrained=True))
def test_what_is_left_is_worth_what_planning_says(problem: Problem) -> None:
    both = planned(problem)
    assume(both is not None)
    assert both is not None
    found, outcome = both
    judge = Search(costs_of(problem)).evaluator
    answer = failures(found, problem, terms=FailureTerms(kinds=(LossKind.DEVICE,)))
    assert answer.intact.capacity_per_s == pytest.approx(outcome.traffic.capacity_per_s)
    assert len(answer.losses) == len(problem.devices)
    for d, device in enumerate(problem.devices):
        loss = of_device(answer, device.name)
        rest = [c for c in outcome.replicas if d not in {e for e, _, _ in c.cut}]
        assert len(loss.replicas_lost) == len(outcome.replicas) - len(rest)
        if len(rest) == len(outcome.replicas):  # an unused device changes nothing
            assert (loss.as_is, loss.re_roled, loss.damage) == (answer.intact, None, 0.0)
            continue
        roles = {c.role for c in rest}
        if not {Role.PREFILL, Role.DECODE} <= roles:
            rest = [c for c in rest if c.role is Role.MIXED]
        left = judge.outcome(rest) if rest else None
        if left is None or left.traffic.capacity_per_s == 0:
            assert (loss.as_is.capacity_per_s, loss.as_is.stable) == (0.0, False)
            continue
        assert loss.as_is.capacity_per_s == pytest.approx(left.traffic.capacity_per_s)
        assert loss.as_is.stable is left.is_stable
        assert loss.re_roled is not None
        assert loss.re_roled.order[0] <= loss.as_is.order[0]
        if left.is_stable:
            assert loss.as_is.waiting_time_s == pytest.approx(left.waiting_time_s)
            assert loss.as_is.ttft_s == pytest.approx(left.ttft_s)
            assert loss.as_is.latency_s == pytest.approx(left.latency_s)


@settings(max_examples=8)
@given(problem=problems(min_devices=2, max_devices=4, max_layers=4))
def test_a_plan_that_survives_is_stable_after_each_loss_of_a_device(problem: Problem) -> None:
    asked = surviving(problem, 1)
    both = planned(asked)
    assume(both is not None)
    assert both is not None
    answer = failures(both[0], asked, terms=FailureTerms(kinds=(LossKind.DEVICE,)))
    assert all(loss.as_is.stable for loss in answer.losses)


@settings(max_examples=6)
@given(problem=problems(min_devices=2, max_devices=3, max_layers=4))
def test_every_kind_of_loss_is_answered_and_the_worst_comes_first(problem: Problem) -> None:
    both = planned(problem)
    assume(both is not None)
    assert both is not None
    answer = failures(both[0], problem, terms=FailureTerms(stop=SHORT))
    order = [loss.order for loss in answer.losses]
    assert order == sorted(order)
    document_ = json.loads(answer.to_json())
    assert document_["schema"] == "e2llm-opt/failures/v1"
    assert len(document_["losses"]) == len(answer.losses)
    for loss in answer.losses:
        assert loss.was_replanned is (loss.re_roled is not None)
        if loss.re_planned is not None and loss.re_roled is not None:
            assert loss.re_planned.order <= loss.re_roled.order
        fallen = {name for part in loss.lost for name in part.devices}
        for left in (loss.as_is, loss.re_roled, loss.re_planned):
            used = [name for one in (left.replicas if left else ()) for name in one.devices]
            assert not fallen & set(used)
            assert len(used) == len(set(used))


def pair(*links: tuple[str, str]) -> Problem:
    """Return two devices that hold the model only together, on these links."""
    problem = cluster(2, 0.05, seed=1)
    machines = [
        replace(problem.devices[0], name=name, host=name, memory_bytes=2.6e9) for name in "ab"
    ]
    inventory = Inventory(devices=tuple(machines), links=tuple(link(*ends) for ends in links))
    return replace(problem, inventory=inventory)


def test_a_second_path_takes_over_when_a_link_is_lost() -> None:
    problem = pair(("a", "b"), ("a", "lan"), ("lan", "b"))
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    assert [len(replica.stages) for replica in found.replicas] == [2]
    answer = failures(found, problem)
    loss = {own.name: own for own in answer.losses}
    assert loss["link a - b"].replicas_lost == ()
    assert loss["link a - b"].as_is.stable
    assert loss["link a - b"].as_is.capacity_per_s <= answer.intact.capacity_per_s
    assert loss["switch lan"].as_is == answer.intact
    assert loss["device a"].as_is.capacity_per_s == 0


def test_a_replica_whose_stages_have_no_way_is_gone() -> None:
    problem = pair(("a", "b"))
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    loss = {own.name: own for own in failures(found, problem).losses}["link a - b"]
    assert (loss.replicas_lost, loss.as_is.capacity_per_s, loss.damage) == (("r0",), 0.0, 1.0)


def test_replicas_that_a_switch_cuts_off_serve_alone() -> None:
    """PREFILL and DECODE replicas without a way for KV caches serve again as MIXED ones."""
    problem = replace(cluster(4, 1.0, seed=1), constraints=Constraints(roles="disaggregated"))
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    free = replace(problem, constraints=Constraints())
    loss = {own.name: own for own in failures(found, free).losses}["switch lan"]
    assert loss.replicas_lost == ()
    assert loss.as_is.capacity_per_s == 0
    assert loss.re_roled is not None
    assert {one.role for one in loss.re_roled.replicas} == {"MIXED"}
    assert loss.re_roled.stable


def test_one_card_of_a_host_is_less_than_the_host() -> None:
    problem = alike(4)
    machines = [replace(d, host="h" if d.name < "d2" else d.host) for d in problem.devices]
    links = tuple(link(host, "lan") for host in ("h", "d2", "d3"))
    inventory = Inventory(devices=tuple(machines), links=links)
    problem = replace(problem, inventory=inventory)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    answer = failures(found, problem)
    loss = {own.name: own for own in answer.losses}
    assert of_device(answer, "d0").damage < loss["host h"].damage
    pairs = failures(found, problem, terms=FailureTerms(k=2))
    both = next(own for own in pairs.losses if own.name == "device d0 and device d1")
    assert both.as_is.capacity_per_s == pytest.approx(loss["host h"].as_is.capacity_per_s)
    assert len(pairs.losses) == 6


def test_alike_losses_are_told_with_their_own_names() -> None:
    problem = alike(4)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    answer = failures(found, problem, terms=FailureTerms(stop=SHORT, kinds=(LossKind.DEVICE,)))
    homes = {r.id: tuple(stage.device for stage in r.stages) for r in found.replicas}
    for loss in answer.losses:
        name = loss.lost[0].name
        lost = {r.id for r in found.replicas if name in homes[r.id]}
        assert set(loss.replicas_lost) == lost
        for one in loss.as_is.replicas:
            assert one.id not in lost
            assert one.devices == homes[one.id]
        assert loss.re_planned is not None
        assert all(name not in one.devices for one in loss.re_planned.replicas)


def test_what_was_done_before_an_interrupt_is_shown() -> None:
    problem = alike(3)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    calls = []

    def tell(doing: str) -> None:
        calls.append(doing)
        if len(calls) == 3:
            raise KeyboardInterrupt

    answer = failures(found, problem, tell=tell)
    assert (len(answer.losses), answer.is_complete) == (2, False)


def test_a_plan_of_another_inventory_is_matched_by_name_or_refused() -> None:
    problem = alike(3)
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    larger = failures(found, alike(4))
    assert "matched by name: new are d3" in larger.warnings[0]
    assert failures(found, problem).warnings == ()
    with pytest.raises(InputError, match="devices that the inventory lacks: d2"):
        failures(found, alike(2))
    with pytest.raises(InputError, match="k must be 1 to 2"):
        failures(found, problem, terms=FailureTerms(k=3))
    small = [replace(d, memory_bytes=1.2e9) for d in problem.devices]
    with pytest.raises(InputError, match="cannot run on this inventory"):
        failures(found, problem.with_devices(small))


def test_the_public_name_is_the_function() -> None:
    assert e2llm_opt.failures is failures


def spilling() -> tuple[Problem, Plan]:
    """Return devices with host RAM, and a plan that spills layers for the sake of long requests."""
    few = cluster(2, 0.002, 3)
    machines = tuple(
        replace(
            device,
            memory_kind=MemoryKind.DISCRETE,
            host_memory_bytes=4e9,
            host_bandwidth_bytes_per_s=5e9,
            bus_bytes_per_s=1e10,
        )
        for device in few.inventory.devices
    )
    problem = replace(
        few,
        inventory=replace(few.inventory, devices=machines),
        facts=replace(few.facts, layer_spillable_bytes=2e8),
        objective=Objective.MAX_CONTEXT,
    )
    found = plan(problem, finals=NO_FINALS)
    assert isinstance(found, Plan)
    return problem, found


def test_layers_that_a_plan_spills_stay_spilled_in_every_command() -> None:
    """Fewer would do for the slots it has: it would be faster, and another plan."""
    problem, found = spilling()
    assert any(any(replica.spilled) for replica in found.replicas)
    intact = failures(found, problem).intact
    assert intact.capacity_per_s == pytest.approx(found.predicted.capacity_per_s)
    assert intact.latency_s == pytest.approx(found.predicted.latency_s)
    worth = Judge(problem, Regime.of(problem)).as_it_is(found)
    assert worth is not None
    assert [r.spilled for r in worth.replicas] == [r.spilled for r in found.replicas]
    assert worth.predicted.latency_s == pytest.approx(found.predicted.latency_s)
    again = replan(found, problem)
    assert isinstance(again, Replan)
    assert (again.recommended, again.moves, again.role_changes) == ("none", (), ())
    assert again.before is not None
    assert again.before.capacity_per_s == pytest.approx(found.predicted.capacity_per_s)
