"""Predictions against rooflines worked by hand, the plain oracle, and laws of nature."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from e2llm_opt import (
    Device,
    InputError,
    Lengths,
    ModelFacts,
    Workload,
    model_facts,
    predict,
    runtime,
)
from e2llm_opt.constraints import Constraints
from e2llm_opt.inventory.device import device_of_type
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.predict.predict import linked, predict_problem
from e2llm_opt.provenance import Provenance
from e2llm_opt.units import GIB
from tests.oracles import World
from tests.strategies import problems

if TYPE_CHECKING:
    from random import Random

    from e2llm_opt import Prediction
    from e2llm_opt.problem import Problem

LAYERS = 10
FACTS = ModelFacts(
    name="by-hand",
    num_hidden_layers=LAYERS,
    hidden_size=1000,
    vocab_size=1000,
    layer_weight_bytes=1e9,
    kv_bytes_per_token=1e5,
    layer_flops_per_token=1e9,
    layer_attention_flops=0.0,
    embedding_bytes=0.0,
    head_bytes=5e8,
)
"""A layer is 1 GB and 1 GFLOP a token; the head is 0.5 GB."""
CARD = Device(
    name="card",
    memory_bytes=24e9,
    memory_bandwidth_bytes_per_s=1e12,
    fp16_flop_per_s=1e14,
    prefill_efficiency=0.5,
    decode_efficiency=0.8,
    layer_overhead_s=1e-4,
)
"""Reads 800 GB/s and computes 50 TFLOPS in truth."""
ENGINE = runtime("generic", overhead_bytes=1e9)
LLAMA = runtime("llama.cpp")


def card(name: str = "card", **changes: float) -> Device:
    return replace(CARD, name=name, host=name, **changes)  # type: ignore[arg-type]


def test_decode_is_the_roofline_worked_by_hand() -> None:
    """10 · ((1 GB + 3 · 1000 · 0.1 MB) / 800 GB/s + 0.1 ms) + 0.5 GB / 800 GB/s = 17.875 ms."""
    found = predict([CARD], FACTS, ENGINE, batch=3, context=1000)
    assert found.decode.seconds == pytest.approx(17.875e-3)
    assert found.decode.tokens_per_s == pytest.approx(3 / 17.875e-3)
    assert found.decode.bound_by == "bandwidth"
    assert found.decode.shares.overhead == pytest.approx(1.0 / 17.875)
    assert found.decode.shares.bandwidth == pytest.approx(16.875 / 17.875)
    assert found.decode.shares.compute == found.decode.shares.hop == 0.0


def test_prefill_is_the_roofline_worked_by_hand() -> None:
    """A prompt of 1024: 10 · (1024 GFLOP / 50 TFLOPS + 0.1 ms) + the head's 0.625 ms."""
    found = predict([CARD], FACTS, ENGINE, prompt=1024)
    assert found.prefill.seconds == pytest.approx(10 * (1024e9 / 5e13 + 1e-4) + 0.625e-3)
    assert found.prefill.bound_by == "compute"
    assert found.prefill.shares.compute == pytest.approx(204.8 / 206.425)
    assert found.prefill.tokens_per_s == pytest.approx(1024 / 0.206425)


def test_each_cause_can_be_the_largest() -> None:
    slow = {
        "compute": card(fp16_flop_per_s=1e9),
        "bandwidth": card(memory_bandwidth_bytes_per_s=1e9),
        "overhead": card(layer_overhead_s=10.0),
    }
    for cause, device in slow.items():
        found = predict([device], FACTS, ENGINE)
        assert found.decode.bound_by == found.prefill.bound_by == cause
    link = linked([card("a"), card("b")], bandwidth_bytes_per_s=1e3, latency_s=5.0)
    found = predict(link, FACTS, ENGINE, layers=[5, 5])
    assert found.decode.bound_by == found.prefill.bound_by == "hop"


def test_memory_is_weights_cache_and_buffers() -> None:
    """The cache holds the longer of prompt and context, for every request."""
    found = predict([CARD], FACTS, ENGINE, batch=4, prompt=500, context=2000)
    (stage,) = found.stages
    assert stage.weights_bytes == 10.5e9
    assert stage.kv_cache_bytes == 10 * 4 * 2000 * 1e5
    assert stage.overhead_bytes == 1e9
    assert found.need_bytes == stage.need_bytes == 10.5e9 + 8e9 + 1e9
    assert found.have_bytes == stage.have_bytes == 24e9
    assert found.fits
    longer = predict([CARD], FACTS, ENGINE, prompt=2000, context=500)
    assert longer.stages[0].kv_cache_bytes == 10 * 2000 * 1e5


def test_what_does_not_fit_is_predicted_and_said() -> None:
    small = card(memory_bytes=4 * GIB)
    found = predict([small], FACTS, ENGINE)
    assert not found.fits
    assert found.decode == predict([CARD], FACTS, ENGINE).decode
    assert found.warnings == (
        "does not fit: card needs 11.3 GiB, has 4 GiB; the speeds are those that it would have",
    )


def test_what_not_even_host_ram_holds_is_as_fast_as_in_enough_memory() -> None:
    """One GB short, half of a GB in host RAM: nothing spills, and that is said."""
    facts = replace(FACTS, layer_spillable_bytes=3e8)
    whole = predict([CARD], facts, ENGINE).need_bytes
    short = card(
        memory_bytes=whole - 1e9,
        host_memory_bytes=0.5e9,
        host_bandwidth_bytes_per_s=5e9,
        bus_bytes_per_s=10e9,
    )
    found = predict([short], facts, ENGINE)
    assert not found.fits
    assert found.stages[0].spilled_layers == ()
    assert found.need_bytes == whole
    assert found.decode == predict([CARD], facts, ENGINE).decode
    enough = predict([replace(short, host_memory_bytes=1.2e9)], facts, ENGINE)
    assert enough.fits
    assert enough.stages[0].spilled_layers == (6, 7, 8, 9)
    assert enough.decode.seconds > found.decode.seconds


def test_a_pipeline_that_does_not_fit_shares_the_excess() -> None:
    small = [card("a", memory_bytes=4e9), card("b", memory_bytes=4e9)]
    found = predict(small, FACTS, ENGINE)
    assert [stage.layers for stage in found.stages] == [(0, 5), (5, 10)]
    assert not found.fits
    assert {warning.split(" needs")[0] for warning in found.warnings} == {
        "does not fit: a",
        "does not fit: b",
    }


def test_the_best_cut_leaves_out_who_only_slows_down() -> None:
    pi = card("pi", memory_bandwidth_bytes_per_s=1e10, fp16_flop_per_s=1e11)
    found = predict([card(), pi], FACTS, LLAMA)
    assert [stage.device for stage in found.stages] == ["card"]
    assert found.unused_devices == ("pi",)
    assert any("left out" in warning and "pi" in warning for warning in found.warnings)
    assert found.decode.seconds == predict([CARD], FACTS, LLAMA).decode.seconds


def test_equal_devices_are_not_taken_for_one_another() -> None:
    found = predict([card("a"), card("b")], FACTS, ENGINE, layers=[4, 6])
    assert [(stage.device, stage.layers) for stage in found.stages] == [
        ("a", (0, 4)),
        ("b", (4, 10)),
    ]
    assert found.unused_devices == ()


def pipeline(problem: Problem, random: Random) -> tuple[list[int], list[int]]:
    """Return devices in any order and how many layers each gets."""
    num = random.randint(1, min(len(problem.devices), problem.model.num_layers))
    rows = random.sample(range(len(problem.devices)), num)
    cuts = sorted(random.sample(range(1, problem.model.num_layers), num - 1))
    bounds = [0, *cuts, problem.model.num_layers]
    return rows, [bounds[j + 1] - bounds[j] for j in range(num)]


def answer_of(problem: Problem, rows: list[int], **given: Any) -> Prediction | None:
    """Return the prediction, or None where the model allows no such cut or a link is missing."""
    try:
        return predict_problem(problem, rows, **given)
    except InputError:
        return None


@given(
    problems(max_devices=4, is_linked=True) | problems(max_devices=3, has_host_ram=True),
    st.randoms(use_true_random=False),
    st.sampled_from((1.0, 64.0, 700.0)),
    st.sampled_from((1, 100, 5000)),
)
def test_times_bytes_and_shares_are_those_of_the_oracle(
    problem: Problem, random: Random, prompt: float, context: int
) -> None:
    problem = replace(problem, constraints=Constraints())
    rows, layers = pipeline(problem, random)
    batch = random.randint(1, min(4, problem.runtime.max_slots))
    found = answer_of(problem, rows, batch=batch, prompt=prompt, context=context, layers=layers)
    assume(found is not None)
    assert found is not None
    asked = Workload(
        prompt=Lengths(mean=context / 2, cv=0.0),
        output=Lengths(mean=context, cv=0.0),
        context_tokens=max(context, math.ceil(prompt)),
    )
    world = World(replace(problem, workload=asked))
    starts = [sum(layers[:j]) for j in range(len(rows) + 1)]
    cut = tuple((d, starts[j], starts[j + 1]) for j, d in enumerate(rows))
    assert found.fits == world.fits(cut, batch)
    assert found.prefill.seconds == pytest.approx(world.prefill(cut, prompt, batch)[0], rel=1e-8)
    assert found.decode.seconds == pytest.approx(world.rounds(cut, batch, batch), rel=1e-8)
    for j, stage in enumerate(found.stages):
        need = world.stage_bytes(cut, j, batch)
        assert stage.need_bytes == pytest.approx(need, rel=1e-8, abs=1)
    for phase in (found.prefill, found.decode):
        shares = phase.shares
        parts = (shares.compute, shares.bandwidth, shares.overhead, shares.hop)
        assert sum(parts) == pytest.approx(1.0)
        assert min(parts) >= -1e-12
        assert getattr(shares, phase.bound_by) == max(parts)


# ---------------------------------------------------------------- intervals


def test_the_interval_of_one_device_is_its_quantiles() -> None:
    """80 % of a lognormal lie within exp(±1.2816 sigma); overhead and head are decode's."""
    device = card(prefill_sigma=0.2, decode_sigma=0.1)
    found = predict([device], FACTS, ENGINE, prompt=1024)
    computing, rest = 0.2048, 1e-3 + 0.625e-3
    for phase, parts in (
        (found.prefill, ((computing, 0.2), (rest, 0.1))),
        (found.decode, ((found.decode.seconds, 0.1),)),
    ):
        fast, slow = (
            sum(part * math.exp(z * sigma) for part, sigma in parts) for z in (-1.2816, 1.2816)
        )
        assert phase.seconds_interval == pytest.approx((fast, slow), rel=1e-4)
        tokens = phase.seconds * phase.tokens_per_s
        assert phase.tokens_per_s_interval == pytest.approx((tokens / slow, tokens / fast), 1e-4)


def test_a_pipeline_takes_every_stage_at_its_quantile_and_hops_as_they_are() -> None:
    stages = [card("a", decode_sigma=0.1), card("b", decode_sigma=0.3)]
    found = predict(stages, FACTS, LLAMA, layers=[5, 5])
    hops = found.decode.seconds - sum(stage.decode_s for stage in found.stages)
    assert hops > 0
    high = hops + sum(
        stage.decode_s * math.exp(1.2815516 * sigma)
        for stage, sigma in zip(found.stages, (0.1, 0.3), strict=True)
    )
    assert found.decode.seconds_interval[1] == pytest.approx(high, rel=1e-6)


def test_the_spread_changes_no_digest() -> None:
    spread = card(prefill_sigma=0.3, decode_sigma=0.1)
    assert inventory_sha256(linked([CARD])) == inventory_sha256(linked([spread]))


@pytest.mark.parametrize("sigma", [-0.1, math.inf, math.nan])
def test_impossible_spreads_are_refused(sigma: float) -> None:
    with pytest.raises(InputError, match="decode_sigma must be zero or more"):
        card(decode_sigma=sigma)


# ---------------------------------------------------------------- laws

REAL = st.sampled_from(("llama-3.1-8b", "qwen3-30b-a3b", "gemma-3-12b"))
TYPES = st.sampled_from(("rtx-4090", "apple-m4", "raspberry-pi-5-8gb", "h100-sxm"))


def real(kind: str, model: str, **given: Any) -> Prediction:
    device = device_of_type(kind, name="one")
    return predict([device], model_facts(model), LLAMA, "q4_k_m", **given)


@given(TYPES, REAL, st.integers(1, 15), st.sampled_from((16, 512, 8000)))
def test_a_larger_batch_never_has_fewer_tokens_a_second_nor_faster_streams(
    kind: str, model: str, batch: int, context: int
) -> None:
    one = real(kind, model, batch=batch, context=context)
    more = real(kind, model, batch=batch + 1, context=context)
    assert more.decode.tokens_per_s >= one.decode.tokens_per_s * (1 - 1e-12)
    assert more.decode.seconds >= one.decode.seconds * (1 - 1e-12)
    assert more.need_bytes >= one.need_bytes


@given(
    problems(max_devices=3, is_linked=True),
    st.randoms(use_true_random=False),
    st.sampled_from(("memory_bandwidth_bytes_per_s", "fp16_flop_per_s", "memory_bytes")),
)
def test_a_better_device_is_never_slower(problem: Problem, random: Random, number: str) -> None:
    rows, layers = pipeline(problem, random)
    chosen = random.choice(rows)
    devices = list(problem.devices)
    better = getattr(devices[chosen], number) * random.choice((1.01, 2.0, 10.0))
    devices[chosen] = replace(devices[chosen], **{number: better})
    other = replace(problem, inventory=replace(problem.inventory, devices=tuple(devices)))
    before = answer_of(problem, rows, layers=layers)
    assume(before is not None)
    assert before is not None
    after = predict_problem(other, rows, layers=layers)
    assert after.prefill.seconds <= before.prefill.seconds * (1 + 1e-12)
    assert after.decode.seconds <= before.decode.seconds * (1 + 1e-12)


@given(TYPES, REAL, st.integers(1, 4000))
def test_longer_prompts_and_contexts_never_take_less(kind: str, model: str, tokens: int) -> None:
    one = real(kind, model, prompt=tokens, context=tokens)
    more = real(kind, model, prompt=tokens + 100, context=tokens + 100)
    assert more.prefill.seconds >= one.prefill.seconds
    assert more.decode.seconds >= one.decode.seconds


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_units_cancel(factor: float) -> None:
    """Everything a thousand times as fast takes a thousandth of the time."""
    fast = card(
        memory_bandwidth_bytes_per_s=CARD.memory_bandwidth_bytes_per_s * factor,
        fp16_flop_per_s=CARD.fp16_flop_per_s * factor,
        layer_overhead_s=CARD.layer_overhead_s / factor,
    )
    one, other = predict([CARD], FACTS, ENGINE), predict([fast], FACTS, ENGINE)
    assert other.decode.seconds * factor == pytest.approx(one.decode.seconds)
    assert other.prefill.tokens_per_s == pytest.approx(one.prefill.tokens_per_s * factor)
    assert other.decode.shares.bandwidth == pytest.approx(one.decode.shares.bandwidth)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"batch": 0}, "batch must be 1 to 64"),
        ({"batch": 65}, "batch must be 1 to 64, what generic decodes at once, got 65"),
        ({"context": 0}, "context must be positive"),
        ({"prompt": 0}, "prompt must be positive"),
        ({"prompt": math.nan}, "prompt must be positive"),
        ({"layers": [9]}, "at least one of the 10 layers and sum to 10, got 9"),
        ({"layers": [5, 5]}, "each device"),
        ({"layers": []}, "layers names no layer"),
    ],
)
def test_impossible_questions_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        predict([CARD], FACTS, ENGINE, **given)  # type: ignore[arg-type]


def test_stages_start_only_where_the_model_allows() -> None:
    facts = replace(FACTS, allowed_stage_starts=(0, 4))
    assert predict([card("a"), card("b")], facts, ENGINE, layers=[4, 6]).stages[1].layers == (4, 10)
    with pytest.raises(InputError, match="cannot start at layer 5; the model allows 0, 4"):
        predict([card("a"), card("b")], facts, ENGINE, layers=[5, 5])


def test_stages_without_a_link_are_refused() -> None:
    apart = replace(linked([card("a"), card("b")]), links=())
    with pytest.raises(InputError, match=r"No link leads .* a, b"):
        predict(apart, FACTS, ENGINE, layers=[5, 5])


def test_a_context_beyond_the_model_s_is_said() -> None:
    facts = model_facts("llama-3-8b")
    found = predict([device_of_type("rtx-4090", name="x")], facts, ENGINE, "q4_k_m", context=9000)
    assert "llama-3-8b was made for contexts up to 8192 tokens, not 9000" in found.warnings


# ---------------------------------------------------------------- JSON


def test_json_has_these_fields_and_no_others() -> None:
    """A program reads them: a new one is fine, a lost or renamed one is a new schema version."""
    document = json.loads(predict([card(decode_sigma=0.1)], FACTS, ENGINE).to_json())
    assert list(document) == [
        *("schema", "model", "weights", "kv_cache", "runtime", "batch", "micro_batches"),
        *("prompt_tokens", "context_tokens", "prefill", "decode", "stages", "unused_devices"),
        *("fits", "need_bytes", "have_bytes", "warnings", "provenance"),
    ]
    assert document["schema"] == "e2llm-opt/prediction/v1"
    phase = ["tokens_per_s", "tokens_per_s_interval", "seconds", "seconds_interval"]
    for name in ("prefill", "decode"):
        assert list(document[name]) == [*phase, "bound_by", "shares"]
        assert list(document[name]["shares"]) == ["compute", "bandwidth", "overhead", "hop"]
    assert len(document["prefill"]["seconds_interval"]) == 2
    assert len(document["decode"]["seconds_interval"]) == 2
    assert list(document["stages"][0]) == [
        *("device", "type", "layers", "spilled_layers", "weights_bytes", "kv_cache_bytes"),
        *("overhead_bytes", "host_bytes", "need_bytes", "have_bytes", "fits"),
        *("prefill_s", "decode_s"),
    ]


def test_the_provenance_is_the_worst_of_the_devices() -> None:
    known = device_of_type("rtx-4090", name="known")
    assert predict([known], FACTS, ENGINE).provenance is Provenance.CATALOGUE
    both = predict([known, card()], FACTS, ENGINE, layers=[5, 5])
    assert both.provenance is Provenance.ASSUMED
