"""Tensors of a GGUF file → bytes and parameters of each layer, by what a token reads of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_OF_LAYER: Final = re.compile(r"blk\.(\d{1,9})\.(.+)")
_ROUTED: Final = re.compile(r"ffn_(?:gate|up|down|gate_up)(?:_(?:ch)?exps|\.\d+)\.")
"""Routed experts: one tensor for all, or in early files one each (``ffn_up.3.weight``)."""
_ALL_EXPERTS: Final = re.compile(r"ffn_(?:gate|up|down|gate_up)_exps\.weight")
_FFN: Final = re.compile(r"ffn_(?:gate|up|down|gate_up|latent_up|latent_down)(?:_shexp)?\.")
"""Dense FFN and shared experts; not their norms, nor the router."""
_KEYS_AND_VALUES: Final = ("attn_k.", "attn_kv_a_mqa.")
_LOOKED_UP: Final = ("token_embd.", "position_embd.", "token_types.", "per_layer_token_embd.")
"""Tables of which a token reads one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor with its size.

    Parameters
    ----------
    name, shape
        As the file says.
    num_bytes
        Without padding [bytes].
    """

    name: str
    shape: tuple[int, ...]
    num_bytes: int

    @property
    def matrix_params(self) -> int:
        """Parameters that multiply a token; 0 for vectors (norms, biases)."""
        if len(self.shape) < 2 or not self.name.endswith(".weight"):  # noqa: PLR2004
            return 0
        params = 1
        for size in self.shape:
            params *= size
        return params


@dataclass(slots=True, kw_only=True)
class LayerTensors:
    """What the tensors of one layer add up to [bytes, parameters].

    Parameters
    ----------
    dense_bytes, routed_bytes
        Read by every token; routed experts.
    spillable_bytes
        FFN and experts.
    dense_params, routed_params
        Parameters of matrices.
    expert_counts
        How many experts the tensors of routed experts have.
    first_name
        Some tensor of the layer.
    """

    dense_bytes: int = 0
    routed_bytes: int = 0
    spillable_bytes: int = 0
    dense_params: int = 0
    routed_params: int = 0
    expert_counts: set[int] = field(default_factory=set)
    first_name: str = ""
    has_keys: bool = False
    has_fused_keys: bool = False
    has_state: bool = False

    @property
    def has_cache(self) -> bool:
        """Whether its attention leaves keys and values; a recurrent state is none."""
        return self.has_keys or (self.has_fused_keys and not self.has_state)

    def add(self, tensor: Tensor, rest: str) -> None:
        """Count *tensor*, called *rest* inside the layer."""
        self.first_name = self.first_name or tensor.name
        self.has_keys |= rest.startswith(_KEYS_AND_VALUES)
        self.has_fused_keys |= rest.startswith("attn_qkv.")
        self.has_state |= rest.startswith("ssm_")
        if _ROUTED.match(rest):
            self.routed_bytes += tensor.num_bytes
            self.spillable_bytes += tensor.num_bytes
            self.routed_params += tensor.matrix_params
            if _ALL_EXPERTS.fullmatch(rest):
                self.expert_counts.add(tensor.shape[-1] if tensor.shape else 1)
            return
        self.dense_bytes += tensor.num_bytes
        self.dense_params += tensor.matrix_params
        if _FFN.match(rest):
            self.spillable_bytes += tensor.num_bytes


@dataclass(slots=True, kw_only=True)
class ModelTensors:
    """What all tensors of a model add up to.

    Parameters
    ----------
    layers
        Index of a layer → its tensors.
    embedding_bytes, further_lookup_bytes
        The input table; other tables that are looked up [bytes].
    head_bytes
        Everything else outside the layers: output projection, last norm … [bytes].
    has_output
        Whether there is an output projection of its own; else the input table serves.
    """

    layers: dict[int, LayerTensors] = field(default_factory=dict)
    embedding_shape: tuple[int, ...] = ()
    embedding_bytes: int = 0
    further_lookup_bytes: int = 0
    head_bytes: int = 0
    has_output: bool = False


def sorted_out(tensors: Iterable[Tensor]) -> ModelTensors:
    """Return the sizes of *tensors* by layer and class; every byte is counted once."""
    model = ModelTensors()
    for tensor in tensors:
        of_layer = _OF_LAYER.fullmatch(tensor.name)
        if of_layer:
            layer = model.layers.setdefault(int(of_layer[1]), LayerTensors())
            layer.add(tensor, of_layer[2])
        elif tensor.name.startswith("token_embd."):
            model.embedding_bytes += tensor.num_bytes
            if tensor.name == "token_embd.weight":
                model.embedding_shape = tensor.shape
        elif tensor.name.startswith(_LOOKED_UP):
            model.further_lookup_bytes += tensor.num_bytes
        else:
            model.head_bytes += tensor.num_bytes
            model.has_output |= tensor.name == "output.weight"
    return model
