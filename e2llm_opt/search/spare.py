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
from e2llm_opt.search.packing import served

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
    serves_per_s: float
    """Requests a second that they serve for good, lengths varying."""
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


def steady_rate(replica: Candidate, output_tokens: float) -> float:
    """Return the requests a second that *replica* serves for good, lengths varying [1/s].

    Its service rate is that for requests of mean length. Prompts are prefilled in whole chunks, so
    that varying ones take longer on average; and memory has not always room for all slots.
    """
    rate, busy = replica.service_rate(output_tokens), replica.spread[0]
    if replica.role is Role.PREFILL:
        return min(rate, 1.0 / busy)
    is_mixed = replica.role is Role.MIXED
    more = max(replica.prefill_latency_s - replica.pause_s, 0.0)
    filled = _filled(
        replica.tpot_s[None],
        replica.usable[None],
        np.array([busy * is_mixed]),
        (np.array([more * is_mixed]), output_tokens),
    )
    return min(rate, float(filled[0]))


def rates_by_role(pool: Pool, rows: Ints) -> Floats:
    """Return prefills and answers a second of *rows* by role code [R, 4, 2] [1/s].

    As :func:`steady_rate` has them.
    """
    output = float(pool.load[1])
    gives = np.zeros((len(rows), 4, 2))
    longest = np.maximum(pool.occupancy[rows], pool.prefill_busy[rows])
    gives[:, kernel.PREFILL, 0] = 1.0 / longest
    nothing = np.zeros(len(rows))
    decode = pool.decode_tpot[rows], pool.decode_usable[rows], nothing, (nothing, output)
    gives[:, kernel.DECODE, 1] = np.minimum(
        _full(pool.decode_tpot[rows], pool.decode_slots[rows], nothing, output), _filled(*decode)
    )
    pause = pool.mixed_pause[rows]
    more = np.maximum(pool.mixed_latency[rows] - pause, 0.0)
    mixed = pool.mixed_tpot[rows], pool.mixed_usable[rows], pool.mixed_busy[rows], (more, output)
    gives[:, kernel.MIXED] = np.minimum(
        _full(pool.mixed_tpot[rows], pool.mixed_slots[rows], pause, output), _filled(*mixed)
    )[:, None]
    return gives


def _full(tpot: Floats, slots: Ints, pause: Floats, output: float) -> Floats:
    """Return requests a second of mean length with all slots full [R] [1/s]."""
    last = tpot[np.arange(len(slots)), np.maximum(slots, 1) - 1]
    found: Floats = slots / (slots * pause + output * np.where(slots > 0, last, 1.0))
    return found


def _filled(tpot: Floats, usable: Floats, busy: Floats, rest: tuple[Floats, float]) -> Floats:
    """Return requests a second as slots are filled one by one, as far as memory has room [R].

    *tpot* is inf where there is no slot; *rest* is what a request spends in its slot beside the
    prefills, *busy* each, and decoding [s], and the mean output [tokens].
    """
    more, output = rest
    n = np.arange(1, tpot.shape[1] + 1)
    rate = n / (n * busy[:, None] + more[:, None] + output * tpot)
    steps = np.diff(rate, axis=1, prepend=0.0)
    found: Floats = np.where(np.isfinite(tpot), steps * usable, 0.0).sum(axis=1)
    return found


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


def _gives(replicas: Sequence[Candidate], output_tokens: float) -> Floats:
    """Return prefills and answers a second of *replicas* [R, 2] [1/s]."""
    rates = [steady_rate(replica, output_tokens) for replica in replicas]
    return served(np.array(rates), [replica.role for replica in replicas])


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
            rate = steady_rate(replica, workload.output.mean)
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
            return Loss(lost, None, 0.0, 1.0)
        workload = self._evaluator.costs.problem.workload
        steady = _gives(rest, workload.output.mean).sum(axis=0).min()
        serves = min(left.traffic.capacity_per_s, float(steady))
        lack = float(_lack(np.array([serves]), np.array([serves]), workload.rate_per_s)[0])
        if not left.is_stable:
            lack = max(lack, _LEAST)
        elif self._evaluator.ranking.is_late(left.ttft_s):
            lack = max(lack, _LATE)
        return Loss(lost, left, serves, lack)

    def worst(self, replicas: Sequence[Candidate]) -> Loss:
        """Return the loss that lacks most; of equal ones the one with least capacity left."""

        def damage(loss: Loss) -> tuple[float, float, float]:
            left = loss.left
            if left is None:
                return loss.lack, 0.0, 0.0
            return loss.lack, -loss.serves_per_s, left.waiting_time_s

        return max(self.losses(replicas), key=damage)
