"""Figures of one replica against numbers worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest

from e2llm_opt.check.check import check
from e2llm_opt.check.verdict import ReplicaFigures
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.problem import Problem
from e2llm_opt.runtime import MixedPause
from e2llm_opt.workload.workload import Lengths
from tests.check.small import (
    MODEL,
    WORKLOAD,
    device,
    link,
    pair,
    problem,
    replica,
    runtime,
    stage,
    star,
)

TWO = star("a", "b")


def figures(plan: dict[str, Any], asked: Problem) -> ReplicaFigures:
    return check(plan, asked).replicas[0]


def test_memory_of_a_stage_is_listed_by_kind() -> None:
    first, last = figures(pair(slots=2), problem(TWO)).stages
    # KV cache: 2 slots · 2 layers · 2 B · 32 tokens.
    held = first.memory_bytes
    assert (held.weights, held.kv_cache, held.overhead) == (2500, 256, 100)
    assert (held.free, held.capacity, held.host) == (7144, 10_000, 0)
    assert last.memory_bytes.weights == 2400


def test_stage_and_hop_times() -> None:
    first, last = figures(pair(slots=2), problem(TWO)).stages
    assert first.prefill_time_s == pytest.approx(9.0)
    assert last.prefill_time_s == pytest.approx(9.8)
    # Two micro-batches of one stream: 2 · ((1000 + 40) / 500 + 0.5), and the head's 0.8.
    assert first.decode_time_s == pytest.approx(5.16)
    assert last.decode_time_s == pytest.approx(5.96)
    assert first.next_hop is not None
    assert last.next_hop is not None
    # A chunk: 8 · 10 · 2 = 160 B in 0.3 + 1.6 s, twice. A token: 20 B; an id back: 4 B.
    assert first.next_hop.prefill_time_s == pytest.approx(3.8)
    assert first.next_hop.decode_time_s == pytest.approx(0.5)
    assert (last.next_hop.device, last.next_hop.prefill_time_s) == ("a", 0.0)
    assert last.next_hop.decode_time_s == pytest.approx(0.34)


def test_an_overlapping_engine_fills_the_pipeline_with_chunks() -> None:
    prefill = figures(pair(slots=2), problem(TWO)).prefill
    # Chunk steps 4.5 + 1.9 = 6.4 and 4.9: 11.3 + 6.4; 2 · 6.4.
    assert prefill.latency_s == pytest.approx(17.7)
    assert prefill.bottleneck_s == pytest.approx(12.8)
    assert prefill.tokens_per_s == pytest.approx(16 / 12.8)


def test_an_engine_without_overlap_pushes_one_chunk_after_the_other() -> None:
    own = figures(pair(slots=2), problem(TWO, runtime=runtime(is_pipelined=False)))
    assert own.prefill.latency_s == pytest.approx(2 * 11.3)
    assert own.prefill.bottleneck_s == pytest.approx(2 * 11.3)
    assert own.decode is not None
    # One micro-batch of two: 5.32 + 0.7 + 6.92 + 0.38.
    assert own.decode.micro_batches == 1
    assert own.decode.tpot_s == pytest.approx(13.32)


def test_a_round_of_two_micro_batches() -> None:
    decode = figures(pair(slots=2), problem(TWO)).decode
    assert decode is not None
    # Once around 5.16 + 0.5 + 5.96 + 0.34 = 11.96; twice the slowest, 5.96, is 11.92.
    assert decode.micro_batches == 2
    assert decode.tpot_s == pytest.approx(11.96)
    assert decode.bottleneck_s == pytest.approx(5.96)
    assert decode.tokens_per_s == pytest.approx(2 / 11.96)
    assert decode.tokens_per_s_per_stream == pytest.approx(1 / 11.96)


def test_the_slowest_stage_decides_where_the_pipeline_is_full() -> None:
    heavy = replace(MODEL, head_bytes=2000.0, layer_kv_bytes_per_token=(100.0,) * 4)
    decode = figures(pair(slots=2), problem(TWO, model=heavy)).decode
    assert decode is not None
    # Stages 2 · (3000 / 500 + 0.5) = 13 and, with the head, 17: twice 17 is more than once
    # around (13 + 0.5 + 17 + 0.34) and less than both streams at once (21 + 0.7 + 25 + 0.38).
    assert decode.micro_batches == 2
    assert decode.tpot_s == pytest.approx(34.0)


def test_pauses_count_in_a_mixed_replica() -> None:
    own = figures(pair(slots=2), problem(TWO))
    # Pause 17.7: 11.96 + 2 · 17.7 / 8, and 1 / (17.7 + 8 · 11.96 / 2).
    assert own.tpot_s == pytest.approx(16.385)
    assert own.service_rate_per_s == pytest.approx(1 / 65.54)
    assert own.latency_s == pytest.approx(17.7 + 8 * 11.96)


def test_pauses_are_as_short_as_the_occupancy_where_the_engine_overlaps() -> None:
    shorter = problem(TWO, runtime=runtime(mixed_pause=MixedPause.OCCUPANCY))
    assert figures(pair(slots=2), shorter).tpot_s == pytest.approx(11.96 + 2 * 12.8 / 8)


def test_a_head_on_the_first_stage_gets_activations_back() -> None:
    first, last = figures(pair(slots=2), problem(TWO, runtime=runtime(head="first"))).stages
    assert first.head
    assert first.memory_bytes.weights == 2900
    assert last.next_hop is not None
    assert last.next_hop.decode_time_s == pytest.approx(0.5)


def test_logits_go_back_where_the_engine_sends_them() -> None:
    last = figures(pair(slots=2), problem(TWO, runtime=runtime(sends_logits=True))).stages[1]
    assert last.next_hop is not None
    # 4 B and 100 · 4 B.
    assert last.next_hop.decode_time_s == pytest.approx(0.3 + 4.04)


def test_a_single_stage_has_no_hop() -> None:
    plan = {"replicas": [{"role": "MIXED", "stages": [{"device": "a", "layers": [0, 4]}]}]}
    own = figures(plan, problem(star("a")))
    assert own.stages[0].next_hop is None
    # 4 · 4.5 + 0.8, both latency and occupancy.
    assert own.prefill.latency_s == pytest.approx(18.8)
    assert own.prefill.bottleneck_s == pytest.approx(18.8)


def test_a_prefill_replica_holds_the_kv_cache_of_one_request() -> None:
    own = figures(pair("PREFILL"), problem(TWO))
    assert own.slots == 1
    assert own.stages[0].memory_bytes.kv_cache == 128
    assert own.service_rate_per_s == pytest.approx(1 / 12.8)
    assert own.tpot_s is None


def test_a_prefill_replica_needs_no_way_back() -> None:
    lines = (link("a", "b"), link("b", "c"))
    chain = Inventory(devices=tuple(device(name) for name in "abc"), links=lines)
    stages = (stage("a", 0, 2), stage("b", 2, 3), stage("c", 3, 4))
    report = check({"replicas": [replica("PREFILL", *stages)]}, problem(chain))
    (own,) = report.replicas
    assert own.decode is None
    assert own.stages[2].next_hop is None
    assert own.prefill.bottleneck_s == pytest.approx(2 * 6.375)
    report = check({"replicas": [replica("MIXED", *stages)]}, problem(chain))
    assert [v.what for v in report.violations] == ["r0: no way from c to a"]


def test_a_decode_replica_serves_all_slots_in_one_round_a_token() -> None:
    own = figures(pair("DECODE", slots=2), problem(TWO))
    assert own.service_rate_per_s == pytest.approx(2 / (8 * 11.96))
    assert own.tpot_s == pytest.approx(11.96)


@pytest.mark.parametrize(
    ("role", "expected"),
    [("PREFILL", 17.7), ("DECODE", 8 * 11.96), ("MIXED", 17.7 + 8 * 11.96)],
)
def test_one_request_takes_what_its_replica_does_for_it(role: str, expected: float) -> None:
    slots = 1 if role == "PREFILL" else 2
    assert figures(pair(role, slots=slots), problem(TWO)).latency_s == pytest.approx(expected)


def ring(speeds: tuple[float, float, float]) -> Inventory:
    """Return three devices, each with a line of its own to the next one."""
    ends = (("a", "b"), ("b", "c"), ("c", "a"))
    return Inventory(
        devices=tuple(device(name) for name in "abc"),
        links=tuple(link(*pair, speed=speed) for pair, speed in zip(ends, speeds, strict=True)),
    )


def three(**more: Any) -> dict[str, Any]:
    """Return a plan of one replica: layers 0 and 1 on a, 2 on b, 3 on c."""
    stages = (stage("a", 0, 2), stage("b", 2, 3), stage("c", 3, 4))
    return {"replicas": [replica("MIXED", *stages, **more)]}


def test_each_stage_sends_to_the_next_and_the_last_to_the_first() -> None:
    own = figures(three(slots=1), problem(ring((100.0, 50.0, 25.0))))
    hops = [one.next_hop for one in own.stages if one.next_hop is not None]
    assert [hop.device for hop in hops] == ["b", "c", "a"]
    # 20 B, 20 B and an id of 4 B back; 0.275 s of latency and fixed cost each.
    expected = [0.275 + 20 / 100, 0.275 + 20 / 50, 0.275 + 4 / 25]
    assert [hop.decode_time_s for hop in hops] == pytest.approx(expected)
    # Two chunks of 160 B.
    expected = [2 * (0.275 + 160 / 100), 2 * (0.275 + 160 / 50), 0.0]
    assert [hop.prefill_time_s for hop in hops] == pytest.approx(expected)


def test_of_three_stages_each_works_while_the_others_do() -> None:
    own = figures(three(slots=3), problem(ring((100.0, 100.0, 100.0))))
    assert own.decode is not None
    # Two streams at a time: 5.32 + 0.675, 2.66 + 0.675, 2.66 + 1.6, and 0.355 back; twice 5.995
    # is less. One at a time would be three times 5.16 + 0.475.
    assert own.decode.micro_batches == 2
    assert own.decode.bottleneck_s == pytest.approx(5.995)
    assert own.decode.tpot_s == pytest.approx(13.945)
    # A chunk: 4.5 + 1.875, 2.25 + 1.875, 2.25 + 0.4.
    assert own.prefill.latency_s == pytest.approx(6.375 + 4.125 + 2.65 + 6.375)
    assert own.prefill.bottleneck_s == pytest.approx(2 * 6.375)


def test_the_longest_context_fills_the_tightest_stage() -> None:
    # (10000 - 2500 - 100) / (2 slots · 2 layers · 2 B) on the first stage.
    assert figures(pair(slots=2), problem(TWO)).max_context_tokens == 925


def test_windows_count_in_the_longest_context() -> None:
    mixed = replace(MODEL, layer_window_tokens=(50.0, math.inf, 50.0, 50.0))
    # First stage: (7400 - 2 · 100) / (2 slots · 1 layer · 2 B); the last one never fills.
    assert figures(pair(slots=2), problem(TWO, model=mixed)).max_context_tokens == 1800


def test_a_context_that_costs_nothing_has_no_end() -> None:
    stateless = replace(MODEL, layer_kv_bytes_per_token=(0.0,) * 4)
    assert figures(pair(slots=2), problem(TWO, model=stateless)).max_context_tokens is None


def test_slots_not_given_are_the_most_the_engine_allows() -> None:
    assert figures(pair(), problem(TWO)).slots == 4


def test_slots_not_given_are_the_most_that_memory_allows() -> None:
    # Three slots of 600 tokens: 2600 + 3 · 2400 = 9800; four do not fit.
    long = replace(WORKLOAD, context_tokens=600)
    assert figures(pair(), problem(TWO, workload=long)).slots == 3


def test_slots_not_given_are_the_most_that_speed_allows() -> None:
    # TPOT with pauses: 1 slot 11.96 + 2.2125, 2 slots 16.385, 3 slots more.
    assert figures(pair(), problem(TWO, workload=replace(WORKLOAD, slo_tpot_s=16.4))).slots == 2
    assert figures(pair(), problem(TWO, workload=replace(WORKLOAD, slo_tpot_s=16.3))).slots == 1


def test_slots_not_given_are_those_of_the_workload() -> None:
    assert figures(pair(), problem(TWO, workload=replace(WORKLOAD, slots=3))).slots == 3


def test_a_fractional_prompt_has_chunks_of_its_mean_size() -> None:
    longer = replace(WORKLOAD, prompt=Lengths(mean=18.0))
    first = figures(pair(slots=2), problem(TWO, workload=longer)).stages[0]
    assert first.next_hop is not None
    # Three chunks of 6 tokens, 120 B each: 3 · (0.3 + 1.2).
    assert first.next_hop.prefill_time_s == pytest.approx(4.5)
