"""Random pools of replicas for the queueing kernel, and what it makes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from e2llm_opt.cost import kernel
from e2llm_opt.cost.pools import Pool
from tests.predicted import Team, predicted
from tests.queueing import Server

if TYPE_CHECKING:
    from e2llm_opt.cost.kernel import Floats

P, D, M = kernel.PREFILL, kernel.DECODE, kernel.MIXED
TOKENS = 100.0
SHORTER = 0.7
"""Mean of the shorter of two outputs over the mean output."""

times = st.floats(0.01, 2.0)
small = st.floats(0.0, 1.0)
loads = st.floats(0.02, 0.97)


@st.composite
def servers(draw: st.DrawFn, *, has_pause: bool, max_slots: int = 6) -> Server:
    """Return a replica whose rounds take longer with more requests, but less for each."""
    base, slope = draw(st.floats(1e-3, 0.1)), draw(st.floats(0.0, 1.0))
    slots = draw(st.integers(1, max_slots))
    pause = draw(times) if has_pause else 0.0
    return Server(
        tpot_s=[base * (1 + slope * n) for n in range(slots)],
        pause_s=pause,
        latency_s=pause * draw(st.sampled_from((1.0, 1.0, 1.7))),
        scv=draw(small),
    )


@st.composite
def prefillers(draw: st.DrawFn) -> Server:
    occupancy = draw(times)
    behind = draw(st.sampled_from((0.0, 0.1))) * occupancy
    return Server(tpot_s=[occupancy], latency_s=draw(times), scv=draw(small), behind_s=behind)


decode_pools = st.lists(servers(has_pause=False), min_size=1, max_size=4)
mixed_pools = st.lists(servers(has_pause=True), min_size=1, max_size=4)
prefill_pools = st.lists(prefillers(), min_size=1, max_size=4)


def evaluated(
    first: list[Server],
    second: list[Server],
    both: list[Server],
    arrival: float,
    *,
    scv: float = 0.25,
    transfer: float | Floats = 0.0,
) -> tuple[Floats, Floats]:
    """Return what the kernel makes of PREFILL, DECODE and MIXED replicas in this order."""
    pool, roles = pool_of(first, second, both, arrival, scv=scv, transfer=transfer)
    return kernel.evaluate(pool, roles)


def pool_of(
    first: list[Server],
    second: list[Server],
    both: list[Server],
    arrival: float,
    *,
    scv: float,
    transfer: float | Floats,
) -> tuple[Pool, kernel.Ints]:
    everyone = [*first, *second, *both]
    num, width = len(everyone), max(len(server.tpot_s) for server in everyone)
    roles = np.array([P] * len(first) + [D] * len(second) + [M] * len(both))
    rounds = np.full((num, width), np.inf)
    for r, server in enumerate(everyone):
        rounds[r, : len(server.tpot_s)] = server.tpot_s
    slots = np.array([len(server.tpot_s) for server in everyone])
    latency = np.array([server.latency_s for server in everyone])
    scvs = np.array([server.scv for server in everyone])
    usable = np.ones((num, width))
    for r, server in enumerate(everyone):
        usable[r, : len(server.usable)] = server.usable
    pause = np.array([server.pause_s for server in everyone])
    occupied = [server.busy_s or server.tpot_s[0] for server in everyone]
    busy = [server.mean_pause_s for server in everyone]
    pool = Pool(
        occupancy=rounds[:, 0].copy(),
        prefill_latency=latency,
        prefill_busy=np.array(occupied),
        prefill_scv=scvs,
        prefill_behind=np.array([server.behind_s for server in everyone]),
        decode_slots=slots,
        decode_tpot=rounds,
        decode_usable=usable,
        mixed_slots=slots,
        mixed_tpot=rounds,
        mixed_usable=usable,
        mixed_pause=pause,
        mixed_busy=np.array(busy),
        mixed_latency=latency,
        mixed_scv=scvs,
        transfer=np.broadcast_to(np.asarray(transfer, float), (num, num)).copy(),
        load=np.array([arrival, TOKENS, scv, SHORTER]),
    )
    return pool, roles


def team_of(
    first: list[Server],
    second: list[Server],
    both: list[Server],
    load: float,
    *,
    scv: float = 0.25,
    transfer: float | Floats = 0.0,
) -> Team:
    """Return the same replicas at a share of their capacity, for the plain formulas."""
    num = len(first) + len(second) + len(both)
    whole = np.broadcast_to(np.asarray(transfer, float), (num, num))
    team = Team(
        first=first,
        second=second,
        both=both,
        transfer=whole[: len(first), len(first) : len(first) + len(second)],
        tokens=TOKENS,
        arrival=1.0,
        scv=scv,
        shorter=SHORTER,
    )
    return replace(team, arrival=load * team.capacity)


def assert_as_predicted(values: Floats, rates: Floats, team: Team) -> None:
    """What the kernel says is what the plain formulas say."""
    expected = predicted(team)
    assert values[kernel.CAPACITY] == pytest.approx(team.capacity)
    assert values[kernel.WAITING] == close(expected.waiting)
    assert values[kernel.TTFT] == close(expected.ttft)
    assert values[kernel.TPOT] == close(expected.tpot)
    assert values[kernel.LATENCY] == close(expected.latency)
    assert values[kernel.UNLOADED] == close(expected.unloaded)
    assert rates == pytest.approx(expected.rates, rel=1e-6, abs=1e-9)


INSTANT = Server(tpot_s=[1e-9] * 4)
"""A replica that adds no time, so that the other pool's wait is seen alone."""


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-6, abs=1e-8)
