"""Plan documents: what is no plan is refused, with every fault by its path."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from e2llm_opt.check.check import check
from e2llm_opt.check.reading import read_plan
from e2llm_opt.errors import InputError
from tests.check.small import pair, problem, replica, split, stage, star

HUGE = 10**4000
"""Too large for a float, and for Python to print if it had a few more digits."""


def faults(document: Any) -> dict[str, str]:
    """Return what is wrong with a document, by path."""
    with pytest.raises(InputError) as caught:
        read_plan(document)
    return {fault.path: fault.wrong for fault in caught.value.faults}


@pytest.mark.parametrize("document", [None, [], "plan", 3, [["replicas", []]], Path("plan.json")])
def test_what_is_no_mapping_is_no_plan(document: Any) -> None:
    assert "mapping" in faults(document)[""]


@pytest.mark.parametrize("document", [{}, {"replicas": None}, {"replicas": []}])
def test_a_plan_needs_replicas(document: Any) -> None:
    assert list(faults(document)) == ["replicas"]


def test_an_infeasible_answer_is_no_plan() -> None:
    found = faults({"schema": "e2llm-opt/infeasible/v1", **pair()})
    assert "e2llm-opt/infeasible/v1" in found["schema"]
    assert list(faults({"schema": "~", **pair()})) == ["schema"]


def test_replicas_and_stages_are_mappings() -> None:
    assert list(faults({"replicas": ["r0"]})) == ["replicas[0]"]
    assert list(faults({"replicas": [{"role": "MIXED", "stages": ["a"]}]})) == [
        "replicas[0].stages[0]"
    ]


def test_every_fault_is_told_at_once() -> None:
    document = {
        "replicas": [
            replica("WRITER", {"layers": [0, 2]}, stage("b", 4, 2)),
            {"stages": [stage("c", 0, 4)]},
        ]
    }
    found = faults(document)
    assert set(found) == {
        "replicas[0].role",
        "replicas[0].stages[0].device",
        "replicas[0].stages[1].layers",
        "replicas[1].role",
    }
    assert "reversed" in found["replicas[0].stages[1].layers"]


@pytest.mark.parametrize(
    "layers",
    [None, 3, "02", [], [1], [0, 1, 2], [0, 0], [-1, 2], [0, 2.0], [0, True], [0, HUGE], [[], {}]],
)
def test_layers_are_two_ordered_whole_numbers(layers: Any) -> None:
    document = {"replicas": [replica("MIXED", {"device": "a", "layers": layers})]}
    assert list(faults(document)) == ["replicas[0].stages[0].layers"]


@pytest.mark.parametrize("spilled", [0, 4, "02", {}, True, 1.0])
def test_spilled_layers_are_a_list(spilled: Any) -> None:
    document = {"replicas": [replica("MIXED", stage("a", 0, 4, spilled_layers=spilled))]}
    assert "must be a list" in faults(document)["replicas[0].stages[0].spilled_layers"]


@pytest.mark.parametrize("layer", [-1, 1.0, True, "1", None, HUGE, [], float("nan")])
def test_each_spilled_layer_is_a_whole_number(layer: Any) -> None:
    document = {"replicas": [replica("MIXED", stage("a", 0, 4, spilled_layers=[0, layer, 2]))]}
    assert list(faults(document)) == ["replicas[0].stages[0].spilled_layers[1]"]


def test_a_layer_is_spilled_once() -> None:
    document = {"replicas": [replica("MIXED", stage("a", 0, 4, spilled_layers=[3, 1, 3]))]}
    assert faults(document) == {
        "replicas[0].stages[0].spilled_layers": "layer 3 is given 2 times",
    }


@pytest.mark.parametrize(
    ("given_layers", "read"), [(None, None), ([], ()), ([3, 1], (1, 3)), ((2,), (2,))]
)
def test_spilled_layers_are_sorted_and_nothing_is_not_none(given_layers: Any, read: Any) -> None:
    document = {"replicas": [replica("MIXED", stage("a", 0, 4, spilled_layers=given_layers))]}
    assert read_plan(document).replicas[0].stages[0].spilled_layers == read


@pytest.mark.parametrize("slots", [-1, 1.5, True, "4", HUGE, float("nan"), []])
def test_slots_are_a_whole_number(slots: Any) -> None:
    assert list(faults(pair(slots=slots))) == ["replicas[0].slots"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0, 1e40, HUGE, "1", True, {}])
@pytest.mark.parametrize("key", ["arrival_rate_per_s", "service_rate_per_s", "utilisation"])
def test_rates_are_finite_numbers(key: str, number: Any) -> None:
    assert list(faults(pair(**{key: number}))) == [f"replicas[0].{key}"]


@pytest.mark.parametrize("number", [0, 0.0, 1e30, int(1e30), 5])
def test_the_largest_number_and_the_smallest_are_read(number: float) -> None:
    assert read_plan(pair(utilisation=number)).replicas[0].stated == {"utilisation": number}


@pytest.mark.parametrize("number", [int(1e30) + 10**20, -(10**40)])
def test_a_whole_number_is_shown_unless_it_is_absurd(number: int) -> None:
    shown = "must be a whole number, zero or more, got "
    assert faults(pair(slots=-7)) == {"replicas[0].slots": f"{shown}-7"}
    assert faults(pair(slots=number)) == {"replicas[0].slots": f"{shown}a huge number"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("x" * 38, f"'{'x' * 38}'"),
        ("x" * 39, f"'{'x' * 17}...{'x' * 18}'"),
        ([1, "b", 3], "[1, 'b', 3]"),
        ((1, "b", 3, 4), "[1, 'b', 3, ...]"),
        ([[1], {}], "[[...], {}]"),
        ({"a": 1}, "a mapping"),
        (2.5, "2.5"),
    ],
)
def test_a_message_shows_a_value_but_not_much_of_it(value: Any, shown: str) -> None:
    assert faults(pair(slots=value)) == {
        "replicas[0].slots": f"must be a whole number, zero or more, got {shown}"
    }


def test_a_number_that_python_does_not_print_is_told() -> None:
    assert faults(pair(slots=HUGE**2)) == {
        "replicas[0].slots": "must be a whole number, zero or more, got a huge number"
    }


def test_nested_numbers_are_read_by_path() -> None:
    first = stage("a", 0, 2, memory_bytes={"weights": "x"}, next_hop={"decode_time_s": None})
    document = {"replicas": [replica("MIXED", first, stage("b", 2, 4), decode=[])]}
    assert set(faults(document)) == {
        "replicas[0].stages[0].memory_bytes.weights",
        "replicas[0].stages[0].next_hop.device",
        "replicas[0].decode",
    }


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"routes": {}}, "routes"),
        ({"routes": [3]}, "routes[0]"),
        ({"routes": [{"prefill": "p"}]}, "routes[0].decode"),
        ({"unused_devices": ["c"]}, "unused_devices[0]"),
        ({"unused_devices": [{"reason": "slow"}]}, "unused_devices[0].device"),
        ({"predicted": 1}, "predicted"),
        ({"predicted": {"capacity_per_s": "high"}}, "predicted.capacity_per_s"),
        ({"predicted": {"stable": 1}}, "predicted.stable"),
        ({"problem": []}, "problem"),
        ({"problem": {"inventory_sha256": 7}}, "problem.inventory_sha256"),
    ],
)
def test_the_other_parts_are_optional_but_well_formed(more: Any, path: str) -> None:
    assert list(faults({**pair(), **more})) == [path]


def test_a_misspelt_key_is_a_fault_with_a_hint() -> None:
    with pytest.raises(InputError, match=r"replicas\[0\]\.slot: unknown key; did you mean slots"):
        read_plan(pair(slot=4))


def test_a_key_like_no_other_is_a_fault_without_a_hint() -> None:
    with pytest.raises(InputError) as caught:
        read_plan(pair(qqqq=4))
    (fault,) = caught.value.faults
    assert (fault.path, fault.wrong, fault.right) == ("replicas[0].qqqq", "unknown key", "")


def test_no_micro_batches_are_none() -> None:
    assert list(faults(pair(decode={"micro_batches": 0}))) == ["replicas[0].decode.micro_batches"]


def test_an_id_is_given_once() -> None:
    document = split()
    document["replicas"][1]["id"] = "p"
    assert "given 2 times" in faults(document)["replicas"]


def test_a_plan_by_hand_needs_only_roles_devices_and_layers() -> None:
    given_plan = read_plan(pair())
    (only,) = given_plan.replicas
    assert (only.id, only.role, only.slots) == ("r0", "MIXED", None)
    assert [(s.device, s.start, s.stop) for s in only.stages] == [("a", 0, 2), ("b", 2, 4)]
    assert given_plan.routes is None
    assert given_plan.unused_devices is None


KEYS = st.sampled_from(
    [
        *("schema", "problem", "replicas", "routes", "unused_devices", "predicted", "role"),
        *("slots", "stages", "device", "layers", "memory_bytes", "next_hop", "decode", "id"),
        *("weights", "prefill", "rate_per_s", "micro_batches", "capacity_per_s", "head"),
        "spilled_layers",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["a", "b", "MIXED", "PREFILL", "DECODE", "e2llm-opt/plan/v1", ""]),
    st.text(max_size=3),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def answer(document: Any) -> None:
    """Check a document; only a report or an InputError is allowed, and both can be told."""
    try:
        told = json.dumps(check(document, problem(star("a", "b"))).to_dict(), allow_nan=False)
    except InputError as error:
        told = str(error)
    assert told


@given(VALUES)
@example({"replicas": [[[[[[[[[[0]]]]]]]]]]})
@example({"replicas": [{"role": HUGE, "stages": HUGE}]})
def test_any_value_gives_a_report_or_an_input_error(document: Any) -> None:
    answer(document)


@given(VALUES, st.data())
def test_any_change_of_a_plan_gives_a_report_or_an_input_error(value: Any, data: Any) -> None:
    document = json.loads(json.dumps(split()))
    for one in document["replicas"]:
        for index, own in enumerate(one["stages"]):
            own["device"] = "ab"[index]
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(
            st.sampled_from(keys) | KEYS if isinstance(place, dict) else st.sampled_from(keys)
        )
        known = key in keys
        if known and isinstance(place[key], dict | list) and data.draw(st.booleans()):
            place = place[key]
        else:
            place[key] = value
            break
    answer(document)


INTERVALS = st.tuples(st.integers(0, 5), st.integers(1, 3)).map(lambda t: [t[0], t[0] + t[1]])
STAGES = st.builds(
    lambda name, layers, spilled: {"device": name, "layers": layers, "spilled_layers": spilled},
    st.sampled_from("abc"),
    INTERVALS,
    st.none() | st.lists(st.integers(0, 5), max_size=3, unique=True),
)
REPLICAS = st.builds(
    lambda role, stages, slots: {"role": role, "stages": stages, "slots": slots},
    st.sampled_from(["PREFILL", "DECODE", "MIXED"]),
    st.lists(STAGES, min_size=1, max_size=3),
    st.none() | st.integers(0, 2**53),
)


@given(st.lists(REPLICAS, min_size=1, max_size=3))
def test_any_well_formed_plan_gives_a_report(replicas: Any) -> None:
    report = check({"replicas": replicas}, problem(star("a", "b")))
    json.dumps(report.to_dict(), allow_nan=False)
