"""Spilled layers: times by hand, the fewest that memory needs, and what cannot be spilled."""

import json
import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.check import formulas
from e2llm_opt.check.check import check
from e2llm_opt.check.formulas import Seat
from e2llm_opt.check.paths import Ways
from e2llm_opt.check.pipeline import Pipeline
from e2llm_opt.check.spill import missing_keys, some, spill_as_needed
from e2llm_opt.check.verdict import Report
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.model.model import Model
from e2llm_opt.problem import Problem, Role
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
    split,
    stage,
    star,
)

FFN = replace(MODEL, layer_spillable_bytes=(600.0, 400.0, 600.0, 200.0))
"""Layers of 1000 B each, of which so much may lie in host RAM."""
HOSTED = runtime(embedding="host")


def spilling() -> Seat:
    """Return the whole model on one card, its first layer spilled."""
    return Seat(device=card(), start=0, stop=4, has_embedding=True, has_head=True, spilled=(0,))


def card(name: str = "a", memory: float = 10_000.0, host: float = 5000.0, **more: Any) -> Device:
    """Return a device with host RAM that is read at 100 B/s, behind a bus of 200 B/s."""
    numbers: dict[str, Any] = {"host_bandwidth_bytes_per_s": 100.0, "bus_bytes_per_s": 200.0}
    return device(name, memory_bytes=memory, host_memory_bytes=host, **{**numbers, **more})


def alone(one: Device, *, model: Model = FFN, **more: Any) -> Problem:
    return problem(Inventory(devices=(one,)), model=model, **more)


def whole(slots: int | None = 2, **more: Any) -> dict[str, Any]:
    """Return a plan of one stage on the device a."""
    return {"replicas": [replica("MIXED", stage("a", 0, 4, **more), slots=slots)]}


def spilled(report: Report) -> list[tuple[int, ...]]:
    return [own.spilled_layers for one in report.replicas for own in one.stages]


def violations(report: Report) -> list[tuple[str, str | None, Any, Any]]:
    return [(v.what, v.device, v.need, v.have) for v in report.violations]


# ---- times


def test_decode_of_a_spilled_layer_reads_its_ffn_from_host_ram() -> None:
    # (1000 - 600 + 3 · 40) / 500 = 1.04 on the card, 600 / 100 = 6 from host RAM, overhead 0.5.
    own = formulas.layer_decode_s(alone(card()), spilling(), 0, 3)
    assert own == pytest.approx(7.54)


def test_decode_of_a_spilled_layer_may_be_bound_by_computing() -> None:
    heavy = replace(FFN, layer_attention_flops=(5.0,) * 4)
    # 3 · (10 + 5 · 20) / 50 = 6.6 s is longer than 1.04 s; 6 s from host RAM all the same.
    own = formulas.layer_decode_s(alone(card(), model=heavy), spilling(), 0, 3)
    assert own == pytest.approx(13.1)


def test_prefill_of_a_spilled_layer_moves_its_ffn_over_the_bus_once_a_chunk() -> None:
    # Reading all weights 2 · 1000 / 500 = 4 s, moving 2 · 600 / 200 = 6 s, overhead 0.5 s.
    own = formulas.layer_prefill_s(alone(card()), spilling(), 0)
    assert own == pytest.approx(10.5)


def test_prefill_of_a_spilled_layer_may_be_bound_by_computing() -> None:
    heavy = replace(FFN, layer_attention_flops=(5.0,) * 4)
    # 16 · (10 + 5 · 8) / 50 = 16 s.
    own = formulas.layer_prefill_s(alone(card(), model=heavy), spilling(), 0)
    assert own == pytest.approx(22.5)


MOE = replace(MODEL, layer_routed_bytes=(800.0,) * 4, layer_routed_fraction=(0.25,) * 4)


@pytest.mark.parametrize(
    ("spillable", "one", "two"),
    [
        # All of the experts and 100 B of dense FFN: 100 + 200, 100 + 800 · (1 - 0.75²).
        (900.0, 300.0, 450.0),
        # A part of the experts: 500 · 0.25, 500 · 0.4375.
        (500.0, 125.0, 218.75),
        (0.0, 0.0, 0.0),
    ],
)
def test_of_spilled_experts_only_those_that_tokens_touch_are_read(
    spillable: float, one: float, two: float
) -> None:
    model = replace(MOE, layer_spillable_bytes=(spillable,) * 4)
    assert formulas.spilled_bytes(model, 0, 1) == pytest.approx(one)
    assert formulas.spilled_bytes(model, 0, 2) == pytest.approx(two)


def test_times_of_a_spilled_layer_with_experts() -> None:
    asked = alone(card(), model=replace(MOE, layer_spillable_bytes=(900.0,) * 4))
    # A(2) = 1350, of which 450 in host RAM: (1350 - 450 + 80) / 500 + 4.5 + 0.5.
    decode = formulas.layer_decode_s(asked, spilling(), 0, 2)
    assert decode == pytest.approx(6.96)
    # Two chunks of 8: untouched 0.75⁸ = 0.1001, so 1719.9 B are read and 819.9 B moved each.
    untouched = 0.75**8
    expected = 2 * (1800 - 800 * untouched) / 500 + 2 * (900 - 800 * untouched) / 200 + 0.5
    prefill = formulas.layer_prefill_s(asked, spilling(), 0)
    assert prefill == pytest.approx(expected)


def test_the_remainder_of_a_prompt_moves_what_it_touches() -> None:
    longer = replace(WORKLOAD, prompt=Lengths(mean=9.0))
    model = replace(MOE, layer_spillable_bytes=(900.0,) * 4)
    asked = alone(card(), model=model, workload=longer)
    # A chunk of 8 and one of 1, which touches a quarter of the experts.
    untouched = 0.75**8
    expected = (3000 - 800 * untouched) / 500 + (1200 - 800 * untouched) / 200 + 0.5
    prefill = formulas.layer_prefill_s(asked, spilling(), 0)
    assert prefill == pytest.approx(expected)


def test_each_full_chunk_moves_what_is_spilled() -> None:
    longer = replace(WORKLOAD, prompt=Lengths(mean=32.0))
    # Four chunks: 4 · 1000 / 500 read, 4 · 600 / 200 moved, overhead 0.5.
    own = formulas.layer_prefill_s(alone(card(), workload=longer), spilling(), 0)
    assert own == pytest.approx(20.5)


def test_a_stage_adds_up_spilled_and_other_layers() -> None:
    seat = Seat(device=card(), start=0, stop=4, has_embedding=True, has_head=True, spilled=(1, 3))
    asked = alone(card(), runtime=HOSTED)
    # Batch 1: two layers of 2.58; (640 / 500 + 4.5) and (840 / 500 + 2.5); head 0.8.
    assert formulas.stage_decode_s(asked, seat, 1) == pytest.approx(5.16 + 5.78 + 4.18 + 0.8)
    # Four layers of 4.5, 2 · 400 / 200 and 2 · 200 / 200 over the bus, head 0.8.
    assert formulas.stage_prefill_s(asked, seat) == pytest.approx(18 + 4 + 2 + 0.8)
    assert formulas.stage_weight_bytes(asked, seat) == 4000 - 600 + 400
    assert formulas.stage_host_bytes(asked, seat) == 600 + 500


# ---- the figures of a replica


def test_recomputed_figures_carry_the_spilled_layers_and_host_ram() -> None:
    # 4000 + 900 of weights, 2 · 4 · 64 of KV cache, 100: 5512 of 5000, so 600 B must go.
    told = check(whole(), alone(card(memory=5000.0))).to_dict()
    own = json.loads(json.dumps(told))["recomputed"]["replicas"][0]["stages"][0]
    assert own["spilled_layers"] == [2]
    assert own["memory_bytes"] == {
        "weights": 4300,
        "kv_cache": 512,
        "overhead": 100,
        "free": 88,
        "capacity": 5000,
        "host": 600,
    }


def test_times_of_a_replica_are_those_of_its_spilled_layers() -> None:
    report = check(whole(), alone(card(memory=5000.0)))
    assert report.valid
    (own,) = report.replicas
    assert own.decode is not None
    # Two streams: 4 · 2.66 + 1.6, and layer 2: + 600 / 100 - 600 / 500. Prefill 18.8 + 6.
    assert own.decode.tpot_s == pytest.approx(12.24 + 4.8)
    assert own.prefill.latency_s == pytest.approx(24.8)
    assert own.service_rate_per_s == pytest.approx(1 / (24.8 + 8 * 17.04 / 2))
    # 5000 - 4300 - 100 over 2 slots of 4 layers of 2 B.
    assert own.max_context_tokens == 37


def test_the_embedding_in_host_ram_is_listed_beside_what_is_spilled() -> None:
    report = check(whole(), alone(card(memory=4900.0), runtime=HOSTED))
    held = report.replicas[0].stages[0].memory_bytes
    assert (held.weights, held.host) == (3800, 1100)


def test_each_stage_spills_for_itself() -> None:
    # Each holds 2000 of layers, 2 · 2 · 64 of KV cache, 100; a the embedding, b the head.
    both = Inventory(devices=(card("a", 2355.0), card("b", 2157.0)), links=(link("a", "b"),))
    report = check(pair(slots=2), problem(both, model=FFN))
    assert report.valid
    # 2856 - 600 fits into 2355. 2756 - 600 fits into 2157.
    assert spilled(report) == [(0,), (2,)]


def test_a_prefill_replica_spills_for_one_request() -> None:
    four = tuple(card(name, memory=2720.0) for name in "abcd")
    asked = problem(Inventory(devices=four, links=star(*"abcd").links), model=FFN)
    plan = split()
    plan["replicas"][1]["stages"] = [stage("c", 0, 2), stage("d", 2, 4)]
    report = check(plan, asked)
    # With the embedding 2500 + 100 + 128 a request, with the head 2400 + 100 + 128.
    assert spilled(report) == [(0,), (), (0,), (2,)]


def test_more_slots_spill_more_layers() -> None:
    asked = alone(card(memory=5000.0))
    chosen = {slots: spilled(check(whole(slots), asked))[0] for slots in (1, 2, 3, 4)}
    # 5000 B are used by weights and engine alone, and 256 by each slot.
    assert chosen == {1: (2,), 2: (2,), 3: (0, 2), 4: (0, 2)}


def test_the_longest_context_does_not_change_what_is_spilled() -> None:
    # Nothing needs to be spilled: the longest context is that of the card as it is.
    report = check(whole(), alone(card(memory=5512.0)))
    assert report.replicas[0].max_context_tokens == 32
    stated = check(whole(spilled_layers=[0, 1]), alone(card(memory=5512.0)))
    assert stated.replicas[0].max_context_tokens == 32 + 1000 // 16


def test_slots_not_stated_count_what_they_make_spill() -> None:
    fast: dict[str, Any] = {"host_bandwidth_bytes_per_s": 1e6, "bus_bytes_per_s": 1e6}
    slow: dict[str, Any] = {"host_bandwidth_bytes_per_s": 1.0, "bus_bytes_per_s": 1e6}
    # 5256 B hold one slot without spilling. Four slots need two layers in host RAM, which is
    # worth it only where that is fast.
    for speeds, slots, layers in ((fast, 4, (0, 2)), (slow, 1, ())):
        report = check(whole(None), alone(card(memory=5256.0, **speeds)))
        assert report.replicas[0].slots == slots
        assert spilled(report) == [layers]


def test_of_equal_rates_the_most_slots_are_chosen() -> None:
    # Bound by computing, without overhead: a token takes as long whatever the batch.
    even = card(memory_bandwidth_bytes_per_s=1e9, layer_overhead_s=0.0)
    assert check(whole(None), alone(even)).replicas[0].slots == 4


def test_what_is_spilled_depends_on_the_slots_alone() -> None:
    asked = alone(card(memory=5256.0))
    pipeline = Pipeline(
        problem=asked,
        ways=Ways(asked.inventory, asked.runtime),
        role=Role.MIXED,
        seats=(
            Seat(
                device=asked.inventory.devices[0],
                start=0,
                stop=4,
                has_embedding=True,
                has_head=True,
                spills_as_needed=True,
            ),
        ),
    )
    many = pipeline.spilling(4)
    assert many.seats[0].spilled == (0, 2)
    assert many.spilling(4) == many
    assert many.spilling(1).seats[0].spilled == ()


def test_slots_not_stated_leave_room_in_host_ram() -> None:
    # Three slots would need 668 B from host RAM, so two layers, 1200 B.
    report = check(whole(None), alone(card(memory=5100.0, host=1199.0)))
    assert report.valid
    assert (report.replicas[0].slots, spilled(report)) == (2, [(2,)])


# ---- which layers


def test_the_largest_go_first_and_of_equal_ones_the_later() -> None:
    for needed, expected in ((1, (2,)), (601, (0, 2)), (1201, (0, 1, 2)), (1601, (0, 1, 2, 3))):
        report = check(whole(), alone(card(memory=5512.0 - needed)))
        assert spilled(report) == [expected]
        assert report.valid


def test_nothing_is_spilled_that_fits_to_the_byte() -> None:
    assert spilled(check(whole(), alone(card(memory=5512.0)))) == [()]
    assert spilled(check(whole(), alone(card(memory=4912.0)))) == [(2,)]


@pytest.mark.parametrize(("excess", "layers"), [(0.5, ()), (0.75, (2,)), (600.5, (2,))])
def test_half_a_byte_spills_nothing(excess: float, layers: tuple[int, ...]) -> None:
    seat = Seat(device=card(), start=0, stop=4, has_embedding=True, has_head=True)
    assert spill_as_needed(FFN, seat, excess).spilled == layers


def test_a_single_byte_can_be_spilled() -> None:
    tiny = replace(FFN, layer_spillable_bytes=(1.0, 0.0, 0.0, 0.0))
    assert spilled(check(whole(), alone(card(memory=5511.0), model=tiny))) == [(0,)]
    report = check(whole(spilled_layers=[0]), alone(card(), model=tiny))
    assert (report.valid, spilled(report)) == (True, [(0,)])


def test_layers_without_ffn_are_not_spilled() -> None:
    bare = replace(FFN, layer_spillable_bytes=(600.0, 0.0, 0.0, 0.0))
    report = check(whole(), alone(card(memory=4000.0), model=bare))
    assert spilled(report) == [(0,)]
    (found,) = violations(report)
    assert found == (
        "r0: memory exceeded: weights 4300 + KV cache 512 + overhead 100 bytes, 1 layer spilled",
        "a",
        4912,
        4000,
    )


@pytest.mark.parametrize(
    "missing", ["host_memory_bytes", "host_bandwidth_bytes_per_s", "bus_bytes_per_s"]
)
def test_a_device_without_host_ram_or_its_speeds_spills_nothing(missing: str) -> None:
    nothing: dict[str, Any] = {missing: 0.0}
    poor = replace(card(memory=5000.0), **nothing)
    report = check(whole(), alone(poor))
    assert spilled(report) == [()]
    assert violations(report) == [
        (
            "r0: memory exceeded: weights 4900 + KV cache 512 + overhead 100 bytes",
            "a",
            5512,
            5000,
        )
    ]


SIZES = st.lists(st.integers(0, 9).map(lambda n: n * 100.0), min_size=1, max_size=6)


def model_of(sizes: list[float]) -> Model:
    """Return a model of as many layers of 1000 B as there are sizes."""
    alike: dict[str, Any] = {
        name: (value[0],) * len(sizes)
        for name, value in ((n, getattr(MODEL, n)) for n in MODEL.__slots__)
        if name.startswith("layer_")
    }
    return replace(MODEL, **{**alike, "layer_spillable_bytes": tuple(sizes)})


def one_stage(sizes: list[float], slots: int, **more: Any) -> dict[str, Any]:
    return {"replicas": [replica("MIXED", stage("a", 0, len(sizes), **more), slots=slots)]}


@given(SIZES, st.integers(1, 4), st.integers(0, 40), st.booleans())
def test_no_smaller_set_of_layers_would_do(
    sizes: list[float], slots: int, tens: int, hosted: bool
) -> None:
    # In plain numbers: layers, KV cache of 2 B · 32 tokens, engine, head; the embedding.
    all_bytes = 1000 * len(sizes) + slots * 64 * len(sizes) + 100 + 400
    if not hosted:
        all_bytes += 500
    memory = all_bytes - 100 * tens + 37
    if memory <= 0:
        return
    one = card(memory=memory, host=1e6)
    engine = runtime(embedding="host" if hosted else "first")
    report = check(one_stage(sizes, slots), alone(one, model=model_of(sizes), runtime=engine))
    (chosen,) = spilled(report)
    sets = [
        subset
        for count in range(len(sizes) + 1)
        for subset in combinations(range(len(sizes)), count)
        if all_bytes - sum(sizes[layer] for layer in subset) <= memory
    ]
    if not sets:
        assert chosen == tuple(layer for layer, size in enumerate(sizes) if size > 0)
        assert ["memory exceeded" in what for what, *_ in violations(report)] == [True]
        return
    assert report.valid
    assert chosen in sets
    assert len(chosen) == len(sets[0])
    # Of the smallest sets, the one whose sizes, the largest first, and then layers come last.
    assert chosen == max(
        (subset for subset in sets if len(subset) == len(chosen)),
        key=lambda subset: sorted(((sizes[i], i) for i in subset), reverse=True),
    )


@given(SIZES, st.data())
def test_a_stated_list_is_taken_as_it_is(sizes: list[float], data: st.DataObject) -> None:
    can = [layer for layer, size in enumerate(sizes) if size > 0]
    stated = data.draw(st.lists(st.sampled_from(can), unique=True)) if can else []
    memory = data.draw(st.integers(500, 8000))
    host = data.draw(st.integers(1, 3000))
    one = card(memory=float(memory), host=float(host))
    report = check(one_stage(sizes, 2, spilled_layers=stated), alone(one, model=model_of(sizes)))
    assert spilled(report) == [tuple(sorted(stated))]
    away = sum(sizes[layer] for layer in stated)
    memory_bytes = report.replicas[0].stages[0].memory_bytes
    assert (memory_bytes.weights, memory_bytes.host) == (1000 * len(sizes) + 900 - away, away)
    wrong = {what.split(":")[1].split(" exceeded")[0].strip() for what, *_ in violations(report)}
    expected = set()
    if 1128 * len(sizes) + 1000 - away > memory:
        expected.add("memory")
    if away > host:
        expected.add("host RAM")
    assert wrong == expected
    # Two streams: KV cache 80 B, computing 0.4 s, overhead 0.5 s, the head 1.6 s.
    resident = [1000 - (sizes[layer] if layer in stated else 0) for layer in range(len(sizes))]
    expected_s = sum(max((held + 80) / 500, 0.4) + 0.5 for held in resident) + away / 100 + 1.6
    assert report.replicas[0].stages[0].decode_time_s == pytest.approx(expected_s)


# ---- violations


def test_more_than_needed_may_be_spilled() -> None:
    report = check(whole(spilled_layers=[3, 0]), alone(card()))
    assert report.valid
    assert spilled(report) == [(0, 3)]


def test_an_empty_list_spills_nothing() -> None:
    report = check(whole(spilled_layers=[]), alone(card(memory=5000.0)))
    assert spilled(report) == [()]
    assert [need for _, _, need, _ in violations(report)] == [5512]


def test_spilled_layers_lie_in_their_stage() -> None:
    both = Inventory(devices=(card("a"), card("b")), links=(link("a", "b"),))
    plan = pair(slots=2)
    plan["replicas"][0]["stages"][1]["spilled_layers"] = [2, 1, 4, 0, 7]
    report = check(plan, problem(both, model=FFN))
    assert violations(report) == [
        ("r0: spilled layers outside the stage", "b", "[2, 4)", "0, 1, 4, 7")
    ]
    assert spilled(report) == [(), (2,)]


@pytest.mark.parametrize(
    ("lacking", "told"),
    [
        (("host_memory_bytes",), "host_memory_gib"),
        (("host_bandwidth_bytes_per_s",), "host_bandwidth_gb_s"),
        (("bus_bytes_per_s",), "bus_gb_s"),
        (("host_memory_bytes", "bus_bytes_per_s"), "host_memory_gib and bus_gb_s"),
    ],
)
def test_a_device_that_cannot_spill_is_told_what_is_missing(
    lacking: tuple[str, ...], told: str
) -> None:
    nothing: dict[str, Any] = dict.fromkeys(lacking, 0.0)
    poor = replace(card(), **nothing)
    report = check(whole(spilled_layers=[1, 2]), alone(poor))
    assert violations(report) == [(f"r0: spilled layers on a device without {told}", "a", 0, 2)]
    assert spilled(report) == [()]
    assert " and ".join(missing_keys(poor)) == told


def test_a_device_that_cannot_spill_may_say_that_it_does_not() -> None:
    assert check(whole(spilled_layers=[]), alone(device("a"))).valid


def test_a_layer_without_ffn_cannot_be_spilled() -> None:
    bare = replace(FFN, layer_spillable_bytes=(600.0, 0.0, 0.0, 100.0))
    report = check(whole(spilled_layers=[0, 1, 2]), alone(card(), model=bare))
    assert violations(report) == [
        (
            "r0: spilled layers without FFN or expert weights that may spill",
            "a",
            "others",
            "1, 2",
        )
    ]
    assert spilled(report) == [(0,)]


def test_of_many_layers_the_first_eight_are_told() -> None:
    assert some(range(8)) == "0, 1, 2, 3, 4, 5, 6, 7"
    assert some(range(9)) == "0, 1, 2, 3, 4, 5, 6, 7, …"


@pytest.mark.parametrize("engine", [runtime(), HOSTED])
def test_host_ram_is_exact_to_the_byte(engine: Any) -> None:
    # 600 of layer 2, and 500 of an embedding in host RAM.
    need = 1100 if engine.embedding == "host" else 600
    memory = 5412.0 - (500 if engine.embedding == "host" else 0)
    full = check(whole(), alone(card(memory=memory, host=float(need)), runtime=engine))
    assert full.valid
    over = check(whole(), alone(card(memory=memory, host=need - 1.0), runtime=engine))
    assert violations(over) == [("r0: host RAM exceeded, 1 layer spilled", "a", need, need - 1)]


def test_an_embedding_alone_is_no_matter_of_the_host_ram_for_spilling() -> None:
    assert check(whole(), alone(card(host=1.0), runtime=HOSTED)).valid


@pytest.mark.parametrize(
    ("claim", "need"),
    [({"host": 0}, 600), ({"host": 1200}, 600), ({"weights": 4900}, 4300), ({"free": 688}, 88)],
)
def test_stated_bytes_are_those_of_the_spilled_layers(claim: dict[str, int], need: int) -> None:
    plan = whole(spilled_layers=[2], memory_bytes=claim)
    ((what, name, *amounts),) = violations(check(plan, alone(card(memory=5000.0))))
    (key,) = claim
    assert what == f"r0: stages[0].memory_bytes.{key} is not as recomputed"
    assert (name, amounts) == ("a", [need, claim[key]])


def test_a_replica_with_a_gap_still_says_what_does_not_fit() -> None:
    plan = {"replicas": [replica("MIXED", stage("a", 1, 4), slots=2)]}
    found = violations(check(plan, alone(card(memory=1000.0))))
    # 3000 + 900 - 1200 spilled, 2 · 3 · 64, 100.
    assert [need for _, _, need, _ in found] == [0, 2700 + 384 + 100]


def test_pauses_for_prefill_count_what_moves_over_the_bus() -> None:
    busy = alone(card(memory=5000.0), runtime=runtime(mixed_pause=MixedPause.OCCUPANCY))
    assert check(whole(), busy).replicas[0].tpot_s == pytest.approx(17.04 + 2 * 24.8 / 8)


def test_a_kv_transfer_hides_behind_a_prefill_with_spilled_layers() -> None:
    devices = (card("a", memory=5000.0), device("b"))
    lan = (link("a", "b", speed=4.0),)
    asked = problem(
        Inventory(devices=devices, links=lan), model=FFN, runtime=runtime(layerwise_kv=True)
    )
    plan = {
        "replicas": [
            replica("PREFILL", stage("a", 0, 4), id="p"),
            replica("DECODE", stage("b", 0, 4), id="d", slots=1),
        ]
    }
    (route,) = check(plan, asked).routes
    # 128 B in 32 s; layer 2 makes the prefill 18.8 + 6 s, of which three quarters hide it.
    assert math.isclose(route.kv_transfer_s, 32 - 24.8 * 0.75 + 0.025)
