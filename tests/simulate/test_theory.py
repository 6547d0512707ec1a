"""What queueing theory knows of simple systems, within confidence intervals of several seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.problem import Problem, Role
from e2llm_opt.runtime import runtime
from e2llm_opt.simulate.simulate import Simulation, Simulator
from e2llm_opt.simulate.system import Actor
from e2llm_opt.workload.arrivals import draw_arrivals
from e2llm_opt.workload.trace import Trace
from e2llm_opt.workload.workload import Lengths, Workload
from tests.queueing import erlang_c_wait, pollaczek_khinchine
from tests.simulate.cases import Case, cases
from tests.strategies import rescaled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.workload.arrivals import Floats, Ints

PREFILL_TOKEN_S = 1e-3
ROUND_S = 1e-3
"""However many requests are in the batch: its slots are servers that do not slow each other."""
SEEDS = range(8)
NUM = 60_000


def server_problem(*, speed: float = 1.0) -> Problem:
    """Return a device that prefills at a token a millisecond, one that decodes so, and a fast one.

    Layers weigh next to nothing on the first, whose FLOPs decide, and no FLOPs on the second, whose
    reading of weights does. KV caches are empty and links take no time.
    """
    slow = Device(
        name="prefill",
        memory_bytes=1e9,
        memory_bandwidth_bytes_per_s=1e18,
        fp16_flop_per_s=speed * 1e6 / PREFILL_TOKEN_S,
        prefill_efficiency=1.0,
        decode_efficiency=1.0,
        layer_overhead_s=0.0,
    )
    reader = replace(
        slow,
        name="decode",
        memory_bandwidth_bytes_per_s=speed * 1e6 / ROUND_S,
        fp16_flop_per_s=1e18,
    )
    fast = replace(slow, name="fast", fp16_flop_per_s=1e18)
    links = [
        Link(ends=ends, forward_bytes_per_s=1e15, backward_bytes_per_s=1e15, latency_s=0.0)
        for ends in (("prefill", "fast"), ("fast", "decode"))
    ]
    return Problem(
        inventory=Inventory(devices=(slow, reader, fast), links=tuple(links)),
        facts=ModelFacts(
            name="one-layer",
            num_hidden_layers=1,
            hidden_size=1,
            vocab_size=1,
            layer_weight_bytes=1e6,
            kv_bytes_per_token=0.0,
            layer_flops_per_token=1e6,
            embedding_bytes=0.0,
            head_bytes=0.0,
        ),
        runtime=runtime("generic", overhead_bytes=0.0, hop_overhead_s=0.0, max_slots=64),
        workload=Workload(prompt=Lengths(mean=100.0), output=Lengths(mean=100.0)),
    )


def actor(role: Role, device: int, slots: int = 1, *, context: int = 10**9) -> Actor:
    return Actor(
        role=role, cut=((device, 0, 1),), slots=slots, spilled=((),), max_context_tokens=context
    )


def run(actors: Sequence[Actor], arrivals: Trace, *, speed: float = 1.0) -> Simulation:
    return Simulator(costs_of(server_problem(speed=speed)), arrivals).run(actors)


def prefilling(arrivals: Trace, *, speed: float = 1.0) -> Simulation:
    """One PREFILL replica, and a decoder that is always free and in no time."""
    decoder = actor(Role.DECODE, 2, 64)
    return run([actor(Role.PREFILL, 0), decoder], arrivals, speed=speed)


def decoding(arrivals: Trace, slots: int) -> Simulation:
    """One DECODE replica behind a prefill that takes no time."""
    return run([actor(Role.PREFILL, 2), actor(Role.DECODE, 1, slots)], arrivals)


def poisson(rate: float, prompts: Ints, outputs: Ints, seed: int) -> Trace:
    gaps = np.random.default_rng([1, seed]).exponential(1 / rate, len(prompts))
    return Trace(arrival_s=np.cumsum(gaps), prompt_tokens=prompts, output_tokens=outputs)


def lengths(kind: str, mean: float, seed: int) -> Ints:
    random = np.random.default_rng([2, seed])
    drawn = np.full(NUM, mean)
    if kind == "exponential":
        drawn = random.exponential(mean, NUM)
    if kind == "lognormal":
        drawn = mean * np.exp(0.6 * random.standard_normal(NUM) - 0.18)
    tokens: Ints = np.maximum(np.rint(drawn), 1).astype(np.int64)
    return tokens


ONES = np.ones(NUM, dtype=np.int64)


def assert_mean(found: Sequence[float], expected: float) -> None:
    """The mean over seeds is within four standard errors, and those are small."""
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found))
    assert error < 0.04 * expected
    assert abs(float(np.mean(found)) - expected) < 4 * error


# ---------------------------------------------------------------- textbook queues


@pytest.mark.parametrize(("kind", "scv"), [("exponential", 1.0), ("constant", 0.0)])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_prefill_replica_is_m_m_1_or_m_d_1(kind: str, scv: float, load: float) -> None:
    service = 1000 * PREFILL_TOKEN_S
    waits = [
        prefilling(poisson(load / service, lengths(kind, 1000, seed), ONES, seed)).wait_prefill_s
        for seed in SEEDS
    ]
    expected = pollaczek_khinchine(service, scv, load / service)
    assert_mean([float(wait.mean()) for wait in waits], expected)


def test_a_prefill_replica_with_lognormal_prompts_is_m_g_1() -> None:
    rate, found, expected = 0.7, [], []
    for seed in SEEDS:
        prompts = lengths("lognormal", 1000, seed)
        found.append(float(prefilling(poisson(rate, prompts, ONES, seed)).wait_prefill_s.mean()))
        mean, second = prompts.mean(), (prompts.astype(float) ** 2).mean()
        expected.append(pollaczek_khinchine(mean * PREFILL_TOKEN_S, second / mean**2 - 1, rate))
    assert_mean(found, float(np.mean(expected)))


@pytest.mark.parametrize(("slots", "load"), [(1, 0.7), (4, 0.8), (12, 0.9)])
def test_decode_slots_that_do_not_slow_each_other_are_m_m_c(slots: int, load: float) -> None:
    service = 2000 * ROUND_S
    rate = load * slots / service
    waits = [
        decoding(poisson(rate, ONES, lengths("exponential", 2000, seed), seed), slots)
        for seed in SEEDS
    ]
    expected = erlang_c_wait(slots, service, rate)
    assert_mean([float(found.wait_decode_s.mean()) for found in waits], expected)


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("slots", [3, 10])
def test_as_many_wait_on_average_as_arrive_during_a_wait(slots: int) -> None:
    rate = 0.85 * slots / (2000 * ROUND_S)
    found = decoding(poisson(rate, ONES, lengths("lognormal", 2000, 0), 0), slots)
    arrival = found.arrivals.arrival_s
    joined = np.sort(arrival + found.waiting_time_s)
    when = np.random.default_rng(5).uniform(arrival[0], arrival[-1], 200_000)
    waiting = np.searchsorted(arrival, when) - np.searchsorted(joined, when)
    counted = found.arrivals.rate_per_s * float(found.waiting_time_s.mean())
    assert waiting.mean() == pytest.approx(counted, rel=0.02)


def test_a_prefill_replica_works_as_long_as_its_prompts_take() -> None:
    prompts = lengths("lognormal", 1000, 1)
    found = prefilling(poisson(0.6, prompts, ONES, 1))
    span = float(found.arrivals.arrival_s[-1] - found.arrivals.arrival_s[0])
    work = float(prompts.sum()) * PREFILL_TOKEN_S
    assert found.busy[0] == pytest.approx(work / span, rel=1e-3)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_requests_and_their_time_in_slots_are_conserved(case: Case) -> None:
    found = case.fast()
    served = found.entry >= 0
    assert found.num_rejected == (~served).sum()
    for times in (found.waiting_time_s, found.ttft_s, found.tpot_s, found.latency_s):
        assert np.isfinite(times[served]).all()
        assert np.isnan(times[~served]).all()
    arrivals = found.arrivals
    finish = arrivals.arrival_s + found.latency_s
    span = max(np.nanmax(finish, initial=arrivals.arrival_s[-1]) - arrivals.arrival_s[0], 1e-300)
    in_slot = np.where(served, found.tpot_s * arrivals.output_tokens, 0.0)
    for r, own in enumerate(case.replicas):
        held = float(in_slot[found.decoder == r].sum())
        decoded = found.busy[r] * span * own.slots
        if own.role == "DECODE":
            assert decoded == pytest.approx(held)
        if own.role == "MIXED":  # pauses are in a slot, and not decoding
            assert decoded <= held * (1 + 1e-9)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_wait_has_three_parts_and_the_rest_is_work(case: Case) -> None:
    found = case.fast()
    served = found.entry >= 0
    parts = found.wait_prefill_s, found.wait_kv_s, found.wait_decode_s
    assert all((part[served] >= 0).all() for part in parts)
    in_slot = found.tpot_s * found.arrivals.output_tokens
    after = found.wait_kv_s + found.wait_decode_s + in_slot
    np.testing.assert_allclose(
        found.latency_s[served], (found.ttft_s + after)[served], rtol=1e-9, atol=1e-9
    )
    alone = (found.ttft_s - found.wait_prefill_s)[served]
    assert (alone > 0).all()


def test_requests_longer_than_all_slots_are_rejected_and_counted() -> None:
    outputs = np.array([50, 500, 50, 501, 500], dtype=np.int64)
    arrivals = poisson(1.0, np.full(5, 100), outputs, 0)
    found = run([actor(Role.MIXED, 2, 3, context=200)], arrivals)
    assert found.entry.tolist() == [0, 0, 0, -1, 0]
    assert found.num_rejected == 1
    assert found.counted.tolist() == [True, True, True, False, True]


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from((0.5, 4.0)))
def test_times_scale_with_the_machines(case: Case, factor: float) -> None:
    """Powers of two, so that nothing rounds; bus latency and a nanosecond for ties are fixed."""
    hosts = {device.host for device in case.problem.devices}
    slower = replace(
        case,
        problem=rescaled(case.problem, factor),
        arrivals=replace(case.arrivals, arrival_s=case.arrivals.arrival_s * factor),
        routing="plan",
    )
    if len(hosts) < len(case.problem.devices):
        return
    found, expected = slower.fast(), replace(case, routing="plan").fast()
    np.testing.assert_allclose(found.latency_s, expected.latency_s * factor, rtol=1e-9)
    np.testing.assert_allclose(found.ttft_s, expected.ttft_s * factor, rtol=1e-9)


def test_the_same_seed_gives_the_same_run() -> None:
    def wait(seed: int) -> Floats:
        load = Workload(prompt=Lengths(mean=800.0), output=Lengths(mean=50.0))
        return prefilling(draw_arrivals(load, 500, rate_per_s=1.0, seed=seed)).waiting_time_s

    assert wait(3).tolist() == wait(3).tolist()
    assert wait(3).tolist() != wait(4).tolist()


# ---------------------------------------------------------------- more of everything


@pytest.mark.parametrize("kind", ["exponential", "lognormal", "constant"])
def test_more_slots_of_the_same_pace_shorten_waits(kind: str) -> None:
    """On the same arrivals; when rounds begin may differ, so that one round is forgiven."""
    rate = 0.9 * 2 / (2000 * ROUND_S)
    arrivals = poisson(rate, ONES, lengths(kind, 2000, 2), 2)
    waits = [decoding(arrivals, slots).wait_decode_s for slots in (2, 3, 4, 8)]
    for fewer, more in pairwise(waits):
        assert more.mean() <= fewer.mean()
        assert (more <= fewer + 8 * ROUND_S).all()


@pytest.mark.parametrize("kind", ["exponential", "lognormal", "constant"])
def test_a_faster_device_shortens_every_wait(kind: str) -> None:
    arrivals = poisson(0.9, lengths(kind, 1000, 3), ONES, 3)
    slow, faster, fastest = (
        prefilling(arrivals, speed=speed).wait_prefill_s for speed in (1.0, 1.1, 2.0)
    )
    assert (faster <= slow + 1e-9).all()
    assert (fastest <= faster + 1e-9).all()
    assert fastest.mean() < faster.mean() < slow.mean()
