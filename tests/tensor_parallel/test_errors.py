"""Asking for what engine, model or hosts cannot do; each answer says what would be right."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import Costs
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.problem import Problem
from e2llm_opt.runtime import runtime
from e2llm_opt.workload.workload import Lengths, Workload

if TYPE_CHECKING:
    from e2llm_opt.constraints import Degrees

FACTS = ModelFacts(
    name="small",
    num_hidden_layers=8,
    hidden_size=1024,
    vocab_size=32000,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=64,
    intermediate_size=4096,
)


def server(
    num: int,
    engine: str = "vllm",
    asked: Degrees = "auto",
    facts: ModelFacts = FACTS,
    **limits: Any,
) -> Problem:
    """Return a host with *num* identical cards, and one more that is unlike them."""
    card = Device(
        name="card",
        host="box",
        memory_bytes=8e9,
        memory_bandwidth_bytes_per_s=5e11,
        fp16_flop_per_s=5e13,
        host_bus_bytes_per_s=2e10,
    )
    cards = [replace(card, name=f"gpu-{i + 1}") for i in range(num)]
    return Problem(
        inventory=Inventory(
            devices=(*cards, replace(card, name="odd", memory_bytes=6e9)), links=()
        ),
        facts=facts,
        runtime=runtime(engine),
        workload=Workload(
            prompt=Lengths(mean=500.0), output=Lengths(mean=100.0), context_tokens=1024
        ),
        constraints=Constraints(tensor_parallel=asked, **limits),
    )


def refusal(*args: Any, **changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        server(*args, **changes)
    return str(caught.value)


@pytest.mark.parametrize("engine", ["llama.cpp", "prima.cpp", "parallax", "petals"])
def test_an_engine_that_cannot_is_named(engine: str) -> None:
    text = refusal(4, engine, 2)
    assert f"{engine} cannot run one stage on 2 devices" in text
    assert "vllm" in text


def test_heads_that_cannot_be_shared_are_named_with_what_can() -> None:
    facts = replace(FACTS, num_attention_heads=12, num_key_value_heads=12)
    text = refusal(8, "vllm", 8, facts)
    assert "8 does not divide the attention heads of small, 12" in text
    assert "use 2 or 4 or off" in text
    odd = replace(FACTS, num_attention_heads=24, num_key_value_heads=6)
    assert "nor is a multiple" in refusal(4, "vllm", 4, odd)


def test_a_model_without_heads_is_refused_with_that_reason() -> None:
    facts = replace(
        FACTS,
        num_attention_heads=0,
        num_key_value_heads=0,
        layer_weight_bytes=1e8,
        kv_bytes_per_token=1e3,
        layer_flops_per_token=1e8,
        embedding_bytes=0.0,
        head_bytes=0.0,
    )
    assert "do not say num_attention_heads" in refusal(4, "vllm", 2, facts)
    assert Costs(server(4, "vllm", "auto", facts)).units.degrees == (1,)


def test_a_host_without_so_many_identical_devices_is_refused_with_the_most_there_are() -> None:
    text = refusal(3, "vllm", 4)
    assert "no host has 4 identical devices" in text
    assert "box has 3: use 2 or off" in text
    assert "use off" in refusal(1, "vllm", 2)
    assert "box has 3" in refusal(4, "vllm", 4, exclude=("gpu-2",))


def test_exo_wants_kv_heads_and_hidden_size_to_divide() -> None:
    assert "KV heads of small, 4" in refusal(8, "exo", 8)
    assert Costs(server(8, "vllm", 8)).units.degrees == (8,)


@pytest.mark.parametrize(
    ("engine", "asked", "degrees"),
    [
        ("vllm", "auto", (1, 2, 4, 8)),
        ("sglang", "auto", (1, 2, 4, 8)),
        ("exo", "auto", (1, 2, 4)),
        ("generic", "auto", (1,)),
        ("generic", 4, (4,)),
        ("vllm", "off", (1,)),
        ("llama.cpp", "auto", (1,)),
    ],
)
def test_auto_is_what_the_engine_does_unasked(
    engine: str, asked: Degrees, degrees: tuple[int, ...]
) -> None:
    assert Costs(server(8, engine, asked)).units.degrees == degrees


def test_a_latent_cache_is_kept_whole_on_every_device() -> None:
    facts = replace(
        FACTS,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=64,
        v_head_dim=64,
        q_lora_rank=0,
    )
    costs = Costs(server(4, "vllm", 4, facts))
    assert costs.tables.kv_copies[-1] == 4.0
    assert Costs(server(4, "vllm", 4)).tables.kv_copies[-1] == 1.0
    assert Costs(server(8, "vllm", 8)).tables.kv_copies[-1] == 2.0
