"""One speed as a file or the command line states it, before anything is looked up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault

if TYPE_CHECKING:
    from e2llm_opt.speed import Phase

PROMPT_TOKENS = 512
"""Prompt of a prefill measurement that does not say: llama-bench's own [tokens]."""
OUTPUT_TOKENS = 128
"""Answer of a decode measurement that does not say: llama-bench's own [tokens]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A measured speed, and the words that say of what.

    Parameters
    ----------
    file, line
        Where it stands; line 0 where there is none.
    phase, tokens_per_s
        What was timed, and the speed [tokens/s]: of all requests together where there are several.
    tokens, depth, batch
        Prompt (or answer) length, tokens in the KV cache before it, requests at once.
    device
        The inventory's name or a catalogue type; empty where only *hardware* is known.
    hardware
        As the driver names it; may be empty.
    models, weights, kv_cache
        Names to try for the model, best first, and formats; empty where nothing is said.
    size_bytes
        Of the model's file; 0 where unknown [bytes].
    gpu_layers
        Layers on a GPU; -1 where all are, or where it is not said.
    is_on_gpu
        Whether a GPU took part; None where it is not said.
    chunk_tokens
        Tokens of a prompt computed at once; 0 where it is not said.
    """

    file: str
    line: int
    phase: Phase
    tokens_per_s: float
    tokens: int
    depth: int = 0
    batch: int = 1
    device: str = ""
    hardware: str = ""
    models: tuple[str, ...] = ()
    weights: str = ""
    kv_cache: str = ""
    size_bytes: float = 0.0
    gpu_layers: int = -1
    is_on_gpu: bool | None = None
    chunk_tokens: int = 0

    @property
    def where(self) -> str:
        """``bench.json:12``, or the file alone."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def fault(self, wrong: str, right: str = "") -> Fault:
        """Return what is wrong, at its place."""
        return Fault(file=self.file, line=self.line, wrong=wrong, right=right)


def positive(value: object) -> float:
    """Return *value* as a positive, finite number; 0 where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return 0.0
    return found if math.isfinite(found) and found > 0 else 0.0


def whole(value: object, default: int = 0) -> int:
    """Return *value* as a whole number; *default* where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return default
    return int(found) if math.isfinite(found) and found.is_integer() else default
