"""What makes one plan better than another: keys that sort (DESIGN section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.problem import Objective, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidate import Candidate, Group

    Floats = NDArray[np.float64]

Key = tuple[float, ...]
"""Sorts plans: the smaller, the better."""
STABLE, UNSTABLE, FRAGILE, IMPOSSIBLE = 0.0, 1.0, 1.5, 2.0
"""FRAGILE: what ``constraints.survive`` forbids; worse than all that it allows."""
_NO_STEADY_STATE = 1e300
_FINE, COARSE = np.int64(1) << 28, np.int64(1) << 42
"""Half a unit of the last of the 24, or 10, binary digits that are kept of 53."""


class Ranking:
    """Turns figures into keys.

    Parameters
    ----------
    costs
        Of the problem.
    wait_unit_s
        Waits are compared after rounding to this [s].

    Attributes
    ----------
    price_of
        What a device of each class adds to the price of a plan.
    price_unit
        What that is: ``cost_per_hour`` where all devices that may be used have one, else
        ``power_w``, else ``devices``.
    """

    def __init__(self, costs: Costs, wait_unit_s: float = 1e-3) -> None:
        self.wait_unit_s = wait_unit_s
        self._objective = costs.problem.objective
        self._slo_ttft_s = costs.problem.workload.slo_ttft_s
        excluded = costs.problem.constraints.exclude
        rows = [d for d, own in enumerate(costs.problem.devices) if own.name not in excluded]
        prices: dict[str, list[float | None]] = {
            "cost_per_hour": [costs.problem.devices[d].cost_per_hour for d in rows],
            "power_w": [costs.problem.devices[d].power_w for d in rows],
            "devices": [1.0 for _ in rows],
        }
        self.price_unit, given = next(
            (unit, values) for unit, values in prices.items() if None not in values
        )
        classes = costs.classes.class_of
        self.price_of = {classes[d]: float(p or 0.0) for d, p in zip(rows, given, strict=True)}

    @property
    def has_hard_level(self) -> bool:
        """Whether a plan that misses ``slo.ttft_s`` is none."""
        return self._objective is Objective.COST and self._slo_ttft_s is not None

    def is_late(self, ttft_s: float) -> bool:
        """Whether a mean TTFT [s] misses the service level, where that is hard."""
        return self.has_hard_level and not ttft_s <= (self._slo_ttft_s or 0.0)

    def size(self, groups: Iterable[Group]) -> tuple[float, float]:
        """Return devices and price of *groups* [1, price_unit]."""
        classes = [k for group in groups for k in group]
        return float(len(classes)), sum(self.price_of[k] for k in classes)

    def keys(self, values: Floats, fixed: Floats, lacks: Floats | None = None) -> Floats:
        """Return the keys of figures as the queueing kernel gives them [A, 5].

        Columns: 0 stable, 1 not, 1.5 not after losses, 2 impossible; what the objective
        minimises; two that decide where that is equal; the number of devices.

        Parameters
        ----------
        values
            Figures of each assignment of roles [A, 6].
        fixed
            Devices, price, and longest request of each assignment [A, 3] [1, price_unit, tokens].
        lacks
            Shares of the rate that are lacking after losses (:mod:`e2llm_opt.search.spare`)
            [A, 2]; None: no loss need be survived.
        """
        capacity, wait, ttft, latency, alone = values[:, [0, 1, 2, 4, 5]].T
        keys = np.zeros((len(values), 5))
        keys[:, 4], price, longest = fixed.T
        is_stable = wait < np.inf
        units = np.minimum(np.rint(wait / self.wait_unit_s), _NO_STEADY_STATE)
        # Nobody wants ten devices more for a latency that is a thousandth shorter.
        latency = np.minimum(rounded(latency, COARSE), _NO_STEADY_STATE)
        if self._objective is Objective.THROUGHPUT:
            keys[:, 1:4] = np.stack(
                [rounded(1.0 / np.maximum(capacity, 1e-300)), units, latency], 1
            )
        elif self._objective is Objective.WAITING_TIME:
            keys[:, 1], keys[:, 2] = units, latency
        else:
            first = -longest
            if self._objective is Objective.LATENCY:
                first = rounded(alone)
            elif self._objective is Objective.COST:
                first = rounded(price)
            keys[:, 1:4] = np.stack([first, units, latency], axis=1)
        if self._objective is not Objective.THROUGHPUT and not is_stable.all():
            late = ~is_stable
            keys[late, :4] = self._unstable(capacity[late], alone[late], longest[late])
        if lacks is not None:
            is_fragile = (lacks[:, 0] > 0) | ~is_stable
            drain = rounded(1.0 / np.maximum(capacity, 1e-300))
            status = np.full(len(keys), FRAGILE)
            amiss = np.stack([status, rounded(lacks[:, 0]), rounded(lacks[:, 1]), drain], 1)
            keys[is_fragile, :4] = amiss[is_fragile]
        is_impossible = capacity <= 0
        if self.has_hard_level:
            is_impossible |= ~(ttft <= self._slo_ttft_s)
        keys[is_impossible, :4] = [IMPOSSIBLE, 0.0, 0.0, 0.0]
        return keys

    def _unstable(self, capacity: Floats, alone: Floats, longest: Floats) -> Floats:
        """Return the first four columns for what arrives faster than it is served."""
        drain, alone = rounded(1.0 / np.maximum(capacity, 1e-300)), rounded(alone)
        status = np.full(len(drain), UNSTABLE)
        if self._objective is Objective.MAX_CONTEXT:
            return np.stack([status, -longest, drain, alone], axis=1)
        return np.stack([status, drain, alone, np.zeros(len(drain))], axis=1)


def longest_request(replicas: Iterable[Candidate]) -> float:
    """Return the longest request that *replicas* can serve together [tokens].

    That of the MIXED replica that holds most, or of a PREFILL and a DECODE replica together.
    """
    most = dict.fromkeys(Role, 0)
    for replica in replicas:
        most[replica.role] = max(most[replica.role], replica.max_context_tokens)
    return float(max(most[Role.MIXED], min(most[Role.PREFILL], most[Role.DECODE])))


def rounded(values: Floats, half_unit: np.int64 = _FINE) -> Floats:
    """Keep 24 binary digits, seven decimal ones: what differs less is equal.

    Half a unit is added and the rest cut off in the bits of the number: infinity stays infinite,
    and a power of two changes nothing.
    """
    bits = np.ascontiguousarray(values).view(np.int64)
    short: Floats = ((bits + half_unit) & ~(2 * half_unit - 1)).view(np.float64)
    return short
