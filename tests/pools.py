"""Random pools of replicas for the queueing kernel, and what it makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import strategies as st

from e2llm_opt.cost import kernel
from e2llm_opt.cost.pools import Pool
from tests.queueing import Server

if TYPE_CHECKING:
    from e2llm_opt.cost.kernel import Floats

P, D, M = kernel.PREFILL, kernel.DECODE, kernel.MIXED
TOKENS = 100.0

times = st.floats(0.01, 2.0)
small = st.floats(0.0, 1.0)
loads = st.floats(0.02, 0.97)


@st.composite
def servers(draw: st.DrawFn, *, has_pause: bool, max_slots: int = 6) -> Server:
    """Return a replica whose rounds take longer with more requests, but less for each."""
    base, slope = draw(st.floats(1e-3, 0.1)), draw(st.floats(0.0, 1.0))
    slots = draw(st.integers(1, max_slots))
    return Server(
        tpot_s=[base * (1 + slope * n) for n in range(slots)],
        pause_s=draw(times) if has_pause else 0.0,
        latency_s=draw(times),
        scv=draw(small),
    )


@st.composite
def prefillers(draw: st.DrawFn) -> Server:
    return Server(tpot_s=[draw(times)], latency_s=draw(times), scv=draw(small))


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
    pool = Pool(
        occupancy=rounds[:, 0].copy(),
        prefill_latency=latency,
        prefill_scv=scvs,
        decode_slots=slots,
        decode_tpot=rounds,
        mixed_slots=slots,
        mixed_tpot=rounds,
        mixed_pause=np.array([server.pause_s for server in everyone]),
        mixed_latency=latency,
        mixed_scv=scvs,
        transfer=np.broadcast_to(np.asarray(transfer, float), (num, num)).copy(),
        load=np.array([arrival, TOKENS, scv]),
    )
    return pool, roles


INSTANT = Server(tpot_s=[1e-9] * 4)
"""A replica that adds no time, so that the other pool's wait is seen alone."""


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-6, abs=1e-8)
