"""Public problem reports with known right answers, one test a claim."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from e2llm_opt.check.check import check
from e2llm_opt.errors import InputError
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import Plan
from e2llm_opt.solve import plan
from e2llm_opt.units import GIB
from tests.cases.adapter import FOLDER, Case, cases_of
from tests.cases.claims import capacities, layers_by_device, suggested_context, violated

NOT_YET = {
    "02-llamacpp-tensor-split-export": "a pure test of exported llama.cpp flags: no exporter yet",
}
"""Files that cannot be run yet, each with the reason."""
REFUSED = {
    "01-rpc-70b-three-cards-listed-once:b-same-gpu-listed-twice": "one card listed twice",
}
"""Cases whose right answer is an input error."""

FILES = sorted(FOLDER.glob("*.yaml"))
CASES = {case.id: case for path in FILES if path.stem not in NOT_YET for case in cases_of(path)}
ANSWERED = sorted(set(CASES) - set(REFUSED))
CLAIMS = [
    pytest.param(name, claim, id=f"{name}-{claim['kind']}-{claim.get('device', '')}".strip("-"))
    for name in ANSWERED
    for claim in CASES[name].expect.get("assert", ())
]
FEASIBLE = [name for name in ANSWERED if CASES[name].expect.get("feasible", True)]
INFEASIBLE = [name for name in ANSWERED if name not in FEASIBLE]


@cache
def answer(name: str) -> Plan | Infeasible:
    return plan(CASES[name].problem())


def feasible(name: str) -> Plan:
    found = answer(name)
    assert isinstance(found, Plan), found
    return found


def infeasible(name: str) -> Infeasible:
    found = answer(name)
    assert isinstance(found, Infeasible), found.summary()
    return found


def by_hand(role: str, *stages: tuple[str, int, int]) -> dict[str, Any]:
    """Return a plan of one replica as a person would write it."""
    entries = [{"device": device, "layers": [start, stop]} for device, start, stop in stages]
    return {"replicas": [{"role": role, "stages": entries}]}


def test_every_file_is_run_or_listed_with_a_reason() -> None:
    run = {name.split(":")[0] for name in CASES}
    assert run | set(NOT_YET) == {path.stem for path in FILES}
    assert not run & set(NOT_YET)
    assert set(REFUSED) <= set(CASES)


def test_every_case_expects_something() -> None:
    assert all(case.expect.get("assert") or case.expect.get("checks") for case in CASES.values())


@pytest.mark.parametrize("name", FEASIBLE)
def test_a_feasible_case_has_a_plan_without_violations(name: str) -> None:
    assert check(feasible(name), CASES[name].problem()).violations == ()


@pytest.mark.parametrize("name", INFEASIBLE)
def test_an_infeasible_case_has_no_plan(name: str) -> None:
    assert infeasible(name).reason


@pytest.mark.parametrize(("name", "claim"), CLAIMS)
def test_the_answer_is_as_claimed(name: str, claim: dict[str, Any]) -> None:
    assert violated(claim, answer(name)) == ""


# The prose of the reports, where a machine can check it.


def device_need_gb(case: Case, layers: int, slots: int, *, is_first: bool, is_last: bool) -> float:
    """Restate a stage's memory in the report's own numbers [GiB]."""
    model, engine, workload = (case.given[key] for key in ("model", "runtime", "workload"))
    kv = model["kv_bytes_per_token_layer"] * workload["context_tokens"] / GIB
    has_embedding = is_first and not engine.get("embedding_on_host")
    need: float = (
        layers * (model["layer_weight_gb"] + slots * kv)
        + engine["overhead_gb"]
        + (model["head_gb"] if is_last else 0)
        + (model["embedding_gb"] if has_embedding else 0)
    )
    return need


@pytest.mark.parametrize("name", FEASIBLE)
def test_no_device_holds_more_than_the_report_says_it_has(name: str) -> None:
    case = CASES[name]
    memory = {device["name"]: device["memory_gb"] for device in case.given["devices"]}
    for replica in feasible(name).replicas:
        slots = 1 if replica.role == "PREFILL" else case.given["workload"]["slots"]
        for j, stage in enumerate(replica.stages):
            need = device_need_gb(
                case,
                stage.layers[1] - stage.layers[0],
                slots,
                is_first=j == 0,
                is_last=j == len(replica.stages) - 1,
            )
            held = stage.memory_bytes
            total = held.weights + held.kv_cache + held.overhead
            assert total / GIB == pytest.approx(need, rel=1e-6)
            assert need <= memory[stage.device]


@pytest.mark.parametrize("name", INFEASIBLE)
def test_the_total_is_the_sum_of_the_report_s_numbers(name: str) -> None:
    case = CASES[name]
    slots, spare = case.given["workload"]["slots"], len(case.given["devices"]) - 1
    need = device_need_gb(case, case.given["model"]["layers"], slots, is_first=True, is_last=True)
    total = need + spare * case.given["runtime"]["overhead_gb"]
    assert infeasible(name).total_bytes / GIB == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("name", INFEASIBLE)
def test_an_infeasible_answer_lists_need_and_have_of_every_device(name: str) -> None:
    devices = CASES[name].given["devices"]
    listed = {need.device: need.have_bytes / GIB for need in infeasible(name).devices}
    assert listed == pytest.approx({device["name"]: device["memory_gb"] for device in devices})


def test_01_a_card_listed_twice_is_refused_by_both_its_names() -> None:
    with pytest.raises(InputError) as caught:
        CASES["01-rpc-70b-three-cards-listed-once:b-same-gpu-listed-twice"].problem()
    first, second = map(str, caught.value.faults)
    assert "uuid GPU-A0 is listed 2 times: hostA-gpu0, hostA-gpu0-rpc" in first
    assert "uuid GPU-A1 is listed 2 times: hostA-gpu1, hostA-gpu1-rpc" in second


def test_01_the_reason_names_memory_and_the_kv_cache() -> None:
    reason = infeasible("01-rpc-70b-three-cards-listed-once:c-model-does-not-fit").reason
    assert "not enough memory" in reason
    assert "KV cache of 1 slot x 65536 tokens context 20.0 GiB" in reason


def test_03_a_layer_on_every_device_is_slower_than_the_desktop_alone() -> None:
    name = "03-home-cluster-8b-drop-weak-devices"
    forced = by_hand(
        "MIXED",
        ("mac-m1", 0, 1),
        ("laptop-3070", 1, 2),
        ("desktop-2080ti", 2, 31),
        ("phone", 31, 32),
    )
    report = check(forced, CASES[name].problem())
    assert report.violations == ()
    slower = report.replicas[0].tpot_s
    assert slower is not None
    assert slower > feasible(name).predicted.tpot_s


def test_03_a_device_without_layers_is_listed_with_the_reason() -> None:
    unused = feasible("03-home-cluster-8b-drop-weak-devices").unused_devices
    assert {device.device for device in unused} == {"mac-m1", "laptop-3070", "phone"}
    assert all(device.reason for device in unused)


def test_04_the_reason_is_memory() -> None:
    assert infeasible("04-hotspot-32b-not-resident").reason.startswith("not enough memory")


@pytest.mark.parametrize("layers", range(1, 8))
def test_04_the_server_alone_beats_every_pipeline_over_the_hotspot(layers: int) -> None:
    name = "04-hotspot-32b-not-resident:b-8b-fits-on-server"
    alone = feasible(name).predicted.tpot_s
    for stages in (
        (("macair-m1", 0, layers), ("i5-server", layers, 32)),
        (("i5-server", 0, 32 - layers), ("macair-m1", 32 - layers, 32)),
    ):
        tpot_s = check(by_hand("MIXED", *stages), CASES[name].problem()).replicas[0].tpot_s
        assert tpot_s is not None
        assert tpot_s > alone


def test_08_no_single_card_is_offered_and_the_head_costs_layers() -> None:
    found = feasible("08-gqa-kv-32k-two-small-cards")
    assert "best single device" not in {other.name for other in found.alternatives}
    first, last = found.replicas[0].stages
    assert 10 <= layers_by_device(found)[first.device] <= 28
    assert 8 <= layers_by_device(found)[last.device] <= 26


def test_08_the_suggested_context_is_feasible_and_the_next_step_is_not() -> None:
    name = "08-gqa-kv-32k-two-small-cards:b-256k"
    problem = CASES[name].problem()
    tokens = suggested_context(infeasible(name))
    assert tokens % 256 == 0
    for more, kind in ((0, Plan), (256, Infeasible)):
        workload = replace(problem.workload, context_tokens=tokens + more)
        assert isinstance(plan(replace(problem, workload=workload)), kind)


def test_08_the_kv_cache_is_counted_a_slot() -> None:
    found = infeasible("08-gqa-kv-32k-two-small-cards:c-four-slots")
    assert found.kv_cache_bytes == 4 * 32768 * 36 * 4096
    assert "KV cache of 4 slots x 32768 tokens context 18.0 GiB" in found.reason


def test_10_the_even_cut_is_a_violation() -> None:
    even = by_hand("MIXED", ("node-a", 0, 39), ("node-b", 39, 78))
    report = check(even, CASES["10-cut-points-not-free"].problem())
    assert [violation.have for violation in report.violations] == [39]


def test_10_no_legal_cut_is_not_called_a_lack_of_memory() -> None:
    found = infeasible("10-cut-points-not-free:b-no-legal-cut")
    assert "no legal cut" in found.reason
    assert "memory" not in found.reason
    assert found.shortfall_bytes == 0


def four_stages(name: str) -> float:
    """Return the tokens/s of an even pipeline over all four machines."""
    cut = [("s1", 0, 12), ("s2", 12, 24), ("s3", 24, 35), ("s4", 35, 46)]
    report = check(by_hand("MIXED", *cut), CASES[name].problem())
    figures = report.replicas[0].decode
    assert figures is not None
    return figures.tokens_per_s


def test_12_four_stages_are_not_faster_than_two() -> None:
    name = "12-two-links-wifi-and-thunderbolt"
    assert four_stages(name) <= feasible(name).replicas[0].decode.tokens_per_s


def test_12_over_wifi_four_stages_are_slow_and_the_plan_warns_of_the_latency() -> None:
    name = "12-two-links-wifi-and-thunderbolt:b-wifi-only"
    assert four_stages(name) <= 16
    assert len(feasible(name).replicas[0].stages) == 2
    assert any("link latency" in warning for warning in feasible(name).warnings)


def test_13_one_replica_a_device_and_a_comparison_of_both_ways_to_serve() -> None:
    found = feasible("13-pd-roles-ratio-and-single-replica")
    assert [len(replica.stages) for replica in found.replicas] == [1] * 8
    roles = [replica.role for replica in found.replicas]
    assert roles == ["MIXED"] * 8 or (roles.count("PREFILL"), roles.count("DECODE")) == (1, 7)
    assert len(capacities(found)) >= 2


def test_13_one_of_each_is_not_recommended_for_two_devices() -> None:
    found = feasible("13-pd-roles-ratio-and-single-replica:b-two-devices")
    assert [replica.role for replica in found.replicas] == ["MIXED", "MIXED"]


def test_13_a_single_replica_is_mixed() -> None:
    found = feasible("13-pd-roles-ratio-and-single-replica:c-one-replica-only")
    assert [replica.role for replica in found.replicas] == ["MIXED"]


def test_13_longer_prompts_do_not_want_fewer_prefill_replicas() -> None:
    num_prefill = []
    for variant in ("", ":d-long-prompts"):
        found = feasible(f"13-pd-roles-ratio-and-single-replica{variant}")
        num_prefill.append([replica.role for replica in found.replicas].count("PREFILL"))
    assert num_prefill[0] <= num_prefill[1]
