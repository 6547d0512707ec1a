"""Llama models with random weights as GGUF files: as slow as real ones of their shape."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

import numpy as np
from gguf import GGUFWriter
from gguf.constants import GGMLQuantizationType as Kind
from gguf.constants import LlamaFileType, TokenType
from gguf.quants import quantize

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

HEAD_VALUES: Final = 64
"""Values of one attention head."""
CONTEXT_TOKENS: Final = 4096
FORMATS: Final = {
    "f16": (Kind.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (Kind.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (Kind.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}
"""Weight format -> how matrices are stored, and what the file calls itself."""
_BYTES: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How large a model is.

    Parameters
    ----------
    name
        Part of the file's name.
    layers, width, ffn, kv_heads
        Layers, values of a hidden state, of a feed-forward layer, and heads of keys and values.
    vocab
        Tokens; bytes and the three special ones are among them.
    """

    name: str
    layers: int
    width: int
    ffn: int
    kv_heads: int
    vocab: int = 8192

    @property
    def heads(self) -> int:
        return self.width // HEAD_VALUES

    def matrices(self) -> dict[str, tuple[int, int]]:
        """Return rows and columns of the matrices of one layer by name."""
        keys = self.kv_heads * HEAD_VALUES
        return {
            "attn_q": (self.width, self.width),
            "attn_k": (keys, self.width),
            "attn_v": (keys, self.width),
            "attn_output": (self.width, self.width),
            "ffn_gate": (self.ffn, self.width),
            "ffn_up": (self.ffn, self.width),
            "ffn_down": (self.width, self.ffn),
        }


SMALL: Final = Shape(name="small", layers=8, width=1024, ffn=2816, kv_heads=4)
MIDDLE: Final = Shape(name="middle", layers=12, width=1280, ffn=3520, kv_heads=5)
LARGE: Final = Shape(name="large", layers=16, width=1536, ffn=4224, kv_heads=6)


def written(shape: Shape, weights: str, folder: Path) -> Path:
    """Return the file of a model in *folder*, written unless it is there."""
    path = folder / f"random-{shape.name}-{weights}.gguf"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    try:
        _write(shape, weights, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def _write(shape: Shape, weights: str, path: Path) -> None:
    kind, file_type = FORMATS[weights]
    writer = GGUFWriter(path, "llama")
    writer.add_name(f"random-{shape.name}")
    writer.add_file_type(file_type)
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(HEAD_VALUES)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)
    _add_tokenizer(writer, shape.vocab)
    tensors = list(_tensors(shape))
    for name, size in tensors:
        row = quantize(np.ones(size[-1:], np.float32), _stored(size, kind))
        bytes_of = (*size[:-1], *row.shape)
        writer.add_tensor_info(
            name, bytes_of, row.dtype, prod(bytes_of) * row.itemsize, _stored(size, kind)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    rng = np.random.default_rng(shape.layers * shape.width)
    drawn: dict[str, NDArray[np.generic]] = {}
    for name, size in tensors:
        matrix = name.split(".")[-2]
        if matrix not in drawn:
            drawn[matrix] = _values(rng, size, kind)
        writer.write_tensor_data(rng.permutation(drawn[matrix]))
    writer.close()


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (shape.vocab, shape.width)
    for layer in range(shape.layers):
        yield f"blk.{layer}.attn_norm.weight", (shape.width,)
        yield f"blk.{layer}.ffn_norm.weight", (shape.width,)
        for name, size in shape.matrices().items():
            yield f"blk.{layer}.{name}.weight", size
    yield "output_norm.weight", (shape.width,)
    yield "output.weight", (shape.vocab, shape.width)


def _stored(size: tuple[int, ...], kind: Kind) -> Kind:
    """Return how a tensor is stored: vectors are never quantised."""
    return kind if len(size) > 1 else Kind.F32


def _values(rng: np.random.Generator, size: tuple[int, ...], kind: Kind) -> NDArray[np.generic]:
    """Return a tensor that keeps the size of what passes through it, so that nothing overflows.

    Drawn and quantised once; every layer has its rows in another order, which takes a tenth of
    the time of drawing all.
    """
    if len(size) == 1:
        return np.ones(size, np.float32)
    values: Floats = rng.standard_normal(size, dtype=np.float32)
    return quantize(values / np.float32(np.sqrt(size[-1])), kind)


def _add_tokenizer(writer: GGUFWriter, vocab: int) -> None:
    """Add the least tokenizer that an engine takes: three special tokens, bytes, and words."""
    special = ("<unk>", "<s>", "</s>")
    num_words = vocab - len(special) - len(_BYTES)
    words = tuple(f"\N{LOWER ONE EIGHTH BLOCK}w{i}" for i in range(num_words))
    kinds = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL)
    writer.add_tokenizer_model("llama")
    writer.add_token_list((*special, *_BYTES, *words))
    writer.add_token_scores([0.0] * (vocab - num_words) + [-float(i) for i in range(num_words)])
    writer.add_token_types(
        [*kinds, *[TokenType.BYTE] * len(_BYTES), *[TokenType.NORMAL] * num_words]
    )
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
