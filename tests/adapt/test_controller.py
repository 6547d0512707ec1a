"""When a controller moves, when it does not, and what a repertoire keeps."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Literal

import pytest

from e2llm_opt import (
    Caution,
    Constraints,
    Controller,
    InputError,
    Inventory,
    Plan,
    Regime,
    Repertoire,
    draw_arrivals,
    plan,
    repertoire,
)
from e2llm_opt.adapt.judge import Judge
from e2llm_opt.adapt.repertoire import shape_of
from e2llm_opt.search.rank_by_simulation import Finals
from tests.simulate import small

if TYPE_CHECKING:
    from pathlib import Path

    from e2llm_opt import Decision, Problem

HIGH_PER_S = 2.0


def problem(rate_per_s: float = 0.1) -> Problem:
    load = replace(small.problem().workload, rate_per_s=rate_per_s, slots=None)
    two = Constraints(exclude=("laptop", "pi"))  # plans of two devices are soon made
    return replace(small.problem(), workload=load, constraints=two)


@cache
def planned(rate_per_s: float = 0.1) -> Plan:
    found = plan(problem(rate_per_s), finals=Finals(arrivals=()))
    assert isinstance(found, Plan)
    return found


@cache
def plans() -> Repertoire:
    load = problem().workload
    return repertoire(
        problem(),
        rates_per_s=[0.1, HIGH_PER_S],
        prompts=[load.prompt.mean],
        outputs=[load.output.mean],
    )


def followed(
    controller: Controller, rate_per_s: float, num: int, begin_s: float = 0.0
) -> list[Decision]:
    """Let requests come at a rate, and ask after each."""
    trace = draw_arrivals(problem().workload, num, rate_per_s=rate_per_s, seed=3)
    found = []
    for time_s, prompt, output in zip(
        (begin_s + trace.arrival_s).tolist(),
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
        strict=True,
    ):
        controller.observe(time_s, prompt, output)
        found.append(controller.decide(time_s))
    return found


def test_the_load_of_the_plan_never_makes_it_move() -> None:
    controller = Controller(problem(), planned(), plans(), Caution(every_s=200.0))
    decisions = followed(controller, 0.1, 400)
    assert {decision.action for decision in decisions} == {"stay"}
    assert any("no plan is so much better" in decision.reason.lower() for decision in decisions)
    assert controller.plan is planned()


def test_a_load_that_the_plan_cannot_serve_makes_it_move() -> None:
    weak = small.plan(("MIXED", small.ON_MAC))
    alone = Judge(problem(), Regime.of(problem())).best_roles(weak)
    assert alone is not None
    rate = 1.3 * alone.predicted.capacity_per_s  # whatever its roles and slots
    controller = Controller(problem(), weak, plans())
    moves = [d for d in followed(controller, rate, 400) if d.action != "stay"]
    assert 1 <= len(moves) <= 2  # at first the load is taken to be lower than it is
    assert all(move.gain_s > 0 for move in moves)
    move = moves[-1]
    assert move.action == "plan"
    assert "another plan" in move.reason.lower()
    assert shape_of(move.plan) != shape_of(weak)
    assert controller.plan is move.plan
    assert move.plan.predicted.capacity_per_s > rate


def test_decisions_are_those_of_the_same_observations() -> None:
    first, again = (Controller(problem(), planned(), plans()) for _ in range(2))
    assert followed(first, HIGH_PER_S, 150) == followed(again, HIGH_PER_S, 150)


def test_a_cost_above_the_gain_keeps_it_where_it_is() -> None:
    weak = small.plan(("MIXED", small.ON_MAC))
    slow = Caution(load_bytes_per_s=1e3, start_s=1e6)
    decisions = followed(Controller(problem(), weak, plans(), slow), HIGH_PER_S, 200)
    assert {decision.action for decision in decisions} == {"stay"}
    assert any("no plan is so much better" in d.reason.lower() for d in decisions)
    fast = Caution(load_bytes_per_s=1e10)
    decisions = followed(Controller(problem(), weak, plans(), fast), HIGH_PER_S, 200)
    assert "plan" in {decision.action for decision in decisions}


def test_other_roles_are_taken_where_they_are_nearly_as_good() -> None:
    """The repertoire is empty: only roles are left, and no layer moves."""
    pools = small.plan(("PREFILL", small.ON_DESKTOP), ("DECODE", small.ON_MAC))
    controller = Controller(problem(), pools)
    moves = [d for d in followed(controller, HIGH_PER_S, 300) if d.action != "stay"]
    assert [move.action for move in moves] == ["roles"]
    before = {s for r in pools.replicas for s in ((r.stages[0].device, r.stages[0].layers),)}
    after = {s for r in moves[0].plan.replicas for s in ((r.stages[0].device, r.stages[0].layers),)}
    assert after == before


@cache
def twins() -> tuple[Problem, Plan]:
    """Return two desktops with the whole model each, and their plan."""
    one = next(d for d in small.problem().devices if d.name == "desktop")
    other = replace(one, name="twin", host="twin")
    load = replace(small.problem().workload, rate_per_s=1.0)
    whole = Inventory(devices=(one, other))
    twice = replace(small.problem(), inventory=whole, workload=load, constraints=Constraints())
    found = plan(twice, finals=Finals(arrivals=()))
    assert isinstance(found, Plan)
    assert [len(r.stages) for r in found.replicas] == [1, 1]
    return twice, found


@pytest.mark.parametrize("routing", ["plan", "shortest-wait"])
def test_other_routes_are_taken_where_requests_follow_the_plan(
    routing: Literal["plan", "shortest-wait"],
) -> None:
    twice, even = twins()
    role = replace(even.replicas[0], role="MIXED")
    lame = replace(
        even,
        replicas=tuple(
            replace(role, id=r.id, stages=r.stages, arrival_rate_per_s=share)
            for r, share in zip(even.replicas, (0.99, 0.01), strict=True)
        ),
        routes=(),
    )
    rate = 0.8 * 2.0 * even.predicted.capacity_per_s / 2.0
    controller = Controller(twice, lame, caution=Caution(routing=routing))
    moves = [d for d in followed(controller, rate, 300) if d.action != "stay"]
    if routing == "shortest-wait":
        assert moves == []  # routes are no matter there
    else:
        assert moves[0].action == "routing"
        assert "other routes" in moves[0].reason.lower()
        shares = [r.arrival_rate_per_s for r in moves[0].plan.replicas]
        assert max(shares) < 0.6 * sum(shares)


def test_long_answers_are_known_before_they_are_finished() -> None:
    """Prompts change; of the answers only what there is of them is told, and it is enough."""
    controller = Controller(problem(), planned(), plans())
    followed(controller, 0.1, 200)
    begin_s = 1e6
    numbers = [controller.observe(begin_s + 10.0 * k, 8000.0) for k in range(16)]
    before = controller.regime.output.mean
    for number in numbers:
        controller.progress(number, 3000.0)
    assert controller.regime.output.mean > max(3000.0, 3.0 * before)


def test_questions_come_in_order() -> None:
    controller = Controller(problem(), planned(), plans())
    controller.observe(5.0, 100.0)
    with pytest.raises(InputError, match="in order: 4 s after 5 s"):
        controller.decide(4.0)


def test_a_plan_is_worth_what_it_says_of_its_own_load() -> None:
    judge = Judge(problem(), Regime.of(problem()))
    worth = judge.as_it_is(planned())
    assert worth is not None
    assert worth.predicted.capacity_per_s == pytest.approx(planned().predicted.capacity_per_s)
    assert worth.predicted.waiting_time_s == pytest.approx(planned().predicted.waiting_time_s)


def test_above_its_capacity_a_plan_is_judged_with_the_capacity_that_it_has() -> None:
    overload = replace(Regime.of(problem()), rate_per_s=4 * planned().predicted.capacity_per_s)
    worth = Judge(problem(), overload).as_it_is(planned())
    assert worth is not None
    assert worth.predicted.stable is False
    assert worth.predicted.waiting_time_s is None
    assert worth.predicted.capacity_per_s == pytest.approx(planned().predicted.capacity_per_s)


def test_nothing_is_decided_of_a_handful_of_requests() -> None:
    controller = Controller(problem(), planned(), plans())
    decisions = followed(controller, HIGH_PER_S, 5)
    assert all("too few" in decision.reason.lower() for decision in decisions)
    with pytest.raises(InputError, match="finite"):
        controller.decide(float("nan"))


def test_a_repertoire_comes_back_from_its_folder(tmp_path: Path) -> None:
    plans().save(tmp_path / "plans")
    back = Repertoire.load(tmp_path / "plans")
    assert back == plans()
    assert len(back.plans) <= len(back.entries) == 2
    (tmp_path / "plans" / "repertoire.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"repertoire\.json: no repertoire"):
        Repertoire.load(tmp_path / "plans")
    with pytest.raises(InputError, match="no repertoire"):
        Repertoire.load(tmp_path / "nowhere")
