"""Bytes on a stage: weights, KV cache, the engine's overhead, embedding and head."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.problem import Problem
    from e2llm_opt.workload.workload import Workload

    Floats = NDArray[np.float64]

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


def room_shares(workload: Workload, slots: int, tokens: float) -> Floats:
    """Return the share of the time that 1, 2 … *slots* requests fit into *tokens* of KV cache.

    A request reserves its prompt and its whole answer, so that n of them need their sum. A request
    is seen in a slot in proportion to the length of its answer: answers in slots have the mean
    g (1 + cv²), and, being lognormal, the same cv. Sums are taken to be normal. One request always
    fits: a longer one is rejected.
    """
    prompt, output = workload.prompt, workload.output
    seen = output.mean * (1.0 + output.cv**2)
    mean = prompt.mean + seen
    spread = math.hypot(prompt.mean * prompt.cv, seen * output.cv)
    shares = np.ones(slots)
    for n in range(2, slots + 1):
        room = tokens - n * mean
        wide = spread * math.sqrt(2.0 * n)
        shares[n - 1] = 0.5 * math.erfc(-room / wide) if wide > 0 else float(room >= 0)
    return shares
