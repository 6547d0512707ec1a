"""The cheapest devices for a target: against every set of a tiny catalogue, and every refusal."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.advise.inventory_text import inventory_text
from e2llm_opt.advise.pooled import Pool
from e2llm_opt.advise.sets import cheaper_sets, smaller
from e2llm_opt.advise.size import size
from e2llm_opt.advise.sizing import Sizing, SizingTarget, Unreachable
from e2llm_opt.check.check import check
from e2llm_opt.constraints import Constraints
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.search.rank_by_simulation import Finals
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import plan
from tests.advise.lab import SMALL, lab

if TYPE_CHECKING:
    from pathlib import Path

    from e2llm_opt.search.progress import Progress

TYPES = ("raspberry-pi-5-8gb", "jetson-orin-nano-super-8gb", "apple-m4")
PRICES, POWER_W = (80.0, 249.0, 599.0), (12.0, 25.0, 22.0)
MIXED = {"roles": "mixed"}
PROBLEM = lab("raspberry-pi-4-8gb")


def is_met(counts: tuple[int, ...], target: SizingTarget, problem: Problem) -> bool:
    """Whether a plan of so many devices of TYPES reaches *target*, by either objective."""
    types = [name for name, num in zip(TYPES, counts, strict=True) for _ in range(num)]
    asked = replace(problem, inventory=lab(*types).inventory)
    workload = replace(
        asked.workload,
        rate_per_s=target.rate_per_s,
        slo_ttft_s=target.ttft_s,
        slo_tpot_s=target.tpot_s,
    )
    for objective in (Objective.COST, Objective.WAITING_TIME):
        question = replace(asked, workload=workload, objective=objective)
        answer = plan(question, finals=Finals(arrivals=()), stop=Stop(max_refinements=0))
        if isinstance(answer, Plan) and answer.predicted.stable:
            ttft = answer.predicted.ttft_s
            if target.ttft_s is None or (ttft is not None and ttft <= target.ttft_s):
                return True
    return False


def cheapest_of_all(target: SizingTarget, most: int, problem: Problem) -> float:
    """Plan every set, the cheapest first, until one reaches the target."""
    sets = [c for c in product(range(most + 1), repeat=len(TYPES)) if 0 < sum(c) <= 8]
    costs = PRICES if target.by == "money" else POWER_W
    prices = {c: sum(n * p for n, p in zip(c, costs, strict=True)) for c in sets}
    return next(
        prices[c] for c in sorted(sets, key=lambda c: (prices[c], c)) if is_met(c, target, problem)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "sections"),
    [
        (SizingTarget(rate_per_s=2.0, types=TYPES), {}),
        (SizingTarget(rate_per_s=25.0, types=TYPES), {}),
        (SizingTarget(rate_per_s=15.0, ttft_s=0.2, types=TYPES), {"constraints": MIXED}),
        (SizingTarget(rate_per_s=15.0, tpot_s=0.02, types=TYPES), {}),
        (SizingTarget(rate_per_s=0.05, types=TYPES), {"model": "llama-3.1-8b"}),
        (SizingTarget(rate_per_s=0.2, types=TYPES), {"model": "llama-3.1-8b", "weights": "q8_0"}),
        (
            SizingTarget(rate_per_s=0.5, types=TYPES, by="power"),
            {"model": "llama-3.2-3b", "constraints": MIXED},
        ),
    ],
)
def test_no_set_of_a_tiny_catalogue_is_cheaper(
    target: SizingTarget, sections: dict[str, Any]
) -> None:
    problem = lab("raspberry-pi-4-8gb", **sections)
    answer = size(problem, target)
    assert isinstance(answer, Sizing)
    best = cheapest_of_all(target, 3, problem)
    cost = answer.price if target.by == "money" else answer.power_w
    assert cost is not None
    assert cost <= best * (1 + 1e-9)
    assert answer.bound <= best * (1 + 1e-9)
    assert answer.bound <= cost


def test_the_devices_do_what_is_asked_and_cost_what_they_cost() -> None:
    target = SizingTarget(rate_per_s=30.0, ttft_s=0.5, types=TYPES)
    answer = size(PROBLEM, target)
    assert isinstance(answer, Sizing)
    listed = dict(zip(TYPES, PRICES, strict=True))
    assert answer.price == sum(listed[name] * num for name, num in answer.devices.items())
    assert answer.gap == pytest.approx((answer.price - answer.bound) / answer.price)
    figures = answer.plan.predicted
    assert figures.stable
    assert figures.capacity_per_s >= 30.0
    assert figures.ttft_s is not None
    assert figures.ttft_s <= 0.5
    assert check(answer.plan, answer.problem).valid
    assert answer.problem.objective is PROBLEM.objective
    assert answer.to_dict()["devices"] == [
        {"type": name, "count": num} for name, num in answer.devices.items()
    ]


def test_by_power_the_least_power_is_found() -> None:
    target = SizingTarget(rate_per_s=30.0, types=TYPES)
    frugal, cheap = size(PROBLEM, replace(target, by="power")), size(PROBLEM, target)
    assert isinstance(frugal, Sizing)
    assert isinstance(cheap, Sizing)
    assert frugal.power_w is not None
    assert cheap.power_w is not None
    assert cheap.price is not None
    assert frugal.power_w <= cheap.power_w
    assert frugal.price is not None
    assert cheap.price <= frugal.price
    assert frugal.bound <= frugal.power_w


def test_a_price_changes_what_is_bought() -> None:
    target = SizingTarget(rate_per_s=30.0, types=TYPES, prices={"apple-m4": 1.0})
    answer = size(PROBLEM, target)
    assert isinstance(answer, Sizing)
    assert set(answer.devices) == {"apple-m4"}
    assert answer.is_cheapest


def test_the_inventory_that_is_written_has_the_same_plan(tmp_path: Path) -> None:
    answer = size(PROBLEM, SizingTarget(rate_per_s=70.0, types=TYPES))
    assert isinstance(answer, Sizing)
    served = {"model": SMALL, "weights": "f16", "runtime": "generic"}
    served["workload"] = {"rate_per_s": 0.5, "prompt_tokens": 400, "output_tokens": 100}
    path = tmp_path / "bought.yaml"
    path.write_text(inventory_text(answer, served), encoding="utf-8")
    problem = Problem.load(path)
    assert len(problem.devices) == sum(answer.devices.values())
    again = plan(problem, finals=Finals(arrivals=()))
    assert isinstance(again, Plan)
    assert again.predicted.capacity_per_s >= 70.0
    assert check(answer.plan, problem).valid


@pytest.mark.parametrize(
    ("target", "sections", "says"),
    [
        ({"tpot_s": 1e-5}, {}, "no catalogue device decodes fast enough; the fastest, apple-m4"),
        ({"ttft_s": 1e-5}, {}, "the prefill of a mean prompt takes at least"),
        ({"max_devices": 2}, {"model": "llama-3.1-70b"}, "does not fit: weights"),
        ({"rate_per_s": 1e4}, {}, "devices of one type serve at most"),
    ],
)
def test_what_nothing_can_reach_says_why(
    target: dict[str, float], sections: dict[str, str], says: str
) -> None:
    given = {"rate_per_s": 1.0, "types": TYPES, **target}
    answer = size(lab("raspberry-pi-4-8gb", **sections), SizingTarget(**given))  # type: ignore[arg-type]
    assert isinstance(answer, Unreachable)
    assert answer.is_proven
    assert says in answer.reason
    assert answer.to_dict()["reason"] == answer.reason


def test_what_no_bound_rules_out_says_what_was_reached() -> None:
    """A TTFT just above the prefill alone, at half the rate of one device: there is a queue."""
    pool = Pool(lab("apple-m4"))
    alone_s, _ = pool.quickest_s
    target = SizingTarget(
        rate_per_s=0.5 * pool.most([1.0]),
        ttft_s=1.001 * alone_s,
        max_devices=1,
        types=["raspberry-pi-5-8gb", "apple-m4"],
    )
    answer = size(PROBLEM, target)
    assert isinstance(answer, Unreachable)
    assert not answer.is_proven
    assert "1 apple-m4, serves" in answer.reason
    assert "with a TTFT of" in answer.reason


def test_a_strict_ttft_is_met_by_devices_that_are_quick_at_prompts() -> None:
    """The cheapest devices for the rate alone would be too slow."""
    types = ("raspberry-pi-5-8gb", "rtx-3060-12gb")
    slow = size(PROBLEM, SizingTarget(rate_per_s=0.2, types=types))
    assert isinstance(slow, Sizing)
    assert set(slow.devices) == {"raspberry-pi-5-8gb"}
    quick = size(PROBLEM, SizingTarget(rate_per_s=0.2, ttft_s=0.5, types=types))
    assert isinstance(quick, Sizing)
    assert "rtx-3060-12gb" in quick.devices


@pytest.mark.parametrize(
    ("limits", "most", "says"),
    [
        ({"pin": {"chat": ("a",)}}, 8, "constraints.pin: names devices of the inventory"),
        ({"layers": {"a": 8}}, 8, "constraints.layers: names devices of the inventory"),
        ({"roles": "disaggregated"}, 1, "constraints.roles: needs 2 devices, but at most 1"),
        ({"replicas": 5}, 3, "constraints.replicas: needs 5 devices, but at most 3"),
        (
            {"replicas": 1, "roles": "disaggregated"},
            8,
            "constraints.replicas: 1 contradicts roles: disaggregated",
        ),
    ],
)
def test_contradictions_are_named(limits: dict[str, object], most: int, says: str) -> None:
    problem = replace(PROBLEM, constraints=Constraints(**limits))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=says):
        size(problem, SizingTarget(rate_per_s=1.0, max_devices=most, types=TYPES))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rate_per_s": 0.0}, "rate_per_s must be positive"),
        ({"ttft_s": -1.0}, "ttft_s must be positive"),
        ({"by": "capacity"}, "by must be money or power"),
        ({"max_devices": 0}, "max_devices and trials must be at least 1"),
    ],
)
def test_targets_that_mean_nothing_are_refused(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        SizingTarget(**{"rate_per_s": 1.0, **wrong})  # type: ignore[arg-type]


def test_an_interruption_keeps_the_best() -> None:
    seen: list[str] = []

    def stop(state: Progress) -> None:
        seen.append(state.doing)
        if "(best: " in state.doing:
            raise KeyboardInterrupt

    answer = size(PROBLEM, SizingTarget(rate_per_s=70.0, types=TYPES), progress=stop)
    assert isinstance(answer, Sizing)
    assert any("(best: " in doing for doing in seen) == (
        "interrupted: a cheaper set may be left" in answer.warnings
    )


def test_an_interruption_before_any_set_is_passed_on() -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        size(PROBLEM, SizingTarget(rate_per_s=70.0, types=TYPES), progress=stop)


@given(
    st.lists(st.floats(1.0, 50.0), min_size=1, max_size=3),
    st.floats(1.0, 120.0),
    st.floats(0.0, 60.0),
    st.integers(1, 4),
)
def test_cheaper_sets_are_all_sets_between_two_costs(
    costs: list[float], below: float, least: float, most: int
) -> None:
    found = cheaper_sets(costs, below, least, most)
    assert found is not None
    every = {
        one: sum(n * c for n, c in zip(one, costs, strict=True))
        for one in product(range(most + 1), repeat=len(costs))
        if 0 < sum(one) <= most
    }
    inside = {one for one, cost in every.items() if least * (1 + 1e-9) < cost < below * (1 - 1e-9)}
    assert inside <= set(found)
    assert all(least * (1 - 1e-6) <= every[one] <= below for one in found)
    assert found == sorted(found, key=lambda one: (every[one], one))


def test_too_many_sets_are_not_listed() -> None:
    assert cheaper_sets([1.0] * 8, 1000.0, 0.0, 32) is None


def test_smaller_sets_are_cheaper_by_one_device() -> None:
    found = smaller((2, 0, 1), (5.0, 3.0, 9.0))
    assert set(found) == {(1, 0, 1), (1, 1, 1), (2, 0, 0), (3, 0, 0), (2, 1, 0)}
    assert found[0] == (2, 0, 0)
