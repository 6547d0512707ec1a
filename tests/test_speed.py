"""The fitted speed model: terms by hand, laws, the fit, and how it is judged."""

import math
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import accuracy, fit
from benchmarks.fit import after_one
from benchmarks.measured import Measurement, engine_of, read
from e2llm_opt import device_of_type, model_facts, predict, runtime
from e2llm_opt.catalogue.catalogue import device_entries, device_entry
from e2llm_opt.catalogue.silicon import effects, silicon, spreads
from e2llm_opt.model.build import build_model
from e2llm_opt.speed import (
    FACTORS,
    STATED,
    Phase,
    Setting,
    believed,
    coefficient,
    decode_speed,
    decode_terms,
    prefill_speed,
    prefill_terms,
    spread,
)

LLAMA = build_model(model_facts("llama-3.1-8b"), weights="q4_k_m")
HEAD = (
    "device,device_key,model,params_b,active_params_b,quant,model_gib,engine,prefill_tok_s,"
    "prefill_len,decode_tok_s,decode_len,batch,power_w,source,notes,quality"
)


def on(device_type: str, engine: str = "llama.cpp") -> Setting:
    return Setting(device=device_of_type(device_type, name="one"), model=LLAMA, engine=engine)


def test_decode_terms_are_amounts_over_peaks() -> None:
    terms = decode_terms(on("rtx-3090"), 1000.0)
    read_bytes = sum(LLAMA.layer_dense_bytes) + LLAMA.head_bytes
    assert terms["decode.read"] == pytest.approx(read_bytes / 936e9)
    assert terms["decode.cache"] == pytest.approx(1000 * 2 * 8 * 128 * 2 * 32 / 936e9)
    assert terms["decode.layer"] == 32
    assert terms["decode.spill"] == 0


def test_prefill_terms_count_chunks() -> None:
    one, two = (prefill_terms(on("rtx-3090"), tokens) for tokens in (512, 513))
    assert two["prefill.layer"] == 2 * one["prefill.layer"] == 64
    flops = 512 * sum(LLAMA.layer_flops_per_token)
    assert one["prefill.compute"] == pytest.approx(flops / (284 / 4 * 1e12))


def test_weights_that_do_not_fit_come_from_host_ram() -> None:
    large = build_model(model_facts("llama-3.3-70b"), weights="q4_k_m")
    card = replace(on("rtx-4090"), model=large)
    whole = decode_speed(card.without_limit(), 512.0).seconds
    assert decode_speed(card, 512.0).seconds > 3 * whole
    mac = replace(on("m2-ultra"), model=large)
    assert decode_speed(mac, 512.0) == decode_speed(mac.without_limit(), 512.0)


@pytest.mark.parametrize("term", FACTORS)
def test_a_coefficient_is_the_product_of_its_effects(term: str) -> None:
    setting, known = on("m4-max", "llamafile"), effects()
    total = known.get((term, "base", ""), 0.0)
    for factor in FACTORS[term]:
        level, weight = setting.level(factor)
        total += weight * known.get((term, factor, level), 0.0)
    assert coefficient(term, setting) == pytest.approx(math.exp(total))


def test_an_engine_that_nobody_measured_has_no_effects_of_its_own() -> None:
    assert decode_speed(on("rtx-3090", "unheard-of"), 512.0).seconds > 0
    assert spread(Phase.DECODE, "nvidia", "unheard-of") == spreads()["decode", "nvidia", ""]
    assert spread(Phase.DECODE, "nothing", "at all") == spreads()["decode", "", ""]


@given(st.sampled_from([entry.key for entry in device_entries()]), st.floats(1, 30_000))
def test_speeds_of_all_devices_are_sane(device_type: str, context: float) -> None:
    setting = on(device_type)
    decode, prefill = decode_speed(setting, context), prefill_speed(setting, context)
    for speed in (decode, prefill):
        assert speed.seconds == pytest.approx(sum(speed.parts.values()))
        assert min(speed.parts.values()) >= 0
        assert 0 < speed.sigma < 1.5
    assert decode_speed(setting, context + 1000).seconds >= decode.seconds
    assert prefill_speed(setting, context + 1).seconds >= prefill.seconds
    # No device reads faster than its memory.
    assert decode.seconds > sum(LLAMA.layer_dense_bytes) / 1.1 / (
        setting.device.memory_bandwidth_bytes_per_s
    ) * (1 - 0.2)


def test_every_catalogue_device_has_its_silicon() -> None:
    for entry in device_entries():
        kind = silicon(entry.key)
        assert kind.group
        assert kind.generation
        assert 0 < kind.general_tflops <= 1000
        assert kind.matrix_tflops > 0


@pytest.mark.parametrize("weights", ["q4_k_m", "f16"])
@pytest.mark.parametrize("key", ["rtx-4070", "apple-m2-max", "jetson-agx-orin-64", "rx-7900-xtx"])
def test_the_cost_model_is_as_fast_as_the_speed_model(key: str, weights: str) -> None:
    """At 512 tokens, where both are held together; within 15 % at 2048."""
    model = build_model(model_facts("llama-3.1-8b"), weights=weights)
    device = replace(on(key).device, memory_bytes=64e9)
    setting = replace(on(key), device=device, model=model)
    for tokens, rel in ((512, 1e-6), (2048, 0.15)):
        found = predict(
            [device], model_facts("llama-3.1-8b"), runtime("llama.cpp"), weights=weights,
            prompt=tokens, context=tokens,
        )  # fmt: skip
        step, prompt = decode_speed(setting, tokens), prefill_speed(setting, tokens)
        assert found.decode.seconds == pytest.approx(step.seconds, rel=rel)
        assert found.prefill.seconds == pytest.approx(prompt.seconds, rel=max(rel, 1e-3))


def test_an_interval_is_as_wide_as_the_spread_of_such_devices() -> None:
    device = believed(on("rtx-4070").device, LLAMA, "llama.cpp")
    assert device.decode_sigma == spread(Phase.DECODE, "nvidia", "llama.cpp") > 0
    assert device.prefill_sigma == spread(Phase.PREFILL, "nvidia", "llama.cpp") > 0


def test_what_was_measured_or_has_no_type_stays_as_it_is() -> None:
    own = on("rtx-4070").device
    measured = replace(own, decode_efficiency=0.61, prefill_efficiency=0.3, layer_overhead_s=1e-5)
    nameless = replace(on("rtx-4070").device, type="", prefill_efficiency=0.3)
    nameless = replace(nameless, decode_efficiency=0.61)
    unknown = replace(nameless, prefill_efficiency=0.45, decode_efficiency=0.7)
    for device, group in ((measured, STATED), (nameless, STATED), (unknown, "")):
        found = believed(device, LLAMA, "llama.cpp")
        prefill, decode = (spread(phase, group, "") for phase in Phase)
        assert found == replace(device, prefill_sigma=prefill, decode_sigma=decode)
        spread_out = replace(device, prefill_sigma=0.3, decode_sigma=0.2)
        assert believed(spread_out, LLAMA, "llama.cpp") == spread_out


def test_a_speed_that_is_stated_stays_even_where_it_is_the_default() -> None:
    entry = device_entry("rtx-4070")
    stated = device_of_type(
        "rtx-4070",
        name="one",
        layer_overhead_s=entry.layer_overhead_us * 1e-6,
        decode_efficiency=entry.decode_efficiency,
        prefill_efficiency=entry.prefill_efficiency,
    )
    found = believed(stated, LLAMA, "llama.cpp")
    assert found.layer_overhead_s == stated.layer_overhead_s
    assert found.decode_efficiency == stated.decode_efficiency
    assert found.prefill_efficiency == stated.prefill_efficiency
    assert found.decode_sigma == spread(Phase.DECODE, STATED, "")


def test_only_what_was_not_measured_is_fitted() -> None:
    half = believed(replace(on("rtx-4070").device, decode_efficiency=0.61), LLAMA, "llama.cpp")
    whole = believed(on("rtx-4070").device, LLAMA, "llama.cpp")
    assert half.decode_efficiency == 0.61
    assert half.decode_sigma == spread(Phase.DECODE, STATED, "")
    assert half.prefill_sigma == whole.prefill_sigma
    assert half.layer_overhead_s == whole.layer_overhead_s
    assert half.prefill_efficiency == pytest.approx(whole.prefill_efficiency, rel=0.02)


@given(st.sampled_from([e.key for e in device_entries()]), st.floats(0.05, 0.95))
def test_a_quantile_of_the_times_is_a_lognormal_one(key: str, quantile: float) -> None:
    device = device_of_type(key, name="one")
    middle, there = (believed(device, LLAMA, "llama.cpp", q) for q in (0.5, quantile))
    z = NormalDist().inv_cdf(quantile)
    assert there.decode_efficiency == pytest.approx(
        middle.decode_efficiency * math.exp(-z * middle.decode_sigma)
    )
    assert there.prefill_efficiency == pytest.approx(
        middle.prefill_efficiency * math.exp(-z * middle.prefill_sigma)
    )
    assert there.layer_overhead_s == pytest.approx(
        middle.layer_overhead_s * math.exp(z * middle.decode_sigma)
    )


def test_one_known_run_of_a_device_explains_what_is_not_noise() -> None:
    """Both runs are off by 0.3; a spread of 0.3 against half a noise of 0.1 believes 97.3 %."""
    found = dict(after_one(["a", "a", "b"], np.array([0.3, 0.3, 0.9]), np.full(3, 0.3)))
    assert found == {
        0: pytest.approx(0.3 * (1 - 0.09 / 0.0925)),
        1: pytest.approx(0.3 * (1 - 0.09 / 0.0925)),
    }


@pytest.mark.parametrize(
    ("label", "notes", "engine"),
    [
        ("llamafile (LocalScore)", "", "llamafile"),
        ("llama.cpp CUDA fa", "", "llama.cpp"),
        ("llama.cpp CUDA", "May 2024 build; no FA", "llama.cpp-2024"),
        ("llama.cpp Vulkan nofa", "", "llama.cpp-vulkan"),
        ("ollama/llama.cpp GPU", "", "ollama"),
    ],
)
def test_builds_that_differ_much_are_engines_of_their_own(
    label: str, notes: str, engine: str
) -> None:
    assert engine_of(label, notes) == engine


def made(device_type: str, factor: float) -> list[Measurement]:
    """Runs of one device whose times are *factor* times those of the model."""
    found = []
    for name, weights in (("llama-3.2-1b", "q4_k_m"), ("llama-3.1-8b", "q4_k_m"), ("phi-4", "f16")):
        model = build_model(model_facts(name), weights=weights)
        setting = replace(on(device_type), model=model)
        found.append(
            Measurement(
                key=device_type,
                model=name,
                setting=setting,
                decode_per_s=1.0 / (factor * decode_speed(setting, 256.0).seconds),
                prefill_per_s=512.0 / (factor * prefill_speed(setting, 512.0).seconds),
                prompt=512.0,
                context=256.0,
            )
        )
    return found


def test_a_fit_finds_a_group_that_is_slower_than_it_was_thought() -> None:
    runs = [run for card in ("rtx-3060", "rtx-3090", "rtx-4070") for run in made(card, 1.5)]
    arrays = fit.design(Phase.DECODE, runs)
    every = np.arange(len(runs))
    off = arrays.predicted(arrays.fitted(every), every) - arrays.logs
    assert np.abs(off).max() < 0.1


def test_one_absurd_run_moves_a_fit_little() -> None:
    runs = [run for card in ("rtx-3060", "rtx-3090", "rtx-4070") for run in made(card, 1.0)]
    bad = [replace(runs[0], decode_per_s=(runs[0].decode_per_s or 1.0) / 10), *runs[1:]]
    found = []
    for own in (runs, bad):
        arrays = fit.design(Phase.DECODE, own)
        found.append(arrays.predicted(arrays.fitted(np.arange(9)), np.arange(1, 9)))
    assert np.abs(found[0] - found[1]).max() < 0.05


def test_a_table_is_read_and_judged(tmp_path: Path) -> None:
    file = tmp_path / "measured.csv"
    speed = decode_speed(on("rtx-3090"), 64.0)
    rows = [
        f"RTX 3090,rtx3090,llama-3.1-8b,,,Q4_K_M,,llama.cpp CUDA fa,,,{2 / speed.seconds},,1,,,,ok",
        "Nobody,nobody,llama-3.1-8b,8.03,8.03,Q4_K_M,4.58,llama.cpp CUDA fa,,,1,128,1,,,,ok",
        "RTX 3090,rtx3090,new-12b,12,12,Q4_K_M,,llama.cpp CUDA fa,100,512,,,1,,,,ok",
    ]
    file.write_text("\n".join([HEAD, *rows]) + "\n", encoding="utf-8")
    found = list(accuracy.points(read(str(file)), None))
    assert [point.kind for point in found] == ["decode", "prefill"]
    assert found[0].error == pytest.approx(0.5)
    assert found[0].log == pytest.approx(-math.log(2))
    assert not found[0].is_covered
    assert accuracy.summary(found[:1])["median_ape"] == pytest.approx(0.5)
    assert accuracy.summary([]) == {"n": 0}


def test_a_pipeline_of_equal_cards_takes_as_long_as_one_that_holds_all(tmp_path: Path) -> None:
    file = tmp_path / "multi.csv"
    head = (
        "cluster,n_devices,link,model,quant,engine,split,decode_tok_s,ms_per_token,prefill_tok_s,"
        "prefill_or_ctx_len,compute_ms,transfer_ms,transfer_kb_per_token,batch,kind,source,notes"
    )
    row = (
        "4 x 3090 24GB,4,PCIe,llama-3-70b,Q4_K_M,llama.cpp CUDA -sm layer,equal layers,16,,,1024,"
        ",,,1,measured,,"
    )
    other = "2 x Raspberry Pi 5 8GB,2,1 GbE,llama-2-7b,Q40,dllama,tensor,2.9,,,,,,,1,measured,,"
    file.write_text(f"{head}\n{row}\n{other}\n", encoding="utf-8")
    found, others = accuracy.pipelines(str(file))
    assert others == 1
    model = build_model(model_facts("llama-3-70b"), weights="q4_k_m")
    whole = replace(on("rtx-3090", "llama.cpp-2024"), model=model, has_flash=False)
    alone = decode_speed(whole.without_limit(), 512.0).seconds
    assert found[0].predicted == pytest.approx(
        1 / (alone + 3 * runtime("llama.cpp").bus_hop_overhead_s)
    )
