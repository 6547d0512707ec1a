"""Random valid plans with names that no shell, YAML or nginx should ever take literally."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from e2llm_opt.plan.plan import (
    Bound,
    DecodeFigures,
    Plan,
    PlanProblem,
    Predicted,
    PrefillFigures,
    Replica,
    Route,
    RunProvenance,
    Stage,
    StageMemory,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 2**30
NASTY = (
    "tower",
    "pi 1",
    "it's",
    '"quoted"',
    "$(touch PWNED)",
    "`touch PWNED`",
    "a;touch PWNED",
    "a\ntouch PWNED\n",
    "a\r\ntouch PWNED",
    "büro-ΔΩ-東京",
    "-rf",
    "--help",
    "../../escape",
    "a|b&c>d<e",
    "%s%n",
    "{{ .Values.x }}",
    "$HOME",
    "$$(POD_IP)",
    "a=b=c",
    "# comment",
    "front-door",
    "router",
    "\\",
    "'; touch PWNED; '",
    "!x",
    "*",
    "~",
    "key: value",
    "null",
    "1e9",
    "x" * 300,
)
"""Names that break what does not quote."""


def stage(device: str, start: int, stop: int, total: int, *, head: bool | None = None) -> Stage:
    return Stage(
        device=device,
        layers=(start, stop),
        embedding=start == 0,
        head=stop == total if head is None else head,
        memory_bytes=StageMemory(
            weights=GIB, kv_cache=GIB // 4, overhead=GIB // 2, free=2 * GIB, capacity=4 * GIB
        ),
        prefill_time_s=0.4,
        decode_time_s=0.02,
    )


def replica(name: str, role: str, cuts: Sequence[tuple[str, int]], slots: int = 4) -> Replica:
    """Return a replica from devices and their numbers of layers."""
    total = sum(number for _, number in cuts)
    stages, start = [], 0
    for device, number in cuts:
        stages.append(stage(device, start, start + number, total))
        start += number
    return Replica(
        id=name,
        role=role,
        slots=slots,
        arrival_rate_per_s=0.3,
        service_rate_per_s=0.4,
        utilisation=0.75,
        stages=tuple(stages),
        prefill=PrefillFigures(tokens_per_s=1000.0, latency_s=0.5, bottleneck_s=0.2),
        decode=DecodeFigures(
            tokens_per_s=100.0, tpot_s=0.04, bottleneck_s=0.02, tokens_per_s_per_stream=25.0
        ),
        max_context_tokens=8192,
    )


def plan(
    *replicas: Replica,
    weights: str = "f16",
    kv_cache: str = "f16",
    runtime: str = "generic",
    model: str = "llama-3.1-8b",
    context: int = 4096,
    **facts: Any,
) -> Plan:
    """Return a whole plan around *replicas*; *facts* are the model's."""
    total = max((own.stages[-1].layers[1] for own in replicas if own.stages), default=1)
    prefill = [own.id for own in replicas if own.role == "PREFILL"]
    decode = [own.id for own in replicas if own.role == "DECODE"]
    return Plan(
        problem=PlanProblem(
            inventory_sha256="ab" * 32,
            model={"name": model, "num_hidden_layers": total, **facts},
            workload={"context_tokens": context, "output_tokens": {"mean": 200.0, "cv": 0.5}},
            runtime=runtime,
            options={"weights": weights, "kv_cache": kv_cache},
        ),
        replicas=tuple(replicas),
        routes=tuple(
            Route(prefill=p, decode=d, rate_per_s=0.1, kv_transfer_s=0.2, kv_bytes=10**8)
            for p in prefill
            for d in decode
        ),
        unused_devices=(),
        predicted=Predicted(
            capacity_per_s=0.8,
            stable=True,
            waiting_time_s=0.1,
            ttft_s=0.5,
            tpot_s=0.04,
            latency_s=9.0,
            prefill_share_of_work=0.1,
            power_w=None,
            cost_per_hour=None,
        ),
        bound=Bound(),
        alternatives=(),
        warnings=(),
        provenance=RunProvenance(e2llm_opt="0.1.0", created="2026-01-01", elapsed_s=1.0),
    )


texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
)
names = st.sampled_from(NASTY) | texts


@st.composite
def cuts(draw: st.DrawFn, total: int, num_stages: int, *, equal: bool = False) -> list[int]:
    """Return layers of each stage, one or more each."""
    if equal:
        bounds = [total * i // num_stages for i in range(num_stages + 1)]
    else:
        inner = draw(
            st.sets(st.integers(1, total - 1), min_size=num_stages - 1, max_size=num_stages - 1)
            if num_stages > 1
            else st.just(set[int]())
        )
        bounds = [0, *sorted(inner), total]
    return [b - a for a, b in pairwise(bounds)]


@st.composite
def plans(
    draw: st.DrawFn,
    *,
    weights: str = "f16",
    most_stages: int = 6,
    most_replicas: int = 3,
    plain_names: bool = False,
    powers: bool = False,
) -> Plan:
    """Return a valid plan; *powers*: 2^n stages of equal shares."""
    num = draw(st.integers(1, most_replicas))
    sizes = (1, 2, 4) if powers else tuple(range(1, most_stages + 1))
    stages = [draw(st.sampled_from(sizes)) for _ in range(num)]
    total = draw(st.integers(max(8, *stages), 128))
    devices = draw(
        st.just([f"dev-{i}" for i in range(sum(stages))])
        if plain_names
        else st.lists(names, min_size=sum(stages), max_size=sum(stages), unique=True)
    )
    roles = ["MIXED"] * num
    if num > 1 and draw(st.booleans()):
        roles[:2] = ["PREFILL", "DECODE"]
        roles[2:] = [draw(st.sampled_from(("PREFILL", "DECODE", "MIXED"))) for _ in roles[2:]]
    ids = draw(st.lists(names, min_size=num, max_size=num, unique=True))
    made = []
    for i in range(num):
        own, devices = devices[: stages[i]], devices[stages[i] :]
        layers = draw(cuts(total, stages[i], equal=powers))
        slots = draw(st.integers(1, 16))
        made.append(replica(ids[i], roles[i], list(zip(own, layers, strict=True)), slots))
    return plan(
        *made,
        weights=weights,
        model=draw(st.just("llama-3.1-8b") if plain_names else names),
        context=draw(st.sampled_from((512, 4096, 131072))),
    )


def expected(one: Plan) -> list[tuple[tuple[str, int, int], ...]]:
    """Return every replica's (device, start, stop), sorted."""
    return sorted(tuple((s.device, *s.layers) for s in own.stages) for own in one.replicas)
