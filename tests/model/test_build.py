"""Building a model: bytes and FLOPs of each layer, overrides, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.catalogue.catalogue import model_entries, weight_format_rows
from e2llm_opt.errors import InputError
from e2llm_opt.model.build import build_model
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.model.hf_config import facts
from e2llm_opt.model.weights import kv_cache_bytes_per_value, weight_format
from e2llm_opt.units import GIB

BARE = ModelFacts(name="bare", num_hidden_layers=4, hidden_size=512, vocab_size=1000)
DENSE = replace(
    BARE, num_attention_heads=8, num_key_value_heads=2, head_dim=64, intermediate_size=1024
)
MOE = replace(
    DENSE, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256, num_dense_layers=1
)


def paths(error: pytest.ExceptionInfo[InputError]) -> list[str]:
    return [fault.path for fault in error.value.faults]


# --- anchors


def test_a_dense_layer_is_the_sum_of_its_matrices() -> None:
    model = build_model(DENSE, weights="bf16")
    attention = 512 * (512 + 2 * 128) + 512 * 512
    ffn = 3 * 512 * 1024
    norms = 2 * 512
    assert list(model.layer_dense_bytes) == [2 * (attention + ffn + norms)] * 4
    assert list(model.layer_routed_bytes) == [0] * 4
    assert list(model.layer_spillable_bytes) == [2 * ffn] * 4
    assert list(model.layer_flops_per_token) == [2 * (attention + ffn)] * 4
    assert list(model.layer_attention_flops) == [4 * 8 * 64] * 4
    assert list(model.layer_kv_bytes_per_token) == [2 * 2 * 64 * 2] * 4
    assert list(model.layer_window_tokens) == [math.inf] * 4
    assert model.embedding_bytes == model.head_bytes == 2 * 512 * 1000
    assert model.head_flops_per_token == 2 * 512 * 1000


def test_kv_of_36_layers_with_8_heads_of_128_is_4_5_gib_at_32k() -> None:
    model = build_model(facts("qwen3-8b"), weights="q4_k_m", kv_cache="f16")
    assert model.kv_bytes(32768) == 4.5 * GIB


def test_gpt_oss_20b_has_the_parameters_fitted_to_the_testbed() -> None:
    """Attention 26.54e6 a layer, 24.883e6 an expert, head 579.1e6 (arXiv 2606.03770)."""
    model = build_model(facts("gpt-oss-20b"), weights="q8_0", kv_cache="f16")
    byte = weight_format("q8_0").attention
    plain = build_model(facts("gpt-oss-20b"), weights="bf16")
    assert byte == 8.5 / 8
    assert plain.layer_dense_bytes[0] / 2 == pytest.approx(26.54e6, rel=0.01)
    assert model.layer_routed_bytes[0] / byte == pytest.approx(32 * 24.883e6, rel=0.001)
    assert list(model.layer_routed_fraction) == [4 / 32] * 24
    assert model.head_bytes / byte == pytest.approx(579.1e6, rel=0.001)
    assert list(model.layer_kv_bytes_per_token) == [2048] * 24
    assert list(model.layer_window_tokens) == [128, math.inf] * 12


def test_windowed_layers_stop_growing_at_their_window() -> None:
    model = build_model(facts("gpt-oss-20b"), weights="mxfp4")
    assert model.kv_bytes(128) == 24 * 2048 * 128
    assert model.kv_bytes(4096) == 12 * 2048 * 128 + 12 * 2048 * 4096


def test_experts_are_routed_and_the_rest_is_dense() -> None:
    model = build_model(MOE, weights="bf16")
    one_expert = 3 * 512 * 256
    assert list(model.layer_routed_bytes) == [0, *[2 * 8 * one_expert] * 3]
    assert list(model.layer_routed_fraction) == [0, 0.25, 0.25, 0.25]
    attention = 512 * (512 + 2 * 128) + 512 * 512
    router = 512 * 8
    flops = 2 * (attention + 2 * one_expert + router)
    assert list(model.layer_flops_per_token[1:]) == [flops] * 3
    shared = build_model(replace(MOE, num_shared_experts=1), weights="bf16")
    assert shared.layer_dense_bytes[1] - model.layer_dense_bytes[1] == 2 * one_expert
    assert shared.layer_spillable_bytes[1] == 2 * 9 * one_expert


@pytest.mark.parametrize(
    ("name", "active_b"),
    [
        ("qwen3-30b-a3b", 3.3),
        ("qwen3-235b-a22b", 22),
        ("mixtral-8x7b", 12.9),
        ("deepseek-v3", 37),
        ("kimi-k2", 32),
        ("gpt-oss-120b", 5.1),
        ("kimi-k2-thinking", 32),
        ("mistral-large-3", 39),
        ("qwen3.5-397b-a17b", 17),
        ("llama-4-scout", 17),
    ],
)
def test_active_parameters_are_as_published(name: str, active_b: float) -> None:
    """Publishers count the head, and some the embedding too."""
    model = build_model(facts(name), weights="bf16")
    layers = zip(
        model.layer_dense_bytes,
        model.layer_routed_bytes,
        model.layer_routed_fraction,
        strict=True,
    )
    active = sum(dense + routed * fraction for dense, routed, fraction in layers)
    params_b = (active + model.head_bytes) / 2e9
    with_embedding_b = params_b + model.embedding_bytes / 2e9
    assert params_b <= 1.02 * active_b
    assert with_embedding_b >= 0.98 * active_b


def test_every_second_layer_of_maverick_has_experts() -> None:
    model = build_model(facts("llama-4-maverick"), weights="fp8")
    assert [routed > 0 for routed in model.layer_routed_bytes] == [False, True] * 24


def test_latent_attention_keeps_the_latent_or_the_heads() -> None:
    deepseek = facts("deepseek-v3")
    latent = build_model(deepseek, weights="fp8", kv_layout="latent")
    expanded = build_model(deepseek, weights="fp8", kv_layout="expanded")
    assert list(latent.layer_kv_bytes_per_token) == [(512 + 64) * 2] * 61
    assert list(expanded.layer_kv_bytes_per_token) == [128 * (128 + 64 + 128) * 2] * 61
    assert list(latent.layer_attention_flops) == [2 * 128 * (128 + 64 + 128)] * 61
    assert [routed > 0 for routed in latent.layer_routed_bytes] == [False] * 3 + [True] * 58


def test_linear_attention_has_no_growing_cache() -> None:
    model = build_model(facts("qwen3.5-27b"), weights="bf16")
    assert list(model.layer_kv_bytes_per_token) == [0, 0, 0, 2 * 4 * 256 * 2] * 16
    assert list(model.layer_attention_flops) == [0, 0, 0, 4 * 24 * 256] * 16


def test_a_tied_table_is_stored_once_in_the_quality_of_a_head() -> None:
    tied = build_model(replace(DENSE, tie_word_embeddings=True), weights="q4_k_m")
    loose = build_model(DENSE, weights="q4_k_m")
    assert tied.is_tied
    assert tied.embedding_bytes == tied.head_bytes == loose.head_bytes
    assert loose.embedding_bytes < loose.head_bytes
    assert loose.weight_bytes - tied.weight_bytes == loose.embedding_bytes


# --- formats


@pytest.mark.parametrize(
    ("name", "value_bytes"),
    [("f16", 2), ("BF16", 2), ("f32", 4), ("q8_0", 1.0625), ("Q4-0", 0.5625), ("fp8", 1)],
)
def test_kv_formats(name: str, value_bytes: float) -> None:
    assert kv_cache_bytes_per_value(name) == value_bytes


def test_weight_formats_are_matched_whatever_the_spelling() -> None:
    assert weight_format("Q4_K_M") == weight_format("q4-k-m") == weight_format("q4km")


def test_formats_differ_by_tensor_class() -> None:
    mxfp4 = weight_format("mxfp4")
    assert (mxfp4.experts * 8, mxfp4.attention * 8, mxfp4.small * 8) == (4.25, 8.5, 32)
    awq = weight_format("awq")
    assert awq.attention < 0.6
    assert awq.head == awq.embedding == awq.small == 2


def test_the_formats_that_people_use_are_there() -> None:
    wanted = (
        "f32 f16 bf16 q8_0 q6_k q5_k_m q5_0 q5_k_s q4_k_m q4_k_s q4_0 q3_k_m q3_k_s q2_k "
        "iq4_xs iq3_m mxfp4 awq gptq int4 int8 fp8 nvfp4 mlx-4bit"
    )
    for name in wanted.split():
        assert weight_format(name).ffn > 0


def test_quantised_formats_are_never_larger_than_f32() -> None:
    for row in weight_format_rows():
        form = weight_format(row.key)
        sizes = (form.attention, form.ffn, form.experts, form.embedding, form.head)
        assert all(0 < size <= 4 for size in sizes)


# --- overrides


def test_overrides_replace_the_shape_and_need_no_other_facts() -> None:
    given_facts = replace(
        BARE,
        layer_weight_bytes=1e8,
        kv_bytes_per_token=(10.0, 20.0, 30.0, 40.0),
        embedding_bytes=5.0,
        head_bytes=7.0,
    )
    model = build_model(given_facts, weights="f16")
    assert list(model.layer_weight_bytes) == [1e8] * 4
    assert list(model.layer_kv_bytes_per_token) == [10, 20, 30, 40]
    assert (model.embedding_bytes, model.head_bytes) == (5, 7)
    assert list(model.layer_flops_per_token) == [1e8] * 4  # 2 FLOP a parameter, 2 bytes each
    assert list(model.layer_attention_flops) == [0] * 4
    assert list(model.layer_spillable_bytes) == [0] * 4


def test_active_bytes_make_a_layer_of_routed_bytes() -> None:
    given_facts = replace(
        BARE, layer_weight_bytes=1000.0, layer_active_weight_bytes=100.0, kv_bytes_per_token=1.0
    )
    model = build_model(given_facts, weights="f16")
    assert list(model.layer_dense_bytes) == [0] * 4
    assert list(model.layer_routed_bytes) == [1000] * 4
    assert list(model.layer_routed_fraction) == [0.1] * 4
    assert list(model.layer_flops_per_token) == [100] * 4


def test_a_weight_override_scales_a_known_shape() -> None:
    plain = build_model(MOE, weights="bf16")
    twice = tuple(2 * size for size in plain.layer_weight_bytes)
    model = build_model(replace(MOE, layer_weight_bytes=twice), weights="bf16")
    assert model.layer_weight_bytes == twice
    assert model.layer_routed_bytes == tuple(2 * size for size in plain.layer_routed_bytes)
    assert model.layer_spillable_bytes == tuple(2 * size for size in plain.layer_spillable_bytes)
    assert model.layer_flops_per_token == plain.layer_flops_per_token


def test_flops_and_spillable_bytes_can_be_given() -> None:
    given_facts = replace(DENSE, layer_flops_per_token=3.0, layer_spillable_bytes=(1.0,) * 4)
    model = build_model(given_facts, weights="f16")
    assert list(model.layer_flops_per_token) == [3] * 4
    assert list(model.layer_spillable_bytes) == [1] * 4


def test_a_stage_may_always_start_at_the_first_layer() -> None:
    model = build_model(replace(DENSE, allowed_stage_starts=(3, 1, 3)), weights="f16")
    assert model.allowed_stage_starts == (0, 1, 3)
    assert build_model(DENSE, weights="f16").allowed_stage_starts is None


# --- refusals


def test_every_missing_fact_is_named_at_once() -> None:
    with pytest.raises(InputError) as error:
        build_model(BARE, weights="f16")
    assert paths(error) == ["model.num_attention_heads", "model.intermediate_size"]
    with pytest.raises(InputError) as error:
        build_model(replace(DENSE, num_experts=4, kv_lora_rank=8), weights="f16")
    assert set(paths(error)) == {
        *("model.num_experts_per_tok", "model.moe_intermediate_size"),
        *("model.qk_nope_head_dim", "model.qk_rope_head_dim", "model.v_head_dim"),
    }


def test_unknown_formats_are_named_with_the_nearest() -> None:
    with pytest.raises(InputError, match="q4_k_m") as error:
        build_model(DENSE, weights="q4_k_x", kv_cache="f17")
    assert paths(error) == ["weights", "kv_cache"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"hidden_size": -1}, "hidden_size"),
        ({"vocab_size": 10**12}, "vocab_size"),
        ({"moe_layer_step": 0}, "moe_layer_step"),
        ({"layer_types": ("full_attention",)}, "layer_types"),
        ({"layer_types": ("full_attention",) * 3 + ("mamba",)}, "layer_types"),
        ({"layer_types": ("sliding_attention",) * 4}, "sliding_window"),
        ({"allowed_stage_starts": (4,)}, "allowed_stage_starts"),
        ({"layer_weight_bytes": (1.0, 2.0)}, "layer_weight_bytes"),
        ({"layer_weight_bytes": 0.0}, "layer_weight_bytes"),
        ({"kv_bytes_per_token": math.nan}, "kv_bytes_per_token"),
        ({"layer_flops_per_token": -1.0}, "layer_flops_per_token"),
        ({"head_bytes": math.inf}, "head_bytes"),
        (
            {"layer_weight_bytes": 5.0, "layer_active_weight_bytes": 6.0},
            "layer_active_weight_bytes",
        ),
        ({"num_experts": 2, "num_experts_per_tok": 3}, "num_experts_per_tok"),
    ],
)
def test_impossible_facts_are_refused(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as error:
        build_model(replace(DENSE, **change), weights="f16")
    assert f"model.{path}" in paths(error)


# --- laws


@given(
    st.sampled_from(model_entries()),
    st.sampled_from(weight_format_rows()),
    st.sampled_from(["f16", "q8_0", "fp8"]),
    st.sampled_from(["expanded", "latent"]),
)
def test_every_model_builds_in_every_format(
    entry: object, row: object, kv_cache: str, kv_layout: Any
) -> None:
    model = build_model(
        facts(entry.key),  # type: ignore[attr-defined]
        weights=row.key,  # type: ignore[attr-defined]
        kv_cache=kv_cache,
        kv_layout=kv_layout,
    )
    sizes = (*model.layer_dense_bytes, *model.layer_routed_bytes, *model.layer_kv_bytes_per_token)
    assert all(size == math.floor(size) for size in sizes)
    for spillable, whole in zip(model.layer_spillable_bytes, model.layer_weight_bytes, strict=True):
        assert 0 < spillable < whole
    assert all(0 <= fraction <= 1 for fraction in model.layer_routed_fraction)
