"""What a valid file becomes: SI numbers, expanded counts and links, and overrides on top."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2llm_opt.constraints import Constraints
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.link import Link
from e2llm_opt.loading.load import load_inventory, load_problem, problem_from_mapping
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.runtime import MixedPause, runtime
from e2llm_opt.workload.workload import Lengths, Workload

Write = Callable[[str], str]
EVERYTHING = """\
devices:
  - name: tower
    memory_gib: 12
    reserved_gib: 1.5
    memory_bandwidth_gb_s: 360
    fp16_tflops: 51
    efficiency: {prefill: 0.4}
    layer_overhead_us: 20
    uuid: GPU-6f1c
    host: box
    host_bus_gb_s: 12
    host_memory_gib: 48
    host_bandwidth_gb_s: 40
    bus_gb_s: 25
    power_w: 170
    cost_per_hour: 0.04
  - {name: second, type: rtx-3060-12gb, host: box}
  - {name: pi, type: raspberry-pi-5-8gb, count: 2, cost_per_hour: 0}
links:
  - between: [tower, lan]
    bandwidth_mbit_s: {forward: 100, backward: 20}
    latency_ms: 0.15
    interface: eth0
    duplex: half
  - {between: [pi], via: lan, bandwidth_mbit_s: 940, latency_ms: 0}
  - {between: [tower, second], bandwidth_mbit_s: 400000, latency_ms: 0.01, interface: nvlink}
model: meta-llama/Llama-3.2-1B
weights: Q4_K_M
kv_cache: q8_0
runtime: {name: llama.cpp, overhead_gib: 0.25, hop_overhead_ms: 2, pipelined: yes, max_slots: 8,
          prefill_chunk_tokens: 256, activation_bytes: 2, topology: ring, mixed_pause: latency,
          layerwise_kv: on, head: first, embedding: first, kv_layout: latent, disaggregation: true}
workload:
  rate_per_s: 0.5
  prompt_tokens: {mean: 576, cv: 0}
  output_tokens: {mean: 588, p95: 1200}
  context_tokens: 4096
  slots: 4
  min_tokens_per_s: 7
  slo: {ttft_s: 10, tpot_s: 0.14}
objective: latency
constraints: {replicas: 1, use_all_devices: no, roles: mixed, exclude: [pi]}
"""


@pytest.fixture
def everything(write: Write) -> Problem:
    return load_problem(write(EVERYTHING))


def test_device_numbers_become_si(everything: Problem) -> None:
    tower = everything.devices[0]
    assert tower.name == "tower"
    assert tower.memory_bytes == 12 * 2**30
    assert tower.reserved_bytes == 1.5 * 2**30
    assert tower.memory_bandwidth_bytes_per_s == 360e9
    assert tower.fp16_flop_per_s == 51e12
    assert (tower.prefill_efficiency, tower.decode_efficiency) == (0.4, 0.7)
    assert tower.layer_overhead_s == pytest.approx(20e-6, rel=1e-15)
    assert (tower.uuid, tower.host) == ("GPU-6f1c", "box")
    assert tower.host_bus_bytes_per_s == 12e9
    assert tower.host_memory_bytes == 48 * 2**30
    assert tower.host_bandwidth_bytes_per_s == 40e9
    assert tower.bus_bytes_per_s == 25e9
    assert (tower.power_w, tower.cost_per_hour) == (170, 0.04)


def test_without_a_type_nothing_is_reserved(good: str, write: Write) -> None:
    device = "{name: tower, memory_gib: 8, memory_bandwidth_gb_s: 100, fp16_tflops: 3}"
    text = good.replace("{name: tower, type: rtx-3060-12gb}", device)
    assert load_problem(write(text)).devices[0].reserved_bytes == 0


def test_a_type_fills_in_what_the_file_leaves_out(everything: Problem) -> None:
    second = everything.devices[1]
    assert (second.type, second.memory_bytes) == ("rtx-3060-12gb", 12 * 2**30)
    assert second.memory_bandwidth_bytes_per_s == 360e9


def test_count_makes_numbered_devices_on_hosts_of_their_own(everything: Problem) -> None:
    assert [device.name for device in everything.devices] == ["tower", "second", "pi-1", "pi-2"]
    assert everything.inventory.hosts == ("box", "pi-1", "pi-2")


def test_link_numbers_become_si_and_device_ends_become_hosts(everything: Problem) -> None:
    first = everything.inventory.links[0]
    assert first.ends == ("box", "lan")
    assert (first.forward_bytes_per_s, first.backward_bytes_per_s) == (12.5e6, 2.5e6)
    assert first.latency_s == pytest.approx(0.15e-3, rel=1e-15)
    assert first.interface == "eth0"
    assert first.is_half_duplex


def test_via_links_each_counted_device_to_the_switch(everything: Problem) -> None:
    ends = [link.ends for link in everything.inventory.links]
    assert ends[1:3] == [("pi-1", "lan"), ("pi-2", "lan")]
    assert not everything.inventory.links[1].is_half_duplex


def test_two_devices_of_one_host_keep_their_private_link(everything: Problem) -> None:
    assert everything.inventory.links[3].ends == ("tower", "second")


def test_all_joins_every_pair_of_hosts_once(good: str, write: Write) -> None:
    text = good.replace("[tower, pi-1, pi-2], via: lan", "all")
    links = load_problem(write(text)).inventory.links
    assert [link.ends for link in links] == [("tower", "pi-1"), ("tower", "pi-2"), ("pi-1", "pi-2")]


def test_all_of_one_host_are_no_links(write: Write) -> None:
    link = "{between: all, bandwidth_mbit_s: 1, latency_ms: 1}"
    text = f"devices: [{{name: a, type: m1}}]\nlinks: [{link}]\n"
    assert load_inventory(write(text)).links == ()


def test_two_devices_of_one_host_reach_a_switch_by_one_link(write: Write) -> None:
    text = """\
devices: [{name: a, type: m1, host: h}, {name: b, type: m1, host: h}, {name: c, type: m1}]
links: [{between: [a, b, c], via: s, bandwidth_mbit_s: 8, latency_ms: 0}]
"""
    ends = [link.ends for link in load_inventory(write(text)).links]
    assert ends == [("h", "s"), ("c", "s")]


def test_several_links_between_the_same_ends_are_kept(write: Write) -> None:
    link = "{between: [a, b], bandwidth_mbit_s: 8, latency_ms: 1"
    text = (
        f"devices: [{{name: a, type: m1}}, {{name: b, type: m2}}]\nlinks: [{link}, interface: x}}, "
    )
    links = load_inventory(write(f"{text}{link}, interface: y}}]\n")).links
    cable = Link(
        ends=("a", "b"),
        forward_bytes_per_s=1e6,
        backward_bytes_per_s=1e6,
        latency_s=1e-3,
        interface="x",
    )
    assert links == (cable, replace(cable, interface="y"))


def test_runtime_overrides_win_over_the_engine(everything: Problem) -> None:
    engine = everything.runtime
    assert engine.name == "llama.cpp"
    assert engine.overhead_bytes == 2**28
    assert engine.hop_overhead_s == pytest.approx(2e-3, rel=1e-15)
    assert engine.bus_hop_overhead_s == runtime("llama.cpp").bus_hop_overhead_s
    assert engine.is_pipelined
    assert (engine.max_slots, engine.prefill_chunk_tokens) == (8, 256)
    assert (engine.activation_bytes, engine.topology) == (2, "ring")
    assert engine.mixed_pause is MixedPause.LATENCY
    assert engine.layerwise_kv
    assert (engine.head, engine.embedding, engine.kv_layout) == ("first", "first", "latent")
    assert engine.has_disaggregation


def test_a_hop_inside_a_host_costs_no_more_than_one_outside(good: str, write: Write) -> None:
    engine = load_problem(write(good + "runtime: {name: llama.cpp, hop_overhead_ms: 0}\n")).runtime
    assert (engine.hop_overhead_s, engine.bus_hop_overhead_s) == (0, 0)


def test_workload_and_the_rest_are_read(everything: Problem) -> None:
    assert everything.workload == Workload(
        rate_per_s=0.5,
        prompt=Lengths(mean=576, cv=0),
        output=Lengths.from_p95(588, 1200),
        context_tokens=4096,
        slots=4,
        min_tokens_per_s=7,
        slo_ttft_s=10,
        slo_tpot_s=0.14,
    )
    assert everything.objective is Objective.LATENCY
    assert everything.constraints == Constraints(
        replicas=1, roles="mixed", exclude=("pi-1", "pi-2")
    )
    assert everything.model.num_layers == 16
    assert (everything.weights, everything.kv_cache) == ("q4_k_m", "q8_0")


def test_defaults_are_those_of_the_domain_objects(good: str, write: Write) -> None:
    problem = load_problem(write(good.replace("weights: q8_0\n", "")))
    assert (problem.weights, problem.kv_cache) == ("f16", "f16")
    assert problem.runtime == runtime("generic")
    assert problem.objective is Objective.WAITING_TIME
    assert problem.constraints == Constraints()
    assert problem.workload == Workload(prompt=Lengths(mean=100), output=Lengths(mean=50))


def test_a_python_mapping_says_the_same_as_the_file(everything: Problem) -> None:
    mapping = yaml.safe_load(EVERYTHING)
    assert problem_from_mapping(mapping) == everything


def test_faults_of_a_python_mapping_have_paths_only(good: str) -> None:
    mapping: dict[str, Any] = yaml.safe_load(good)
    mapping["devices"][1]["count"] = "two"
    with pytest.raises(InputError) as caught:
        problem_from_mapping(mapping)
    assert str(caught.value) == "devices[1].count: must be a number, got 'two'"


def test_overrides_win_and_mappings_are_merged(everything: Problem) -> None:
    changed = Problem.load(
        "lab.yaml",
        model="qwen3-0.6b",
        workload={"rate_per_s": 2, "slo": {"ttft_s": 3}},
        runtime={"max_slots": 16},
    )
    assert changed.facts.num_hidden_layers == 28
    assert changed.workload.rate_per_s == 2
    assert (changed.workload.slo_ttft_s, changed.workload.slo_tpot_s) == (3, 0.14)
    assert changed.workload.prompt == everything.workload.prompt
    assert (changed.runtime.max_slots, changed.runtime.head) == (16, "first")


def test_a_runtime_mapping_on_the_command_line_keeps_the_file_s_engine(
    good: str, write: Write
) -> None:
    path = write(good + "runtime: vllm\n")
    assert load_problem(path, {"runtime": {"max_slots": 3}}).runtime == runtime("vllm", max_slots=3)
    assert load_problem(path, {"runtime": "exo"}).runtime == runtime("exo")


def test_faults_of_overrides_name_the_command_line(good: str, write: Write) -> None:
    path = write(good.replace("weights: q8_0", "weights: q8_00"))
    with pytest.raises(InputError) as caught:
        load_problem(path, {"model": "nosuchmodel", "workload": {"slots": 0, "prompt_tokens": 7}})
    lines = [str(fault) for fault in caught.value.faults]
    assert lines[0].startswith("lab.yaml:7: weights: unknown weight format 'q8_00'")
    assert lines[1].startswith("command line: model: unknown model 'nosuchmodel'")
    assert lines[2] == "command line: workload.slots: must be at least 1, got 0"
    assert len(lines) == 3


def test_an_override_repairs_the_file(good: str, write: Write) -> None:
    path = write(good.replace("model: llama-3.2-1b", "model: !!str nonsense"))
    assert load_problem(path, {"model": "llama-3.2-1b"}).model.num_layers == 16


def test_a_trace_gives_rate_lengths_and_context(good: str, write: Write) -> None:
    start = good.index("workload:")
    path = write(f"{good[:start]}workload: {{trace: t.csv, min_tokens_per_s: 5}}\n")
    rows = ["arrival_s,prompt_tokens,output_tokens", "0,100,10", "1,300,30", "4,200,20"]
    Path("t.csv").write_text("\n".join(rows), encoding="utf-8")
    workload = load_problem(path).workload
    assert workload.rate_per_s == 0.5
    assert workload.prompt.mean == 200
    assert workload.prompt.cv == pytest.approx((2 / 3) ** 0.5 / 2)
    assert workload.output.mean == 20
    assert workload.context_tokens == 512  # 1.25 (290 + 29), up to a multiple of 256
    assert workload.min_tokens_per_s == 5
    assert load_problem(path, {"workload": {"rate_per_s": 3}}).workload.rate_per_s == 3


def test_a_trace_is_looked_for_beside_the_file_that_names_it(
    good: str, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = good.index("workload:")
    write(f"{good[:start]}workload: {{trace: t.csv}}\n")
    rows = "arrival_s,prompt_tokens,output_tokens\n0,100,10\n"
    (tmp_path / "t.csv").write_text(rows, encoding="utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    path = tmp_path / "lab.yaml"
    assert load_problem(path).workload.prompt.mean == 100
    (elsewhere / "u.csv").write_text(rows.replace("100", "70"), encoding="utf-8")
    assert load_problem(path, {"workload": {"trace": "u.csv"}}).workload.prompt.mean == 70


def test_a_trace_on_the_command_line_replaces_the_lengths_of_the_file(
    good: str, write: Write
) -> None:
    path = write(good)
    Path("t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,8,9\n", encoding="utf-8")
    workload = load_problem(path, {"workload": {"trace": "t.csv"}}).workload
    assert (workload.prompt.mean, workload.output.mean, workload.rate_per_s) == (8, 9, 0)


def test_faults_inside_a_trace_keep_their_own_line(good: str, write: Write) -> None:
    start = good.index("workload:")
    path = write(f"{good[:start]}workload: {{trace: t.csv}}\n")
    Path("t.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens\n0,8,9\n0,0,9\n", encoding="utf-8"
    )
    with pytest.raises(InputError, match=r"t\.csv:3: tokens must be a whole number from 1"):
        load_problem(path)


def config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1000,
        "rope_scaling": None,
        "torch_dtype": "bfloat16",
    }


@pytest.mark.parametrize("spelling", ["m/config.json", "./m"])
def test_a_config_json_is_found_beside_the_inventory(
    spelling: str, good: str, write: Write
) -> None:
    Path("m").mkdir()
    path = write(good.replace("llama-3.2-1b", spelling))
    Path("m/config.json").write_text(json.dumps(config()), encoding="utf-8")
    assert load_problem(path).model.num_layers == 4


def test_a_whole_config_json_may_stand_in_the_file(good: str, write: Write) -> None:
    path = write(good.replace("llama-3.2-1b", json.dumps(config())))
    assert load_problem(path).model.num_layers == 4


def test_a_mapping_of_facts_is_a_model(good: str, write: Write) -> None:
    facts = """
  name: toy
  num_hidden_layers: 3
  hidden_size: 64
  vocab_size: 100
  layer_weight_bytes: [1000, 2000, 3000]
  kv_bytes_per_token: 10
  embedding_bytes: 5
  head_bytes: 6
"""
    problem = load_problem(write(good.replace(" llama-3.2-1b", facts)))
    assert problem.facts.name == "toy"
    assert problem.model.layer_weight_bytes == (1000, 2000, 3000)


def test_missing_facts_are_placed_at_the_model(good: str, write: Write) -> None:
    path = write(good.replace("llama-3.2-1b", "{num_hidden_layers: 3, hidden_size: 64}"))
    with pytest.raises(InputError) as caught:
        load_problem(path)
    assert all(str(fault).startswith("lab.yaml:6: model.") for fault in caught.value.faults)


def test_the_exact_numbers_of_every_link_survive_a_reordering(good: str, write: Write) -> None:
    first = load_problem(write(good))
    lines = good.splitlines(keepends=True)
    shuffled = "".join([*lines[5:], *lines[:5]])
    assert load_problem(write(shuffled)) == first
