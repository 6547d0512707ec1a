"""Changes are planned again, gain what they are said to gain, and come in the right order."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.advise.advice import AdviceRow, AdviceTerms
from e2llm_opt.advise.advise import advise
from e2llm_opt.advise.rank import ordered, retired_first
from e2llm_opt.check.check import check
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Objective
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan
from tests.advise.lab import lab

if TYPE_CHECKING:
    from e2llm_opt.advise.advice import Advice
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import Progress

TYPES = ("raspberry-pi-5-8gb", "jetson-orin-nano-super-8gb", "apple-m4", "rtx-3060-12gb")
PROBLEM = lab("apple-m4", "raspberry-pi-5-8gb", rate=10.0)


def advice(problem: Problem, *kinds: str, **terms: object) -> Advice:
    given = {"types": TYPES, "top": len(TYPES), **terms}
    return advise(problem, terms=AdviceTerms(kinds=kinds or ("add",), **given))  # type: ignore[arg-type]


def capacity(problem: Problem) -> float:
    """Plan for capacity, apart from the adviser."""
    answer = plan(replace(problem, objective=Objective.THROUGHPUT), finals=Finals(arrivals=()))
    assert isinstance(answer, Plan)
    return answer.predicted.capacity_per_s


@pytest.mark.slow
def test_an_addition_gains_what_a_plan_with_it_has_more() -> None:
    answer = advice(PROBLEM, top=1, types=["rtx-3060-12gb"])
    (row,) = answer.rows
    grown = lab("apple-m4", "raspberry-pi-5-8gb", "rtx-3060-12gb", rate=10.0)
    assert answer.capacity_per_s == pytest.approx(capacity(PROBLEM), rel=1e-6)
    assert row.capacity_per_s == pytest.approx(capacity(grown), rel=1e-6)
    assert row.capacity_gain_per_s == pytest.approx(row.capacity_per_s - answer.capacity_per_s)
    assert (row.price, row.power_w) == (329.0, 170.0)
    assert row.to_dict()["gain"]["capacity_per_s_per_usd"] == row.capacity_gain_per_s / 329.0
    assert row.plan is not None


def test_additions_never_do_harm_and_are_ranked_by_gain_for_each_dollar() -> None:
    answer = advice(PROBLEM, by="money")
    gains = [row.capacity_gain_per_s / row.price for row in answer.rows if row.price]
    assert len(gains) >= 2
    assert gains == sorted(gains, reverse=True)
    for row in answer.rows:
        assert row.capacity_gain_per_s >= 0
        assert row.waiting_time_gain_s is None or row.waiting_time_gain_s >= 0


@pytest.mark.slow
@pytest.mark.parametrize("by", ["money", "power", "capacity"])
def test_what_is_skipped_would_not_have_been_the_best(by: str) -> None:
    every, best = advice(PROBLEM, by=by), advice(PROBLEM, by=by, top=1)
    assert best.num_ranked == 1
    assert best.rows[0].change == every.rows[0].change


def test_a_device_that_can_only_stay_idle_is_not_advised() -> None:
    problem = lab("rtx-3060-12gb", rate=1.0, constraints={"replicas": 1})
    answer = advice(problem, types=["raspberry-pi-4-8gb"])
    assert answer.rows == ()


def test_where_nothing_fits_a_device_may_make_a_plan_possible() -> None:
    problem = lab("raspberry-pi-5-8gb", model="llama-3.1-8b", weights="q8_0")
    answer = advice(problem, "add", types=["apple-m4", "raspberry-pi-4-8gb"])
    assert answer.capacity_per_s == 0
    assert answer.reason.startswith("not enough memory")
    assert {row.change for row in answer.rows} == {"add apple-m4", "add raspberry-pi-4-8gb"}
    assert all(row.capacity_per_s > 0 for row in answer.rows)


def test_retiring_what_is_not_used_costs_nothing() -> None:
    problem = lab("rtx-3060-12gb", "raspberry-pi-4-8gb", constraints={"replicas": 1})
    idle, busy = advice(problem, "retire").rows
    assert (idle.change, idle.capacity_gain_per_s) == ("retire b", 0.0)
    assert (idle.price, idle.power_w) == (-75.0, -7.0)
    assert busy.capacity_gain_per_s < 0


def test_one_of_equal_devices_stands_for_all() -> None:
    answer = advice(lab("apple-m4", "apple-m4", "raspberry-pi-5-8gb"), "retire")
    assert {row.change for row in answer.rows} == {"retire a (as good as 1 more)", "retire c"}


def test_devices_that_constraints_name_stay() -> None:
    problem = lab("apple-m4", "apple-m4", "rtx-3060-12gb")
    limits = replace(problem.constraints, pin={"chat": ("a",)}, layers={"b": 4}, exclude=("c",))
    answer = advice(replace(problem, constraints=limits), "retire")
    assert answer.untried.kept == {
        "a": "constraints.pin: chat must have it",
        "b": "constraints.layers: it must hold layers",
    }
    assert [(row.change, row.capacity_gain_per_s) for row in answer.rows] == [("retire c", 0.0)]


def test_the_only_device_is_not_retired() -> None:
    assert advice(lab("apple-m4"), "retire").rows == ()


BIG = lab(
    *("rtx-3060-12gb", "rtx-3060-12gb"),
    rate=0.0,
    model="llama-3.1-8b",
    links=[{"between": [name, "lan"], "bandwidth_mbit_s": 90, "latency_ms": 0.2} for name in "ab"],
)
"""Two cards that only together hold the model, and a slow network."""


def test_smaller_formats_and_half_the_context_say_what_is_given_up() -> None:
    answer = advice(BIG, "format", "context")
    rows = {row.change: row for row in answer.rows}
    assert rows["weights: q8_0"].gives_up == "16.00 -> 8.50 bits a weight"
    assert rows["kv_cache: q8_0"].gives_up == "16 -> 8.5 bits a value of the KV cache"
    assert rows["context_tokens: 640"].gives_up == "requests of 641 to 1280 tokens"
    assert all(row.price is None and row.capacity_gain_per_s > 0 for row in answer.rows)
    assert answer.num_ranked == 0  # without a price they are never ranked as free


def test_links_that_carry_something_can_be_faster() -> None:
    answer = advice(BIG, "link")
    (row,) = answer.rows  # a single faster link leaves the other one as slow
    assert row.change == "all 2 links of lan of 90 Mbit/s: 1000 Mbit/s"
    assert (row.price, row.power_w) == (2 * (15 + 5), 2 * (1 + 0.5))
    assert row.capacity_gain_per_s > 0


def test_the_plan_of_a_change_is_one_that_the_check_accepts() -> None:
    answer = advice(PROBLEM, "retire")
    assert answer.plan is not None
    assert check(answer.plan, PROBLEM).valid
    left = {row.change: row.plan for row in answer.rows}["retire b"]
    assert left is not None
    assert check(left, lab("apple-m4", rate=10.0)).valid


def test_equal_questions_get_equal_answers() -> None:
    one, two = (advice(PROBLEM, "add", "retire", types=TYPES[:1]) for _ in range(2))
    plain = [[replace(row, plan=None) for row in answer.rows] for answer in (one, two)]
    assert plain[0] == plain[1]
    assert one.untried == two.untried


def test_an_interruption_keeps_what_is_done() -> None:
    def stop(state: Progress) -> None:
        if state.doing.startswith("change 2"):
            raise KeyboardInterrupt

    terms = AdviceTerms(kinds=("retire",), types=TYPES)
    answer = advise(PROBLEM, terms=terms, progress=stop)
    assert len(answer.rows) == 1
    assert answer.warnings[0] == "interrupted: not every change was tried"


def test_an_interruption_before_anything_is_known_is_passed_on() -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        advise(PROBLEM, progress=stop)


def test_gains_over_a_capacity_without_a_proof_are_doubted() -> None:
    says = "smaller gains may be the luck of a search"
    assert not any(says in line for line in advice(PROBLEM, "retire").warnings)
    unproven = advice(PROBLEM, "retire", stop=Stop(max_refinements=0))
    assert any(says in line for line in unproven.warnings)


def test_what_there_is_no_time_for_is_counted() -> None:
    answer = advice(PROBLEM, "retire", time_limit_s=1e-6)
    assert answer.rows == ()
    assert answer.untried.late == 2
    assert "the time was over before every change was tried" in answer.warnings


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kinds": ("sell",)}, "kinds: 'sell' is not one of add"),
        ({"kinds": ()}, "at least one kind"),
        ({"kinds": ("add", "add")}, "each once"),
        ({"by": "beauty"}, "by must be one of money"),
        ({"top": 0}, "top must be at least 1"),
        ({"time_limit_s": 0.0}, "time_limit_s must be positive"),
    ],
)
def test_terms_that_mean_nothing_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        AdviceTerms(**wrong)  # type: ignore[arg-type]


def row(name: str, gain: float, wait: float | None, price: float | None, power: float) -> AdviceRow:
    return AdviceRow(
        kind="add",
        change=name,
        capacity_per_s=1.0 + gain,
        waiting_time_s=None if wait is None else 1.0 - wait,
        capacity_gain_per_s=gain,
        waiting_time_gain_s=wait,
        price=price,
        power_w=power,
        gives_up="",
        plan=None,
    )


ROWS = (
    row("cheap", 1.0, 0.1, 100.0, 50.0),
    row("strong", 3.0, 0.4, 900.0, 500.0),
    row("thrifty", 0.5, 0.2, 200.0, 5.0),
    row("priceless", 9.0, 0.9, None, 900.0),
)


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("money", ["cheap", "strong", "thrifty"]),
        ("power", ["thrifty", "cheap", "priceless", "strong"]),
        ("capacity", ["priceless", "strong", "cheap", "thrifty"]),
        ("waiting_time", ["priceless", "strong", "thrifty", "cheap"]),
    ],
)
def test_the_order_is_by_what_is_asked(by: str, names: list[str]) -> None:
    first, apart = ordered(by, ROWS)  # type: ignore[arg-type]
    assert [one.change for one in first] == names
    assert [one.change for one in apart] == (["priceless"] if by == "money" else [])


def test_the_least_loss_is_retired_first() -> None:
    rows = [row("b", -1.0, 0.0, -5.0, -9.0), row("a", 0.0, 0.0, -5.0, -2.0)]
    rows.append(row("c", 0.0, 0.0, -5.0, -20.0))
    assert [one.change for one in retired_first(rows)] == ["c", "a", "b"]
