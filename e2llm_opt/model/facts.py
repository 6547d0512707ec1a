"""What a model's publisher says of it, under the names of Hugging Face's ``config.json``."""

from __future__ import annotations

from dataclasses import dataclass

PerLayer = float | tuple[float, ...]
"""One number for every layer, or one number a layer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Architecture of a model, before weights get a format (DESIGN section 4.2).

    Only ``num_hidden_layers``, ``hidden_size`` and ``vocab_size`` are always needed;
    :func:`e2llm_opt.model.build.build_model` says which of the others it misses.

    Parameters
    ----------
    num_experts, num_experts_per_tok, moe_intermediate_size, num_shared_experts
        Mixture of experts; 0 in a dense model.
    num_dense_layers
        Leading layers without experts (DeepSeek's ``first_k_dense_replace``).
    kv_lora_rank, q_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim
        Multi-head latent attention; 0 elsewhere.
    max_position_embeddings
        Longest context the model was made for [tokens]; 0: unknown.
    sliding_window, layer_types
        Window [tokens] and which layers have it: ``sliding_attention``, ``full_attention`` or
        ``linear_attention`` (no growing KV cache); None: no layer is windowed.
    moe_layer_step
        Of the layers after the dense ones every so-manieth has experts (Llama 4 Maverick: 2).
    linear_num_key_heads … linear_value_head_dim
        Shape of ``linear_attention`` layers; 0: as large as the full attention.
    has_attention_gate
        The query projection is twice as wide, for an output gate (Qwen3-Next).
    is_gated
        The FFN has three matrices (gate, up, down) rather than two.
    has_attention_bias
        Whether q, k, v carry biases (small, but part of the file).
    layer_weight_bytes … layer_attention_flops
        Overrides in bytes, bytes a token, values a token, FLOP a token, or FLOP a token and token
        of context; scalar or one value a layer.
    layer_routed_bytes
        What of ``layer_weight_bytes`` are routed experts, of which a token reads the share
        ``num_experts_per_tok / num_experts``; ``layer_active_weight_bytes`` says the same in
        another way.
    embedding_bytes, head_bytes
        Overrides [bytes].
    weights
        Format of the file whose bytes the overrides state (``q4_k_m``, ``gguf`` …); empty where
        any format can be chosen.
    allowed_stage_starts
        Layers at which a stage may start; None: all.
    """

    name: str
    num_hidden_layers: int
    hidden_size: int
    vocab_size: int
    num_attention_heads: int = 0
    num_key_value_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    tie_word_embeddings: bool = False
    num_experts: int = 0
    num_experts_per_tok: int = 0
    moe_intermediate_size: int = 0
    num_shared_experts: int = 0
    num_dense_layers: int = 0
    moe_layer_step: int = 1
    kv_lora_rank: int = 0
    q_lora_rank: int = 0
    qk_rope_head_dim: int = 0
    qk_nope_head_dim: int = 0
    v_head_dim: int = 0
    max_position_embeddings: int = 0
    sliding_window: int = 0
    layer_types: tuple[str, ...] | None = None
    linear_num_key_heads: int = 0
    linear_num_value_heads: int = 0
    linear_key_head_dim: int = 0
    linear_value_head_dim: int = 0
    is_gated: bool = True
    has_attention_bias: bool = False
    has_attention_gate: bool = False
    layer_weight_bytes: PerLayer | None = None
    layer_active_weight_bytes: PerLayer | None = None
    layer_routed_bytes: PerLayer | None = None
    layer_spillable_bytes: PerLayer | None = None
    kv_bytes_per_token: PerLayer | None = None
    kv_values_per_token: PerLayer | None = None
    layer_flops_per_token: PerLayer | None = None
    layer_attention_flops: PerLayer | None = None
    embedding_bytes: float | None = None
    head_bytes: float | None = None
    weights: str = ""
    allowed_stage_starts: tuple[int, ...] | None = None
