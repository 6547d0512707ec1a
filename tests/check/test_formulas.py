"""The formulas against numbers worked out by hand."""

import math
from dataclasses import replace

import pytest

from e2llm_opt.check import formulas
from e2llm_opt.check.formulas import Seat
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.problem import Problem
from e2llm_opt.workload.workload import Lengths
from tests.check.small import MODEL, WORKLOAD, device, problem, runtime, star

A = device("a")


def small(**changes: object) -> Problem:
    return problem(star("a"), **changes)  # type: ignore[arg-type]


def seat(start: int, stop: int, *, embedding: bool = False, head: bool = False) -> Seat:
    return Seat(device=A, start=start, stop=stop, has_embedding=embedding, has_head=head)


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [(16.0, (1, 8)), (17.5, (2, 1.5)), (8.0, (0, 8)), (3.25, (0, 3.25))],
)
def test_a_prompt_is_cut_into_full_chunks_and_a_remainder(
    prompt: float, expected: tuple[int, float]
) -> None:
    assert formulas.chunks(prompt, 8) == expected


def test_experts_are_read_as_often_as_tokens_touch_them() -> None:
    moe = replace(MODEL, layer_routed_bytes=(800.0,) * 4, layer_routed_fraction=(0.25,) * 4)
    # One token: a quarter of 800. Two: 800 · (1 - 0.75²) = 350.
    assert formulas.active_bytes(moe, 0, 1) == pytest.approx(1200)
    assert formulas.active_bytes(moe, 0, 2) == pytest.approx(1350)


def test_a_window_bounds_the_kv_cache_and_the_attention() -> None:
    windowed = replace(MODEL, layer_window_tokens=(5.0,) * 4, layer_attention_flops=(3.0,) * 4)
    assert formulas.kv_bytes(windowed, 0, 20) == 10
    assert formulas.kv_bytes(windowed, 0, 4) == 8
    assert formulas.token_flops(windowed, 0, 20) == 25


def test_prefill_of_a_layer_reads_its_weights_once_a_chunk() -> None:
    # Computing 16 · 10 / 50 = 3.2 s; reading 2 · 1000 / 500 = 4 s; overhead 0.5 s once.
    assert formulas.layer_prefill_s(small(), seat(0, 4), 0) == pytest.approx(4.5)


def test_prefill_of_a_layer_computes_with_half_the_prompt_as_context() -> None:
    heavy = replace(MODEL, layer_attention_flops=(5.0,) * 4)
    # 16 · (10 + 5 · 8) / 50 = 16 s.
    assert formulas.layer_prefill_s(small(model=heavy), seat(0, 4), 0) == pytest.approx(16.5)


def test_half_of_an_odd_number_of_tokens_is_no_whole_number() -> None:
    heavy = replace(MODEL, layer_attention_flops=(5.0,) * 4)
    odd = replace(WORKLOAD, prompt=Lengths(mean=17.0), output=Lengths(mean=7.0))
    asked = small(model=heavy, workload=odd)
    # Contexts 8.5 and 17 + 3.5: 17 · (10 + 5 · 8.5) / 50 and 3 · (10 + 5 · 20.5) / 50.
    assert formulas.layer_prefill_s(asked, seat(0, 4), 0) == pytest.approx(17.85 + 0.5)
    assert formulas.layer_decode_s(asked, seat(0, 4), 0, 3) == pytest.approx(6.75 + 0.5)


def test_a_fractional_remainder_is_a_chunk_of_its_own() -> None:
    longer = replace(WORKLOAD, prompt=Lengths(mean=16.5))
    assert formulas.layer_prefill_s(small(workload=longer), seat(0, 4), 0) == pytest.approx(6.5)


def test_decode_of_a_layer_reads_weights_and_the_kv_cache_half_way_through() -> None:
    # Context 16 + 8/2 = 20 tokens: (1000 + 3 · 40) / 500 + 0.5.
    assert formulas.layer_decode_s(small(), seat(0, 4), 0, 3) == pytest.approx(2.74)


def test_decode_of_a_layer_may_be_bound_by_computing() -> None:
    heavy = replace(MODEL, layer_attention_flops=(5.0,) * 4)
    # 3 · (10 + 5 · 20) / 50 = 6.6 s.
    assert formulas.layer_decode_s(small(model=heavy), seat(0, 4), 0, 3) == pytest.approx(7.1)


def test_the_head_costs_its_weights_or_its_flops() -> None:
    # Weights 400 / 500; FLOPs 40 / 50 a token.
    assert formulas.head_s(small(), seat(0, 4), 1) == pytest.approx(0.8)
    assert formulas.head_s(small(), seat(0, 4), 3) == pytest.approx(2.4)


def test_the_stage_with_the_head_pays_for_it_once_a_request_in_prefill() -> None:
    assert formulas.stage_prefill_s(small(), seat(2, 4, head=True)) == pytest.approx(9.8)
    assert formulas.stage_decode_s(small(), seat(2, 4, head=True), 2) == pytest.approx(6.92)


def test_weights_are_layers_head_and_embedding_where_they_lie() -> None:
    assert formulas.stage_weight_bytes(small(), seat(0, 2)) == 2000
    assert formulas.stage_weight_bytes(small(), seat(0, 2, embedding=True)) == 2500
    assert formulas.stage_weight_bytes(small(), seat(0, 2, head=True)) == 2400
    assert formulas.stage_weight_bytes(small(), seat(0, 2, embedding=True, head=True)) == 2900


def test_a_tied_table_counts_once_on_one_stage_and_twice_on_two() -> None:
    tied = small(model=replace(MODEL, is_tied=True, embedding_bytes=400.0))
    assert formulas.stage_weight_bytes(tied, seat(0, 2, embedding=True, head=True)) == 2400
    assert formulas.stage_weight_bytes(tied, seat(0, 2, embedding=True)) == 2400
    assert formulas.stage_weight_bytes(tied, seat(2, 4, head=True)) == 2400


def test_an_embedding_in_host_ram_costs_a_discrete_card_nothing() -> None:
    hosted = small(runtime=runtime(embedding="host"))
    both = seat(0, 4, embedding=True, head=True)
    assert formulas.stage_weight_bytes(hosted, both) == 4400
    assert formulas.stage_host_bytes(hosted, both) == 500


@pytest.mark.parametrize("kind", [MemoryKind.UNIFIED, MemoryKind.CPU])
def test_an_embedding_in_host_ram_counts_where_host_ram_is_the_device_s(kind: MemoryKind) -> None:
    hosted = small(runtime=runtime(embedding="host"))
    both = replace(seat(0, 4, embedding=True, head=True), device=device("a", memory_kind=kind))
    assert formulas.stage_weight_bytes(hosted, both) == 4900
    assert formulas.stage_host_bytes(hosted, both) == 0


def test_a_hosted_embedding_lies_with_the_head() -> None:
    assert formulas.embedding_stage(runtime(embedding="host"), 3) == 2
    assert formulas.embedding_stage(runtime(embedding="host", head="first"), 3) == 0
    assert formulas.embedding_stage(runtime(), 3) == 0
    assert formulas.head_stage(runtime(), 3) == 2


def test_a_logits_buffer_comes_on_top_where_the_head_is() -> None:
    buffered = small(runtime=runtime(logits_buffer=True))
    # 100 + 8 tokens · 100 words · 4 B.
    assert formulas.stage_overhead_bytes(buffered, seat(0, 2, head=True)) == 3300
    assert formulas.stage_overhead_bytes(buffered, seat(0, 2)) == 100


def test_kv_cache_is_that_of_all_slots_over_the_stage_s_layers() -> None:
    uneven = small(model=replace(MODEL, layer_window_tokens=(math.inf, 10.0, math.inf, math.inf)))
    # Three slots: full attention 2 · 32, windowed 2 · 10.
    assert formulas.stage_kv_bytes(uneven, seat(0, 2), 3, 32) == 3 * 84
