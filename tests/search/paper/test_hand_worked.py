"""The paper's method on three devices and four layers, worked through by hand.

All layers are alike: 1000 B, 40 FLOP a token, no KV cache. The head has 500 B and costs 20 FLOP
a token; it lies on the first stage, the master. Prompts have 10 tokens, answers 20.

| device | memory | layers as master | as other | read a layer | 40 FLOP | read the head | 20 FLOP |
|--------|--------|------------------|----------|--------------|---------|---------------|---------|
| a      | 3000 B | 2                | 3        | 0.10 s       | 0.04 s  | 0.050 s       | 0.02 s  |
| b      | 3000 B | 2                | 3        | 0.25 s       | 0.04 s  | 0.125 s       | 0.02 s  |
| c      | 4500 B | 4                | 4        | 0.05 s       | 0.02 s  | 0.025 s       | 0.01 s  |

A layer decodes n tokens in max(read, n · 40 FLOP). A hop takes 0.01 s and 0.02 s a token. No
stream may be slower than 0.8 s a token (1.25 tokens/s). One request comes every 2 s.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

import e2llm_opt
from e2llm_opt.cost.costs import Costs
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.partition.paper.fixed_order import fixed_order_cut
from e2llm_opt.partition.partition import decode_demand, prefill_demand
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Problem, Role
from e2llm_opt.runtime import runtime
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.paper.fitness import best_roles
from e2llm_opt.search.paper.replicas import PaperReplicas
from e2llm_opt.workload.workload import Lengths, Workload

A, B, C = 0, 1, 2


def device(name: str, memory: float, bandwidth: float, speed: float) -> Device:
    """Return a device whose efficiencies are 1: bytes/s and FLOP/s as given."""
    return Device(
        name=name,
        memory_bytes=memory,
        memory_bandwidth_bytes_per_s=bandwidth,
        fp16_flop_per_s=speed,
        decode_efficiency=1.0,
        prefill_efficiency=1.0,
        layer_overhead_s=0.0,
    )


DEVICES = (
    device("a", 3000.0, 10_000.0, 1000.0),
    device("b", 3000.0, 4000.0, 1000.0),
    device("c", 4500.0, 20_000.0, 2000.0),
)
PROBLEM = Problem(
    inventory=Inventory(
        devices=DEVICES,
        links=tuple(
            # 10 values of 2 B a token: 20 B a token at 1000 B/s
            Link(ends=pair, forward_bytes_per_s=1e3, backward_bytes_per_s=1e3, latency_s=0.01)
            for pair in combinations("abc", 2)
        ),
    ),
    facts=ModelFacts(
        name="four layers",
        num_hidden_layers=4,
        hidden_size=10,
        vocab_size=1,  # the head's 20 FLOP: 2 · 10 · 1
        layer_weight_bytes=1000.0,
        kv_bytes_per_token=0.0,
        layer_flops_per_token=40.0,
        embedding_bytes=0.0,
        head_bytes=500.0,
    ),
    runtime=runtime("generic", head="first", overhead_bytes=0.0, hop_overhead_s=0.0, max_slots=16),
    workload=Workload(
        prompt=Lengths(mean=10.0),
        output=Lengths(mean=20.0),
        rate_per_s=0.5,
        min_tokens_per_s=1.25,
    ),
)


def decode_cut(rows: tuple[int, ...], slots: int) -> tuple[object, float]:
    found = fixed_order_cut(
        Costs(PROBLEM), rows, decode_demand(Costs(PROBLEM), slots, -(-slots // len(rows)))
    )
    assert found is not None
    return found.stages, found.slowest_s


def test_decoding_on_a_and_b_has_b_as_its_master() -> None:
    """b = 2 requests on M = 2 devices: micro-batches of 1. T = 0.03 s.

    Master a, order (a, b); row 1 is L_a(0, i) = head + i layers:
        DP(1,1) = .05 + .10 = .15    DP(2,1) = .25    DP(3,1) = inf (3500 B)
        DP(4,2) = min( j=1: max(.15, 3·.25, T) = .75, j=2: max(.25, 2·.25, T) = .50 ) = .50
    Master b, order (b, a):
        DP(1,1) = .125 + .25 = .375  DP(2,1) = .625   DP(3,1) = inf
        DP(4,2) = min( j=1: max(.375, 3·.10, T) = .375, j=2: max(.625, 2·.10, T) = .625 ) = .375
    """
    stages, slowest = decode_cut((A, B), 2)
    assert stages == ((B, 0, 1), (A, 1, 4))
    assert slowest == pytest.approx(0.375)
    # The order in which the devices are named only decides who is tried first.
    assert decode_cut((B, A), 2) == (stages, slowest)


def test_larger_micro_batches_on_a_and_b_become_bound_by_arithmetic() -> None:
    """b = 7: micro-batches of 4 tokens, 4 · .04 = .16 s a layer on a, still .25 s on b; T = .09 s.

    Master b: j=1: max(.375, 3·.16) = .48, j=2: max(.625, .32) = .625.
    Master a: j=1: max(.08 + .16, .75) = .75, j=2: max(.08 + .32, .50) = .50.
    """
    stages, slowest = decode_cut((A, B), 7)
    assert stages == ((B, 0, 1), (A, 1, 4))
    assert slowest == pytest.approx(0.48)


def test_prefill_on_a_and_b_has_a_as_its_master() -> None:
    """10 tokens: max(.40 s of FLOP, reading) = .40 s a layer on both; the head once; T = .21 s.

    Master a: j=1: max(.45, 1.2) = 1.2, j=2: max(.85, .80) = .85.
    Master b: j=1: max(.525, 1.2) = 1.2, j=2: max(.925, .80) = .925.
    """
    found = fixed_order_cut(Costs(PROBLEM), (A, B), prefill_demand(Costs(PROBLEM)))
    assert found is not None
    assert found.stages == ((A, 0, 2), (B, 2, 4))
    assert found.slowest_s == pytest.approx(0.85)


@pytest.fixture(scope="module")
def replicas() -> PaperReplicas:
    costs = Costs(PROBLEM)
    return PaperReplicas(Candidates(costs, costs.classes.order))


def group(*names: str) -> tuple[int, ...]:
    rows = [device.name for device in PROBLEM.devices]
    return tuple(sorted(Costs(PROBLEM).classes.class_of[rows.index(name)] for name in names))


def test_a_and_b_decode_six_requests_or_read_six_tokens_a_second(replicas: PaperReplicas) -> None:
    """b = 6 takes 2 · .375 = .75 s a token, b = 7 takes 2 · .48 = .96 s: more than .8 s.

    DS = 6 / .75 = 8 tokens/s. A prompt alone takes 2 · .85 = 1.7 s: PS = 10 / 1.7.
    """
    found = replicas.find(group("a", "b"))
    assert found.slots == 6
    assert found.decode_per_s == pytest.approx(8.0)
    assert found.prefill_per_s == pytest.approx(10 / 1.7)


def test_c_decodes_eight_requests_or_reads_twelve_tokens_a_second(replicas: PaperReplicas) -> None:
    """b >= 3 is bound by arithmetic: 4 · .02 b + .01 b = .09 b; .72 s for 8, .81 s for 9.

    DS = 8 / .72 tokens/s. A prompt: 4 · .20 + .025 = .825 s.
    """
    found = replicas.find(group("c"))
    assert found.slots == 8
    assert found.decode_per_s == pytest.approx(8 / 0.72)
    assert found.prefill_per_s == pytest.approx(10 / 0.825)


def test_neither_a_nor_b_holds_the_model_alone(replicas: PaperReplicas) -> None:
    assert not replicas.find(group("a")).is_usable
    assert not replicas.find(group("b")).is_usable


def test_eq_4_takes_a_and_b_for_prefill(replicas: PaperReplicas) -> None:
    """c PREFILL:      max(10/PS = .825 s, 20/DS = 20/8    = 2.5 s) = 2.5 s
    a, b PREFILL: max(10/PS = 1.7 s,  20/DS = 20/11.1 = 1.8 s) = 1.8 s, 0.2 s below the period.
    """
    both = [replicas.find(group("a", "b")), replicas.find(group("c"))]
    found = best_roles(both, PROBLEM.workload)
    assert found.roles == (Role.PREFILL, Role.DECODE)
    assert found.extra_wait_s == pytest.approx(1.8 - 2.0)
    assert best_roles(both[::-1], PROBLEM.workload).roles == (Role.DECODE, Role.PREFILL)
    without_rate = best_roles(both, replace(PROBLEM.workload, rate_per_s=0.0))
    assert without_rate.extra_wait_s == pytest.approx(1.8)


@pytest.mark.parametrize("seed", range(3))
def test_the_plan_is_the_one_worked_out(seed: int) -> None:
    """In any other grouping at most one group holds the model, and PREFILL or DECODE is missing."""
    plan = e2llm_opt.plan(PROBLEM, seed=seed, planner="e2llm-paper")
    assert isinstance(plan, Plan)
    assert plan.summary().splitlines()[:2] == [
        "r0 PREFILL a [0, 2), b [2, 4)",
        "r1 DECODE  c [0, 4)",
    ]
    assert [replica.slots for replica in plan.replicas] == [1, 8]
    assert plan.problem.options["planner"] == "e2llm-paper"
    assert e2llm_opt.check(plan, PROBLEM).violations == ()
