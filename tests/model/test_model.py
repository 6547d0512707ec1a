"""A model made by hand: what cannot be is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from e2llm_opt.errors import InputError
from tests.check.small import MODEL

PER_LAYER = [name for name in MODEL.__slots__ if name.startswith("layer_")]


@pytest.mark.parametrize("field", [name for name in PER_LAYER if name != "layer_dense_bytes"])
@pytest.mark.parametrize("values", [(1.0,) * 3, (1.0,) * 5, ()])
def test_every_layer_has_every_figure(field: str, values: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match=f"{field} has {len(values)} entries for 4 layers"):
        replace(MODEL, **{field: values})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", PER_LAYER)
@pytest.mark.parametrize("value", [-1.0, math.nan])
def test_no_figure_of_a_layer_is_below_zero(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{field} must be zero or more"):
        replace(MODEL, **{field: (1.0, 1.0, 1.0, value)})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (dict.fromkeys(PER_LAYER, ()), "it has no layers"),
        ({"layer_dense_bytes": (1.0, 0.0, 1.0, 1.0)}, "a layer has no weights"),
        ({"hidden_size": 0}, "hidden_size and vocab_size must be positive"),
        ({"vocab_size": 0}, "hidden_size and vocab_size must be positive"),
    ],
)
def test_a_model_is_something(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=f"^Model 'small': {told}"):
        replace(MODEL, **changes)
