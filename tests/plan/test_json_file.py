"""A plan written as JSON reads back as the same plan, and nothing else is taken for one."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.errors import InputError
from e2llm_opt.plan.json_file import (
    dump_json,
    load_plan,
    plan_from_dict,
    plan_schema,
    read_json_document,
)
from e2llm_opt.plan.plan import Plan, Stage
from tests.samples import overloaded_plan, sample_infeasible, sample_plan

if TYPE_CHECKING:
    from pathlib import Path

finite = st.floats(allow_nan=False, allow_infinity=False)


def document(**changes: Any) -> dict[str, Any]:
    return {**json.loads(dump_json(sample_plan())), **changes}


@pytest.mark.parametrize("plan", [sample_plan(), overloaded_plan()], ids=["stable", "overloaded"])
def test_a_plan_reads_back_equal_and_writes_the_same_bytes(plan: Plan) -> None:
    text = dump_json(plan)
    again = plan_from_dict(json.loads(text))
    assert again == plan
    assert dump_json(again) == text


@given(wait=st.none() | finite, capacity=finite, text=st.text(), number=st.integers())
def test_the_round_trip_is_exact_for_any_number_and_text(
    wait: float | None, capacity: float, text: str, number: int
) -> None:
    plan = sample_plan()
    plan = replace(
        plan,
        predicted=replace(plan.predicted, waiting_time_s=wait, capacity_per_s=capacity),
        problem=replace(plan.problem, options={text: [number, capacity, {text: None}]}),
        warnings=(text,),
    )
    assert plan_from_dict(json.loads(dump_json(plan))) == plan


def test_keys_stand_in_the_order_of_the_design() -> None:
    written = json.loads(dump_json(sample_plan()))
    assert list(written) == [
        *("schema", "problem", "replicas", "routes", "unused_devices", "predicted", "bound"),
        *("alternatives", "explain", "warnings", "provenance"),
    ]
    stage = written["replicas"][0]["stages"][0]
    assert list(stage) == [
        *("device", "layers", "embedding", "head", "spilled_layers", "memory_bytes"),
        *("prefill_time_s", "decode_time_s"),
        *("prefill_time_interval_s", "decode_time_interval_s", "next_hop"),
    ]
    names = [field.name for field in fields(Stage)]
    assert list(stage) == [name for name in names if name != "tensor_parallel"]
    assert dump_json(sample_plan()).endswith("}\n")


def test_kv_fields_of_an_alternative_are_left_out_where_they_mean_nothing() -> None:
    mixed, disaggregated = json.loads(dump_json(sample_plan()))["alternatives"]
    assert not [key for key in mixed if "kv" in key or "break" in key]
    assert disaggregated["kv_bytes"] == 75497472
    assert disaggregated["break_even_bandwidth_mbit_s"] == 2450.0


def test_numpy_numbers_are_written_like_python_numbers() -> None:
    plan = sample_plan()
    exact = replace(plan, predicted=replace(plan.predicted, capacity_per_s=0.1, power_w=None))
    strange = replace(
        plan, predicted=replace(plan.predicted, capacity_per_s=np.float64(0.1), power_w=None)
    )
    assert dump_json(strange) == dump_json(exact)
    first = replace(plan.replicas[0], slots=np.int64(10))  # type: ignore[arg-type]
    assert dump_json(replace(plan, replicas=(first, plan.replicas[1]))) == dump_json(plan)


def test_a_number_that_is_not_finite_is_never_written() -> None:
    plan = sample_plan()
    broken = replace(plan, predicted=replace(plan.predicted, tpot_s=float("nan")))
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json(broken)


def test_an_infeasible_answer_is_written_with_its_schema_first() -> None:
    written = json.loads(sample_infeasible().to_json())
    assert list(written) == [
        *("schema", "reason", "kv_cache_bytes", "total_bytes", "devices", "shortfall_bytes"),
        "suggestions",
    ]
    assert written["suggestions"][0] == {"change": "context_tokens: 12288", "makes": "feasible"}


def test_every_fault_of_a_plan_is_reported_at_once_with_its_path() -> None:
    broken = document(routs=[])
    del broken["warnings"]
    broken["replicas"][0]["stages"][1]["layers"] = [17]
    broken["replicas"][1]["slots"] = "10"
    with pytest.raises(InputError) as caught:
        plan_from_dict(broken, file="p.json")
    assert {(fault.path, fault.wrong) for fault in caught.value.faults} == {
        ("routs", "unknown key"),
        ("warnings", "missing"),
        ("replicas[0].stages[1].layers[1]", "missing"),
        ("replicas[1].slots", 'must be a whole number, got "10"'),
    }
    assert all(fault.file == "p.json" for fault in caught.value.faults)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ([], "not a plan"),
        ({}, "schema: missing; this version reads 'e2llm-opt/plan/v1'"),
        ({"schema": "e2llm-opt/plan/v2"}, 'unknown version "e2llm-opt/plan/v2"; this version'),
        ({"schema": ["x"]}, "unknown version"),
        (json.loads(dump_json(sample_infeasible())), "says why there is no plan"),
    ],
)
def test_what_is_no_plan_of_this_version_is_refused(broken: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan_from_dict(broken)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", r"p.json:1: not JSON: expecting value"),
        (b'{"a": 1,\n "b": }', r"p.json:2: not JSON: expecting value \(column 7\)"),
        (b"\x00\xff\x00", "not a text file"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": 1e999}', "1e999 is no number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no number"),
        (b'{"a": 1, "a": 2}', "the key 'a' stands twice"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read_json_document(path)


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.json: cannot be read: no such file"):
        load_plan(tmp_path / "absent.json")


def test_a_plan_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(sample_plan().to_json(), encoding="utf-8")
    assert load_plan(path) == sample_plan()


def test_the_shipped_schema_is_the_one_the_dataclasses_make() -> None:
    shipped = files("e2llm_opt.plan").joinpath("plan.schema.json").read_text(encoding="utf-8")
    assert json.loads(shipped) == plan_schema(), "run `make schema`"


@pytest.mark.parametrize("plan", [sample_plan(), overloaded_plan()], ids=["stable", "overloaded"])
def test_written_plans_follow_the_schema(plan: Plan) -> None:
    jsonschema.Draft202012Validator.check_schema(plan_schema())
    jsonschema.validate(json.loads(dump_json(plan)), plan_schema())


@pytest.mark.parametrize("key", ["schema", "replicas", "predicted"])
def test_the_schema_refuses_a_plan_without(key: str) -> None:
    broken = document()
    del broken[key]
    with pytest.raises(jsonschema.ValidationError, match=key):
        jsonschema.validate(broken, plan_schema())
