"""Parameters, KV values and attention FLOPs of each layer, from the model's facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from e2llm_opt.model.facts import ModelFacts

LAYER_TYPES = ("full_attention", "sliding_attention", "linear_attention")
"""What a layer's attention may be."""
NORMS_PER_LAYER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """Parameters of one layer by tensor class.

    Parameters
    ----------
    attention, ffn, experts, small
        Parameters: projections; dense FFN with shared experts; all routed experts; norms, biases
        and router.
    routed_fraction
        Share of the routed experts that one token uses; 0 without experts.
    router
        Part of *small* that is a matrix product.
    """

    attention: float
    ffn: float
    experts: float
    small: float
    routed_fraction: float
    router: float

    @property
    def active_matrix_params(self) -> float:
        """Parameters that multiply one token; twice this is its FLOPs."""
        return self.attention + self.ffn + self.experts * self.routed_fraction + self.router


def layer_type(facts: ModelFacts, layer: int) -> str:
    """Return the kind of attention that *layer* has."""
    return facts.layer_types[layer] if facts.layer_types is not None else "full_attention"


def is_moe_layer(facts: ModelFacts, layer: int) -> bool:
    """Whether *layer* has routed experts in place of a dense FFN."""
    is_step = (layer + 1) % facts.moe_layer_step == 0
    return facts.num_experts > 0 and layer >= facts.num_dense_layers and is_step


def is_latent(facts: ModelFacts) -> bool:
    """Whether attention is multi-head latent attention (MLA)."""
    return facts.kv_lora_rank > 0


def head_dim(facts: ModelFacts) -> int:
    """Return the width of one head: as given, else hidden size over heads; 0 when unknown."""
    if facts.head_dim:
        return facts.head_dim
    return facts.hidden_size // facts.num_attention_heads if facts.num_attention_heads else 0


def num_kv_heads(facts: ModelFacts) -> int:
    """Return the number of KV heads: as given, else that of the query heads."""
    return facts.num_key_value_heads or facts.num_attention_heads


def layer_shape(facts: ModelFacts, layer: int) -> LayerShape:
    """Count the parameters of *layer*; the facts must suffice."""
    hidden = facts.hidden_size
    matrices = 3 if facts.is_gated else 2
    small = NORMS_PER_LAYER * hidden
    if facts.has_attention_bias and layer_type(facts, layer) != "linear_attention":
        small += (facts.num_attention_heads + 2 * num_kv_heads(facts)) * head_dim(facts)
    ffn = matrices * hidden * facts.intermediate_size
    experts = router = fraction = 0.0
    if is_moe_layer(facts, layer):
        one_expert = matrices * hidden * facts.moe_intermediate_size
        ffn = facts.num_shared_experts * one_expert
        experts = facts.num_experts * one_expert
        router = hidden * facts.num_experts
        fraction = facts.num_experts_per_tok / facts.num_experts
    return LayerShape(
        attention=_attention_params(facts, layer),
        ffn=ffn,
        experts=experts,
        small=small + router,
        routed_fraction=fraction,
        router=router,
    )


def kv_values_per_token(
    facts: ModelFacts, layer: int, kv_layout: Literal["expanded", "latent"]
) -> int:
    """Return how many values one token leaves in the KV cache of *layer*."""
    if layer_type(facts, layer) == "linear_attention":
        return 0  # a state of fixed size, small beside a cache that grows
    if not is_latent(facts):
        return 2 * num_kv_heads(facts) * head_dim(facts)
    if kv_layout == "latent":
        return facts.kv_lora_rank + facts.qk_rope_head_dim
    return facts.num_attention_heads * _latent_head_values(facts)


def attention_flops(facts: ModelFacts, layer: int) -> float:
    """Return the FLOPs of one token for each token of its context in *layer*.

    Notes
    -----
    Query times key and score times value, two FLOPs a product: 4 · heads · head_dim, or with MLA
    2 · heads · (query-key width + value width).
    """
    if layer_type(facts, layer) == "linear_attention":
        return 0.0
    if is_latent(facts):
        return 2.0 * facts.num_attention_heads * _latent_head_values(facts)
    return 4.0 * facts.num_attention_heads * head_dim(facts)


def window_tokens(facts: ModelFacts, layer: int) -> float:
    """Return how far back *layer* looks [tokens]; ``inf`` for all of the context."""
    is_windowed = layer_type(facts, layer) == "sliding_attention"
    return float(facts.sliding_window) if is_windowed else math.inf


def _latent_head_values(facts: ModelFacts) -> int:
    return facts.qk_nope_head_dim + facts.qk_rope_head_dim + facts.v_head_dim


def _attention_params(facts: ModelFacts, layer: int) -> float:
    if is_latent(facts):
        return _latent_attention_params(facts)
    hidden = facts.hidden_size
    if layer_type(facts, layer) == "linear_attention" and facts.linear_num_value_heads:
        keys = facts.linear_num_key_heads * facts.linear_key_head_dim
        values = facts.linear_num_value_heads * facts.linear_value_head_dim
        decay_and_beta = 2 * facts.linear_num_value_heads
        # in: queries, keys, values, output gate; out: values
        return hidden * (2 * keys + 2 * values + decay_and_beta) + values * hidden
    query = facts.num_attention_heads * head_dim(facts)
    key_value = 2 * num_kv_heads(facts) * head_dim(facts)
    gate = query if facts.has_attention_gate else 0
    return hidden * (query + gate + key_value) + query * hidden


def _latent_attention_params(facts: ModelFacts) -> float:
    hidden, heads = facts.hidden_size, facts.num_attention_heads
    query_width = heads * (facts.qk_nope_head_dim + facts.qk_rope_head_dim)
    rank = facts.q_lora_rank
    query = rank * (hidden + query_width) if rank else hidden * query_width
    down = hidden * (facts.kv_lora_rank + facts.qk_rope_head_dim)
    up = facts.kv_lora_rank * heads * (facts.qk_nope_head_dim + facts.v_head_dim)
    output = heads * facts.v_head_dim * hidden
    return query + down + up + output
