"""Built models weigh what their published files weigh."""

from __future__ import annotations

import pytest

from e2llm_opt.catalogue.catalogue import model_entries, model_entry
from e2llm_opt.model.build import build_model
from e2llm_opt.model.hf_config import facts
from e2llm_opt.units import GIB

GPU_LLM = "github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference"
LLAMA_CPP = "llama-bench's size column, github.com/ggml-org/llama.cpp discussions"
LOCALSCORE = "localscore.ai, github.com/cjpais/LocalScore"
SPARK = "github.com/DandinPower/llama.cpp_bench dgx_spark/report.md"
IK_LLAMA = "github.com/ikawrakow/ik_llama.cpp, a discussion's table of Llama-3 8B files [MiB]"
JETSON = "github.com/NVIDIA-AI-IOT/jetson-ai-lab"

PUBLISHED_GIB = [
    # model, format, file size [GiB], where it is published
    ("llama-2-7b", "q4_0", 3.56, f"{LLAMA_CPP} 4167, 10879, 15013"),
    ("llama-2-13b", "q4_0", 6.86, "github.com/geerlingguy/ai-benchmarks/issues/7"),
    ("llama-2-70b", "q4_0", 36.2, "github.com/nvidia-holoscan/holohub/issues/170"),
    ("llama-2-7b", "int4", 3.53, "github.com/dusty-nv/jetson-containers packages/llm/mlc"),
    ("llama-3-8b", "q4_k_m", 4.58, GPU_LLM),
    ("llama-3-8b", "f16", 14.96, GPU_LLM),
    ("llama-3-70b", "q4_k_m", 39.59, GPU_LLM),
    ("llama-3-70b", "f16", 131.42, GPU_LLM),
    ("llama-3.1-8b", "q4_k_m", 4.58, LOCALSCORE),
    ("llama-3.1-8b", "q8_0", 7.95, LLAMA_CPP),
    ("llama-3.1-8b", "q5_k_m", 5.33, LLAMA_CPP),
    ("llama-3.1-8b", "q6_k", 6.14, LLAMA_CPP),
    ("llama-3.1-8b", "fp8", 8.49, JETSON),
    ("llama-3.2-1b", "q4_k_m", 0.75, LOCALSCORE),
    ("llama-3.2-3b", "q4_k_m", 1.87, "github.com/geerlingguy/ai-benchmarks/issues/1"),
    ("qwen2.5-7b", "q4_k_m", 4.36, LLAMA_CPP),
    ("qwen2.5-14b", "q4_k_m", 8.37, LOCALSCORE),
    ("qwen3-1.7b", "q4_k_m", 1.03, SPARK),
    ("qwen3-8b", "q4_k_m", 4.68, SPARK),
    ("qwen3-32b", "q4_k_m", 18.40, SPARK),
    ("qwen3-30b-a3b", "q4_k_m", 17.28, SPARK),
    ("tinyllama-1.1b", "q4_k_m", 0.621, "github.com/geerlingguy/ai-benchmarks/issues/35"),
    ("mistral-7b", "q4_k_m", 4.07, LLAMA_CPP),
    ("mixtral-8x7b", "q4_k_m", 26.49, LLAMA_CPP),
    ("gpt-oss-20b", "mxfp4", 11.27, f"{LLAMA_CPP} 15396"),
    ("gpt-oss-120b", "mxfp4", 59.02, f"{LLAMA_CPP} 15396"),
    ("deepseek-v3", "q4_k_m", 376.65, LLAMA_CPP),
    ("kimi-k2", "q4_k_m", 579.28, LLAMA_CPP),
    ("gemma-2-2b", "int4", 1.37, JETSON),
    ("gemma-2-9b", "int4", 4.84, JETSON),
    ("gemma-3-4b", "q4_k_m", 2.31, LLAMA_CPP),
    ("gemma-3-27b", "q4_k_m", 15.40, LLAMA_CPP),
    ("phi-4", "q4_k_m", 8.43, LLAMA_CPP),
    ("qwen3.5-27b", "q4_k_m", 15.58, LLAMA_CPP),
    ("qwen3.5-35b-a3b", "q4_k_m", 20.09, LLAMA_CPP),
    ("qwen3-next-80b-a3b", "q4_k_m", 45.59, LLAMA_CPP),
    *(
        ("llama-3-8b", weights, size_mib / 1024, IK_LLAMA)
        for weights, size_mib in [
            ("q5_1", 5787),
            ("q5_k_s", 5292),
            ("q5_0", 5353),
            ("q4_1", 4892),
            ("q4_k_s", 4491),
            ("q4_0", 4459),
            ("iq4_nl", 4461),
            ("iq4_xs", 4241),
            ("q3_k_l", 4138),
            ("q3_k_m", 3848),
            ("q3_k_s", 3511),
            ("iq3_m", 3625),
            ("iq3_s", 3511),
            ("iq3_xxs", 3139),
            ("q2_k", 3047),
            ("iq2_m", 2811),
        ]
    ),
]


@pytest.mark.parametrize(
    ("name", "weights", "size_gib", "source"),
    PUBLISHED_GIB,
    ids=[f"{name}-{weights}" for name, weights, _, _ in PUBLISHED_GIB],
)
def test_weights_are_within_three_percent_of_the_published_file(
    name: str, weights: str, size_gib: float, source: str
) -> None:
    model = build_model(facts(name), weights=weights)
    assert model.weight_bytes / GIB == pytest.approx(size_gib, rel=0.03), source


def test_at_least_ten_models_are_compared() -> None:
    assert len({name for name, *_ in PUBLISHED_GIB}) >= 10


@pytest.mark.parametrize("key", [entry.key for entry in model_entries() if entry.params_b])
def test_catalogue_shapes_have_the_published_number_of_parameters(key: str) -> None:
    entry = model_entry(key)
    bytes_a_parameter = 2
    params = build_model(facts(key), weights="bf16").weight_bytes / bytes_a_parameter
    assert params == pytest.approx((entry.params_b or 0) * 1e9, rel=0.015)
