"""The queueing kernel against textbook formulas and against chains summed state by state."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.cost import kernel
from tests.pools import (
    INSTANT,
    TOKENS,
    assert_as_predicted,
    close,
    decode_pools,
    evaluated,
    loads,
    mixed_pools,
    pool_of,
    prefill_pools,
    prefillers,
    servers,
    small,
    team_of,
    times,
)
from tests.queueing import (
    Server,
    batch_peakedness,
    erlang_c_wait,
    kimura,
    overflow,
    pollaczek_khinchine,
)

P, D, M = kernel.PREFILL, kernel.DECODE, kernel.MIXED


# ---------------------------------------------------------------- textbook queues


@given(st.integers(1, 5), st.floats(0.05, 0.95), times)
def test_alike_prefill_replicas_with_exponential_times_are_m_m_c(
    num: int, load: float, service: float
) -> None:
    alike = [Server(tpot_s=[service], scv=1.0)] * num
    arrival = load * num / service
    values, _ = evaluated(alike, [INSTANT], [], min(arrival, 1e6))
    assert values[kernel.WAITING] == close(erlang_c_wait(num, service, arrival))


@given(st.integers(1, 6), st.floats(0.05, 0.95), st.floats(1e-3, 0.1))
def test_decode_slots_that_do_not_slow_each_other_are_m_m_c(
    slots: int, load: float, tpot: float
) -> None:
    service = TOKENS * tpot
    arrival = load * slots / service
    instant = Server(tpot_s=[1e-9], scv=1.0)
    values, _ = evaluated([instant], [Server(tpot_s=[tpot] * slots)], [], arrival, scv=1.0)
    erlangs = [(load * slots) ** n / math.factorial(n) for n in range(slots)]
    norm = sum(erlangs) + (load * slots) ** slots / math.factorial(slots) / (1 - load)
    # who finds a round running and a free slot waits for half of it
    running = sum(erlangs[1:]) / norm * tpot / 2
    assert values[kernel.WAITING] == close(erlang_c_wait(slots, service, arrival) + running)
    assert values[kernel.TPOT] == close(tpot)


@given(prefillers(), loads)
def test_one_prefill_replica_is_m_g_1(server: Server, load: float) -> None:
    service = server.tpot_s[0]
    arrival = load / service
    values, rates = evaluated([server], [INSTANT], [], arrival)
    expected = pollaczek_khinchine(service, server.scv, arrival) + load * server.behind_s
    assert values[kernel.WAITING] == close(expected)
    assert values[kernel.TTFT] == close(expected + server.latency_s)
    assert rates == pytest.approx([arrival, arrival])


def test_constant_lengths_halve_the_wait_of_one_slot() -> None:
    """M/D/1 waits half as long as M/M/1."""
    slot = Server(tpot_s=[0.01])
    waits = [
        evaluated([INSTANT], [slot], [], 0.8, scv=scv)[0][kernel.WAITING] for scv in (0.0, 1.0)
    ]
    assert waits[0] == close(waits[1] / 2)


@given(st.floats(0.05, 0.9), times, small, st.floats(0.01, 0.1))
def test_a_mixed_replica_with_ample_slots_is_m_g_1_before_prefill(
    busy: float, pause: float, scv: float, share: float
) -> None:
    """Slots are never all taken, and rounds take next to no time."""
    server = Server(tpot_s=[1e-9 * (1 + n) for n in range(60)], pause_s=pause, scv=scv)
    arrival = busy * share / pause
    values, _ = evaluated([], [], [server], arrival, scv=1.0)
    assert values[kernel.WAITING] == close(pollaczek_khinchine(pause, scv, arrival))


def test_prefills_in_a_row_let_batches_go() -> None:
    """E[K²] / E[K] of M/D/1 busy periods is 1 / (1 - ρ)²; exponential answers halve what is above.

    With answers that are all alike a batch ends together, too: its variance counts in full.
    """
    assert batch_peakedness(0.5, 0.0, 1.0) == pytest.approx(4 / 2)
    assert batch_peakedness(0.5, 0.0, 0.5) == pytest.approx((1 + 3 / 2) / 2)
    assert batch_peakedness(1e-9, 1.0, 0.7) == pytest.approx(1.0)


def test_what_overflows_is_peaked() -> None:
    """One slot, one erlang: half is blocked; z = 1 - 1/2 + 1 / (1 + 1 + 1/2 - 1) = 7/6."""
    assert overflow(1, 1.0) == pytest.approx(2 * 7 / 6 - 1)


# ---------------------------------------------------------------- pools, state by state


@given(prefill_pools, loads, small)
def test_a_prefill_pool_is_the_chain_of_all_its_servers(
    pool: list[Server], load: float, transfer: float
) -> None:
    team = team_of(pool, [INSTANT], [], load, transfer=transfer)
    values, rates = evaluated(pool, [INSTANT], [], team.arrival, transfer=transfer)
    assert_as_predicted(values, rates, team)


@given(decode_pools, loads, st.sampled_from((0.0, 0.25, 1.0, 2.0)), small)
def test_a_decode_pool_is_the_chain_of_all_its_slots(
    pool: list[Server], load: float, scv: float, transfer: float
) -> None:
    instant = Server(tpot_s=[1e-9])
    team = team_of([instant], pool, [], load, scv=scv, transfer=transfer)
    values, rates = evaluated([instant], pool, [], team.arrival, scv=scv, transfer=transfer)
    assert_as_predicted(values, rates, team)


@given(mixed_pools, loads, st.sampled_from((0.0, 0.25, 1.0, 2.0)))
def test_a_mixed_pool_pauses_for_prompts_and_waits_for_running_ones(
    pool: list[Server], load: float, scv: float
) -> None:
    team = team_of([], [], pool, load, scv=scv)
    values, rates = evaluated([], [], pool, team.arrival, scv=scv)
    assert_as_predicted(values, rates, team)


# ---------------------------------------------------------------- laws


@given(prefill_pools, decode_pools, st.lists(servers(has_pause=True), max_size=3), loads)
def test_capacity_is_the_narrower_of_the_phases_and_all_mixed(
    first: list[Server], second: list[Server], both: list[Server], load: float
) -> None:
    prefill = sum(server.full(1.0) for server in first)
    decode = sum(server.full(TOKENS) for server in second)
    mixed = sum(server.full(TOKENS) for server in both)
    capacity = min(prefill, decode) + mixed
    values, rates = evaluated(first, second, both, load * capacity)
    assert values[kernel.CAPACITY] == pytest.approx(capacity)
    assert np.isfinite(values).all()
    num = len(first)
    entering = rates[:num].sum() + rates[num + len(second) :].sum()
    leaving = rates[num:].sum()
    assert entering == pytest.approx(load * capacity)
    assert leaving == pytest.approx(load * capacity)


@given(prefill_pools, decode_pools, st.lists(servers(has_pause=True), max_size=3))
def test_at_capacity_there_is_no_steady_state(
    first: list[Server], second: list[Server], both: list[Server]
) -> None:
    capacity = evaluated(first, second, both, 0.0)[0][kernel.CAPACITY]
    for arrival in (capacity, 1.5 * capacity):
        values, rates = evaluated(first, second, both, arrival)
        for figure in (kernel.WAITING, kernel.TTFT, kernel.LATENCY):
            assert values[figure] == math.inf
        assert values[kernel.CAPACITY] == capacity
        assert math.isfinite(values[kernel.TPOT])
        assert rates[len(first) :].sum() == pytest.approx(capacity)


@pytest.mark.parametrize("roles", [[P], [D], [P, P], [M, D], [M, P]])
def test_half_a_pair_serves_nobody(roles: list[int]) -> None:
    alike = [Server(tpot_s=[0.01, 0.02], pause_s=0.1)] * len(roles)
    pool, _ = pool_of(alike, [], [], 0.1, scv=0.25, transfer=0.0)
    values, rates = kernel.evaluate(pool, np.array(roles))
    assert values[kernel.CAPACITY] == 0.0
    assert not rates.any()


@given(prefill_pools, decode_pools, loads, st.floats(1.0, 1.5))
def test_a_disaggregated_wait_grows_with_the_rate(
    first: list[Server], second: list[Server], load: float, factor: float
) -> None:
    capacity = evaluated(first, second, [], 0.0)[0][kernel.CAPACITY]
    low, high = load * capacity / factor, load * capacity
    waits = [evaluated(first, second, [], rate)[0][kernel.WAITING] for rate in (low, high)]
    a_round = max(max(server.tpot_s) for server in second)  # as for MIXED replicas below
    assert waits[0] <= waits[1] * (1 + 1e-6) + a_round


@given(servers(has_pause=True), st.integers(1, 4), loads, st.floats(1.0, 1.5))
def test_the_wait_of_alike_mixed_replicas_grows_with_the_rate(
    server: Server, num: int, load: float, factor: float
) -> None:
    """But for the end of a round, which who comes to an idle replica need not wait for.

    Of unlike ones it need not: more requests may spill over to a replica with short pauses.
    """
    capacity = num * server.full(TOKENS)
    low, high = load * capacity / factor, load * capacity
    waits = [evaluated([], [], [server] * num, r)[0][kernel.WAITING] for r in (low, high)]
    assert waits[0] <= waits[1] * (1 + 1e-6) + max(server.tpot_s)


@pytest.mark.skipif(not hasattr(kernel.evaluate, "py_func"), reason="nothing is compiled")
@given(prefill_pools, decode_pools, mixed_pools, loads)
def test_compiled_queueing_does_what_its_source_says(
    first: list[Server], second: list[Server], both: list[Server], load: float
) -> None:
    capacity = evaluated(first, second, both, 0.0)[0][kernel.CAPACITY]
    pool, roles = pool_of(first, second, both, load * capacity, scv=0.25, transfer=0.1)
    values, rates = kernel.evaluate(pool, roles)
    plain = {
        name: function.py_func
        for name, function in vars(kernel).items()
        if hasattr(function, "py_func")
    }
    with mock.patch.multiple(kernel, **plain):
        assert not hasattr(kernel.evaluate, "py_func")
        other, others = kernel.evaluate(pool, roles)
    assert other == pytest.approx(values, rel=1e-9)
    assert others == pytest.approx(rates, rel=1e-6, abs=1e-9)


def test_screening_is_evaluating_row_by_row() -> None:
    alike = [Server(tpot_s=[0.01, 0.015], pause_s=0.1, latency_s=0.1)] * 3
    pool, _ = pool_of(alike, [], [], 0.5, scv=0.25, transfer=0.01)
    rows = np.array([[P, D, D], [M, M, M], [P, D, M]])
    sets = np.array([[0, 1, 2], [2, 1, 0]])
    first = np.array([0, 3, 6])
    num = np.array([3, 3])
    screened = kernel.screen(pool, sets, num, first, np.concatenate([rows, rows[:, ::-1]]))
    assert screened[3:] == pytest.approx(screened[:3])
    for row, values in zip(rows, screened[:3], strict=True):
        assert values.tolist() == kernel.evaluate(pool, row)[0].tolist()


def test_the_correction_is_exact_for_one_slot_and_never_lengthens_the_wait() -> None:
    assert kimura(1.0, 0.5, 1, 0.0) == 0.5
    assert kernel._kimura(1.0, 0.5, 1, 0.0) == 0.5
    for slots in (2, 10, 64):
        assert kernel._kimura(1.0, 1e-6, slots, 0.0) == 1.0
        assert kernel._kimura(1.0, 0.9, slots, 0.25) == pytest.approx(kimura(1.0, 0.9, slots, 0.25))
