"""Constraints that contradict themselves, the inventory or the model are refused, all at once."""

from __future__ import annotations

import pytest

from e2llm_opt.constraints import Constraints

NAMES = ("a", "b", "c")


def faults(constraints: Constraints, num_layers: int = 4) -> list[tuple[str, str]]:
    return [(fault.path, fault.wrong) for fault in constraints.faults(NAMES, num_layers)]


@pytest.mark.parametrize(
    ("constraints", "path", "wrong"),
    [
        (Constraints(exclude=("z",)), "exclude", "no device is called 'z'"),
        (Constraints(pin={"x": ["z"]}), "pin", "no device is called 'z'"),
        (Constraints(layers={"z": 1}), "layers", "no device is called 'z'"),
        (
            Constraints(pin={"x": ["a"]}, exclude=("a",)),
            "pin",
            "'a' is excluded (constraints.exclude)",
        ),
        (
            Constraints(layers={"a": 1}, exclude=("a",)),
            "layers",
            "'a' is excluded (constraints.exclude)",
        ),
        (Constraints(exclude=NAMES), "exclude", "every device is excluded"),
        (Constraints(pin={"x": ["a", "b"], "y": ["a"]}), "pin", "'a' is pinned 2 times"),
        (Constraints(pin={"x": []}), "pin", "'x' names no device"),
        (
            Constraints(pin={"x": ["a"], "y": ["b"]}, replicas=1),
            "pin",
            "2 replicas are pinned, but constraints.replicas is 1",
        ),
        *(
            (
                Constraints(layers={"a": number}),
                "layers",
                f"a: must be 1 to 4, the model's layers, got {number}",
            )
            for number in (0, 5)
        ),
    ],
)
def test_each_contradiction_is_told_by_its_key(
    constraints: Constraints, path: str, wrong: str
) -> None:
    assert faults(constraints) == [(f"constraints.{path}", wrong)]


def test_what_can_be_obeyed_is_no_fault() -> None:
    right = Constraints(
        pin={"x": ["a"], "y": ["b"]}, layers={"a": 1, "b": 4}, exclude=("c",), replicas=2
    )
    assert faults(right) == []


def test_all_contradictions_are_told_at_once() -> None:
    wrong = Constraints(exclude=("z",), pin={"x": []}, layers={"a": 9})
    assert [path for path, _ in faults(wrong)] == [
        "constraints.exclude",
        "constraints.pin",
        "constraints.layers",
    ]


def test_constraints_in_another_order_are_equal() -> None:
    one = Constraints(pin={"x": ["a"], "y": ["b"]}, layers={"a": 1, "b": 2})
    other = Constraints(pin={"y": ["b"], "x": ["a"]}, layers={"b": 2, "a": 1})
    assert (one, hash(one)) == (other, hash(other))
    assert one.pinned == {"a": "x", "b": "y"}
    assert one.fixed_layers == {"a": 1, "b": 2}
