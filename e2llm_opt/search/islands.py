"""On how many islands the genetic algorithm runs, and where they are."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.errors import InputError
from e2llm_opt.workers.workers import num_cores, open_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.search.quick import Evolver

DEFAULT_ISLANDS = 4
"""A number of its own, since the plan depends on it and shall not depend on the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Islands:
    """Genetic algorithms side by side instead of a single one.

    Parameters
    ----------
    num
        How many; each has the limits of the search. The plan depends on it.
    workers
        Processes on this machine; None: one an island, at most one a core. The plan does not
        depend on it.
    dask
        Address of a Dask scheduler, whose workers are used instead; nor on this.

    Raises
    ------
    InputError
        When *num* or *workers* is below 1.
    """

    num: int = DEFAULT_ISLANDS
    workers: int | None = None
    dask: str | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        for name in ("num", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"islands: {name} must be at least 1, got {value}.")

    @contextmanager
    def evolver(self) -> Iterator[Evolver]:
        """Give what evolves groupings on these islands.

        Raises
        ------
        InputError
            As :func:`~e2llm_opt.workers.workers.open_workers`.
        """
        from e2llm_opt.search.archipelago import Archipelago  # noqa: PLC0415 - numba, pymoo

        num = self.workers
        if num is None and self.dask is None:
            num = min(self.num, num_cores())
        with open_workers(num=num, dask=self.dask) as workers:
            yield Archipelago(self.num, workers)
