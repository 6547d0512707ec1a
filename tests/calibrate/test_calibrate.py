"""Fitted parameters: recovered, nearer with every point, still where nothing was measured."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt.calibrate.calibrate import calibrate
from e2llm_opt.calibrate.fit import MOST_EFFICIENCY
from e2llm_opt.cost import pipeline
from e2llm_opt.cost.costs import Costs
from e2llm_opt.cost.one_device import OneDevice
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.problem import Problem
from e2llm_opt.provenance import Provenance
from e2llm_opt.runtime import runtime
from e2llm_opt.speed import Phase
from e2llm_opt.workload.workload import Lengths, Workload
from tests.calibrate.machines import DESIGN, FACTS, LAB, TOWER, fitted, measured, run, speed

if TYPE_CHECKING:
    from e2llm_opt.inventory.device import Device

PREFILL, DECODE = Phase.PREFILL, Phase.DECODE
truths = st.builds(
    lambda prefill, decode, overhead: replace(
        TOWER,
        prefill_efficiency=0.46 * math.exp(prefill),
        decode_efficiency=0.71 * math.exp(decode),
        layer_overhead_s=16e-6 * math.exp(overhead),
    ),
    st.floats(-0.8, 0.8),
    st.floats(-0.5, 0.3),
    st.floats(-0.7, 1.4),
)
runs = st.builds(
    lambda phase, tokens, model, depth: run(phase, tokens, model, depth=depth),
    st.sampled_from(Phase),
    st.sampled_from((16, 128, 512, 700)),
    st.sampled_from(("llama-3.1-8b", "llama-3.2-1b")),
    st.sampled_from((0, 1000)),
)


def loss(device: Device, truth: Device) -> float:
    """Sum over the design of squared logarithms of predicted / true speed."""
    return sum(math.log(speed(device, m) / speed(truth, m)) ** 2 for m in DESIGN)


@given(truths)
@settings(max_examples=15)
def test_known_parameters_are_recovered_from_many_points(truth: Device) -> None:
    found = fitted(measured(truth, DESIGN) * 300)
    assert found.decode_efficiency == pytest.approx(truth.decode_efficiency, rel=0.02)
    assert found.prefill_efficiency == pytest.approx(truth.prefill_efficiency, rel=0.02)
    assert found.layer_overhead_s == pytest.approx(truth.layer_overhead_s, rel=0.05)


@given(truths, runs)
@settings(max_examples=40)
def test_one_point_reduces_its_own_error(truth: Device, one: object) -> None:
    point = calibrate(LAB, measured(truth, [one])).points[0]  # type: ignore[list-item]
    assert abs(math.log(1 + point.error_after)) <= abs(math.log(1 + point.error_before)) + 1e-3
    if abs(point.error_before) > 0.01:
        assert abs(point.error_after) < 0.9 * abs(point.error_before)


@given(truths)
@settings(max_examples=15)
def test_more_points_of_one_truth_never_lead_away_from_it(truth: Device) -> None:
    losses = [loss(TOWER, truth)]
    losses += [loss(fitted(measured(truth, DESIGN) * n), truth) for n in (1, 2, 4, 8)]
    for fewer, more in itertools.pairwise(losses):
        assert more <= fewer * 1.001 + 1e-6  # four significant figures are kept


@given(truths, runs)
@settings(max_examples=25)
def test_predictions_are_those_of_the_cost_model(truth: Device, m: object) -> None:
    """Against plain Python, and where there is no depth against the pipeline of one stage."""
    inventory = Inventory(devices=(replace(truth, name="tower"),))
    point = calibrate(inventory, [m]).points[0]  # type: ignore[list-item]
    own = point.measurement
    assert point.before_tokens_per_s == pytest.approx(speed(truth, own), rel=1e-9)


@pytest.mark.parametrize("model", FACTS)
@pytest.mark.parametrize("batch", [1, 5])
def test_one_device_is_a_pipeline_of_one_stage(model: str, batch: int) -> None:
    problem = Problem(
        inventory=Inventory(devices=(TOWER,)),
        facts=FACTS[model],
        runtime=runtime("llama.cpp"),
        workload=Workload(prompt=Lengths(mean=1300), output=Lengths(mean=200)),
        weights="q4_k_m",
    )
    costs, alone = Costs(problem), OneDevice.of(problem)
    cut = ((0, 0, problem.model.num_layers),)
    prefill = pipeline.prefill(costs, cut, 1300)
    stage, hop = pipeline.decode_stages(costs, cut, batch)
    assert 1300 / alone.prefill_tokens_per_s(1300, chunk=512) == pytest.approx(prefill.latency_s)
    decode = batch / alone.decode_tokens_per_s(batch, 1300 + 100)
    assert decode == pytest.approx(stage.sum() + hop.sum())


def test_what_no_measurement_depends_on_stays_exactly() -> None:
    decode = fitted([run(DECODE, 128, speed=30.0)])
    assert decode.prefill_efficiency == TOWER.prefill_efficiency
    assert decode.decode_efficiency < TOWER.decode_efficiency
    prefill = fitted([run(PREFILL, 512, speed=1500.0)])
    assert prefill.decode_efficiency == TOWER.decode_efficiency
    assert prefill.prefill_efficiency > TOWER.prefill_efficiency


def test_only_the_measured_device_changes_and_keeps_all_else() -> None:
    found = calibrate(LAB, [run(DECODE, 128, speed=30.0), run(PREFILL, 512, speed=1500.0)])
    tower, board = found.inventory.devices
    assert board == LAB.devices[1]
    assert tower == found.fits[0].after
    assert tower.memory_bytes == TOWER.memory_bytes
    assert tower.provenance is Provenance.MEASURED


def test_a_device_of_which_one_phase_was_measured_is_not_called_measured() -> None:
    found = calibrate(LAB, [run(DECODE, 128, speed=30.0)])
    assert found.fits[0].after.provenance is Provenance.CATALOGUE
    assert any("prefill was not measured" in note for note in found.notes)
    assert any("one measurement only" in note for note in found.notes)


def test_an_overhead_of_nothing_stays_nothing() -> None:
    bare = replace(TOWER, layer_overhead_s=0.0)
    found = calibrate(Inventory(devices=(bare,)), [run(DECODE, 128, speed=30.0)]).fits[0].after
    assert found.layer_overhead_s == 0.0
    assert found.decode_efficiency < bare.decode_efficiency


def test_an_efficiency_stays_within_what_a_file_may_say() -> None:
    found = fitted([run(PREFILL, 512, speed=9e5), run(DECODE, 128, speed=9e4)])
    assert found.prefill_efficiency <= MOST_EFFICIENCY
    assert found.decode_efficiency <= MOST_EFFICIENCY


def test_devices_of_a_count_are_fitted_together() -> None:
    pis = tuple(replace(TOWER, name=f"pi-{i}", host="") for i in (1, 2, 3))
    m = replace(run(DECODE, 128, speed=30.0), device="pi")
    found = calibrate(Inventory(devices=pis), [m])
    assert found.fits[0].devices == ("pi-1", "pi-2", "pi-3")
    assert len({d.decode_efficiency for d in found.inventory.devices}) == 1
    assert [d.host for d in found.inventory.devices] == ["pi-1", "pi-2", "pi-3"]


def test_a_problem_brings_its_engine() -> None:
    problem = Problem(
        inventory=LAB,
        facts=FACTS["llama-3.1-8b"],
        runtime=runtime("llama.cpp", prefill_chunk_tokens=4),
        workload=Workload(prompt=Lengths(mean=100), output=Lengths(mean=100)),
    )
    long = run(PREFILL, 2048, speed=500.0)
    own, given_one = calibrate(problem, [long]), calibrate(LAB, [long], engine=problem.runtime)
    assert own.points == given_one.points
    assert own.points != calibrate(LAB, [long]).points


def test_a_misfit_is_named() -> None:
    odd = [run(DECODE, 128, speed=60.0), run(DECODE, 128, "llama-3.2-1b", speed=80.0)]
    assert any("% off" in note for note in calibrate(LAB, odd).notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": "towr"}, "no device of the inventory is called 'towr'; did you mean tower?"),
        ({"tokens_per_s": math.nan}, "nan tokens/s is no speed"),
        ({"tokens_per_s": 0.0}, "0 tokens/s is no speed"),
        ({"tokens_per_s": 1e300}, "no speed; from 1e-06 to 1e"),
        ({"depth": 10**12}, "128 tokens at depth 1000000000000, batch 1 are no run"),
        ({"tokens": 0}, "0 tokens at depth 0, batch 1 are no run"),
    ],
)
def test_impossible_measurements_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("?", r"\?")):
        calibrate(LAB, [replace(run(DECODE, 128), **change)])  # type: ignore[arg-type]


def test_no_measurement_is_refused() -> None:
    with pytest.raises(InputError, match="there are no measurements"):
        calibrate(LAB, [])


def test_contradictions_are_named_with_both_places() -> None:
    slow = replace(run(DECODE, 128, speed=20.0), where="a.json:3")
    fast = replace(slow, tokens_per_s=31.0, where="b.json:7")
    with pytest.raises(InputError, match=r"31 tokens/s here and 20 in a\.json:3") as error:
        calibrate(LAB, [slow, fast])
    assert error.value.faults[0].file == "b.json:7"
    other_depth = replace(fast, depth=4096)
    assert len(calibrate(LAB, [slow, other_depth]).points) == 2
    assert len(calibrate(LAB, [slow, replace(fast, tokens_per_s=29.0)]).points) == 2


@pytest.mark.parametrize(
    ("m", "is_odd"),
    [
        (run(DECODE, 128, speed=42.1e6), True),
        (run(PREFILL, 512, speed=2e6), True),
        (run(DECODE, 128, speed=0.042), True),
        (run(DECODE, 128, speed=42.1), False),
        (run(DECODE, 128, speed=15.0), False),
    ],
)
def test_speeds_that_look_like_another_unit_are_doubted(m: object, is_odd: bool) -> None:
    found = calibrate(LAB, [m])  # type: ignore[list-item]
    assert bool(found.doubts) is is_odd
    assert all("is the unit tokens a second" in doubt for doubt in found.doubts)


def test_the_dictionary_has_every_point_and_device() -> None:
    found = calibrate(LAB, measured(TOWER, DESIGN))
    told = found.to_dict()
    assert len(told["measurements"]) == len(DESIGN)
    assert told["devices"][0]["after"]["decode_efficiency"] == TOWER.decode_efficiency
    assert found.median_error(DECODE) == pytest.approx(0.0, abs=1e-9)
    assert calibrate(LAB, [run(DECODE, 128, speed=30.0)]).median_error(PREFILL) is None
