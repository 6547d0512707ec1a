"""Measured speeds from files: every form is read, and every bad one has its sentence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2llm_opt.calibrate.calibrate import calibrate
from e2llm_opt.errors import InputError
from e2llm_opt.loading.bench_names import models_of, weights_of
from e2llm_opt.loading.load import problem_from_mapping
from e2llm_opt.loading.measured_run import Run
from e2llm_opt.loading.measurements import Named, Readings, read_measurements
from e2llm_opt.loading.setup import Setup, catalogue_key, load_setup
from e2llm_opt.model.build import build_model
from e2llm_opt.model.gguf_file import load_gguf
from e2llm_opt.speed import Phase
from tests.model.gguf_samples import dense

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LAB = """\
devices:
  - {name: tower, type: rtx-3060-12gb}
  - {name: pi, type: raspberry-pi-5-8gb, count: 2}
  - {name: mac, type: apple-m1-pro-14}
links: []
"""
ROW: dict[str, Any] = {
    "build_commit": "8cf427ff",
    "build_number": 5163,
    "cpu_info": "AMD Ryzen 7 7800X3D 8-Core Processor",
    "gpu_info": "NVIDIA GeForce RTX 3060",
    "backends": "CUDA",
    "model_filename": "models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
    "model_type": "llama 8B Q4_K - Medium",
    "model_size": 4912898304,
    "model_n_params": 8030261248,
    "n_batch": 2048,
    "n_ubatch": 512,
    "type_k": "f16",
    "n_gpu_layers": 99,
    "split_mode": "layer",
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "avg_ns": 335021500,
    "stddev_ns": 100,
    "avg_ts": 1528.26,
    "stddev_ts": 0.4,
}
DECODE = {**ROW, "n_prompt": 0, "n_gen": 128, "avg_ts": 52.1, "n_depth": 4096}
TABLE = "device,device_key,model,quant,prefill_tok_s,prefill_len,decode_tok_s,decode_len,batch\n"


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    path = tmp_path / "lab.yaml"
    path.write_text(LAB, encoding="utf-8")
    return load_setup(path)


def without(row: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in keys}


def as_csv(*rows: Mapping[str, Any]) -> str:
    lines = [",".join(rows[0]), *(",".join(f'"{v}"' for v in row.values()) for row in rows)]
    return "\n".join(lines) + "\n"


def as_lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(map(json.dumps, rows))


class Bench:
    """Reads a text as if it were a file of measurements."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.setup = setup
        self.path = folder / "bench"

    def read(self, text: str, **named: str) -> Readings:
        self.path.write_text(text, encoding="utf-8")
        return read_measurements([self.path], self.setup, named=Named(**named))

    def refused(self, text: str, **named: str) -> str:
        with pytest.raises(InputError) as error:
            self.read(text, **named)
        return str(error.value).replace(f"{self.path}", "bench")


@pytest.fixture
def bench(setup: Setup, tmp_path: Path) -> Bench:
    return Bench(setup, tmp_path)


LOG = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA, compute capability 8.6\n"


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([ROW, DECODE], indent=2),
        f"{json.dumps(ROW)}\n{json.dumps(DECODE)}\n",
        as_csv(ROW, DECODE),
        LOG + json.dumps([ROW, DECODE]),
        LOG + as_csv(ROW, DECODE),
    ],
    ids=["json", "jsonl", "csv", "json behind a log", "csv behind a log"],
)
def test_every_form_of_llama_bench_says_the_same(bench: Bench, text: str) -> None:
    prefill, decode = bench.read(text).measurements
    assert (prefill.phase, prefill.tokens, prefill.tokens_per_s) == (Phase.PREFILL, 512, 1528.26)
    assert (decode.phase, decode.tokens, decode.depth) == (Phase.DECODE, 128, 4096)
    for m in (prefill, decode):
        assert (m.device, m.facts.name, m.weights) == ("tower", "llama-3.1-8b", "q4_k_m")
        assert (m.kv_cache, m.chunk_tokens, m.batch) == ("f16", 512, 1)


def test_the_model_s_own_file_is_read_where_it_lies(bench: Bench, tmp_path: Path) -> None:
    """Its header knows every byte, and the model may be one that no catalogue has."""
    path = dense().write(tmp_path / "mine.gguf")
    model = build_model(load_gguf(path), weights="q4_k_m")
    size = sum(model.layer_dense_bytes) + model.head_bytes + model.embedding_bytes
    row = {**ROW, "model_type": "llama ?B Q4_K - Medium", "model_size": size}
    for filename in (path.name, str(path)):
        (m,) = bench.read(json.dumps([{**row, "model_filename": filename}])).measurements
        assert m.facts == load_gguf(path)
    path.unlink()
    said = bench.refused(json.dumps([{**row, "model_filename": path.name}]))
    assert "it is not known which model ran" in said


def test_a_file_of_that_name_and_another_size_is_not_what_ran(bench: Bench, tmp_path: Path) -> None:
    path = dense().write(tmp_path / "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf")
    (m,) = bench.read(json.dumps([{**ROW, "model_filename": path.name}])).measurements
    assert m.facts.name == "llama-3.1-8b"


def test_an_old_version_without_many_fields_is_read(bench: Bench) -> None:
    old = without(
        ROW, "n_depth", "backends", "n_ubatch", "type_k", "split_mode", "avg_ts", "n_gpu_layers"
    )
    old |= {"model_type": "llama 8B mostly Q4_K - Medium", "cuda": True}
    (m,) = bench.read(json.dumps([old])).measurements
    assert m.tokens_per_s == pytest.approx(512 / 0.3350215)
    assert (m.depth, m.chunk_tokens, m.device) == (0, 2048, "tower")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"avg_ts": 0.0}, "the run failed (avg_ts 0.0)"),
        ({"avg_ts": None}, "the run failed"),
        ({"avg_ts": "inf"}, "the run failed"),
        ({"n_gen": 128}, "it times prompt and answer together (pp512+tg128)"),
        ({"n_prompt": 0}, "it says neither n_prompt nor n_gen"),
        ({"n_gpu_layers": 20}, "only 20 of 32 layers were on the GPU"),
        ({"n_gpu_layers": 0, "cpu_info": ""}, "only 0 of 32 layers were on the GPU"),
        ({"gpu_info": "NVIDIA GeForce RTX 3060, NVIDIA GeForce RTX 3060"}, "several GPUs"),
        ({"n_cpu_moe": 4}, "its experts ran on the CPU"),
        ({"backends": "CUDA,RPC"}, "on other machines"),
    ],
)
def test_rows_that_say_nothing_of_one_device_are_left_out_and_noted(
    bench: Bench, change: dict[str, Any], why: str
) -> None:
    odd = {**ROW, **change}
    found = bench.read(f"{json.dumps(odd)}\n{json.dumps(DECODE)}\n", device="tower")
    assert [m.phase for m in found.measurements] == [Phase.DECODE]
    (note,) = (note for note in found.notes if "left out" in note)
    assert note.startswith(f"{bench.path}:1: left out, ")
    assert why in note
    assert why in bench.refused(json.dumps([odd]), device="tower")


def test_a_run_that_was_broken_off_keeps_its_whole_rows(bench: Bench) -> None:
    text = json.dumps([ROW, DECODE], indent=1)
    found = bench.read(text[: len(text) - 60])
    assert len(found.measurements) == 1
    assert "the row is broken off" in found.notes[0]


def test_nan_as_c_prints_it_is_a_failed_row(bench: Bench) -> None:
    text = json.dumps([ROW, DECODE]).replace("52.1", "-nan")
    assert len(bench.read(text).measurements) == 1


def test_a_model_that_does_not_fit_ran_elsewhere(bench: Bench) -> None:
    table = TABLE + "tower,,llama-3-70b,Q4_K_M,,,3.1,,\ntower,,llama-3.1-8b,Q4_K_M,,,50,,\n"
    found = bench.read(table)
    assert len(found.measurements) == 1
    assert "llama-3-70b has 39" in found.notes[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "bench: the file is empty"),
        ("[]", "no rows of llama-bench: n_prompt, n_gen and avg_ts or avg_ns are missing"),
        ("hello\nworld\n", "no rows of llama-bench"),
        ('{"n_prompt": 3}', "no rows of llama-bench"),
        ("{" * 100_000, "no rows of llama-bench"),
        ("| model | size | t/s |\n| --- | --- | --- |\n", "this is llama-bench's Markdown; run"),
        ("CREATE TABLE IF NOT EXISTS test (\n", "this is llama-bench's SQL; run"),
        ("device,model\ntower,llama-3.1-8b\n", "columns are missing: quant, decode_tok_s"),
        ("device,quant,decode_tok_s\ntower,f16,3\n", "columns are missing: model"),
        (
            TABLE + "tower,,llama-3.1-8b,q8_0,fast,,40,,\n",
            "bench:2: prefill_tok_s must be a positive number, got 'fast'",
        ),
        (TABLE + "tower,,llama-3.1-8b,q8_0,,,-40,,\n", "decode_tok_s must be a positive number"),
        (TABLE + "tower,,lama-3.1-8b,q8_0,,,40,,\n", "bench:2: unknown model 'lama-3.1-8b'; did"),
        (TABLE + "tower,,llama-3.1-8b,q9_9,,,40,,\n", "bench:2: unknown weight format 'q9_9'"),
        (TABLE + "tower,,llama-3.1-8b,,,,40,,\n", "not known in which format the weights were"),
        (TABLE + "towr,,llama-3.1-8b,q8_0,,,40,,\n", "is 'towr'; did you mean tower?"),
        (TABLE + "RTX 5090,,llama-3.1-8b,q8_0,,,40,,\n", "is 'RTX 5090'; --device says which"),
        (TABLE + "tower,,llama-3.1-8b,q8_0,,,,,\n", "left out, it has no speed"),
        (TABLE + 'tower,,"llama-3.1-8b,q8_0\n', "left out, it has no speed"),
    ],
)
def test_bad_files_have_their_sentence(bench: Bench, text: str, sentence: str) -> None:
    assert sentence in bench.refused(text)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu_info": "NVIDIA GeForce RTX 4090"}, "bench:1: no device of the inventory is 'NVIDIA"),
        ({"gpu_info": "", "cpu_info": ""}, "it does not say which device ran; give --device NAME"),
        (
            {"model_filename": "mine.gguf", "model_type": "mine 8B Q8_0", "model_size": 8e9},
            "it is not known which model ran; give --model NAME",
        ),
    ],
)
def test_rows_that_do_not_say_enough_have_their_sentence(
    bench: Bench, change: dict[str, Any], sentence: str
) -> None:
    assert sentence in bench.refused(json.dumps([{**ROW, **change}]))


def test_what_files_do_not_say_the_user_does(bench: Bench) -> None:
    vague = {**DECODE, "model_filename": "m.gguf", "model_type": "", "gpu_info": "", "cpu_info": ""}
    text = json.dumps([without(vague, "model_size", "model_n_params")])
    (m,) = bench.read(text, device="mac", model="llama-3.2-3b", weights="q8_0").measurements
    assert (m.device, m.facts.name, m.weights) == ("mac", "llama-3.2-3b", "q8_0")


def test_a_file_of_another_size_is_not_the_named_model(bench: Bench) -> None:
    vague = {**DECODE, "model_filename": "m.gguf", "model_type": "", "model_n_params": 0}
    words = bench.refused(json.dumps([vague]), model="llama-3.2-3b", weights="q8_0")
    assert "the file of the run has 4.58 GiB, and llama-3.2-3b in q8_0 has 3.1" in words


def test_the_inventory_s_own_model_is_the_last_resort(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"{LAB}model: llama-3.1-8b\nweights: q4_k_m\n", encoding="utf-8")
    bench.setup = load_setup(own)
    vague = {**DECODE, "model_filename": "m.gguf", "model_type": "", "model_n_params": 0}
    (m,) = bench.read(json.dumps([vague])).measurements
    assert (m.facts.name, m.weights) == ("llama-3.1-8b", "q4_k_m")


@pytest.mark.parametrize(
    ("hardware", "device"),
    [
        ("NVIDIA GeForce RTX 3060", "tower"),
        ("Apple M1 Pro", "mac"),
        ("apple-m1-pro-14", "mac"),
        ("Raspberry Pi 5 8GB", "pi"),
    ],
)
def test_hardware_is_found_by_its_driver_s_name(bench: Bench, hardware: str, device: str) -> None:
    row = {**DECODE, "gpu_info": "" if device == "pi" else hardware, "cpu_info": hardware}
    assert bench.read(json.dumps([row])).measurements[0].device == device


def test_two_of_a_kind_must_be_told_apart(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    twin = "  - {name: box, type: rtx-3060-12gb}\nlinks: []\n"
    path.write_text(LAB.replace("links: []\n", twin), encoding="utf-8")
    bench.setup = load_setup(path)
    words = bench.refused(json.dumps([ROW]))
    assert "'NVIDIA GeForce RTX 3060' may be tower or box; say which with --device" in words
    assert bench.read(json.dumps([ROW]), device="box").measurements[0].device == "box"


def test_a_card_that_is_taken_for_another_is_noted(bench: Bench) -> None:
    row = {**ROW, "gpu_info": "NVIDIA GeForce RTX 4090"}
    found = bench.read(json.dumps([row]), device="tower")
    assert "NVIDIA GeForce RTX 4090 is taken for tower, as asked" in found.notes[0]


def test_a_gpu_says_nothing_of_a_cpu(bench: Bench) -> None:
    assert "it ran on a GPU" in bench.refused(json.dumps([ROW]), device="pi")


def test_of_a_table_only_the_asked_device_is_taken(bench: Bench) -> None:
    table = TABLE + (
        "tower,,llama-3.1-8b,Q4_K_M,1500,512,52,@4096 ctx,\n"
        "RTX 5090,,no-such-model,Q4_K_M,1500,512,52,128,1\n"
        "x,rtx3060,llama-3.1-8b,Q4_0?,,,60,a mix,\n"
        "pi-2,,llama-3.2-1b,Q4_0,,,9,128,1\n"
    )
    found = bench.read(table, device="tower")
    assert [(m.phase, m.tokens, m.depth) for m in found.measurements] == [
        (Phase.PREFILL, 512, 0),
        (Phase.DECODE, 128, 4096),
        (Phase.DECODE, 128, 0),
    ]
    assert found.measurements[2].weights == "q4_0"
    assert any("3 speeds of other devices are left out" in note for note in found.notes)
    assert any("decode_len 'a mix' is no number of tokens" in note for note in found.notes)
    assert bench.read(table, device="pi").measurements[0].device == "pi"


def test_an_unknown_asked_device_is_refused(bench: Bench) -> None:
    assert "no device of the inventory is called 'towr'" in bench.refused("[]", device="towr")


def test_faults_of_all_files_come_at_once(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("", encoding="utf-8")
    (tmp_path / "b").write_text("CREATE TABLE x", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_measurements([tmp_path / name for name in "abc"], bench.setup)
    assert len(error.value.faults) == 3


def test_a_problem_will_do_instead_of_a_file(bench: Bench) -> None:
    bench.path.write_text(json.dumps([DECODE]), encoding="utf-8")
    problem = problem_from_mapping(
        {
            "devices": [{"name": "mine", "type": "rtx-3060-12gb"}],
            "model": "llama-3.1-8b",
            "workload": {"prompt_tokens": 100, "output_tokens": 100},
        }
    )
    (m,) = read_measurements([bench.path], problem).measurements
    assert (m.device, m.weights) == ("mine", "q4_k_m")


odd = st.none() | st.booleans() | st.floats() | st.integers(-9, 9) | st.text(max_size=5)
odd_rows = st.dictionaries(st.sampled_from(sorted(ROW)), odd | st.lists(odd, max_size=2))


@given(st.lists(odd_rows, max_size=3), st.sampled_from((json.dumps, as_lines)), st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_file_says_it_is_read_or_refused_in_a_sentence(
    bench: Bench, changes: list[dict[str, Any]], form: Any, cut: int
) -> None:
    text = form([{**ROW, **change} for change in changes] or [ROW])
    try:
        found = bench.read(text[: len(text) - cut], device="tower")
        calibrate(bench.setup.inventory, found.measurements)
    except InputError:  # anything else is a bug
        pass


@given(st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_refused_in_a_sentence(bench: Bench, text: str) -> None:
    assert bench.refused(text.encode(errors="replace").decode()).startswith("bench:")


def test_a_run_by_hand_needs_no_file(setup: Setup) -> None:
    run = Run(file="command line", line=0, phase=Phase.DECODE, tokens_per_s=40.0, tokens=128)
    named = Named(device="tower", model="llama-3.1-8b", weights="q8_0")
    (m,) = read_measurements([], setup, named=named, runs=[run]).measurements
    assert (m.where, m.device, m.weights) == ("command line", "tower", "q8_0")


@pytest.mark.parametrize(
    ("model_type", "filename", "params", "model", "weights"),
    [
        ("llama 7B mostly Q4_0", "models/7B/ggml-model-q4_0.gguf", 6.738e9, "llama-2-7b", "q4_0"),
        ("qwen2 14B Q4_K - Small", "Qwen2.5-14B-Instruct-Q4_K_S.gguf", 0, "qwen2.5-14b", "q4_k_s"),
        ("", "/c/ggml-org_gpt-oss-20b-GGUF_gpt-oss-20b-mxfp4.gguf", 0, "gpt-oss-20b", "mxfp4"),
        ("llama 8B Q8_0", "m.gguf", 8.03e9, "llama-3-8b", "q8_0"),
        (
            "qwen3moe 30B.A3B Q4_K - Medium",
            "Qwen3-30B-A3B-Instruct-2507-Q4_K_M-00001-of-00002.gguf",
            30.5e9,
            "qwen3-30b-a3b-2507",
            "q4_k_m",
        ),
        ("llama 7B IQ4_XS - 4.25 bpw", "mistral-7b-v0.2.IQ4_XS.gguf", 0, "mistral-7b", "iq4_xs"),
        ("", r"C:\models\tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf", 0, "tinyllama-1.1b", "q4_k_m"),
        ("falcon 7B F16", "x.gguf", 7e9, "", "f16"),
    ],
)
def test_names_of_files_and_types_are_understood(
    model_type: str, filename: str, params: float, model: str, weights: str
) -> None:
    assert next(iter(models_of(model_type, filename, params)), "") == model
    assert weights_of(model_type, filename) == weights


def test_names_of_drivers_are_understood() -> None:
    assert catalogue_key("NVIDIA GeForce RTX 3060 Laptop GPU") == "rtx-3060m"
    assert catalogue_key("AMD Ryzen 7 7800X3D 8-Core Processor") == ""
