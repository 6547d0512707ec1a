"""What is left of a plan when replicas are lost, and how much of the arrival rate it lacks.

Devices of a replica fall together: what counts is the loss of each replica, or of each so many.
Without links, what is left serves min(Σ prefills, Σ answers) requests a second, MIXED counted in
both, so that the worst loss of k replicas is that of the k largest of either sum.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.pools import Pool
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Evaluator, Outcome

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_NOTHING = 1e-9
"""Share of all capacity that is what rounding leaves of nothing."""
_LEAST = 1e-9
"""What is lacking where the rate is just met: there is no steady state."""
_LATE = 1e-3
"""What is lacking at most where all is stable but a service level is missed."""


class Loss(NamedTuple):
    """What is left after some replicas are lost."""

    lost: tuple[int, ...]
    """Places of the replicas."""
    left: Outcome | None
    """What the others are worth; None: nothing is served."""
    lack: float
    """Share of the arrival rate that cannot be served; 0: all of it can, in time."""


def remaining(
    replicas: Sequence[Candidate], lost: Sequence[int] | set[int]
) -> tuple[Candidate, ...]:
    """Return *replicas* without those at the places *lost*, and what serves nothing then.

    PREFILL replicas serve nothing without a DECODE replica, nor these without a PREFILL one.
    """
    rest = [replica for i, replica in enumerate(replicas) if i not in lost]
    roles = {replica.role for replica in rest}
    pair = {Role.PREFILL, Role.DECODE}
    return tuple(own for own in rest if own.role is Role.MIXED or pair <= roles)


def rates_by_role(pool: Pool, rows: Ints) -> Floats:
    """Return prefills and answers a second of *rows* by role code [R, 4, 2] [1/s]."""
    output = pool.load[1]
    gives = np.zeros((len(rows), 4, 2))
    gives[:, kernel.PREFILL, 0] = 1.0 / pool.occupancy[rows]
    for code, slots, tpot, pause in (
        (kernel.DECODE, pool.decode_slots[rows], pool.decode_tpot, np.zeros(len(rows))),
        (kernel.MIXED, pool.mixed_slots[rows], pool.mixed_tpot, pool.mixed_pause[rows]),
    ):
        full = tpot[rows, np.maximum(slots, 1) - 1]
        rate = np.where(slots > 0, slots / (slots * pause + output * full), 0.0)
        gives[:, code, 1] = rate
        if code == kernel.MIXED:
            gives[:, code, 0] = rate
    return gives


def lacks_of(gives: Floats, is_used: NDArray[np.bool_], num: int, rate_per_s: float) -> Floats:
    """Return the share of the rate that is lacking after losses, links left out [A, 2].

    At the worst loss of *num* replicas, and on average over losses of one: the first must be 0,
    the second leads there.

    Parameters
    ----------
    gives
        Prefills and answers a second of each replica [A, R, 2] [1/s].
    is_used
        Which places hold a replica [A, R].
    num
        Replicas lost at once.
    rate_per_s
        Arrival rate; 0: what is left must serve anything at all.
    """
    total = gives.sum(axis=1)
    whole = total.min(axis=1)
    largest = np.sort(gives, axis=1)[:, ::-1][:, :num].sum(axis=1)
    worst = _lack((total - largest).min(axis=1), whole, rate_per_s)
    each = _lack((total[:, None] - gives).min(axis=2), whole[:, None], rate_per_s)
    mean = (each * is_used).sum(axis=1) / np.maximum(is_used.sum(axis=1), 1)
    return np.stack([worst, mean], axis=1)


def _lack(left: Floats, whole: Floats, rate_per_s: float) -> Floats:
    """Return the share of the rate that *left* of *whole* requests a second lacks."""
    left = np.where(left <= _NOTHING * whole, 0.0, left)
    if rate_per_s <= 0:
        return np.where(left > 0.0, 0.0, 1.0)
    # A little less strict than a steady state is: never worse than the truth.
    share = 1.0 - left * (1.0 - 0.5e-9) / rate_per_s
    return np.where(share >= 0.0, np.maximum(share, _LEAST), 0.0)


class Spare:
    """Judges what outcomes leave after losses, links included.

    Parameters
    ----------
    evaluator
        Of the problem.
    num
        Replicas that are lost at once.
    """

    def __init__(self, evaluator: Evaluator, num: int) -> None:
        self._evaluator, self._num = evaluator, num
        self._known: dict[object, tuple[float, float]] = {}

    def lacks(self, replicas: Sequence[Candidate]) -> tuple[float, float]:
        """Return what is lacking at the worst loss and on average, as :func:`lacks_of` has it."""
        name = frozenset((c.role, c.cut, c.slots, c.spilled) for c in replicas)
        if name not in self._known:
            self._known[name] = self._lacks(replicas)
        return self._known[name]

    def screen(self, pool: Pool, rows: Ints, codes: Ints) -> Floats:
        """Return :func:`lacks_of` replicas, rows of *pool* [A, R], in roles *codes* [A, R]."""
        some, place = np.unique(rows, return_inverse=True)
        gives = rates_by_role(pool, some)[place.reshape(rows.shape), codes]
        return lacks_of(gives, codes > 0, self._num, float(pool.load[0]))

    def quick(self, replicas: Sequence[Candidate]) -> tuple[float, float]:
        """Return the same with links left out: never worse than the truth."""
        workload = self._evaluator.costs.problem.workload
        gives = np.zeros((1, len(replicas), 2))
        for i, replica in enumerate(replicas):
            rate = replica.service_rate(workload.output.mean)
            gives[0, i] = (
                rate * (replica.role is not Role.DECODE),
                rate * (replica.role is not Role.PREFILL),
            )
        is_used = np.ones((1, len(replicas)), dtype=bool)
        worst, mean = lacks_of(gives, is_used, self._num, workload.rate_per_s)[0].tolist()
        return worst, mean

    def _lacks(self, replicas: Sequence[Candidate]) -> tuple[float, float]:
        quick = self.quick(replicas)
        if quick[0] > 0 or self._is_sure(replicas):
            return quick
        found = [loss.lack for loss in self.losses(replicas)]
        return max(found), sum(found) / len(found)

    def _is_sure(self, replicas: Sequence[Candidate]) -> bool:
        """Whether neither links nor service levels can matter after a loss."""
        judge = self._evaluator
        return not judge.ranking.has_hard_level and judge.has_wide_links(replicas)

    def losses(self, replicas: Sequence[Candidate]) -> Iterator[Loss]:
        """Yield what is left after each loss; of losses that are alike only the first."""
        kind = self._evaluator.kind
        names = [(kind(c.cut), c.role, c.slots, c.spilled) for c in replicas]
        known = set()
        for lost in combinations(range(len(replicas)), min(self._num, len(replicas))):
            name = tuple(sorted(map(str, (names[i] for i in lost))))
            if name not in known:
                known.add(name)
                yield self._loss(replicas, lost)

    def _loss(self, replicas: Sequence[Candidate], lost: tuple[int, ...]) -> Loss:
        rest = remaining(replicas, lost)
        left = self._evaluator.outcome(rest) if rest else None
        if left is None or left.traffic.capacity_per_s <= 0:
            return Loss(lost, None, 1.0)
        rate = self._evaluator.costs.problem.workload.rate_per_s
        if not left.is_stable:
            return Loss(lost, left, max(1.0 - left.traffic.capacity_per_s / rate, _LEAST))
        return Loss(lost, left, _LATE if self._evaluator.ranking.is_late(left.ttft_s) else 0.0)

    def worst(self, replicas: Sequence[Candidate]) -> Loss:
        """Return the loss that lacks most; of equal ones the one with least capacity left."""

        def damage(loss: Loss) -> tuple[float, float, float]:
            left = loss.left
            if left is None:
                return loss.lack, 0.0, 0.0
            return loss.lack, -left.traffic.capacity_per_s, left.waiting_time_s

        return max(self.losses(replicas), key=damage)
