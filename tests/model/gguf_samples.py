"""GGUF files for tests, written by the package ``gguf`` itself: header only, or with data."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import quant_shape_to_byte_shape

from e2llm_opt.model.shape import is_latent, is_moe_layer, layer_type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from e2llm_opt.model.facts import ModelFacts

Tensors = dict[str, tuple[tuple[int, ...], Kind]]
"""Name → sizes in the order of the file (inputs first) and storage type."""
F32, F16, Q8_0, Q4_K, Q6_K, MXFP4 = Kind.F32, Kind.F16, Kind.Q8_0, Kind.Q4_K, Kind.Q6_K, Kind.MXFP4
_OWN_PREFIX = ("general.", "tokenizer.", "split.")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What a file says; keys are those of the architecture unless they are general ones."""

    architecture: str
    keys: dict[str, Any]
    tensors: Tensors = field(default_factory=dict)

    def with_keys(self, **keys: Any) -> Sample:
        """Change keys; None takes one out. ``__`` stands for the dot."""
        named = {key.replace("__", "."): value for key, value in keys.items()}
        return replace(self, keys={**self.keys, **named})

    def with_tensors(self, tensors: Mapping[str, tuple[tuple[int, ...], Kind]]) -> Sample:
        return replace(self, tensors={**self.tensors, **tensors})

    def without(self, *names: str) -> Sample:
        kept = {name: tensor for name, tensor in self.tensors.items() if name not in names}
        return replace(self, tensors=kept)

    def write(self, path: Path, *, has_data: bool = False, num_parts: int = 1) -> Path:
        """Write the header, and the data if asked; return the (first) file."""
        most = -(-len(self.tensors) // num_parts) if num_parts > 1 else 0
        writer = GGUFWriter(path, self.architecture, split_max_tensors=most)
        for key, value in self.keys.items():
            own = key.startswith(_OWN_PREFIX)
            _add(writer, key if own else f"{self.architecture}.{key}", value)
        for name, (sizes, kind) in self.tensors.items():
            shape = tuple(reversed(sizes))
            if has_data:
                stored = shape if kind in {F32, F16} else quant_shape_to_byte_shape(shape, kind)
                values = {F32: np.float32, F16: np.float16}.get(kind, np.uint8)
                writer.add_tensor(name, np.zeros(stored, values), raw_dtype=kind)
            else:
                writer.add_tensor_info(name, shape, np.dtype(np.float32), 0, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        if has_data:
            writer.write_tensors_to_file()
        else:
            writer.write_ti_data_to_file()
        writer.close()
        return path if num_parts == 1 else writer.format_shard_names(path)[0]


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)


# --- small models with known bytes


def dense() -> Sample:
    """Llama: three layers, 512 wide, 8 heads on 2 KV heads of 64, FFN 1024, Q4_K_M-like."""
    tensors: Tensors = {
        "token_embd.weight": ((512, 1000), Q4_K),
        "rope_freqs.weight": ((32,), F32),
        "output_norm.weight": ((512,), F32),
        "output.weight": ((512, 1000), Q6_K),
    }
    for layer in range(3):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": ((512,), F32),
            f"blk.{layer}.attn_q.weight": ((512, 512), Q8_0),
            f"blk.{layer}.attn_k.weight": ((512, 128), Q8_0),
            f"blk.{layer}.attn_v.weight": ((512, 128), Q8_0),
            f"blk.{layer}.attn_output.weight": ((512, 512), Q8_0),
            f"blk.{layer}.ffn_norm.weight": ((512,), F32),
            f"blk.{layer}.ffn_gate.weight": ((512, 1024), Q4_K),
            f"blk.{layer}.ffn_up.weight": ((512, 1024), Q4_K),
            # the first layer's is in better quality, as in a Q4_K_M file
            f"blk.{layer}.ffn_down.weight": ((1024, 512), Q4_K if layer else Q6_K),
        }
    keys = {
        "general.name": "Small Llama",
        "general.file_type": 15,
        "block_count": 3,
        "embedding_length": 512,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "feed_forward_length": 1024,
        "vocab_size": 1000,
        "tokenizer.ggml.tokens": [f"token {number}" for number in range(20)],
        "tokenizer.ggml.scores": [float(number) for number in range(20)],
    }
    return Sample(architecture="llama", keys=keys, tensors=tensors)


def tied() -> Sample:
    """Gemma 3: seven layers, one table, heads wider than hidden / heads, windows of 512."""
    tensors: Tensors = {
        "token_embd.weight": ((256, 800), Q8_0),
        "output_norm.weight": ((256,), F32),
    }
    for layer in range(7):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": ((256,), F32),
            f"blk.{layer}.attn_q.weight": ((256, 512), F16),
            f"blk.{layer}.attn_k.weight": ((256, 128), F16),
            f"blk.{layer}.attn_v.weight": ((256, 128), F16),
            f"blk.{layer}.attn_output.weight": ((512, 256), F16),
            f"blk.{layer}.post_ffw_norm.weight": ((256,), F32),
            f"blk.{layer}.ffn_gate.weight": ((256, 640), F16),
            f"blk.{layer}.ffn_up.weight": ((256, 640), F16),
            f"blk.{layer}.ffn_down.weight": ((640, 256), F16),
        }
    keys = {
        "general.file_type": 1,
        "block_count": 7,
        "embedding_length": 256,
        "attention.head_count": 4,
        "attention.head_count_kv": 1,
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.sliding_window": 512,
        "tokenizer.ggml.tokens": [str(number) for number in range(800)],
    }
    return Sample(architecture="gemma3", keys=keys, tensors=tensors)


def mixture() -> Sample:
    """Qwen2-MoE: layer 0 dense, layer 1 with 8 experts of 64 (2 a token) and a shared one of 96."""
    tensors: Tensors = {
        "token_embd.weight": ((256, 500), F16),
        "output_norm.weight": ((256,), F32),
        "output.weight": ((256, 500), F16),
        "blk.0.ffn_up.weight": ((256, 512), F16),
        "blk.0.ffn_down.weight": ((512, 256), F16),
        "blk.1.ffn_gate_inp.weight": ((256, 8), F32),
        "blk.1.ffn_gate_inp_shexp.weight": ((256,), F32),
        "blk.1.exp_probs_b.bias": ((8,), F32),
        "blk.1.ffn_gate_exps.weight": ((256, 64, 8), Q4_K),
        "blk.1.ffn_up_exps.weight": ((256, 64, 8), Q4_K),
        "blk.1.ffn_down_exps.weight": ((64, 256, 8), Q8_0),
        "blk.1.ffn_gate_shexp.weight": ((256, 96), Q8_0),
        "blk.1.ffn_up_shexp.weight": ((256, 96), Q8_0),
        "blk.1.ffn_down_shexp.weight": ((96, 256), Q8_0),
    }
    for layer in range(2):
        tensors |= {
            f"blk.{layer}.attn_norm.weight": ((256,), F32),
            f"blk.{layer}.attn_qkv.weight": ((256, 512), F16),
            f"blk.{layer}.attn_qkv.bias": ((512,), F32),
            f"blk.{layer}.attn_output.weight": ((256, 256), F16),
        }
    keys = {
        "block_count": 2,
        "embedding_length": 256,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "expert_count": 8,
        "expert_used_count": 2,
        "vocab_size": 500,
    }
    return Sample(architecture="qwen2moe", keys=keys, tensors=tensors)


# --- any architecture of config.json, all tensors F32


def of_facts(facts: ModelFacts, architecture: str, **keys: Any) -> Sample:
    """Return the file that llama.cpp's converter would write, in F32."""
    tensors: Tensors = {
        "token_embd.weight": ((facts.hidden_size, facts.vocab_size), F32),
        "output_norm.weight": ((facts.hidden_size,), F32),
    }
    if not facts.tie_word_embeddings:
        tensors["output.weight"] = ((facts.hidden_size, facts.vocab_size), F32)
    for layer in range(facts.num_hidden_layers):
        of_layer = {**_attention(facts, layer), **_ffn(facts, layer)}
        tensors |= {f"blk.{layer}.{name}": (sizes, F32) for name, sizes in of_layer.items()}
    stated: dict[str, Any] = {
        "general.file_type": 0,
        "block_count": facts.num_hidden_layers,
        "embedding_length": facts.hidden_size,
        "attention.head_count": facts.num_attention_heads,
        "attention.head_count_kv": facts.num_key_value_heads,
        "vocab_size": facts.vocab_size,
    }
    if facts.head_dim:
        stated |= {f"attention.{part}_length": facts.head_dim for part in ("key", "value")}
    if facts.sliding_window:
        stated["attention.sliding_window"] = facts.sliding_window
    if facts.num_experts:
        stated |= {
            "expert_count": facts.num_experts,
            "expert_used_count": facts.num_experts_per_tok,
        }
    if is_latent(facts):
        stated |= _latent_keys(facts)
    named = {key.replace("__", "."): value for key, value in keys.items()}
    return Sample(architecture=architecture, keys={**stated, **named}, tensors=tensors)


def _latent_keys(facts: ModelFacts) -> dict[str, Any]:
    return {
        "attention.head_count_kv": 1,
        "attention.kv_lora_rank": facts.kv_lora_rank,
        "attention.q_lora_rank": facts.q_lora_rank,
        "attention.key_length": facts.kv_lora_rank + facts.qk_rope_head_dim,
        "attention.value_length": facts.kv_lora_rank,
        "attention.key_length_mla": facts.qk_nope_head_dim + facts.qk_rope_head_dim,
        "attention.value_length_mla": facts.v_head_dim,
        "rope.dimension_count": facts.qk_rope_head_dim,
    }


def _attention(facts: ModelFacts, layer: int) -> dict[str, tuple[int, ...]]:
    hidden, heads = facts.hidden_size, facts.num_attention_heads
    norms = {"attn_norm.weight": (hidden,), "ffn_norm.weight": (hidden,)}
    if is_latent(facts):
        rank, nope, rope = facts.kv_lora_rank, facts.qk_nope_head_dim, facts.qk_rope_head_dim
        return {
            **norms,
            "attn_q_a.weight": (hidden, facts.q_lora_rank),
            "attn_q_b.weight": (facts.q_lora_rank, heads * (nope + rope)),
            "attn_kv_a_mqa.weight": (hidden, rank + rope),
            "attn_k_b.weight": (nope, rank, heads),
            "attn_v_b.weight": (rank, facts.v_head_dim, heads),
            "attn_output.weight": (heads * facts.v_head_dim, hidden),
        }
    assert layer_type(facts, layer) != "linear_attention"
    width = facts.head_dim or hidden // heads
    query, key = heads * width, facts.num_key_value_heads * width
    bias = {"attn_q.bias": (query,), "attn_k.bias": (key,), "attn_v.bias": (key,)}
    return {
        **norms,
        "attn_q.weight": (hidden, query),
        "attn_k.weight": (hidden, key),
        "attn_v.weight": (hidden, key),
        "attn_output.weight": (query, hidden),
        **(bias if facts.has_attention_bias else {}),
    }


def _ffn(facts: ModelFacts, layer: int) -> dict[str, tuple[int, ...]]:
    hidden = facts.hidden_size
    if not is_moe_layer(facts, layer):
        return _mlp(hidden, facts.intermediate_size, "")
    width, shared = facts.moe_intermediate_size, facts.num_shared_experts
    one = _mlp(hidden, width, "_exps")
    return {
        "ffn_gate_inp.weight": (hidden, facts.num_experts),
        **{name: (*sizes, facts.num_experts) for name, sizes in one.items()},
        **(_mlp(hidden, shared * width, "_shexp") if shared else {}),
    }


def _mlp(hidden: int, width: int, suffix: str) -> dict[str, tuple[int, ...]]:
    return {
        f"ffn_gate{suffix}.weight": (hidden, width),
        f"ffn_up{suffix}.weight": (hidden, width),
        f"ffn_down{suffix}.weight": (width, hidden),
    }


# --- headers byte by byte


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def opening(num_tensors: int, num_keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_keys)


def key(name: str, type_id: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", type_id) + value


def tensor(name: str, sizes: tuple[int, ...], type_id: int = 0) -> bytes:
    form = f"<I{len(sizes)}QIQ"
    return text(name) + struct.pack(form, len(sizes), *sizes, type_id, 0)
