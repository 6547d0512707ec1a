"""The model as the planner sees it: bytes and FLOPs of each layer, embedding and head."""

from __future__ import annotations

import math
from dataclasses import dataclass

from e2llm_opt.errors import InputError

_PER_LAYER = (
    "layer_dense_bytes",
    "layer_routed_bytes",
    "layer_routed_fraction",
    "layer_spillable_bytes",
    "layer_flops_per_token",
    "layer_attention_flops",
    "layer_kv_bytes_per_token",
    "layer_window_tokens",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model with its weights in one format and its KV cache in another.

    Every tuple has one entry a layer (length L). Layers need not be alike.

    Parameters
    ----------
    name
        For people.
    hidden_size, vocab_size
        Width of an activation [values] and of the logits [values].
    layer_dense_bytes
        Weights that every token reads [bytes].
    layer_routed_bytes
        Weights of all routed experts together [bytes]; 0 in a dense layer.
    layer_routed_fraction
        Share of the routed bytes that one token reads (experts a token / experts).
    layer_spillable_bytes
        FFN or expert part of the layer, which may be kept in host RAM [bytes].
    layer_flops_per_token
        Projections of one token, independent of the context [FLOP].
    layer_attention_flops
        Further FLOPs of one token for each token of its context [FLOP/token].
    layer_kv_bytes_per_token
        KV cache of one token in one layer [bytes].
    layer_window_tokens
        Sliding window; ``inf`` for full attention [tokens].
    embedding_bytes, head_bytes
        The input table and the output projection [bytes].
    head_flops_per_token
        Output projection of one token [FLOP].
    is_tied
        Embedding and head are one table: one stage that holds both holds it once.
    allowed_stage_starts
        Sorted layers at which a stage may start; None when all are allowed.

    Raises
    ------
    InputError
        When lengths differ or a number is impossible.
    """

    name: str
    hidden_size: int
    vocab_size: int
    layer_dense_bytes: tuple[float, ...]
    layer_routed_bytes: tuple[float, ...]
    layer_routed_fraction: tuple[float, ...]
    layer_spillable_bytes: tuple[float, ...]
    layer_flops_per_token: tuple[float, ...]
    layer_attention_flops: tuple[float, ...]
    layer_kv_bytes_per_token: tuple[float, ...]
    layer_window_tokens: tuple[float, ...]
    embedding_bytes: float
    head_bytes: float
    head_flops_per_token: float
    is_tied: bool = False
    allowed_stage_starts: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse unlike lengths and impossible numbers."""
        if self.num_layers == 0:
            raise InputError(f"Model '{self.name}': it has no layers.")
        for field in _PER_LAYER:
            values: tuple[float, ...] = getattr(self, field)
            if len(values) != self.num_layers:
                raise InputError(
                    f"Model '{self.name}': {field} has {len(values)} entries for "
                    f"{self.num_layers} layers."
                )
            if any(math.isnan(value) or value < 0 for value in values):
                raise InputError(f"Model '{self.name}': {field} must be zero or more.")
        if min(self.layer_weight_bytes) <= 0:
            raise InputError(f"Model '{self.name}': a layer has no weights.")
        if self.hidden_size <= 0 or self.vocab_size <= 0:
            raise InputError(f"Model '{self.name}': hidden_size and vocab_size must be positive.")

    @property
    def num_layers(self) -> int:
        """Number of transformer blocks, L."""
        return len(self.layer_dense_bytes)

    @property
    def layer_weight_bytes(self) -> tuple[float, ...]:
        """All weights of each layer [bytes]."""
        return tuple(
            dense + routed
            for dense, routed in zip(self.layer_dense_bytes, self.layer_routed_bytes, strict=True)
        )

    @property
    def weight_bytes(self) -> float:
        """Layers, embedding and head, a tied table counted once [bytes]."""
        tables = self.head_bytes if self.is_tied else self.embedding_bytes + self.head_bytes
        return sum(self.layer_weight_bytes) + tables

    def kv_bytes(self, tokens: float) -> float:
        """KV cache of one request of *tokens* tokens, over all layers [bytes]."""
        return sum(
            per_token * min(tokens, window)
            for per_token, window in zip(
                self.layer_kv_bytes_per_token, self.layer_window_tokens, strict=True
            )
        )
