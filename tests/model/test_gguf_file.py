"""A ``.gguf`` gives the bytes that stand in it, and otherwise what a ``config.json`` gives."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from gguf import GGUFReader

from e2llm_opt.errors import InputError
from e2llm_opt.model.build import build_model
from e2llm_opt.model.gguf_file import load_gguf
from e2llm_opt.model.hf_config import facts, facts_from_config
from tests.model.gguf_samples import F16, F32, MXFP4, Sample, dense, mixture, of_facts, tied

if TYPE_CHECKING:
    from pathlib import Path

    from e2llm_opt.model.model import Model


def built(sample: Sample, tmp_path: Path) -> Model:
    facts = load_gguf(sample.write(tmp_path / "m.gguf"))
    return build_model(facts, weights=facts.weights)


def refusal(sample: Sample, tmp_path: Path) -> str:
    """Return what is said about a file that is well formed, and no model."""
    path = sample.write(tmp_path / "m.gguf")
    with pytest.raises(InputError) as caught:
        load_gguf(path)
    assert all(fault.file == str(path) for fault in caught.value.faults)
    return str(caught.value).replace(f"{path}: ", "")


# --- bytes by hand


def test_a_dense_layer_has_the_bytes_of_its_blocks(tmp_path: Path) -> None:
    """Q8_0: 34 bytes for 32 values; Q4_K 144 and Q6_K 210 for 256; norms 4 bytes a value."""
    model = built(dense(), tmp_path)
    attention = (2 * 512 * 512 + 2 * 512 * 128) // 32 * 34
    q4, q6 = 512 * 1024 // 256 * 144, 512 * 1024 // 256 * 210
    norms = 2 * 4 * 512
    assert list(model.layer_dense_bytes) == [
        attention + 2 * q4 + q6 + norms,
        attention + 3 * q4 + norms,
        attention + 3 * q4 + norms,
    ]
    assert list(model.layer_spillable_bytes) == [2 * q4 + q6, 3 * q4, 3 * q4]
    assert list(model.layer_routed_bytes) == [0, 0, 0]
    assert model.embedding_bytes == 512 * 1000 // 256 * 144
    assert model.head_bytes == 512 * 1000 // 256 * 210 + 4 * 512 + 4 * 32
    flops = 2 * (2 * 512 * 512 + 2 * 512 * 128 + 3 * 512 * 1024)
    assert list(model.layer_flops_per_token) == [flops] * 3
    assert list(model.layer_kv_bytes_per_token) == [2 * 2 * 64 * 2] * 3
    assert list(model.layer_window_tokens) == [math.inf] * 3
    assert not model.is_tied


def test_a_missing_output_projection_is_the_embedding(tmp_path: Path) -> None:
    model = built(tied(), tmp_path)
    table = 256 * 800 // 32 * 34
    assert model.is_tied
    assert (model.embedding_bytes, model.head_bytes) == (table, table + 4 * 256)
    assert model.vocab_size == 800


def test_heads_may_be_wider_than_hidden_size_over_heads(tmp_path: Path) -> None:
    model = built(tied(), tmp_path)
    assert list(model.layer_kv_bytes_per_token) == [2 * 128 * 2] * 7
    assert list(model.layer_attention_flops) == [4 * 4 * 128] * 7


def test_experts_are_routed_and_shared_ones_are_not(tmp_path: Path) -> None:
    model = built(mixture(), tmp_path)
    attention = 2 * (256 * 512 + 256 * 256) + 4 * (512 + 256)
    routed = 2 * (256 * 64 * 8 // 256 * 144) + 64 * 256 * 8 // 32 * 34
    shared = 3 * (256 * 96 // 32 * 34)
    router = 4 * (256 * 8 + 256 + 8)
    ffn = 2 * 2 * 256 * 512
    assert list(model.layer_routed_bytes) == [0, routed]
    assert list(model.layer_dense_bytes) == [attention + ffn, attention + shared + router]
    assert list(model.layer_spillable_bytes) == [ffn, shared + routed]
    assert list(model.layer_routed_fraction) == [0, 2 / 8]
    attention_params = 256 * 512 + 256 * 256
    assert list(model.layer_flops_per_token) == [
        2 * (attention_params + 2 * 256 * 512),
        2 * (attention_params + 256 * 8 + 3 * 256 * 96 + 3 * 256 * 64 * 8 * 2 / 8),
    ]


def test_biases_of_experts_are_routed_as_the_experts_are(tmp_path: Path) -> None:
    """gpt-oss: MXFP4 experts (17 bytes for 32 values) with biases, and sinks beside attention."""
    sample = mixture().with_tensors(
        {
            "blk.1.ffn_gate_exps.weight": ((256, 64, 8), MXFP4),
            "blk.1.ffn_gate_exps.bias": ((64, 8), F32),
            "blk.1.attn_sinks.weight": ((4,), F32),
        }
    )
    before, after = built(mixture(), tmp_path), built(sample, tmp_path)
    gate = 256 * 64 * 8 // 32 * 17 - 256 * 64 * 8 // 256 * 144
    assert after.layer_routed_bytes[1] - before.layer_routed_bytes[1] == gate + 4 * 64 * 8
    assert after.layer_dense_bytes[1] - before.layer_dense_bytes[1] == 4 * 4
    assert after.layer_flops_per_token == before.layer_flops_per_token


def test_experts_of_early_files_have_a_tensor_each(tmp_path: Path) -> None:
    sample = mixture().without("blk.1.ffn_gate_exps.weight")
    each = {f"blk.1.ffn_gate.{expert}.weight": ((256, 64), F16) for expert in range(8)}
    model = built(sample.with_tensors(each), tmp_path)
    plain = built(sample, tmp_path)
    assert model.layer_routed_bytes[1] == plain.layer_routed_bytes[1] + 8 * 2 * 256 * 64
    assert model.layer_dense_bytes == plain.layer_dense_bytes


@pytest.mark.parametrize("sample", [dense(), tied(), mixture()], ids=lambda s: s.architecture)
def test_every_byte_of_the_file_is_counted_once(sample: Sample, tmp_path: Path) -> None:
    path = sample.write(tmp_path / "m.gguf", has_data=True)
    stored = sum(int(tensor.n_bytes) for tensor in GGUFReader(path).tensors)
    assert build_model(load_gguf(path), weights="gguf").weight_bytes == stored


@pytest.mark.parametrize("sample", [dense(), tied(), mixture()], ids=lambda s: s.architecture)
def test_the_header_alone_says_the_same_as_the_whole_file(sample: Sample, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    header = sample.write(tmp_path / "m.gguf")
    whole = sample.write(tmp_path / "whole" / "m.gguf", has_data=True)
    assert whole.stat().st_size > 2 * header.stat().st_size
    assert load_gguf(header) == load_gguf(whole)


# --- the same as by config.json


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("llama-3.2-1b", "llama"),
        ("llama-3.1-405b", "llama"),
        ("qwen2.5-7b", "qwen2"),
        ("qwen3-30b-a3b", "qwen3moe"),
        ("deepseek-v3", "deepseek2"),
        ("gpt-oss-20b", "gpt-oss"),
        ("gemma-2-9b", "gemma2"),
        ("gemma-3-4b", "gemma3"),
        ("llama-4-scout-17b-16e", "llama4"),
    ],
)
@pytest.mark.parametrize("kv_layout", ["expanded", "latent"])
def test_a_gguf_and_a_config_give_the_same_model(
    name: str, architecture: str, kv_layout: Any, tmp_path: Path
) -> None:
    by_config = facts(name)
    by_file = load_gguf(of_facts(by_config, architecture).write(tmp_path / "m.gguf"))
    one = build_model(by_config, weights="f32", kv_layout=kv_layout)
    other = build_model(by_file, weights="f32", kv_layout=kv_layout)
    last_norm = 4 * by_config.hidden_size  # which no table of formats counts
    assert replace(other, name=name, head_bytes=other.head_bytes - last_norm) == replace(
        one, name=name
    )


# --- attention that the metadata state


def test_kv_heads_may_differ_by_layer(tmp_path: Path) -> None:
    sample = dense().with_keys(attention__head_count_kv=[2, 0, 1])
    model = built(sample, tmp_path)
    assert list(model.layer_kv_bytes_per_token) == [2 * 2 * 64 * 2, 0, 2 * 64 * 2]
    assert list(model.layer_attention_flops) == [4 * 8 * 64, 0, 4 * 8 * 64]


def test_the_first_layers_may_have_no_attention(tmp_path: Path) -> None:
    sample = dense().with_keys(attention__head_count=[0, 8, 8], attention__head_count_kv=[0, 2, 2])
    model = built(sample, tmp_path)
    assert list(model.layer_kv_bytes_per_token) == [0, 512, 512]


def test_without_kv_heads_there_are_as_many_as_heads(tmp_path: Path) -> None:
    model = built(dense().with_keys(attention__head_count_kv=None), tmp_path)
    assert list(model.layer_kv_bytes_per_token) == [2 * 8 * 64 * 2] * 3


def test_keys_and_values_may_differ_in_width(tmp_path: Path) -> None:
    sample = dense().with_keys(attention__key_length=96, attention__value_length=32)
    model = built(sample, tmp_path)
    assert list(model.layer_kv_bytes_per_token) == [2 * (96 + 32) * 2] * 3
    assert list(model.layer_attention_flops) == [2 * 8 * (96 + 32)] * 3


def test_a_recurrent_layer_keeps_no_cache(tmp_path: Path) -> None:
    """Qwen3-Next: a fused projection beside an ssm tensor is linear attention."""
    fused = {
        "blk.0.attn_qkv.weight": ((512, 768), F16),
        "blk.0.ssm_out.weight": ((512, 512), F16),
    }
    names = [f"blk.0.attn_{part}.weight" for part in "qkv"]
    model = built(dense().without(*names).with_tensors(fused), tmp_path)
    assert model.layer_kv_bytes_per_token[0] == model.layer_attention_flops[0] == 0
    assert model.layer_kv_bytes_per_token[1] > 0


def test_attention_under_unknown_tensor_names_is_taken_to_keep_a_cache(tmp_path: Path) -> None:
    sample = dense()
    renamed = {name.replace("attn_k.", "key."): t for name, t in sample.tensors.items()}
    model = built(replace(sample, tensors=renamed), tmp_path)
    assert list(model.layer_kv_bytes_per_token) == [512] * 3


def windows(sample: Sample, tmp_path: Path) -> str:
    """Return one letter a layer: windowed or full."""
    tokens = built(sample, tmp_path).layer_window_tokens
    return "".join("f" if window == math.inf else "w" for window in tokens)


@pytest.mark.parametrize(
    ("architecture", "keys", "expected"),
    [
        ("gemma3", {}, "wwwwwfw"),
        ("gemma2", {"attention.sliding_window": None}, "wfwfwfw"),
        ("gpt-oss", {}, "wfwfwfw"),
        ("cohere2", {}, "wwwfwww"),
        ("olmo2", {}, "wwwfwww"),
        ("olmo2", {"attention.sliding_window": None}, "fffffff"),
        ("llama4", {"attention.sliding_window": None}, "wwwfwww"),
        ("llama4", {"attention.sliding_window": 0}, "fffffff"),
        ("smallthinker", {}, "fwwwfww"),
        ("exaone4", {}, "fffffff"),
        ("llama", {}, "fffffff"),
        ("qwen2", {}, "fffffff"),
        ("novel", {"attention.sliding_window_pattern": 3}, "wwfwwfw"),
        ("novel", {"attention.sliding_window_pattern": 0}, "wwwwwww"),
        ("gemma3", {"attention.sliding_window_pattern": 2}, "wfwfwfw"),
        ("gemma4", {"attention.sliding_window_pattern": [True] * 3 + [False] * 4}, "wwwffff"),
        ("mimo2", {"attention.sliding_window_pattern": [0, 1, 1, 0, 1, 1, 0]}, "fwwfwwf"),
    ],
)
def test_windows_are_those_of_the_engine(
    architecture: str, keys: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    sample = replace(tied(), architecture=architecture, keys={**tied().keys, **keys})
    assert windows(sample, tmp_path) == expected


def test_a_window_is_as_long_as_the_file_says_unless_the_engine_fixes_it(tmp_path: Path) -> None:
    assert min(built(tied(), tmp_path).layer_window_tokens) == 512
    chunks = replace(tied(), architecture="llama4")
    assert min(built(chunks, tmp_path).layer_window_tokens) == 8192


def test_windowed_layers_may_have_other_head_widths(tmp_path: Path) -> None:
    sample = replace(tied(), architecture="gemma4").with_keys(
        attention__sliding_window_pattern=[True, True, False, True, True, True, False],
        attention__key_length_swa=64,
        attention__value_length_swa=64,
        attention__shared_kv_layers=2,
    )
    model = built(sample, tmp_path)
    assert list(model.layer_kv_bytes_per_token) == [256, 256, 512, 256, 256, 0, 0]
    assert model.layer_attention_flops[5:] == (4 * 4 * 64, 4 * 4 * 128)


def test_a_second_table_that_is_looked_up_is_not_forgotten_beside_a_tied_one(
    tmp_path: Path,
) -> None:
    """Gemma 3n: a stage with embedding and head would count only the head of a tied model."""
    extra = {"per_layer_token_embd.weight": ((7 * 16, 800), F16)}
    sample = replace(tied(), architecture="gemma3n").with_tensors(extra)
    model, plain = built(sample, tmp_path), built(tied(), tmp_path)
    assert not model.is_tied
    assert model.embedding_bytes == plain.embedding_bytes + 2 * 7 * 16 * 800
    assert model.head_bytes == plain.head_bytes


# --- latent attention and drafting layers


def test_the_older_form_of_latent_attention_is_understood(tmp_path: Path) -> None:
    """Files before May 2025 give the heads' own widths as key_length and value_length."""
    config = facts("deepseek-v3")
    new = of_facts(config, "deepseek2")
    old = new.with_keys(
        attention__key_length=192,
        attention__value_length=128,
        attention__head_count_kv=128,
        attention__key_length_mla=None,
        attention__value_length_mla=None,
    )
    for layout in ("expanded", "latent"):
        models = [
            build_model(
                load_gguf(sample.write(tmp_path / "m.gguf")), weights="f32", kv_layout=layout
            )
            for sample in (new, old)
        ]
        assert models[0] == models[1]


def test_layers_that_only_draft_tokens_are_left_out(tmp_path: Path) -> None:
    drafting = {
        "blk.3.nextn.eh_proj.weight": ((1024, 512), F16),
        "blk.3.attn_k.weight": ((512, 128), F16),
    }
    sample = dense().with_tensors(drafting).with_keys(block_count=4, nextn_predict_layers=1)
    assert built(sample, tmp_path) == built(dense(), tmp_path)


# --- names, formats, parts


def test_the_model_is_called_what_the_file_says_else_as_the_file(tmp_path: Path) -> None:
    assert load_gguf(dense().write(tmp_path / "a.gguf")).name == "Small Llama"
    assert load_gguf(tied().write(tmp_path / "b-q8.gguf")).name == "b-q8"
    ugly = tied().with_keys(**{"general.name": "\x1b[31mred"})
    assert load_gguf(ugly.write(tmp_path / "c.gguf")).name == "c"


@pytest.mark.parametrize(
    ("file_type", "weights"),
    [
        (15, "q4_k_m"),
        (0, "f32"),
        (7, "q8_0"),
        (38, "mxfp4"),
        (19, "iq2_xxs"),
        (999, "gguf"),
        (1024, "gguf"),
        ("x", "gguf"),
        (None, "gguf"),
    ],
)
def test_the_file_type_names_the_weights(file_type: Any, weights: str, tmp_path: Path) -> None:
    sample = dense().with_keys(**{"general.file_type": file_type})
    assert load_gguf(sample.write(tmp_path / "m.gguf")).weights == weights


def test_a_model_has_the_weights_of_its_file_and_no_others(tmp_path: Path) -> None:
    facts = load_gguf(dense().write(tmp_path / "m.gguf"))
    same = [build_model(facts, weights=name) for name in ("q4_k_m", "Q4_K_M", "gguf")]
    assert same[0] == same[1] == same[2]
    for other in ("q8_0", "nonsense"):
        with pytest.raises(InputError, match=r"^weights: the file .* decides, and it is q4_k_m"):
            build_model(facts, weights=other)


def test_parts_add_up_to_the_whole(tmp_path: Path) -> None:
    first = dense().write(tmp_path / "m.gguf", num_parts=3)
    assert first.name == "m-00001-of-00003.gguf"
    assert load_gguf(first) == load_gguf(dense().write(tmp_path / "whole.gguf"))


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    first = dense().write(tmp_path / "m.gguf", num_parts=3)
    (tmp_path / "m-00003-of-00003.gguf").unlink()
    with pytest.raises(InputError, match=r"part 3 of 3 is missing: m-00003-of-00003\.gguf"):
        load_gguf(first)


def test_another_part_than_the_first_is_refused(tmp_path: Path) -> None:
    dense().write(tmp_path / "m.gguf", num_parts=3)
    with pytest.raises(InputError, match=r"part 2 of 3; give the first part"):
        load_gguf(tmp_path / "m-00002-of-00003.gguf")


def test_a_renamed_first_part_is_refused(tmp_path: Path) -> None:
    first = dense().write(tmp_path / "m.gguf", num_parts=3)
    renamed = first.rename(tmp_path / "renamed.gguf")
    with pytest.raises(InputError, match="part 1 of 3; give the first part, under its own name"):
        load_gguf(renamed)


def test_a_part_of_another_model_is_refused(tmp_path: Path) -> None:
    first = dense().write(tmp_path / "m.gguf", num_parts=3)
    second = tmp_path / "m-00002-of-00003.gguf"
    (tmp_path / "m-00003-of-00003.gguf").replace(second)
    (tmp_path / "m-00003-of-00003.gguf").write_bytes(second.read_bytes())
    with pytest.raises(InputError, match=r"m-00002-of-00003\.gguf: is not part 2 of 3"):
        load_gguf(first)


# --- well formed, and no model that can be planned


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"block_count": None}, "llama.block_count: missing"),
        ({"block_count": 0}, "llama.block_count: must be positive, got 0"),
        ({"block_count": 2}, "llama.block_count: is 2, but there is a tensor blk.2.attn_norm"),
        ({"block_count": 5}, "llama.block_count: is 5, but layer 3 has no tensors"),
        ({"block_count": 10**6}, "llama.block_count: must be at most 4,096, got 1,000,000"),
        ({"block_count": float("nan")}, "llama.block_count: must be a whole number, got nan"),
        ({"block_count": [3, 3]}, "llama.block_count: must be a whole number, got [3, 3]"),
        ({"block_count": "3"}, "llama.block_count: must be a whole number, got '3'"),
        ({"embedding_length": None}, "llama.embedding_length: missing"),
        ({"embedding_length": 256}, "llama.embedding_length: is 256, but token_embd.weight has"),
        ({"attention.head_count": None}, "llama.attention.head_count: missing"),
        ({"attention.head_count": float("inf")}, "llama.attention.head_count: must be a whole"),
        ({"attention.head_count_kv": [2, 2]}, "llama.attention.head_count_kv: has 2 entries for 3"),
        ({"attention.head_count_kv": [2, -2, 2]}, "llama.attention.head_count_kv[1]: must be betw"),
        ({"nextn_predict_layers": 3}, "llama.nextn_predict_layers: 3 of 3"),
        ({"attention.shared_kv_layers": 3}, "llama.attention.shared_kv_layers: 3 of 3 layers"),
        ({"vocab_size": 2 * 10**9}, "llama.vocab_size: must be between 0 and 1,000,000,000"),
        ({"general.file_type": 1, "split.count": 70000}, "split.count: part 1 of 70000"),
    ],
)
def test_wrong_metadata_are_named(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in refusal(dense().with_keys(**keys), tmp_path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"expert_count": None}, "qwen2moe.expert_count: missing"),
        ({"expert_used_count": 0}, "qwen2moe.expert_used_count: must be positive"),
        ({"expert_count": 4}, "qwen2moe.expert_count: is 4, but there are tensors of 8 experts"),
        ({"expert_used_count": 9}, "qwen2moe.expert_used_count: 9 of 8 experts cannot be chosen"),
    ],
)
def test_wrong_counts_of_experts_are_named(
    keys: dict[str, Any], message: str, tmp_path: Path
) -> None:
    assert message in refusal(mixture().with_keys(**keys), tmp_path)


def test_a_latent_width_that_cannot_be_is_named(tmp_path: Path) -> None:
    sample = of_facts(facts("deepseek-v3"), "deepseek2")
    assert "deepseek2.rope.dimension_count: missing" in refusal(
        sample.with_keys(rope__dimension_count=None), tmp_path
    )
    assert "deepseek2.rope.dimension_count: is 192 of a key's 192 values" in refusal(
        sample.with_keys(rope__dimension_count=192), tmp_path
    )


@pytest.mark.parametrize("architecture", ["clip", "t5", "nomic-bert"])
def test_what_generates_no_text_is_refused(architecture: str, tmp_path: Path) -> None:
    said = refusal(replace(dense(), architecture=architecture), tmp_path)
    assert said.startswith(f"general.architecture: '{architecture}' is no decoder-only language")


def test_a_file_without_an_embedding_is_refused(tmp_path: Path) -> None:
    said = refusal(dense().without("token_embd.weight"), tmp_path)
    assert said.startswith("token_embd.weight: there is no such tensor")


def test_all_faults_are_reported_at_once(tmp_path: Path) -> None:
    said = refusal(dense().with_keys(block_count=None, embedding_length="wide"), tmp_path)
    assert len(said.splitlines()) == 2


# --- the new facts, stated by hand


def test_routed_bytes_in_a_mapping_are_exact() -> None:
    stated = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "vocab_size": 100,
        "num_attention_heads": 4,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "layer_weight_bytes": 1000,
        "layer_routed_bytes": [0, 800],
        "kv_values_per_token": 32,
        "layer_attention_flops": [7, 9],
    }
    model = build_model(facts_from_config(stated, name="m"), weights="f16")
    assert list(model.layer_dense_bytes) == [1000, 200]
    assert list(model.layer_routed_bytes) == [0, 800]
    assert list(model.layer_spillable_bytes) == [0, 800]
    assert list(model.layer_routed_fraction) == [0, 0.25]
    assert list(model.layer_kv_bytes_per_token) == [64, 64]
    assert list(model.layer_attention_flops) == [7, 9]
    assert list(model.layer_flops_per_token) == [1000, 2 * (200 + 200) / 2]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"layer_weight_bytes": None}, "model.layer_weight_bytes: missing; layer_routed_bytes"),
        ({"layer_routed_bytes": 2000}, "model.layer_routed_bytes: layer 0 has 2000 of 1000 bytes"),
        ({"num_experts_per_tok": 0}, "model.num_experts_per_tok: missing; a token reads a share"),
        ({"layer_active_weight_bytes": 500}, "model.layer_routed_bytes: stands beside layer_act"),
        ({"kv_bytes_per_token": 8, "kv_values_per_token": 4}, "model.kv_values_per_token: stands"),
    ],
)
def test_contradictory_sizes_are_refused(extra: dict[str, Any], message: str) -> None:
    stated = {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "vocab_size": 100,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "moe_intermediate_size": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "layer_weight_bytes": 1000,
        "layer_routed_bytes": 800,
    }
    with pytest.raises(InputError) as caught:
        build_model(facts_from_config({**stated, **extra}, name="m"), weights="f16")
    assert message in str(caught.value)


def test_facts_of_a_file_need_all_its_sizes() -> None:
    with pytest.raises(InputError, match=r"model\.head_bytes: missing; weights 'q8_0' are those"):
        build_model(replace(facts("llama-3.2-1b"), weights="q8_0"), weights="q8_0")
