"""Set packing by device class: which columns, how often, so that the most requests are served.

    max t   with   t <= Σ (p x + m x),   t <= Σ (d x + m x),   Σ n_k x <= devices of class k,

over columns (group, role) with x times a replica that gives p prefills, d answers, or m of both a
second. HiGHS solves it, as a linear program with prices or with whole numbers.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from e2llm_opt.problem import Role
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from e2llm_opt.partition.relax.large import Large

    Floats = NDArray[np.float64]

_T = TypeVar("_T")
_INFEASIBLE = 2
_CLOSE = 2e-7
"""Relative gap at which HiGHS is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What a plan must keep to.

    Parameters
    ----------
    available
        Devices of each class [K].
    must
        Of these, so many must be used [K].
    replicas
        Exactly so many; None: any number.
    """

    available: Floats
    must: Floats
    replicas: int | None


class Solved(NamedTuple):
    """An optimum, or the best there was time for."""

    value: float
    """Requests a second; -inf where nothing is allowed."""
    bound: float
    """No packing of these columns has more [1/s]."""
    x: Floats
    """How often each column is taken [V]."""
    prices: Floats
    """Of a prefill, an answer, a device of each class, a replica … [3 + K …]; LP only."""


def served(rates: Floats, roles: Sequence[Role]) -> Floats:
    """Return prefills and answers a second of columns with *rates* [V] in *roles* [V, 2] [1/s]."""
    first = np.array([role is not Role.DECODE for role in roles], dtype=bool)
    second = np.array([role is not Role.PREFILL for role in roles], dtype=bool)
    return np.stack([rates * first, rates * second], axis=1)


def repeated(columns: Iterable[_T], x: Floats) -> list[_T]:
    """Return each of *columns* as often as a packing takes it."""
    taken = zip(columns, x.tolist(), strict=True)
    return [one for one, times in taken for _ in range(round(times))]


class Packing:
    """The program over some columns.

    Variables: t; x of each column; for each over-estimate of large groups its replicas z, and of
    each class its devices y and its requests u.

    Parameters
    ----------
    counts
        Devices of each class in each column [V, K].
    gives
        Prefills and answers a second of each column [V, 2].
    side
        What a plan must keep to.
    large
        Over-estimates of what is not enumerated.
    """

    def __init__(
        self, counts: Floats, gives: Floats, side: Side, large: tuple[Large, ...] = ()
    ) -> None:
        from scipy.sparse import csr_array, vstack  # noqa: PLC0415 - slow to import, seldom needed

        self._num, k = len(counts), len(side.available)
        self._size = 1 + self._num + len(large) * (1 + 2 * k)
        # Requests are counted in units of the best column, so that HiGHS sees numbers near 1.
        fastest = [one.slots / float(np.min(one.stay + one.fixed)) for one in large]
        self._unit = max([float(gives.max(initial=0.0)), *fastest]) or 1.0
        own = slice(1, 1 + self._num)
        top = np.zeros((3 + k, self._size))
        top[:2, 0] = 1.0
        top[:2, own], top[2:-1, own], top[-1, own] = -gives.T / self._unit, counts.T, 1.0
        self._whole = np.zeros(self._size, dtype=np.int64)
        self._whole[own] = 1.0
        rows = []
        for place, one in enumerate(large):
            z = 1 + self._num + place * (1 + 2 * k)
            rows.append(self._add(top, one, z))
        wanted = (0.0, np.inf) if side.replicas is None else (side.replicas, side.replicas)
        num = sum(part.shape[0] for part in rows)
        self._low = np.array([-np.inf, -np.inf, *side.must, wanted[0], *[-np.inf] * num])
        self._high = np.array([0.0, 0.0, *side.available, wanted[1], *[0.0] * num])
        self._rows = vstack([csr_array(top), *rows], format="csr")
        self._cost = np.zeros(self._size)
        self._cost[0] = -1.0

    def _add(self, top: Floats, one: Large, z: int) -> csr_array:
        """Add over-estimated groups to the rows on *top*, and return their own rows."""
        from scipy.sparse import csr_array  # noqa: PLC0415 - as above

        k, unit = len(one.busy), self._unit
        y, u = slice(z + 1, z + 1 + k), slice(z + 1 + k, z + 1 + 2 * k)
        top[0, u], top[1, u], top[-1, z] = -one.prefills, -one.answers, 1.0
        top[2:-1, y] = np.eye(k)
        self._whole[z] = 1.0
        rows = np.zeros((k + 3, 1 + 2 * k))  # of z, y and u alone
        size = self._size
        start, z, y, u = z, 0, slice(1, 1 + k), slice(1 + k, 1 + 2 * k)
        rows[:k, u], rows[:k, y] = np.diag(one.busy) * unit, -np.eye(k)
        stay = (one.stay + one.fixed) * unit / one.slots
        rows[k, u], rows[k, z] = stay, -1.0
        cache = one.cache * one.slots / GIB
        weights = one.group.weights + (0.0 if one.cache else one.group.cache)
        rows[k + 1, u], rows[k + 1, y] = cache * stay, -one.group.room / GIB
        rows[k + 1, z] = weights / GIB
        rows[k + 2, z], rows[k + 2, y] = one.group.size, -1.0
        own = csr_array(rows)
        return csr_array((own.data, own.indices + start, own.indptr), shape=(k + 3, size))

    def relaxed(self) -> Solved:
        """Solve it with fractions of replicas."""
        from scipy.optimize import linprog  # noqa: PLC0415 - as above
        from scipy.sparse import vstack  # noqa: PLC0415 - as above

        low, high = self._low, self._high
        equal = low == high
        upper, lower = np.isfinite(high) & ~equal, (low > 0) & ~equal
        found = linprog(
            self._cost,
            vstack([self._rows[upper], -self._rows[lower]], format="csr"),
            np.concatenate([high[upper], -low[lower]]),
            self._rows[equal] if equal.any() else None,
            low[equal] if equal.any() else None,
            method="highs",
        )
        prices = np.zeros(len(low))
        if found.x is None:
            return Solved(-np.inf, -np.inf, np.zeros(self._num), prices)
        marginal = -np.asarray(found.ineqlin.marginals)
        prices[upper] = marginal[: upper.sum()]
        prices[lower] -= marginal[upper.sum() :]
        if equal.any():
            prices[equal] = -np.asarray(found.eqlin.marginals)
        value = float(found.x[0]) * self._unit
        prices[2:] *= self._unit
        return Solved(value, value, found.x[1 : 1 + self._num], prices)

    def whole(self, time_limit_s: float, max_nodes: int, gap: float = 0.0) -> Solved:
        """Solve it with whole replicas, as far as the limits allow, or to a relative *gap*."""
        from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - as above

        seconds = max(time_limit_s, 0.01)
        with silence():
            found = milp(
                self._cost,
                constraints=LinearConstraint(self._rows, self._low, self._high),
                integrality=self._whole,
                bounds=Bounds(0.0, np.inf),
                options={
                    "node_limit": max_nodes,
                    "mip_rel_gap": max(gap, _CLOSE),
                    "time_limit": seconds,
                },
            )
        nothing = np.zeros(self._num)
        if found.status == _INFEASIBLE:
            return Solved(-np.inf, -np.inf, nothing, nothing)
        dual = found.get("mip_dual_bound")
        bound = np.inf if dual is None else -float(dual) * self._unit
        if found.x is None:
            return Solved(-np.inf, bound, nothing, nothing)
        value = -float(found.fun) * self._unit
        return Solved(value, bound, np.rint(found.x[1 : 1 + self._num]), nothing)


@contextmanager
def silence() -> Iterator[None]:
    """Keep what HiGHS prints, whatever it is asked, away from standard output.

    It writes past Python, so that the file descriptor itself must point elsewhere meanwhile.
    """
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
