"""Where tasks run: one interface, local processes or a cluster behind it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
Answer = TypeVar("Answer")
MAX_DEATHS = 3
"""So many worker processes may a task kill before it is given up."""
TICK_S = 0.1
"""Longest silence between two calls of *breathe* [s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done(Generic[Answer]):
    """What became of one item.

    Parameters
    ----------
    index
        Of the item, as it came.
    answer
        What the function returned; None where it did not.
    error
        Why there is no answer; empty where there is one.
    is_lost
        Whether that is because workers died of it.
    """

    index: int
    answer: Answer | None = None
    error: str = ""
    is_lost: bool = False


class Workers(Protocol):
    """Processes that run one task at a time each.

    Compiled kernels hold Python's lock, so that two tasks in the threads of one process take as
    long as one after the other, and share their time limits.
    """

    @property
    def num(self) -> int:
        """How many processes there are now."""

    def map_unordered(
        self,
        function: Callable[[Item], Answer],
        items: Iterable[Item],
        breathe: Callable[[], None],
    ) -> Iterator[Done[Answer]]:
        """Yield what *function* makes of each of *items*, as it gets ready.

        Parameters
        ----------
        function
            Of a module that the workers have; what it raises becomes the error of its item.
        items
            Taken one by one, as workers get free.
        breathe
            Called several times a second; what it raises ends the map.

        Notes
        -----
        A task whose process dies is run again, :data:`MAX_DEATHS` times in all. Closing the
        iterator gives up what is not done.
        """


@contextmanager
def open_workers(*, num: int | None = None, dask: str | None = None) -> Iterator[Workers]:
    """Give workers, and end them.

    Parameters
    ----------
    num
        Processes on this machine; None: as many as it has cores.
    dask
        Address of a Dask scheduler, whose workers are used instead.

    Raises
    ------
    InputError
        When both are given, the cluster does not answer, has no worker, or one of another version.
    """
    if dask is not None and num is not None:
        raise InputError("give a number of workers or the address of a cluster, not both.")
    if num is not None and num < 1:
        raise InputError(f"the number of workers must be at least 1, got {num}.")
    workers: _Closing
    if dask is not None:
        from e2llm_opt.workers.cluster import Cluster  # noqa: PLC0415 - an optional package

        workers = Cluster(dask)
    else:
        from e2llm_opt.workers.local import LocalWorkers  # noqa: PLC0415 - multiprocessing

        workers = LocalWorkers(num or num_cores())
    try:
        yield workers
    finally:
        workers.close()


class _Closing(Workers, Protocol):
    def close(self) -> None:
        """Free what was taken; what is not done is given up."""


def num_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
