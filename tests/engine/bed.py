"""Two unequal RPC workers on two hosts with a slow link: what pipelines are measured on."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.engine.core_share import core_share
from tests.engine.hosts import measured_link, two_hosts
from tests.engine.workers import on_core, worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.engine.hosts import TwoHosts
    from tests.engine.programs import Programs
    from tests.engine.workers import Worker

SLOW_SHARE: Final = 0.3
"""Of its core that the slow worker gets."""
BANDWIDTH_MBIT_S, LATENCY_MS = 500.0, 1.0
"""Asked of the link."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """Two workers on two hosts.

    Parameters
    ----------
    hosts
        The slow worker is on the first, the fast one and the head process on the second.
    slow, fast
        The workers.
    slow_place, fast_place
        Words before a command that make it run as the worker does: what it can do alone.
    words
        How it is made, for people.
    bandwidth_bytes_per_s, latency_s
        Of the link, as a probe measured it.
    """

    hosts: TwoHosts
    slow: Worker
    fast: Worker
    slow_place: tuple[str, ...]
    fast_place: tuple[str, ...]
    words: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def rpc(self, between: str = "/") -> tuple[str, ...]:
        """Return options for both workers, the slow one for the first layers.

        Devices are separated by ``/`` for llama-bench, by ``,`` for llama-server.
        """
        servers = f"{self.slow.endpoint},{self.fast.endpoint}"
        return ("--rpc", servers, "-dev", f"RPC0{between}RPC1", "-ngl", "99")


class TooSmallError(Exception):
    """The machine cannot have two workers; the message says why."""


@contextmanager
def bed(engine: Programs, folder: Path) -> Iterator[Bed]:
    """Start both workers; stop them, and remove all that was made for them, whatever happens.

    Raises
    ------
    TooSmallError
        When there is one core only.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise TooSmallError("two workers need two cores")
    with ExitStack() as stack:
        share = stack.enter_context(core_share(SLOW_SHARE))
        hosts = stack.enter_context(two_hosts(BANDWIDTH_MBIT_S, LATENCY_MS))
        bandwidth, latency = measured_link(hosts)
        first, second = hosts.first, hosts.second
        yield Bed(
            hosts=hosts,
            slow=stack.enter_context(
                worker(engine, first, core=cores[0], log=folder / "slow.log", share=share)
            ),
            fast=stack.enter_context(
                worker(engine, second, core=cores[1], log=folder / "fast.log")
            ),
            slow_place=(*share.outside, *share.inside, *on_core(cores[0])),
            fast_place=on_core(cores[1]),
            words=f"{hosts.words}; the slow worker has {share.words}",
            bandwidth_bytes_per_s=bandwidth,
            latency_s=latency,
        )
