"""Bytes on a stage: weights, KV cache, the engine's overhead, embedding and head."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem

LOGIT_BYTES = 4
"""Bytes of one logit in an engine's logits buffer (DESIGN section 5)."""


class StageFixed(NamedTuple):
    """Bytes beside the layers that a stage holds, and who holds the tables."""

    tables_bytes: float
    """Embedding and head in device memory [bytes]."""
    overhead_bytes: float
    """The engine's buffers [bytes]."""
    host_bytes: float
    """Embedding in host RAM [bytes]."""
    has_embedding: bool
    has_head: bool


def fixed_bytes(
    problem: Problem, *, is_first: bool, is_last: bool, is_discrete: bool
) -> StageFixed:
    """Return what a stage holds beside its layers.

    The embedding lies with the first stage, or with the head's process (``embedding: host``) in
    host RAM where that device is discrete; a tied table that is twice on one device counts once.
    """
    runtime, model = problem.runtime, problem.model
    has_head = is_first if runtime.head == "first" else is_last
    has_embedding = has_head if runtime.embedding == "host" else is_first
    is_in_host = has_embedding and runtime.embedding == "host" and is_discrete
    overhead = runtime.overhead_bytes
    tables = 0.0
    if has_head:
        tables += model.head_bytes
        if runtime.logits_buffer:
            overhead += runtime.prefill_chunk_tokens * model.vocab_size * LOGIT_BYTES
    if has_embedding and not is_in_host and not (has_head and model.is_tied):
        tables += model.embedding_bytes
    return StageFixed(
        tables_bytes=tables,
        overhead_bytes=overhead,
        host_bytes=model.embedding_bytes if is_in_host else 0.0,
        has_embedding=has_embedding,
        has_head=has_head,
    )
