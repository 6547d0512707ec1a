"""Models with random weights are read as what they are; no engine is needed for that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from gguf import GGUFReader
from gguf.constants import GGML_QUANT_SIZES

from e2llm_opt.model.gguf_file import load_gguf
from tests.engine.random_models import FORMATS, Shape, written

if TYPE_CHECKING:
    from pathlib import Path

TINY = Shape(name="tiny", layers=3, width=128, ffn=192, kv_heads=1, vocab=300)


@pytest.mark.parametrize("weights", FORMATS)
def test_a_written_model_has_the_shape_and_the_bytes_that_were_asked_for(
    tmp_path: Path, weights: str
) -> None:
    facts = load_gguf(written(TINY, weights, tmp_path))
    values, num_bytes = GGML_QUANT_SIZES[FORMATS[weights][0]]
    matrices = sum(math.prod(size) for size in TINY.matrices().values())
    layer = matrices * num_bytes / values + 2 * 4 * TINY.width
    assert (facts.name, facts.weights) == ("random-tiny", weights)
    assert (facts.num_hidden_layers, facts.hidden_size, facts.vocab_size) == (3, 128, 300)
    assert facts.layer_weight_bytes == (layer,) * 3


def test_layers_differ_and_equal_shapes_do_not(tmp_path: Path) -> None:
    """What passes through a layer twice must not meet the same weights, nor run to run others."""
    first, again = (written(TINY, "f16", tmp_path / name) for name in ("first", "again"))
    assert first.read_bytes() == again.read_bytes()
    of = {tensor.name: tensor.data for tensor in GGUFReader(first).tensors}
    assert (of["blk.0.attn_q.weight"] != of["blk.1.attn_q.weight"]).any()


def test_a_written_model_is_not_written_again_and_nothing_partial_stays(tmp_path: Path) -> None:
    path = written(TINY, "f16", tmp_path)
    path.write_bytes(b"kept")
    assert written(TINY, "f16", tmp_path).read_bytes() == b"kept"
    assert list(tmp_path.iterdir()) == [path]
