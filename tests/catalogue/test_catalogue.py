"""The catalogue: its rows are sound, and found by any of their names."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.catalogue.catalogue import (
    DeviceEntry,
    device_entries,
    device_entry,
    kv_cache_format_row,
    model_entries,
    model_entry,
    rows_of,
    runtime_row,
    runtime_rows,
    weight_format_row,
    weight_format_rows,
)
from e2llm_opt.catalogue.names import UnknownNameError, plain
from e2llm_opt.errors import InputError
from e2llm_opt.predict.evidence import ACHIEVED, STATED, device_evidence

SOURCES = (
    *((entry.source, entry.verified) for entry in device_entries()),
    *((entry.source, entry.verified) for entry in model_entries()),
    *((row.source, row.verified) for row in weight_format_rows()),
    *((row.source, row.verified) for row in runtime_rows()),
)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("rtx-3060-12gb", "rtx-3060-12gb"),
        ("NVIDIA GeForce RTX 3060 12GB", "rtx-3060-12gb"),
        ("RTX_3060", "rtx-3060-12gb"),
        ("rtx3060", "rtx-3060-12gb"),
        ("rtx-5070", "rtx-5070"),
        ("apple-m1", "apple-m1"),
        ("M1", "apple-m1"),
        ("rtx-3060m", "rtx-3060m"),
        ("RTX 3060 Laptop 6GB", "rtx-3060m"),
        ("apple-m2-max-30", "apple-m2-max-30"),
        ("Apple M2 Max (30-core GPU)", "apple-m2-max-30"),
        ("jetson-agx-orin-32", "jetson-agx-orin-32"),
        ("NVIDIA Jetson AGX Orin 32GB", "jetson-agx-orin-32"),
        ("agx-orin32", "jetson-agx-orin-32"),
        ("raspberry-pi-5-8gb", "raspberry-pi-5-8gb"),
        ("rpi5", "raspberry-pi-5-8gb"),
        ("AMD Radeon RX 7900 XTX", "rx-7900-xtx"),
        ("gb10", "dgx-spark"),
    ],
)
def test_devices_are_found_whatever_the_spelling(name: str, key: str) -> None:
    assert device_entry(name).key == key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("LLAMA 3.1 8B", "llama-3.1-8b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("unsloth/Qwen3-8B-GGUF", "qwen3-8b"),
        ("mixtral-8x7b", "mixtral-8x7b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("google/gemma-3-4b-it", "gemma-3-4b"),
    ],
)
def test_models_are_found_whatever_the_spelling(name: str, key: str) -> None:
    assert model_entry(name).key == key


def test_every_entry_is_found_by_each_of_its_names() -> None:
    for entry in device_entries():
        assert {device_entry(name) for name in (entry.key, entry.name, *entry.aliases)} == {entry}
    for model in model_entries():
        for name in (model.key, model.name, *model.aliases):
            assert model_entry(name).key == model.key
    for row in weight_format_rows():
        assert {weight_format_row(name) for name in (row.key, *row.aliases)} == {row}
    for engine in runtime_rows():
        assert {runtime_row(name) for name in (engine.key, *engine.aliases)} == {engine}


@given(st.sampled_from(device_entries()), st.randoms(use_true_random=False))
def test_case_and_punctuation_never_matter(entry: object, random: object) -> None:
    key: str = entry.key  # type: ignore[attr-defined]
    separator = random.choice(["-", "_", " ", "", "  "])  # type: ignore[attr-defined]
    assert device_entry(key.upper().replace("-", separator)).key == key


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown device 'rtx-3600'; did you mean") as device:
        device_entry("rtx-3600")
    assert (device.value.kind, device.value.name) == ("device", "rtx-3600")
    assert len(device.value.nearest) == 3
    with pytest.raises(UnknownNameError) as model:
        model_entry("lama-3.1-8b")
    assert model.value.nearest[0] == "llama-3.1-8b"
    with pytest.raises(UnknownNameError) as engine:
        runtime_row("vlm")
    assert engine.value.nearest[0] == "vllm"


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("rtx-3600", "rtx-3060-12gb"),
        ("RTX 4099", "rtx-4090"),
        ("mac-mini-m4", "apple-m4"),
        ("macbook m2", "apple-m2"),
        ("raspberry", "raspberry-pi-"),
        ("orin", "jetson-orin-"),
    ],
)
def test_the_device_that_was_meant_is_offered_first(name: str, first: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        device_entry(name)
    assert error.value.nearest[0].startswith(first)


def test_a_format_without_kv_cache_names_those_that_have_one() -> None:
    with pytest.raises(UnknownNameError, match="unknown KV cache format 'q6_k'") as error:
        kv_cache_format_row("q6_k")
    assert "q8_0" in error.value.nearest


@pytest.mark.parametrize("name", ["", "   ", "/", "💥", "x" * 1_000_000])
def test_absurd_names_are_input_errors(name: str) -> None:
    with pytest.raises(InputError) as error:
        device_entry(name)
    assert len(str(error.value)) < 300


def test_search_wants_every_word_somewhere_in_the_names() -> None:
    assert {entry.key for entry in device_entries("jetson orin 32")} == {"jetson-agx-orin-32"}
    assert {entry.key for entry in model_entries("GPT OSS")} == {"gpt-oss-20b", "gpt-oss-120b"}
    assert device_entries("no such thing") == ()
    assert len(device_entries()) >= 116
    assert len(model_entries()) >= 86


def test_every_row_says_where_it_comes_from() -> None:
    assert all(source and verified for source, verified in SOURCES)
    assert all(row.evidence for row in runtime_rows())


@pytest.mark.parametrize("entry", device_entries(), ids=lambda entry: entry.key)
def test_every_number_of_a_device_has_its_evidence(entry: DeviceEntry) -> None:
    found = {one.number: one for one in device_evidence(entry)}
    known = {name for name in STATED if getattr(entry, name) is not None}
    assert set(found) == {*known, *ACHIEVED, "reserved_gib"}
    assert {name for name in STATED if name in known and found[name].evidence == "sourced"} == set(
        entry.sourced
    )
    for name, one in found.items():
        assert one.source
        assert (one.evidence == "fitted") == (name in ACHIEVED)
        assert (one.evidence == "default") == (name == "reserved_gib")
        if one.evidence == "fitted":
            assert one.value is not None
            assert one.value > 0
        else:
            assert one.value == getattr(entry, name)
        assert (one.source == entry.source) == (one.evidence == "sourced")


def test_devices_without_a_source_have_no_sourced_number_and_others_have_one() -> None:
    for entry in device_entries():
        assert set(entry.sourced) <= set(STATED)
        assert bool(entry.sourced) == (entry.source != "from memory, unverified"), entry.key


def test_evidence_of_a_device_with_a_source_and_of_one_without() -> None:
    spark = {one.number: one.evidence for one in device_evidence(device_entry("dgx-spark"))}
    assert spark["memory_bandwidth_gb_s"] == "sourced"
    assert spark["fp16_tflops"] == "from memory"
    pi = {one.evidence for one in device_evidence(device_entry("rpi5"))}
    assert pi == {"from memory", "fitted", "default"}


def test_fitted_numbers_say_how_many_runs_of_the_device_they_rest_on() -> None:
    known = {row["key"]: row for row in rows_of("speed_runs.csv")}
    assert set(known) <= {entry.key for entry in device_entries()}
    for key in ("rtx-4090", "rtx-3060m"):
        row = known.get(key, {"prefill": "0", "decode": "0", "sources": ""})
        evidence = {one.number: one.source for one in device_evidence(device_entry(key))}
        own = f"{row['prefill']} of prefill and {row['decode']} of decode on this device itself"
        assert own in evidence["prefill_efficiency"]
        assert all(address in evidence["decode_efficiency"] for address in row["sources"].split())
    assert int(known["rtx-4090"]["decode"]) > 10


@pytest.mark.parametrize(
    "name",
    [
        *("Qwen/Qwen3-4B-Instruct-2507", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-next"),
        *("openai/gpt-oss-20b", "openai/gpt-oss-120b"),
        *("google/gemma-3-270m-it", "google/gemma-3-27b-it"),
        *("meta-llama/Llama-3.3-70B-Instruct", "meta-llama/Llama-4-Scout-17B-16E-Instruct"),
        *("mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-large-3", "mistral-nemo"),
        *("mistralai/Ministral-3-8B-Instruct-2512", "mistralai/Ministral-8B-Instruct-2410"),
        *("microsoft/phi-4", "microsoft/Phi-4-mini-instruct", "phi-4-reasoning-plus"),
        *("deepseek-ai/DeepSeek-V3.1", "deepseek-ai/DeepSeek-R1-0528"),
        *("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B"),
        *("zai-org/GLM-4.5-Air", "zai-org/GLM-4.6", "zai-org/GLM-4.7-Flash", "glm-4-32b"),
        *("moonshotai/Kimi-K2-Instruct-0905", "moonshotai/Kimi-K2-Thinking", "kimi-k2.5"),
    ],
)
def test_the_models_that_people_run_are_known(name: str) -> None:
    entry = model_entry(name)
    assert entry.params_b
    assert entry.max_context_tokens


def test_no_two_devices_have_the_same_plain_name() -> None:
    keys = [plain(entry.key) for entry in device_entries()]
    assert len(set(keys)) == len(keys)


def test_device_numbers_are_positive_and_leave_memory_to_plan_on() -> None:
    for entry in device_entries():
        assert entry.memory_kind in {"discrete", "unified", "cpu"}
        assert 0 <= entry.reserved_gib < entry.memory_gib
        assert entry.memory_bandwidth_gb_s > 0
        assert entry.fp16_tflops > 0


@pytest.mark.parametrize(
    ("name", "kind", "reserved_gib", "efficiencies", "overhead_us"),
    [
        ("rtx-3060-12gb", "discrete", 0.5, (0.45, 0.7), 15),
        ("apple-m2-max-30", "unified", 8, (0.45, 0.7), 15),
        ("jetson-agx-orin-32", "unified", 8, (0.45, 0.7), 15),
        ("strix-halo", "unified", 32, (0.45, 0.7), 15),
        ("raspberry-pi-5-8gb", "cpu", 1, (0.3, 0.6), 60),
        ("n100", "cpu", 1, (0.3, 0.6), 60),
    ],
)
def test_planning_defaults_follow_the_kind_of_memory(
    name: str,
    kind: str,
    reserved_gib: float,
    efficiencies: tuple[float, float],
    overhead_us: float,
) -> None:
    entry = device_entry(name)
    assert entry.memory_kind == kind
    assert entry.reserved_gib == pytest.approx(reserved_gib)
    assert (entry.prefill_efficiency, entry.decode_efficiency) == efficiencies
    assert entry.layer_overhead_us == overhead_us


def test_windowed_models_say_which_layers_have_the_window() -> None:
    facts = model_entry("gpt-oss-20b").facts
    assert facts["sliding_window"] == 128
    assert facts["layer_types"] == ("sliding_attention", "full_attention") * 12
    gemma = model_entry("gemma-3-27b").facts["layer_types"]
    assert isinstance(gemma, tuple)
    assert gemma.count("sliding_attention") == 52


def test_entries_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        device_entry("rtx-4090").memory_gib = 48  # type: ignore[misc]
