"""What network cards leave of PREFILL and DECODE replicas: each request's KV cache crosses them.

All of a prompt's KV cache leaves the devices of its PREFILL replica and reaches those of its DECODE
replica, each by its host's cards, which the activations between their stages cross, too. A device
whose host has other devices is not limited: caches and activations may stay inside the host.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.roofline import kv_bytes
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut

    Floats = NDArray[np.float64]

_DIRECTIONS = {Role.PREFILL: "out", Role.DECODE: "in"}


class KvLimits:
    """Requests a second whose KV caches can leave, or reach, devices.

    Parameters
    ----------
    costs
        Of the problem.
    """

    def __init__(self, costs: Costs) -> None:
        layers = kv_bytes(costs.tables, costs.prompt_tokens)
        self._prefix = np.concatenate([[0.0], np.cumsum(layers)])
        own_hosts = Counter(device.host for device in costs.problem.devices)
        devices = [costs.problem.devices[d] for d in costs.units.first]
        self._cards: dict[Role, Floats] = {}
        answer = costs.output_tokens
        self._hops = {
            Role.PREFILL: (costs.forward_bytes(costs.prompt_tokens), 0.0),
            Role.DECODE: (answer * costs.forward_bytes(1), answer * costs.return_bytes(1)),
        }
        for role, direction in _DIRECTIONS.items():
            cards = [costs.network.cards.get((own.host, direction), np.inf) for own in devices]
            is_shared = [own_hosts[own.host] > 1 for own in devices]
            self._cards[role] = np.where(is_shared, np.inf, cards)

    def of_classes(self, role: Role, heads: list[int]) -> Floats:
        """Return the requests a second that a device of each class lets through [K] [1/s]."""
        if role is Role.MIXED or self._prefix[-1] <= 0:
            return np.full(len(heads), np.inf)
        found: Floats = self._cards[role][heads] / self._prefix[-1]
        return found

    def times(self, role: Role, heads: NDArray[np.int64]) -> Floats:
        """Return how long a request keeps the cards of ``[b, a)`` busy [K, L+1, L+1] [s]."""
        size = self._prefix[None, :] - self._prefix[:, None]
        size[:, :-1] += self._hops[role][0]
        if role is Role.DECODE:
            size[1:, -1] += self._hops[role][0]
            size[0, :-1] += self._hops[role][1] - self._hops[role][0]
        found: Floats = size / self._cards[role][heads][:, None, None]
        return found

    def of_cut(self, role: Role, cut: Cut) -> float:
        """Return the limit of the device whose cards a request keeps busy longest [1/s]."""
        if role is Role.MIXED:
            return float("inf")
        rows = np.array([d for d, _, _ in cut])
        times = self.times(role, rows)
        longest = max(float(times[j, start, stop]) for j, (_, start, stop) in enumerate(cut))
        return 1.0 / longest if longest > 0 else float("inf")
