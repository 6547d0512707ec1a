"""Problems that are planned in a moment: a small model, few devices, few types to buy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.loading.load import problem_from_mapping

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem

SMALL = {
    "num_hidden_layers": 8,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 8192,
    "vocab_size": 32000,
}


def lab(*types: str, rate: float = 0.5, **sections: Any) -> Problem:
    """Return devices of *types* on one switch, called a, b, c …."""
    names = "abcdefgh"[: len(types)]
    mapping: dict[str, Any] = {
        "devices": [{"name": n, "type": t} for n, t in zip(names, types, strict=True)],
        "links": [
            {"between": [name, "lan"], "bandwidth_mbit_s": 940, "latency_ms": 0.2} for name in names
        ],
        "model": SMALL,
        "weights": "f16",
        "runtime": "generic",
        "workload": {"rate_per_s": rate, "prompt_tokens": 400, "output_tokens": 100},
        **sections,
    }
    if len(types) == 1:
        del mapping["links"]
    return problem_from_mapping(mapping)
