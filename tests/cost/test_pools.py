"""Pools of PREFILL, DECODE and MIXED replicas together, large pools, and pools that are full."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e2llm_opt.cost import kernel
from e2llm_opt.cost.pools import Pool
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
    servers,
    team_of,
)
from tests.queueing import Server, kimura

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.cost.kernel import Floats

MEANS = (kernel.WAITING, kernel.TTFT, kernel.TPOT, kernel.LATENCY, kernel.UNLOADED)


def capacity_of(servers: Sequence[Server], tokens: float) -> float:
    return sum(server.full(tokens) for server in servers)


@st.composite
def transfers(draw: st.DrawFn, num: int) -> Floats:
    """Return KV transfer times between all replicas [R, R] [s]."""
    times = st.sampled_from((0.0, 0.01, 0.3, 2.0))
    return np.array([[draw(times) for _ in range(num)] for _ in range(num)])


# ---------------------------------------------------------------- disaggregated


@given(prefill_pools, decode_pools, loads, st.sampled_from((0.0, 0.25, 2.0)), st.data())
def test_a_request_is_prefilled_moved_and_decoded(
    first: list[Server], second: list[Server], load: float, scv: float, data: st.DataObject
) -> None:
    transfer = data.draw(transfers(len(first) + len(second)))
    team = team_of(first, second, [], load, scv=scv, transfer=transfer)
    values, rates = evaluated(first, second, [], team.arrival, scv=scv, transfer=transfer)
    assert_as_predicted(values, rates, team)


@pytest.mark.parametrize("is_second_nearer", [False, True])
def test_of_equally_fast_replicas_the_nearer_one_takes_more(is_second_nearer: bool) -> None:
    alike = [Server(tpot_s=[0.01, 0.02])] * 2
    near, far = (3, 2) if is_second_nearer else (2, 3)
    transfer = np.zeros((4, 4))
    transfer[near] = transfer[2:, near] = 5.0  # nobody sends that way
    transfer[:2, far] = 1.0
    _, rates = evaluated([INSTANT] * 2, alike, [], 0.4, transfer=transfer)
    assert rates[near] > rates[far] * 1.1
    transfer = np.zeros((4, 4))
    transfer[near - 2, :2] = transfer[2:, near - 2] = 5.0
    transfer[far - 2, 2:] = 1.0
    _, rates = evaluated([Server(tpot_s=[1.0])] * 2, [INSTANT] * 2, [], 0.4, transfer=transfer)
    assert rates[near - 2] > rates[far - 2] * 1.1


def test_an_unused_replica_makes_nobody_seem_far_away() -> None:
    alike = [Server(tpot_s=[0.01, 0.02])] * 2
    transfer = np.zeros((4, 4))
    transfer[0, 3], transfer[1, 2] = 1.0, 5.0
    pool, _ = pool_of([INSTANT] * 2, alike, [], 0.4, scv=0.25, transfer=transfer)
    roles = np.array([kernel.PREFILL, kernel.UNUSED, kernel.DECODE, kernel.DECODE])
    _, rates = kernel.evaluate(pool, roles)
    assert rates[2] > rates[3] * 1.1


def test_where_nobody_has_a_role_nobody_is_served() -> None:
    pool, roles = pool_of([INSTANT], [INSTANT], [INSTANT], 0.4, scv=0.25, transfer=0.0)
    values, rates = kernel.evaluate(pool, np.full_like(roles, kernel.UNUSED))
    assert values[kernel.CAPACITY] == 0.0
    assert all(values[figure] == math.inf for figure in MEANS)
    assert not rates.any()


@pytest.mark.parametrize("pair", [(0, 2), (0, 3), (1, 2), (1, 3)])
def test_a_pair_without_a_way_between_them_makes_the_roles_impossible(
    pair: tuple[int, int],
) -> None:
    first, second = [Server(tpot_s=[0.1])] * 2, [Server(tpot_s=[0.01])] * 2
    transfer = np.zeros((4, 4))
    transfer[pair] = math.inf
    values, rates = evaluated(first, second, [], 0.1, transfer=transfer)
    assert values[kernel.CAPACITY] == 0.0
    assert not rates.any()
    transfer = np.full((4, 4), math.inf)
    transfer[:2, 2:] = 0.5
    values, _ = evaluated(first, second, [], 0.1, transfer=transfer)
    assert values[kernel.CAPACITY] == pytest.approx(min(20.0, 2.0))
    assert values[kernel.UNLOADED] == pytest.approx(0.5 + TOKENS * 0.01)
    assert 0.5 < values[kernel.WAITING] < 0.51


# ---------------------------------------------------------------- large pools


def erlang_c(slots: int, load: float) -> float:
    """Return the chance that all of *slots* are busy, from Erlang B's recursion."""
    blocked = 1.0
    for n in range(1, slots + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1.0 - load / slots * (1.0 - blocked))


@pytest.mark.parametrize("slots", [40, 1000])
@pytest.mark.parametrize("rho", [0.1, 0.3, 0.9, 0.99])
def test_hundreds_of_slots_are_m_m_c_still(slots: int, rho: float) -> None:
    """Probabilities of states are far beyond what a number holds, or need no further slots."""
    service = 1.0
    server = Server(tpot_s=[service / TOKENS] * (slots // 2))
    values, rates = evaluated([INSTANT], [server] * 2, [], rho * slots, scv=1.0)
    all_busy = erlang_c(slots, rho * slots)
    wait = all_busy * service / (slots * (1.0 - rho))
    running = values[kernel.WAITING] - wait  # rounds, which the first request of each finds not
    assert 0.4 * (1.0 - all_busy) <= running / (service / TOKENS) <= 0.5 * (1.0 - all_busy) + 1e-9
    assert values[kernel.TPOT] == close(service / TOKENS)
    assert rates[1:].sum() == pytest.approx(rho * slots, rel=1e-6)


def test_each_of_hundreds_of_slots_takes_its_share() -> None:
    pool = [Server(tpot_s=[0.01] * 300), Server(tpot_s=[0.0101] * 320)]
    team = team_of([INSTANT], pool, [], 0.95)
    values, rates = evaluated([INSTANT], pool, [], team.arrival)
    assert_as_predicted(values, rates, team)


@given(
    st.lists(servers(has_pause=False, max_slots=60), min_size=1, max_size=2),
    st.sampled_from((0.01, 0.1, 0.24, 0.26, 0.5, 0.9)),
)
def test_slots_that_are_never_reached_may_be_left_out(pool: list[Server], load: float) -> None:
    team = team_of([INSTANT], pool, [], load)
    values, rates = evaluated([INSTANT], pool, [], team.arrival)
    assert_as_predicted(values, rates, team)


# ---------------------------------------------------------------- both kinds at once


@settings(max_examples=6)  # the plain chain has thousands of states
@given(prefill_pools, decode_pools, mixed_pools, loads, st.data())
def test_mixed_and_disaggregated_replicas_are_one_pool_of_slots(
    first: list[Server],
    second: list[Server],
    both: list[Server],
    load: float,
    data: st.DataObject,
) -> None:
    transfer = data.draw(transfers(len(first) + len(second) + len(both)))
    team = team_of(first, second, both, load, transfer=transfer)
    values, rates = evaluated(first, second, both, team.arrival, transfer=transfer)
    assert_as_predicted(values, rates, team)


@given(prefill_pools, decode_pools, mixed_pools, st.sampled_from((0.3, 0.9, 0.97, 0.999)))
def test_neither_kind_gets_more_than_it_can_serve(
    first: list[Server], second: list[Server], both: list[Server], load: float
) -> None:
    """Found by the test above: prefill at 114 % of what it can do, and a negative TTFT."""
    team = team_of(first, second, both, load)
    values, rates = evaluated(first, second, both, team.arrival)
    assert values[kernel.WAITING] >= 0.0
    assert values[kernel.TTFT] > 0.0
    assert rates[: len(first)].sum() < team.pairs
    assert rates[len(first) + len(second) :].sum() < team.capacity - team.pairs


@given(prefill_pools, decode_pools, mixed_pools)
def test_nobody_waits_for_a_kv_cache_while_mixed_replicas_idle(
    first: list[Server], second: list[Server], both: list[Server]
) -> None:
    values, rates = evaluated(first, second, both, 0.0, transfer=0.1)
    assert rates[: len(first) + len(second)].sum() <= 1e-6 * rates.sum()
    assert values[kernel.WAITING] == pytest.approx(0.0, abs=1e-6)


def test_a_replica_that_always_prefills_makes_nobody_wait_longer_than_at_95_percent() -> None:
    """Prompts that vary would take it beyond 0.95: oracle and kernel stop there."""
    server = Server(tpot_s=[0.001], pause_s=2.0, latency_s=2.0, scv=0.0)
    waits = []
    for stretch in (1.03, 1.03125, 1.05):
        long = [replace(server, busy_s=2.0 * stretch, usable=[1.0])]
        values, rates = evaluated([], [], long, 0.96875 * capacity_of([server], TOKENS))
        assert_as_predicted(values, rates, team_of([], [], long, 0.96875))
        waits.append(values[kernel.WAITING])
    assert waits == pytest.approx([waits[0]] * 3, rel=1e-4)


@given(mixed_pools, loads, st.data())
def test_longer_prompts_that_vary_and_full_memory_only_lengthen_the_wait(
    both: list[Server], load: float, data: st.DataObject
) -> None:
    stretch = data.draw(st.floats(1.0, 1.05))
    tight = [
        replace(
            server,
            busy_s=stretch * server.pause_s,
            usable=[1.0 - 0.05 * n / len(server.tpot_s) for n in range(len(server.tpot_s))],
        )
        for server in both
    ]
    values, rates = evaluated([], [], tight, load * capacity_of(both, TOKENS))
    assert_as_predicted(values, rates, team_of([], [], tight, load))
    wide, _ = evaluated([], [], both, load * capacity_of(both, TOKENS))
    assert values[kernel.CAPACITY] == wide[kernel.CAPACITY]
    if len(both) == 1:
        assert values[kernel.WAITING] >= wide[kernel.WAITING] * (1 - 1e-9)


# ---------------------------------------------------------------- at the ends


@given(prefill_pools, decode_pools, st.lists(servers(has_pause=True), max_size=3))
def test_at_capacity_everything_is_busy(
    first: list[Server], second: list[Server], both: list[Server]
) -> None:
    prefill, decode = capacity_of(first, 1.0), capacity_of(second, TOKENS)
    pairs = min(prefill, decode)
    capacity = pairs + capacity_of(both, TOKENS)
    values, rates = evaluated(first, second, both, capacity, transfer=0.1)
    one = [server.full(1.0) * pairs / prefill for server in first]
    two = [server.full(TOKENS) * pairs / decode for server in second]
    three = [server.full(TOKENS) for server in both]
    tokens = [*zip(two, second, strict=True), *zip(three, both, strict=True)]
    prompts = [*zip(one, first, strict=True), *zip(three, both, strict=True)]
    alone = sum(rate * TOKENS * server.tpot_s[0] for rate, server in tokens)
    alone += sum(rate * server.latency_s for rate, server in prompts)
    assert rates == pytest.approx([*one, *two, *three])
    assert values[kernel.TPOT] == close(sum(r * s.tpot_s[-1] for r, s in tokens) / capacity)
    assert values[kernel.UNLOADED] == close(alone / capacity)


@given(prefill_pools, decode_pools, mixed_pools)
def test_without_load_nobody_waits_but_for_transfers_and_prefills(
    first: list[Server], second: list[Server], both: list[Server]
) -> None:
    values, rates = evaluated(first, second, [], 0.0, transfer=0.5)
    assert values[kernel.WAITING] == pytest.approx(0.5, abs=1e-6)
    assert values[kernel.LATENCY] == pytest.approx(values[kernel.UNLOADED], rel=1e-6)
    assert rates.sum() == pytest.approx(0.0, abs=1e-5)
    values, rates = evaluated([], [], both, 0.0)
    assert values[kernel.WAITING] == pytest.approx(0.0, abs=1e-6)
    assert values[kernel.LATENCY] == pytest.approx(values[kernel.UNLOADED], rel=1e-6)
    assert rates.sum() == pytest.approx(0.0, abs=1e-5)


def test_close_below_capacity_waits_are_still_finite() -> None:
    slot = Server(tpot_s=[0.01])
    for load in (0.999, 0.99999, 1 - 1e-8):
        values, _ = evaluated([INSTANT], [slot], [], load, scv=1.0)
        assert values[kernel.WAITING] == pytest.approx(load / (1 - load), rel=1e-5)
    assert evaluated([INSTANT], [slot], [], 1 - 1e-10)[0][kernel.WAITING] == math.inf


def test_the_correction_is_that_of_cosmetatos_over_its_whole_range() -> None:
    for slots in (1, 2, 3, 10, 64):
        for rho in (0.05, 0.3, 0.5, 0.8, 0.99):
            for scv in (0.0, 0.25, 1.0, 2.0):
                expected = kimura(2.0, rho, slots, scv)
                assert kernel._kimura(2.0, rho, slots, scv) == pytest.approx(expected, rel=1e-12)


@given(mixed_pools, loads)
def test_where_pairs_serve_at_once_nobody_waits_for_a_mixed_replica(
    both: list[Server], load: float
) -> None:
    """The best split is at an end of its range, and is found there."""
    arrival, quick = load * capacity_of(both, TOKENS), Server(tpot_s=[1e-7] * 4)
    values, rates = evaluated([quick], [quick], both, arrival)
    assert rates.tolist() == pytest.approx([arrival, arrival] + [0.0] * len(both), abs=1e-12)
    assert values[kernel.WAITING] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("elsewhere", [1e-3, 100.0])
def test_only_transfers_from_prefill_to_decode_replicas_count(elsewhere: float) -> None:
    quick, slow = Server(tpot_s=[1e-4] * 4), Server(tpot_s=[0.01, 0.012], pause_s=0.5)
    transfer = np.full((6, 6), elsewhere)
    transfer[:2, 2:4] = 0.2
    first = [Server(tpot_s=[1e-4])] * 2
    team = team_of(first, [quick] * 2, [slow] * 2, 0.6, transfer=transfer)
    found = evaluated(first, [quick] * 2, [slow] * 2, team.arrival, transfer=transfer)
    assert_as_predicted(*found, team)


@given(prefill_pools, decode_pools, mixed_pools, st.floats(0.02, 1.5), st.data())
def test_unused_replicas_change_nothing(
    first: list[Server],
    second: list[Server],
    both: list[Server],
    load: float,
    data: st.DataObject,
) -> None:
    pairs = min(capacity_of(first, 1.0), capacity_of(second, TOKENS))
    arrival = load * (pairs + capacity_of(both, TOKENS))
    num = len(first) + len(second) + len(both)
    transfer = data.draw(transfers(num))
    pool, roles = pool_of(first, second, both, arrival, scv=0.25, transfer=transfer)
    unused = np.array(data.draw(st.lists(st.booleans(), min_size=num, max_size=num)))
    kept = np.flatnonzero(~unused)
    fewer = [
        part[np.ix_(kept, kept)] if name == "transfer" else part if name == "load" else part[kept]
        for name, part in pool._asdict().items()
    ]
    values, rates = kernel.evaluate(pool, np.where(unused, kernel.UNUSED, roles))
    expected, others = kernel.evaluate(Pool(*fewer), roles[kept])
    assert values == pytest.approx(expected, rel=1e-9)
    assert rates[kept] == pytest.approx(others, rel=1e-9)
    assert not rates[unused].any()


@given(prefill_pools, decode_pools, mixed_pools, st.sampled_from((0.1, 0.6, 0.95, 1.2)))
def test_what_replicas_could_not_do_in_other_roles_changes_nothing(
    first: list[Server], second: list[Server], both: list[Server], load: float
) -> None:
    pairs = min(capacity_of(first, 1.0), capacity_of(second, TOKENS))
    arrival = load * (pairs + capacity_of(both, TOKENS))
    pool, roles = pool_of(first, second, both, arrival, scv=0.25, transfer=0.01)
    is_pair = (roles[:, None] == kernel.PREFILL) & (roles == kernel.DECODE)
    limited = pool._replace(
        occupancy=np.where(roles == kernel.PREFILL, pool.occupancy, np.inf),
        prefill_latency=np.where(roles == kernel.PREFILL, pool.prefill_latency, np.inf),
        decode_slots=np.where(roles == kernel.DECODE, pool.decode_slots, 0),
        decode_tpot=np.where((roles == kernel.DECODE)[:, None], pool.decode_tpot, np.inf),
        mixed_slots=np.where(roles == kernel.MIXED, pool.mixed_slots, 0),
        mixed_tpot=np.where((roles == kernel.MIXED)[:, None], pool.mixed_tpot, np.inf),
        mixed_pause=np.where(roles == kernel.MIXED, pool.mixed_pause, np.inf),
        mixed_latency=np.where(roles == kernel.MIXED, pool.mixed_latency, np.inf),
        transfer=np.where(is_pair, pool.transfer, np.inf),
    )
    values, rates = kernel.evaluate(limited, roles)
    expected, others = kernel.evaluate(pool, roles)
    assert values == pytest.approx(expected, rel=1e-12)
    assert rates == pytest.approx(others, rel=1e-12)
