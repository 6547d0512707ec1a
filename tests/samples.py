"""Answers written by hand: a plan with every field used, and a problem nobody can solve."""

from __future__ import annotations

from dataclasses import replace

from e2llm_opt.plan.infeasible import DeviceNeed, Infeasible, Suggestion
from e2llm_opt.plan.plan import (
    Alternative,
    Bound,
    DecodeFigures,
    NextHop,
    Plan,
    PlanProblem,
    Predicted,
    PrefillFigures,
    Proof,
    Replica,
    Route,
    RunProvenance,
    Stage,
    StageMemory,
    UnusedDevice,
)

_GIB = 2**30


def stage(device: str, start: int, stop: int, next_device: str | None = None) -> Stage:
    hop = None
    if next_device is not None:
        hop = NextHop(device=next_device, link="lan/eth0", prefill_time_s=0.02, decode_time_s=3e-4)
    return Stage(
        device=device,
        layers=(start, stop),
        embedding=start == 0,
        head=stop == 32,
        spilled_layers=(3, 4) if start == 0 else (),
        memory_bytes=StageMemory(
            weights=4 * _GIB, kv_cache=_GIB, overhead=_GIB // 2, free=_GIB, capacity=13 * _GIB // 2
        ),
        prefill_time_s=0.41,
        decode_time_s=0.0213,
        next_hop=hop,
    )


def replica(name: str, role: str, *stages: Stage) -> Replica:
    return Replica(
        id=name,
        role=role,
        slots=10,
        arrival_rate_per_s=0.31,
        service_rate_per_s=0.42,
        utilisation=0.31 / 0.42,
        stages=stages,
        prefill=PrefillFigures(tokens_per_s=1404.9, latency_s=0.41, bottleneck_s=0.205),
        decode=DecodeFigures(
            tokens_per_s=247.0,
            tpot_s=0.04,
            bottleneck_s=0.0213,
            tokens_per_s_per_stream=24.7,
            micro_batches=2,
        ),
        max_context_tokens=8192,
    )


def sample_plan() -> Plan:
    return Plan(
        problem=PlanProblem(
            inventory_sha256="ab" * 32,
            model={"name": "llama-3.1-8b", "num_hidden_layers": 32, "layer_types": ["a", "b"]},
            workload={"rate_per_s": 0.31, "prompt": {"mean": 576.0, "cv": 0.5}},
            runtime="generic",
            options={"objective": "waiting_time", "roles": "auto", "seed": 0, "exclude": []},
        ),
        replicas=(
            replica(
                "r0", "DECODE", stage("tower", 0, 17, "laptop"), stage("laptop", 17, 32, "tower")
            ),
            replica("r1", "PREFILL", stage("mac", 0, 32)),
        ),
        routes=(
            Route(
                prefill="r1", decode="r0", rate_per_s=0.31, kv_transfer_s=0.61, kv_bytes=75497472
            ),
        ),
        unused_devices=(UnusedDevice(device="phone", reason="3 GiB hold no whole layer"),),
        predicted=Predicted(
            capacity_per_s=0.42,
            stable=True,
            waiting_time_s=0.913,
            ttft_s=0.74,
            tpot_s=0.04,
            latency_s=25.5,
            prefill_share_of_work=0.016,
            power_w=310.0,
            cost_per_hour=None,
        ),
        bound=Bound(capacity_per_s=0.44, gap=0.0454, proof=Proof.BOUNDED),
        alternatives=(
            Alternative(
                name="all MIXED",
                capacity_per_s=0.40,
                waiting_time_s=1.2,
                ttft_s=0.9,
                tpot_s=0.05,
                why_not="waits 0.287 s longer",
            ),
            Alternative(
                name="best disaggregated",
                capacity_per_s=0.2,
                waiting_time_s=None,
                ttft_s=None,
                tpot_s=0.04,
                why_not="cannot keep up with 0.31 requests/s",
                kv_bytes=75497472,
                kv_transfer_s=0.61,
                break_even_bandwidth_mbit_s=2450.0,
            ),
        ),
        explain=("Groups: mac holds the whole model.", "Roles: all MIXED: waits 0.287 s longer."),
        warnings=("the efficiency of phone is assumed",),
        provenance=RunProvenance(
            e2llm_opt="0.1.0", created="2026-01-02T03:04:05+00:00", elapsed_s=1.25
        ),
    )


def overloaded_plan() -> Plan:
    plan = sample_plan()
    predicted = replace(
        plan.predicted, stable=False, waiting_time_s=None, ttft_s=None, latency_s=None
    )
    return replace(plan, predicted=predicted, bound=Bound())


def sample_infeasible() -> Infeasible:
    return Infeasible(
        reason="The weights and one request's KV cache exceed the memory of all devices.",
        kv_cache_bytes=16 * _GIB,
        total_bytes=56 * _GIB,
        devices=(
            DeviceNeed(device="tower", need_bytes=30 * _GIB, have_bytes=11 * _GIB),
            DeviceNeed(device="laptop", need_bytes=26 * _GIB, have_bytes=15 * _GIB),
        ),
        shortfall_bytes=30 * _GIB,
        suggestions=(
            Suggestion(change="context_tokens: 12288"),
            Suggestion(change="weights: q4_0"),
        ),
    )
