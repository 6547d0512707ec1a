"""Configurations of several families, abridged by hand, become the right facts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.catalogue.catalogue import model_entries
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.errors import InputError
from e2llm_opt.model.build import build_model
from e2llm_opt.model.hf_config import (
    FACT_KEYS,
    facts,
    facts_from_config,
    load_config,
)

if TYPE_CHECKING:
    from pathlib import Path

SMALL = {"num_hidden_layers": 6, "hidden_size": 64, "vocab_size": 100, "num_attention_heads": 4}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "sliding_window": None,
    "vocab_size": 32000,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "first_k_dense_replace": 3,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GEMMA_3 = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
}
QWEN_35 = {
    "model_type": "qwen3_5",
    "text_config": {
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "model_type": "qwen3_5_text",
        "num_attention_heads": 24,
        "num_hidden_layers": 64,
        "num_key_value_heads": 4,
        "vocab_size": 248320,
    },
}
MAVERICK = {
    "model_type": "llama4",
    "text_config": {
        "attention_chunk_size": 8192,
        "head_dim": 128,
        "hidden_size": 5120,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "model_type": "llama4_text",
        "num_attention_heads": 40,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 48,
        "num_key_value_heads": 8,
        "num_local_experts": 128,
        "vocab_size": 202048,
    },
}
QWEN_25 = {
    "model_type": "qwen2",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "max_window_layers": 48,
    "num_attention_heads": 40,
    "num_hidden_layers": 48,
    "num_key_value_heads": 8,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "vocab_size": 152064,
}
PHI_2 = {
    "model_type": "phi",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": None,
    "vocab_size": 51200,
}


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (LLAMA, "llama-3.1-8b"),
        (MIXTRAL, "mixtral-8x7b"),
        (GPT_OSS, "gpt-oss-20b"),
        (DEEPSEEK, "deepseek-v3"),
        (GEMMA_3, "gemma-3-4b"),
        (QWEN_35, "qwen3.5-27b"),
        (MAVERICK, "llama-4-maverick"),
        (QWEN_25, "qwen2.5-14b"),
        (PHI_2, "phi-2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_familys_config_builds_the_model_of_the_catalogue(
    config: dict[str, Any], key: str
) -> None:
    from_config = build_model(facts_from_config(config, name=key), weights="q4_k_m")
    assert from_config == build_model(facts(key), weights="q4_k_m") or key.startswith("llama-4")
    assert from_config.weight_bytes == build_model(facts(key), weights="q4_k_m").weight_bytes


def test_chunked_attention_counts_as_a_window() -> None:
    types = facts_from_config(MAVERICK, name="m").layer_types
    assert types == (("sliding_attention",) * 3 + ("full_attention",)) * 12


def test_every_catalogue_entry_becomes_facts() -> None:
    for entry in model_entries():
        assert facts(entry.name).name == entry.key


def test_missing_heads_follow_from_what_is_there() -> None:
    model = build_model(
        facts_from_config({**SMALL, "intermediate_size": 128}, name="m"), weights="f16"
    )
    assert model.layer_kv_bytes_per_token == (2 * 64 * 2,) * 6


@pytest.mark.parametrize(
    ("extra", "windowed"),
    [
        ({"sliding_window": 8}, [0, 1, 2, 3, 4, 5]),
        ({"sliding_window": 8, "model_type": "mistral"}, [0, 1, 2, 3, 4, 5]),
        ({"sliding_window": 8, "model_type": "qwen2"}, []),
        ({"sliding_window": 8, "use_sliding_window": False}, []),
        ({"sliding_window": 8, "model_type": "qwen2", "use_sliding_window": True}, range(6)),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 4}, [4, 5]),
        ({"sliding_window": None}, []),
        ({"sliding_window": 8, "sliding_window_pattern": 3}, [0, 1, 3, 4]),
        ({"sliding_window": 8, "sliding_window_pattern": "LLG"}, [0, 1, 3, 4]),
        ({"sliding_window": 8, "model_type": "gemma2"}, [0, 2, 4]),
        ({"sliding_window": 8, "model_type": "gpt_oss"}, [0, 2, 4]),
        ({"sliding_window": 8, "model_type": "cohere2"}, [0, 1, 2, 4, 5]),
        ({"attention_chunk_size": 8, "no_rope_layer_interval": 2}, [0, 2, 4]),
    ],
)
def test_windows_are_where_the_family_puts_them(extra: dict[str, Any], windowed: Any) -> None:
    types = facts_from_config({**SMALL, **extra}, name="m").layer_types or ()
    assert [i for i, name in enumerate(types) if name == "sliding_attention"] == list(windowed)


@pytest.mark.parametrize(
    ("extra", "tied"),
    [
        ({}, False),
        ({"model_type": "gemma3_text"}, True),
        ({"model_type": "gemma", "tie_word_embeddings": False}, False),
        ({"model_type": "llama", "tie_word_embeddings": True}, True),
    ],
)
def test_tables_are_tied_as_stated_or_as_the_family_does(extra: dict[str, Any], tied: bool) -> None:
    assert facts_from_config({**SMALL, **extra}, name="m").tie_word_embeddings is tied


def test_a_shared_expert_given_by_its_width_is_counted_in_experts() -> None:
    config = {
        **SMALL,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 64,
    }
    assert facts_from_config(config, name="m").num_shared_experts == 4
    with pytest.raises(InputError, match="no multiple"):
        facts_from_config({**config, "shared_expert_intermediate_size": 60}, name="m")


def test_dense_layers_may_only_stand_at_the_start() -> None:
    moe = {**SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    assert facts_from_config({**moe, "mlp_only_layers": [0, 1]}, name="m").num_dense_layers == 2
    assert facts_from_config({**moe, "mlp_only_layers": []}, name="m").num_dense_layers == 0
    zeros_first = {**moe, "moe_layer_freq": [0, 1, 1, 1, 1, 1]}
    assert facts_from_config(zeros_first, name="m").num_dense_layers == 1
    for extra in ({"mlp_only_layers": [3]}, {"moe_layer_freq": 2}, {"moe_layer_freq": [1, 0, 1]}):
        with pytest.raises(InputError, match="layer_weight_bytes"):
            facts_from_config({**moe, **extra}, name="m")


def test_stage_starts_may_be_a_list_or_a_rule() -> None:
    listed = facts_from_config({**SMALL, "allowed_stage_starts": [0, 2]}, name="m")
    assert listed.allowed_stage_starts == (0, 2)
    rule = {"first": 0, "modulo": 4, "remainder": 2}
    config = {**SMALL, "num_hidden_layers": 12, "allowed_stage_starts": rule}
    assert facts_from_config(config, name="m").allowed_stage_starts == (2, 6, 10)


def test_overrides_are_one_number_or_one_a_layer() -> None:
    config = {**SMALL, "layer_weight_bytes": 7, "kv_bytes_per_token": [1, 2, 3, 4, 5, 6]}
    read = facts_from_config(config, name="m")
    assert read.layer_weight_bytes == 7
    assert read.kv_bytes_per_token == (1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("extra", "path"),
    [
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": 1e400}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**7}, "num_hidden_layers"),
        ({"hidden_size": 1.5}, "hidden_size"),
        ({"vocab_size": -1}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"vocab_size": 10**400}, "vocab_size"),
        ({"num_key_value_heads": [1, 2]}, "num_key_value_heads"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"layer_types": "full"}, "layer_types"),
        ({"layer_weight_bytes": [1, "x"]}, "layer_weight_bytes[1]"),
        ({"head_bytes": -1}, "head_bytes"),
        ({"head_bytes": 10**400}, "head_bytes"),
        ({"allowed_stage_starts": {"modulo": 0}}, "allowed_stage_starts.modulo"),
        ({"allowed_stage_starts": {"every": 2, "modulo": 2}}, "allowed_stage_starts.every"),
        ({"allowed_stage_starts": "all"}, "allowed_stage_starts"),
        ({"allowed_stage_starts": [0.5]}, "allowed_stage_starts"),
    ],
)
def test_wrong_values_are_faults_with_their_key(extra: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as error:
        facts_from_config({**SMALL, **extra}, name="m")
    assert [fault.path for fault in error.value.faults] == [path]


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InputError) as error:
        facts_from_config({"hidden_size": "a", "head_bytes": "b"}, name="m")
    assert {fault.path for fault in error.value.faults} == {
        *("num_hidden_layers", "hidden_size", "vocab_size", "head_bytes"),
    }


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(FACT_KEYS)), _JSON, max_size=6))
def test_no_configuration_ever_crashes(extra: dict[str, Any]) -> None:
    try:
        read = facts_from_config({**SMALL, **extra}, name="m")
        build_model(read, weights="f16")
    except InputError as error:
        assert error.faults  # noqa: PT017 - either outcome is right, a crash is not


def test_an_unknown_model_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="qwen3-8b"):
        facts("qwen3-9b")


# --- files


def test_a_config_file_is_read_and_named_by_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    assert load_config(path).name == "my-model"
    path.write_text(json.dumps({**LLAMA, "_name_or_path": "org/x"}), encoding="utf-8")
    assert load_config(path).name == "org/x"
    assert load_config(str(path)).num_hidden_layers == 32


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"3",
        b"null",
        b"\xff\xfe\x00",
        b"GGUF\x03\x00\x00\x00",
        b"[" * 100_000,
        b'{"num_hidden_layers": ' + b"9" * 5000 + b"}",
        b'{"num_hidden_layers": NaN}',
        b"{}",
    ],
)
def test_a_bad_file_is_an_input_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        load_config(path)
    assert all(fault.file == str(path) for fault in error.value.faults)


def test_a_wrong_value_is_found_on_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**LLAMA, "vocab_size": "many"}, indent=1), encoding="utf-8")
    with pytest.raises(InputError) as error:
        load_config(path)
    assert str(error.value).startswith(f"{path}:14: vocab_size: must be a whole number")


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_config(tmp_path / "none.json")
