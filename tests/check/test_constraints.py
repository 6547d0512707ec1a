"""Plans that break, or obey, the constraints that name devices."""

from __future__ import annotations

from typing import Any

import pytest

from e2llm_opt.check.check import check
from e2llm_opt.constraints import Constraints
from tests.check.small import problem, replica, stage, star

FOUR = star("a", "b", "c", "d")


def violations(
    plan: dict[str, Any], constraints: Constraints
) -> list[tuple[str, str | None, Any, Any]]:
    report = check(plan, problem(FOUR, constraints=constraints))
    return [(v.what, v.device, v.need, v.have) for v in report.violations]


def two(first: str | None = None, second: str | None = None) -> dict[str, Any]:
    """Return a plan of two replicas: 1 and 3 layers on a and b, 2 and 2 on c and d."""
    return {
        "replicas": [
            replica("MIXED", stage("a", 0, 1), stage("b", 1, 4), slots=1, id=first),
            replica("MIXED", stage("c", 0, 2), stage("d", 2, 4), slots=1, id=second),
        ]
    }


def astray(device: str, pin: str, have: str) -> tuple[str, str, str, str]:
    return (f"constraints.pin: {device} must hold layers in replica {pin}", device, pin, have)


# ---- pins


@pytest.mark.parametrize(
    "pin", [{"x": ["a", "b"]}, {"x": ["b"]}, {"x": ["a"], "y": ["c", "d"]}, {"y": ["d"]}]
)
@pytest.mark.parametrize("plan", [two("x", "y"), two()], ids=["named", "by hand"])
def test_pinned_devices_that_are_together_are_where_they_must_be(pin: Any, plan: Any) -> None:
    assert violations(plan, Constraints(pin=pin)) == []


def test_a_pinned_device_in_another_replica_than_the_pin_names_is_a_violation() -> None:
    assert violations(two("x", "y"), Constraints(pin={"y": ["a", "c"]})) == [astray("a", "y", "x")]


def test_in_a_plan_without_names_the_first_pinned_device_says_which_replica_is_meant() -> None:
    assert violations(two(), Constraints(pin={"x": ["a", "b", "c", "d"]})) == [
        astray("c", "x", "r1"),
        astray("d", "x", "r1"),
    ]


@pytest.mark.parametrize(("names", "have"), [(("x",), "x"), ((None,), "r0")])
def test_a_pinned_device_without_layers_is_a_violation(names: Any, have: str) -> None:
    plan = {"replicas": two(*names)["replicas"][:1]}
    assert violations(plan, Constraints(pin={"x": ["c", "b"]})) == [astray("c", "x", "no replica")]
    assert violations(plan, Constraints(pin={"x": ["c"]})) == [astray("c", "x", "no replica")]
    assert check(plan, problem(FOUR)).replicas[0].id == have


def test_two_pins_are_two_replicas() -> None:
    assert violations(two(), Constraints(pin={"x": ["a"], "y": ["b"]})) == [
        ("constraints.pin: replicas x and y are one", None, "two replicas", "r0")
    ]


def test_two_pins_of_idle_devices_are_not_one_replica() -> None:
    plan = {"replicas": two()["replicas"][:1]}
    assert violations(plan, Constraints(pin={"x": ["c"], "y": ["d"]})) == [
        astray("c", "x", "no replica"),
        astray("d", "y", "no replica"),
    ]


# ---- numbers of layers


def test_a_device_holds_as_many_layers_as_are_fixed() -> None:
    assert violations(two(), Constraints(layers={"a": 1, "b": 3, "c": 2, "d": 2})) == []
    assert violations(two(), Constraints(layers={"a": 2, "b": 3})) == [
        ("constraints.layers: layers of one device", "a", 2, 1)
    ]


def test_a_device_with_fixed_layers_does_not_stay_idle() -> None:
    plan = {"replicas": two()["replicas"][:1]}
    assert violations(plan, Constraints(layers={"d": 2})) == [
        ("constraints.layers: layers of one device", "d", 2, 0)
    ]
