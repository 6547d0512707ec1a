"""What an engine cannot express is refused by name, with the nearest plan that it can."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import e2llm_opt
from e2llm_opt import Export, ExportOptions, InputError, Problem, export
from e2llm_opt.export.engines import ENGINES
from e2llm_opt.plan.json_file import dump_json
from tests.export.plans import GIB, plan, replica
from tests.export.test_round_trip import WEIGHTS

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan, Replica

TWO = (("tower", 12), ("laptop", 20))


def refused(one: Plan, engine: str, reason: str, options: ExportOptions | None = None) -> Export:
    answer = export(one, engine, options=options)
    assert answer.not_expressible is not None
    assert answer.not_expressible.startswith(f"{reason}: "), answer.not_expressible
    assert answer.commands == ()
    assert set(answer.files) <= {"nearest-plan.json"}
    return answer


def nearest(answer: Export) -> list[tuple[str, list[tuple[str, int, int]]]]:
    document = json.loads(answer.files["nearest-plan.json"])
    assert document["schema"] == "e2llm-opt/plan/v1"
    return [
        (own["id"], [(s["device"], *s["layers"]) for s in own["stages"]])
        for own in document["replicas"]
    ]


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize(
    ("engine", "weights"),
    [
        ("vllm", "q4_k_m"),
        ("sglang", "q4_k_m"),
        ("vllm", "mlx_4bit"),
        ("llama.cpp", "awq"),
        ("llama.cpp", "fp8"),
        ("llama.cpp", "mxfp4_bf16"),
        ("prima.cpp", "mxfp4"),
        ("exo", "q4_k_m"),
        ("parallax", "q8_0"),
        ("petals", "awq"),
        ("distributed-llama", "q4_k_m"),
        ("dynamo", "q8_0"),
        ("llm-d", "q6_k"),
        ("ray-serve", "mlx_8bit"),
        ("vllm", "something-new"),
    ],
)
def test_weights_that_an_engine_cannot_load_are_refused(engine: str, weights: str) -> None:
    answer = refused(plan(replica("r0", "MIXED", TWO), weights=weights), engine, "weight format")
    offered = str(answer.not_expressible).rsplit("--weights ", 1)[1]
    again = export(plan(replica("r0", "MIXED", [("x", 32)]), weights=offered), engine)
    assert again.not_expressible is None, "what it names in exchange it takes"


@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "kubernetes"])
def test_a_model_file_that_an_engine_cannot_load_is_refused(engine: str) -> None:
    is_gguf = engine in {"llama.cpp", "prima.cpp"}
    path = "/models/x.safetensors" if is_gguf else "/models/x.GGUF"
    one = plan(replica("r0", "MIXED", [("x", 32)]), weights=WEIGHTS.get(engine, "f16"))
    refused(one, engine, "weight format", ExportOptions(model_path=path))


@pytest.mark.parametrize(
    ("engine", "kv_cache"),
    [("vllm", "q8_0"), ("llama.cpp", "fp8"), ("sglang", "q4_0"), ("exo", "q8_0")],
)
def test_kv_caches_that_an_engine_cannot_keep_are_refused(engine: str, kv_cache: str) -> None:
    one = plan(replica("r0", "MIXED", TWO), weights=WEIGHTS.get(engine, "f16"), kv_cache=kv_cache)
    refused(one, engine, "KV cache format")


def test_an_alias_of_a_format_is_that_format() -> None:
    one = plan(replica("r0", "MIXED", TWO), weights="Q4_K_M")
    assert export(one, "llama.cpp").not_expressible is None
    refused(one, "vllm", "weight format")


# ---------------------------------------------------------------- shapes


def roomy(own: Replica, *capacities: float) -> Replica:
    stages = tuple(
        replace(s, memory_bytes=replace(s.memory_bytes, capacity=int(size * GIB)))
        for s, size in zip(own.stages, capacities, strict=True)
    )
    return replace(own, stages=stages)


def test_distributed_llama_takes_equal_tensor_slices_only() -> None:
    one = plan(replica("r0", "MIXED", TWO), weights="q4_0")
    answer = refused(one, "distributed-llama", "equal tensor slices only")
    assert "[12, 20]" in str(answer.not_expressible)
    assert nearest(answer) == [("r0", [("tower", 0, 16), ("laptop", 16, 32)])]


def test_the_nearest_for_distributed_llama_is_the_largest_legal_set_with_most_memory() -> None:
    cut = [("a", 6), ("b", 6), ("c", 6), ("d", 7), ("e", 7)]
    own = roomy(replica("r0", "MIXED", cut), 4, 2, 4, 4, 4)
    answer = refused(plan(own, weights="q4_0"), "distributed-llama", "equal tensor slices only")
    assert nearest(answer) == [("r0", [("a", 0, 8), ("c", 8, 16), ("d", 16, 24), ("e", 24, 32)])]


def test_distributed_llama_has_no_more_nodes_than_kv_heads() -> None:
    cut = [(f"d{i}", 2) for i in range(16)]
    one = plan(replica("r0", "MIXED", cut), weights="q4_0", model="llama-3.1-8b")
    answer = refused(one, "distributed-llama", "equal tensor slices only")
    assert "at most 8 (KV heads)" in str(answer.not_expressible)
    assert len(nearest(answer)[0][1]) == 8


def test_distributed_llama_needs_memory_for_an_f32_cache_on_every_device() -> None:
    """Shares are equal, so that the smallest device decides."""
    own = replica("r0", "MIXED", [("a", 16), ("b", 16)], 1)
    assert export(plan(own, weights="q4_0"), "distributed-llama").not_expressible is None
    # 2 GiB weights and 0.5 GiB cache, doubled: 1.5 GiB a share, and 0.5 GiB overhead.
    tight = plan(roomy(own, 4, 1.9), weights="q4_0")
    answer = refused(tight, "distributed-llama", "equal tensor slices only")
    assert nearest(answer) == [("r0", [("a", 0, 32)])]
    none = plan(roomy(own, 1.9, 1.9), weights="q4_0")
    assert refused(none, "distributed-llama", "equal tensor slices only").files == {}


def test_llm_d_binds_no_stage_to_a_device() -> None:
    answer = refused(plan(replica("r0", "MIXED", TWO)), "llm-d", "equal stages across hosts only")
    assert nearest(answer) == [("r0", [("tower", 0, 16), ("laptop", 16, 32)])]
    odd = plan(replica("r0", "MIXED", [("tower", 12), ("laptop", 21)]))
    assert refused(odd, "llm-d", "equal stages across hosts only").files == {}
    one_host = ExportOptions(addresses={"tower": "10.0.0.1", "laptop": "10.0.0.1"})
    assert export(plan(replica("r0", "MIXED", TWO)), "llm-d", options=one_host).commands


def test_prima_cpp_takes_at_most_32_devices() -> None:
    cut = [(f"d{i}", 1) for i in range(33)]
    refused(plan(replica("r0", "MIXED", cut), weights="q4_k_m"), "prima.cpp", "number of stages")
    cut = cut[:32]
    assert export(plan(replica("r0", "MIXED", cut), weights="q4_k_m"), "prima.cpp").commands


def test_ray_orders_stages_by_address() -> None:
    cut = [("a", 8), ("b", 8), ("c", 16)]
    wrong = {"a": "10.0.0.9", "b": "10.0.0.3", "c": "10.0.0.2"}
    one = plan(replica("r0", "MIXED", cut))
    refused(one, "ray-serve", "order of stages", ExportOptions(addresses=wrong))
    right = ExportOptions(addresses={**wrong, "c": "10.0.0.4"})
    assert export(one, "ray-serve", options=right).commands
    assert any("by IP address" in text for text in export(one, "ray-serve").warnings)


def test_sglang_gives_up_on_a_kv_transfer_after_its_time_out() -> None:
    one = plan(replica("p", "PREFILL", [("x", 8)]), replica("d", "DECODE", [("y", 8)]))
    slow = tuple(replace(route, kv_transfer_s=301.0) for route in one.routes)
    answer = refused(replace(one, routes=slow), "sglang", "KV transfer slower than the time-out")
    assert nearest(answer) == [("p", [("x", 0, 8)]), ("d", [("y", 0, 8)])]
    document = json.loads(answer.files["nearest-plan.json"])
    assert {own["role"] for own in document["replicas"]} == {"MIXED"}


def test_ray_has_one_shape_for_all_replicas_of_a_role() -> None:
    decode = replica("d", "DECODE", [("y", 32)])
    alike = [replica(f"p{i}", "PREFILL", [(f"x{i}", 32)], 1) for i in range(2)]
    assert export(plan(*alike, decode), "ray-serve").commands
    other = replica("p2", "PREFILL", TWO, 1)
    answer = refused(plan(*alike, other, decode), "ray-serve", "unlike replicas of one role")
    assert ("p2", [("tower", 0, 12), ("laptop", 12, 32)]) in nearest(answer)


def with_head_first(free: int) -> Plan:
    own = replica("r0", "MIXED", TWO)
    first, last = own.stages
    last = replace(last, head=False, memory_bytes=replace(last.memory_bytes, free=free))
    own = replace(own, stages=(replace(first, head=True), last))
    return plan(own, weights="q4_k_m", head_bytes=float(GIB))


@pytest.mark.parametrize("engine", ["llama.cpp", "prima.cpp"])
def test_a_head_on_the_first_stage_moves_if_it_fits_and_is_refused_if_not(engine: str) -> None:
    answer = export(with_head_first(2 * GIB), engine)
    assert answer.not_expressible is None
    assert any("1.00 GiB move to laptop" in text for text in answer.warnings)
    answer = refused(with_head_first(GIB - 1), engine, "head on the last stage only")
    assert nearest(answer) == [("r0", [("tower", 0, 12), ("laptop", 12, 32)])]


@pytest.mark.parametrize("engine", [e for e in ENGINES if e != "llama.cpp"])
def test_spilled_layers_are_refused_where_an_engine_cannot_place_them(engine: str) -> None:
    own = replica("r0", "MIXED", TWO)
    stages = (replace(own.stages[0], spilled_layers=(1,)), own.stages[1])
    one = plan(replace(own, stages=stages), weights=WEIGHTS.get(engine, "f16"))
    refused(one, engine, "spilled layers")
    if engine == "kubernetes":
        one = replace(one, problem=replace(one.problem, runtime="llama.cpp"))
        refused(one, engine, "spilled layers on an RPC worker")


def test_the_nearest_plan_is_one_that_check_and_export_take() -> None:
    problem = Problem.load("examples/two-macs.yaml", weights="q4_0", runtime="distributed-llama")
    cut = [{"device": "studio", "layers": [0, 48]}, {"device": "macbook", "layers": [48, 80]}]
    by_hand = {"replicas": [{"role": "MIXED", "slots": 1, "stages": cut}]}
    answer = export(by_hand, "distributed-llama", problem=problem)
    assert answer.not_expressible is not None
    near = json.loads(answer.files["nearest-plan.json"])
    assert e2llm_opt.check(near, problem).violations == ()
    assert export(near, "distributed-llama", problem=problem).not_expressible is None


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("name", "hint"),
    [("vlm", "did you mean vllm"), ("llama.cp", "did you mean"), ("zzz", "known: llama.cpp, vllm")],
)
def test_an_unknown_engine_names_the_nearest_or_all(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=hint):
        export(plan(replica("r0", "MIXED", TWO)), name)


@pytest.mark.parametrize(
    ("alias", "engine"),
    [
        ("dllama", "distributed-llama"),
        ("K8s", "kubernetes"),
        ("LLAMA.CPP", "llama.cpp"),
        ("ray", "ray-serve"),
        ("llm_d", "llm-d"),
    ],
)
def test_engines_have_the_names_that_people_type(alias: str, engine: str) -> None:
    one = plan(replica("r0", "MIXED", [("x", 8)]), weights=WEIGHTS.get(engine, "f16"))
    assert export(one, alias).engine == engine


def document(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(dump_json(plan(replica("r0", "MIXED", TWO))))
    return {**found, **changes}


def test_plans_of_other_versions_are_refused() -> None:
    for schema in ("e2llm-opt/plan/v0", "e2llm-opt/plan/v2", None, 7):
        with pytest.raises(InputError, match="this version reads 'e2llm-opt/plan/v1'"):
            export(document(schema=schema), "vllm")
    with pytest.raises(InputError, match="a plan is needed here"):
        export({"schema": "e2llm-opt/infeasible/v1", "reason": "x"}, "vllm")


def test_a_plan_written_by_hand_needs_its_inventory() -> None:
    by_hand = {"replicas": [{"role": "MIXED", "stages": [{"device": "x", "layers": [0, 8]}]}]}
    with pytest.raises(InputError, match="--inventory"):
        export(by_hand, "vllm")


def broken(change: str) -> Plan:
    own = replica("r0", "MIXED", TWO)
    first, last = own.stages
    changed = {
        "gap": replace(own, stages=(first, replace(last, layers=(13, 32)))),
        "overlap": replace(own, stages=(first, replace(last, layers=(11, 32)))),
        "empty": replace(
            own, stages=(replace(first, layers=(0, 0)), replace(last, layers=(0, 32)))
        ),
        "short": replace(own, stages=(first, replace(last, layers=(12, 31)))),
        "role": replace(own, role="BOTH"),
        "slots": replace(own, slots=0),
        "no stages": replace(own, stages=()),
        "twice": replace(own, stages=(first, replace(last, device="tower"))),
        "memory": replace(
            own, stages=(first, replace(last, memory_bytes=replace(last.memory_bytes, free=-1)))
        ),
        "capacity": replace(
            own,
            stages=(first, replace(last, memory_bytes=replace(last.memory_bytes, capacity=GIB))),
        ),
        "lonely": replace(own, role="DECODE"),
        "two heads": replace(own, stages=(replace(first, head=True), last)),
        "nameless": replace(own, stages=(first, replace(last, device=""))),
    }[change]
    found = plan(changed)
    return replace(found, problem=replace(found.problem, model={"num_hidden_layers": 32}))


@pytest.mark.parametrize(
    "change",
    [
        "gap",
        "overlap",
        "empty",
        "short",
        "role",
        "slots",
        "no stages",
        "twice",
        "memory",
        "capacity",
        "lonely",
        "two heads",
        "nameless",
    ],
)
def test_plans_that_break_a_rule_are_refused_without_an_inventory(change: str) -> None:
    with pytest.raises(InputError, match="plan: "):
        export(broken(change), "vllm")


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("workload", {"context_tokens": "many"}, "context_tokens: must be a positive whole"),
        ("workload", {"context_tokens": 0}, "context_tokens: must be a positive whole"),
        ("workload", {"context_tokens": 1.5}, "context_tokens: must be a positive whole"),
        ("workload", {"output_tokens": {"mean": "x"}}, "output_tokens: must be a number"),
        ("model", {"name": ["x"]}, "model.name: must be a text"),
        ("model", {"head_bytes": "big"}, "head_bytes: must be a number"),
        ("model", {"layer_routed_bytes": 3}, "layer_routed_bytes: must be a list"),
        ("options", {"weights": 4}, "options.weights: must be a text"),
        ("options", {"kv_cache": True}, "options.kv_cache: must be a text"),
    ],
)
def test_facts_that_are_not_what_they_must_be_are_refused(
    part: str, change: dict[str, Any], said: str
) -> None:
    one = plan(replica("r0", "MIXED", TWO))
    wrong: dict[str, Any] = {part: {**getattr(one.problem, part), **change}}
    with pytest.raises(InputError, match=said):
        export(replace(one, problem=replace(one.problem, **wrong)), "vllm")


def test_a_plan_that_says_little_is_exported_with_warnings() -> None:
    one = plan(replica("r0", "MIXED", TWO))
    bare = replace(one.problem, model={}, workload={}, options={})
    answer = export(replace(one, problem=bare), "vllm")
    assert answer.commands[0].argv[2] == "model"
    assert "8192" in answer.commands[0].argv, "the longest request that the replica can hold"
    assert any("does not say its weight format" in text for text in answer.warnings)


def test_stages_that_start_where_none_may_are_refused() -> None:
    one = plan(replica("r0", "MIXED", TWO), allowed_stage_starts=[0, 16])
    with pytest.raises(InputError, match="at which a stage may start"):
        export(one, "parallax")
    fine = plan(replica("r0", "MIXED", TWO), allowed_stage_starts=[0, 12])
    assert export(fine, "parallax").commands


def test_replicas_need_names_of_their_own_and_routes_their_ends() -> None:
    twice = plan(replica("r", "MIXED", [("x", 8)]), replica("r", "MIXED", [("y", 8)]))
    with pytest.raises(InputError, match="replicas of this id"):
        export(twice, "vllm")
    one = plan(replica("p", "PREFILL", [("x", 8)]), replica("d", "DECODE", [("y", 8)]))
    lost = replace(one, routes=(replace(one.routes[0], decode="elsewhere"),))
    with pytest.raises(InputError, match="route p to elsewhere"):
        export(lost, "vllm")


def test_with_the_inventory_everything_that_check_finds_is_refused() -> None:
    problem = Problem.load("examples/two-macs.yaml", weights="mlx_4bit")
    cut = [{"device": "studio", "layers": [0, 79]}, {"device": "macbook", "layers": [79, 80]}]
    by_hand = {"replicas": [{"role": "MIXED", "slots": 1, "stages": cut}]}
    assert not e2llm_opt.check(by_hand, problem).valid
    with pytest.raises(InputError, match="memory"):
        export(by_hand, "exo", problem=problem)


@pytest.mark.parametrize(
    "options",
    [
        ExportOptions(addresses={"towr": "10.0.0.1"}),
        ExportOptions(engine_devices={"towr": "CUDA1"}),
    ],
)
def test_options_name_devices_of_the_plan(options: ExportOptions) -> None:
    with pytest.raises(InputError, match="no device 'towr'; did you mean tower"):
        export(plan(replica("r0", "MIXED", TWO)), "vllm", options=options)


def test_ipv6_is_refused_where_the_engine_knows_none() -> None:
    options = ExportOptions(addresses={"tower": "[fd00::1]:50052"})
    one = plan(replica("r0", "MIXED", TWO), weights="q4_k_m")
    with pytest.raises(InputError, match="IPv4 only"):
        export(one, "llama.cpp", options=options)
    own = export(plan(replica("r0", "MIXED", [("tower", 8)])), "vllm", options=options)
    assert "http://[fd00::1]:50052/health" in own.files["tower/health.sh"]


def test_a_plan_for_another_engine_is_exported_with_a_warning() -> None:
    one = plan(replica("r0", "MIXED", TWO), runtime="sglang")
    assert any("--runtime vllm" in text for text in export(one, "vllm").warnings)
    assert any("--runtime vllm" in text for text in export(one, "dynamo").warnings)
    assert not any("--runtime" in text for text in export(one, "sglang").warnings)
