"""The paper's objective, Eq. 4, over every assignment of PREFILL and DECODE to groups."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.search.paper.replicas import PaperReplica
    from e2llm_opt.workload.workload import Workload

    Bools = NDArray[np.bool_]

MAX_GROUPS = 12
"""Most groups whose roles are enumerated; the paper has seven devices."""


class Assignment(NamedTuple):
    """Roles of groups, and what they are worth."""

    extra_wait_s: float
    """Eq. 4: time a request more than the arrival period, infinite without both roles [s]."""
    roles: tuple[Role, ...]


NOTHING = Assignment(np.inf, ())


def best_roles(replicas: Sequence[PaperReplica], workload: Workload) -> Assignment:
    """Return the roles with the least Eq. 4: max(NP/PS, ND/DS) - arrival period.

    NP and ND are the mean tokens of prompt and answer, PS and DS the tokens/s of all PREFILL and
    of all DECODE replicas. Without an arrival rate the period is left out: it is a constant. Of
    equal assignments the first counts, groups tried as DECODE before PREFILL. Every replica must
    be usable.
    """
    prefill = np.array([replica.prefill_per_s for replica in replicas])
    decode = np.array([replica.decode_per_s for replica in replicas])
    is_small = len(replicas) <= MAX_GROUPS
    rows = _all_assignments(len(replicas)) if is_small else _by_advantage(prefill, decode)
    rows = rows & (prefill > 0) | (decode <= 0)  # a group that can do only one thing does it
    with np.errstate(divide="ignore"):
        reading = workload.prompt.mean / np.where(rows, prefill, 0.0).sum(axis=1)
        writing = workload.output.mean / np.where(rows, 0.0, decode).sum(axis=1)
    bottleneck = np.maximum(reading, writing)
    best = int(bottleneck.argmin())
    if bottleneck[best] == np.inf:
        return NOTHING
    period = 1.0 / workload.rate_per_s if workload.rate_per_s > 0 else 0.0
    roles = tuple(Role.PREFILL if is_first else Role.DECODE for is_first in rows[best].tolist())
    return Assignment(float(bottleneck[best]) - period, roles)


@lru_cache(maxsize=MAX_GROUPS + 1)
def _all_assignments(num_groups: int) -> Bools:
    """Return every assignment as whether each group is PREFILL [A, R]."""
    codes = np.arange(2**num_groups)[:, None]
    found: Bools = (codes >> np.arange(num_groups)[::-1]) & 1 > 0
    return found


def _by_advantage(prefill: NDArray[np.float64], decode: NDArray[np.float64]) -> Bools:
    """Return every split of the groups sorted by decode rate / prefill rate [R+1, R].

    Optimal where a group may divide its time; with many groups nearly so where it may not.
    """
    with np.errstate(divide="ignore"):
        order = np.argsort(decode / prefill, kind="stable")
    rows = np.zeros((len(order) + 1, len(order)), dtype=np.bool_)
    for num_first in range(len(order) + 1):
        rows[num_first, order[:num_first]] = True
    return rows
