"""Stages of several devices in the words of each engine, and who refuses them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import ExportOptions, export
from e2llm_opt.export.engines import ENGINES
from tests.export import parsers
from tests.export.parsers import value
from tests.export.plans import plan, replica

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan, Replica

CAN = ("vllm", "sglang", "ray-serve", "kubernetes", "dynamo", "llm-d")
CANNOT = ("llama.cpp", "prima.cpp", "parallax", "petals", "distributed-llama")
WEIGHTS = {"llama.cpp": "q4_k_m", "prima.cpp": "q4_k_m", "distributed-llama": "q4_0"}


def shared(own: Replica, *degrees: int) -> Replica:
    """Return a replica whose stages have so many devices: a, a-1, a-2 …."""
    stages = []
    for stage, degree in zip(own.stages, degrees, strict=True):
        rest = tuple(f"{stage.device}-{i}" for i in range(1, degree))
        names = (stage.device, *rest) if rest else ()
        stages.append(replace(stage, tensor_parallel=names))
    return replace(own, stages=tuple(stages))


def hosts(one: Plan) -> ExportOptions:
    """Put all devices of a stage on a host of the first one's name."""
    names = {n: s.device for r in one.replicas for s in r.stages for n in s.devices}
    return ExportOptions(addresses=names)


def example(weights: str = "f16") -> Plan:
    two = shared(replica("r0", "MIXED", [("a", 16), ("b", 16)]), 2, 2)
    four = shared(replica("r1", "MIXED", [("c", 32)]), 4)
    one = replica("r2", "MIXED", [("d", 32)])
    return plan(two, four, one, weights=weights, runtime="vllm")


EXPECTED = {"a": 2, "b": 2, "c": 4, "d": 1}


@pytest.mark.parametrize("engine", CAN)
def test_the_degree_and_the_layers_come_back(engine: str) -> None:
    one = example()
    answer = export(one, engine, options=hosts(one))
    assert answer.not_expressible is None, answer.not_expressible
    assert parsers.DEGREES[engine](answer) == EXPECTED
    layers = [(("a", 0, 16), ("b", 16, 32)), (("c", 0, 32),), (("d", 0, 32),)]
    assert parsers.PARSERS[engine](answer, 32) == sorted(layers)


def test_dynamo_counts_the_gpus_of_a_shared_stage_in_both_forms() -> None:
    one = example()
    options = replace(hosts(one), dynamo_api="v1beta1")
    assert parsers.DEGREES["dynamo"](export(one, "dynamo", options=options)) == EXPECTED


@pytest.mark.parametrize("engine", CANNOT)
def test_engines_whose_stages_have_one_device_refuse_with_the_nearest(engine: str) -> None:
    own = shared(replica("r0", "MIXED", [("a", 8), ("b", 24)]), 2, 2)
    answer = export(plan(own, weights=WEIGHTS.get(engine, "f16")), engine)
    assert str(answer.not_expressible).startswith("tensor parallel stages: a and a-1 share")
    document = json.loads(answer.files["nearest-plan.json"])
    stages = [(s["device"], *s["layers"]) for s in document["replicas"][0]["stages"]]
    assert stages == [("a", 0, 4), ("a-1", 4, 8), ("b", 8, 20), ("b-1", 20, 32)]


def test_a_nearest_needs_a_layer_for_every_device() -> None:
    own = shared(replica("r0", "MIXED", [("a", 1), ("b", 31)]), 2, 2)
    assert export(plan(own), "petals").files == {}


def test_every_engine_shares_stages_or_refuses_them() -> None:
    assert {*CAN, *CANNOT, "exo"} == set(ENGINES)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "ray-serve", "dynamo", "llm-d"])
def test_one_number_of_devices_holds_for_all_stages_of_a_replica(engine: str) -> None:
    own = shared(replica("r0", "MIXED", [("a", 16), ("b", 16)]), 2, 1)
    answer = export(plan(own), engine)
    refusal = str(answer.not_expressible)
    assert refusal.startswith("one tensor parallel degree a replica: r0 has stages of 2, 1")
    document = json.loads(answer.files["nearest-plan.json"])
    stages = [(s["device"], *s["layers"]) for s in document["replicas"][0]["stages"]]
    assert stages == [("a", 0, 8), ("a-1", 8, 16), ("b", 16, 32)]


def test_gpus_of_a_host_are_numbered_stage_by_stage() -> None:
    own = shared(replica("r0", "MIXED", [("a", 16), ("b", 16)]), 2, 2)
    names = dict.fromkeys(("a", "a-1", "b", "b-1"), "box")
    one = plan(own, runtime="vllm")
    (server,) = export(one, "vllm", options=ExportOptions(addresses=names)).commands
    assert server.env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert value(server, "--tensor-parallel-size") == "2"
    assert value(server, "--pipeline-parallel-size") == "2"
    swapped = ExportOptions(addresses=names, engine_devices={"a": "CUDA3", "b-1": "CUDA0"})
    (server,) = export(one, "vllm", options=swapped).commands
    assert server.env["CUDA_VISIBLE_DEVICES"] == "3,1,2,0"


def test_every_device_of_a_shared_stage_has_a_folder_that_says_who_drives_it() -> None:
    one = example()
    files = export(one, "vllm", options=hosts(one)).files
    assert "whose process runs this stage too" in files["c-3/README.md"]
    assert "c/start.sh" in files
    assert "`c` + `c-1` + `c-2` + `c-3`" in files["README.md"]


def test_exo_shares_all_layers_over_all_devices_of_an_instance_or_none() -> None:
    four = shared(replica("r1", "MIXED", [("c", 32)]), 4)
    answer = export(plan(four, weights="mlx_4bit"), "exo")
    assert answer.not_expressible is None
    body = json.loads(answer.files["instance-r1.json"])["instance"]
    assert body["sharding"] == "Tensor"
    shards = body["shard_assignments"]["runner_to_shard"]
    assert sorted(own["device_rank"] for own in shards.values()) == [0, 1, 2, 3]
    assert {(s["start_layer"], s["end_layer"], s["world_size"]) for s in shards.values()} == {
        (0, 32, 4)
    }
    assert {own.device for own in answer.commands} == {"c", "c-1", "c-2", "c-3"}
    plain = export(plan(replica("r0", "MIXED", [("a", 32)]), weights="mlx_4bit"), "exo")
    assert "sharding" not in plain.files["instance-r0.json"]
    mixed = shared(replica("r0", "MIXED", [("a", 16), ("b", 16)]), 2, 2)
    refused = export(plan(mixed, weights="mlx_4bit"), "exo")
    assert str(refused.not_expressible).startswith("tensor parallel stages: ")


def test_a_list_that_does_not_begin_with_the_device_is_broken() -> None:
    own = shared(replica("r0", "MIXED", [("a", 32)]), 2)
    stage = replace(own.stages[0], tensor_parallel=("a-1", "a"))
    with pytest.raises(Exception, match="first device of tensor_parallel"):
        export(plan(replace(own, stages=(stage,))), "vllm")
