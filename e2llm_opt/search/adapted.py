"""The rule of the adapted Splitwise: PREFILL replicas no slower at prompts than DECODE ones.

[E2LLM, section 5; arXiv 2606.03770] keeps its own search and adds one rule: a PREFILL replica must
have equal or higher prefill performance than the DECODE replicas. We read: the slowest PREFILL
replica, as it is cut in the plan, takes no longer for a prompt than the best PREFILL replica that
the devices of any DECODE replica could have been (prompts a second, 1 / occupancy).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.problem import Role
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.candidates import Candidates

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_EQUAL = 1 + 1e-9
"""Occupancies that differ by rounding are equal: a device is as fast as one of its class."""


class OwnRates:
    """How fast each group would be at prompts, and which plans obey the rule.

    Parameters
    ----------
    candidates
        The store of replicas.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._known: dict[Group, float] = {}

    def occupancy(self, group: Group) -> float:
        """Return the least time a prompt of *group* as a PREFILL replica; inf where it is none."""
        if group not in self._known:
            found = self._candidates.find(group, Role.PREFILL, Variant.RATE)
            self._known[group] = np.inf if found is None else found.occupancy_s
        return self._known[group]

    def obeys(self, groups: Sequence[Group], rows: Ints, variant: Variant) -> Bools:
        """Return which rows of role codes of *groups* obey the rule, MIXED left aside [A]."""
        find = self._candidates.find
        played = [find(group, Role.PREFILL, variant) for group in groups]
        here = np.array([np.inf if c is None else c.occupancy_s for c in played])
        own = np.array([self.occupancy(group) for group in groups])
        slowest = np.where(rows == kernel.PREFILL, here, 0.0).max(axis=1)
        fastest = np.where(rows == kernel.DECODE, own, np.inf).min(axis=1)
        found: Bools = slowest <= fastest * _EQUAL
        return found

    def is_obeyed(self, replicas: Sequence[Candidate]) -> bool:
        """Whether a whole plan obeys the rule; one with a MIXED replica does not."""
        if any(replica.role is Role.MIXED for replica in replicas):
            return False
        slowest = max((c.occupancy_s for c in replicas if c.role is Role.PREFILL), default=0.0)
        own = [self.occupancy(c.group) for c in replicas if c.role is Role.DECODE]
        return slowest <= min(own, default=np.inf) * _EQUAL
