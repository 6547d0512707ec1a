"""Which weight and KV cache formats each engine can load.

Facts from the engines' own documentation: llama.cpp's ``ggml`` types; vLLM's and SGLang's lists of
quantisations; prima.cpp's, Petals' and distributed-llama's READMEs; MLX's affine quantisation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from e2llm_opt.export.refusal import NotExpressibleError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.export.setup import Setup

_GGUF: Final = (
    *("f32", "f16", "bf16", "q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_1", "q5_0"),
    *("q4_k_m", "q4_k_s", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "q3_k_l", "q3_k_m", "q3_k_s"),
    *("iq3_m", "iq3_s", "iq3_xxs", "q2_k", "iq2_m", "mxfp4"),
)
_PLAIN: Final = ("f32", "f16", "bf16")
_GPU: Final = (*(*_PLAIN, "fp8", "int8", "gptq", "gptq_int8", "awq", "nf4", "nvfp4", "mxfp4_bf16"),)
_MLX: Final = ("mlx_3bit", "mlx_4bit", "mlx_6bit", "mlx_8bit")
WEIGHTS: Final[Mapping[str, tuple[str, ...]]] = {
    "llama.cpp": _GGUF,
    "prima.cpp": tuple(name for name in _GGUF if name != "mxfp4"),
    "vllm": _GPU,
    "sglang": _GPU,
    "dynamo": _GPU,
    "llm-d": _GPU,
    "ray-serve": _GPU,
    "exo": (*_PLAIN, *_MLX),
    "parallax": (*_PLAIN, "fp8", "int8", "gptq", "awq", "mxfp4_bf16", *_MLX),
    "petals": (*_PLAIN, "int8", "nf4"),
    "distributed-llama": ("f32", "q4_0"),
}
"""Engine: catalogue keys of the weight formats that it loads."""
_GGML_CACHE: Final = {
    name: name for name in ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
}
_VLLM_CACHE: Final = {"f16": "auto", "bf16": "auto", "fp8": "fp8"}
KV_CACHE: Final[Mapping[str, Mapping[str, str]]] = {
    "llama.cpp": _GGML_CACHE,
    "prima.cpp": _GGML_CACHE,
    "vllm": _VLLM_CACHE,
    "dynamo": _VLLM_CACHE,
    "llm-d": _VLLM_CACHE,
    "ray-serve": _VLLM_CACHE,
    "sglang": {"f16": "auto", "bf16": "auto", "fp8": "fp8_e4m3"},
    "exo": {"f16": "", "bf16": ""},
    "parallax": {"f16": "", "bf16": ""},
    "petals": {"f16": "", "bf16": "", "f32": ""},
    "distributed-llama": {"f16": "", "f32": ""},
}
"""Engine: its word for each format of the KV cache that it can keep."""
_GGUF_ENGINES: Final = ("llama.cpp", "prima.cpp")
_MOST_LISTED = 8


def refuse_formats(engine: str, setup: Setup) -> None:
    """Refuse weights and KV caches that the engine cannot hold.

    Raises
    ------
    NotExpressibleError
        With the formats that it can.
    """
    known = WEIGHTS[engine]
    if setup.weights and setup.weights not in known:
        raise NotExpressibleError(
            "weight format",
            f"{engine} loads no {setup.weights} weights; it loads {_some(known)}; plan again with "
            f"--weights, such as --weights {_like(setup.weights, known)}",
        )
    is_gguf = setup.options.model_path.lower().endswith(".gguf")
    if is_gguf and engine not in _GGUF_ENGINES:
        raise NotExpressibleError(
            "weight format", f"{engine} loads no .gguf files, such as {setup.options.model_path}"
        )
    if setup.options.model_path and not is_gguf and engine in _GGUF_ENGINES:
        raise NotExpressibleError(
            "weight format", f"{engine} loads .gguf files, not {setup.options.model_path}"
        )
    if setup.kv_cache not in KV_CACHE[engine]:
        raise NotExpressibleError(
            "KV cache format",
            f"{engine} keeps no {setup.kv_cache} KV cache; it keeps {_some(KV_CACHE[engine])}; "
            "plan again with --kv-cache",
        )


def dtype(setup: Setup) -> str:
    """Return PyTorch's name of plain weights; empty where they are quantised."""
    return {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}.get(setup.weights, "")


def is_quantised_cache(setup: Setup) -> bool:
    """Whether the KV cache is kept in fewer bits than activations have."""
    return setup.kv_cache not in _PLAIN


def _some(names: Mapping[str, str] | tuple[str, ...]) -> str:
    listed = list(names)
    more = ", …" if len(listed) > _MOST_LISTED else ""
    return ", ".join(listed[:_MOST_LISTED]) + more


def _like(weights: str, known: tuple[str, ...]) -> str:
    """Return a format of about as many bits."""
    by_bits = {"8": ("q8_0", "fp8", "mlx_8bit", "int8"), "": ("q4_k_m", "awq", "mlx_4bit", "nf4")}
    wanted = by_bits["8" if "8" in weights else ""]
    return next((name for name in wanted if name in known), known[-1])
