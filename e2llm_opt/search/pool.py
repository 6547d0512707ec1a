"""The best packing of all columns that were ever evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.search.packing import Packing, Side, repeated, served
from e2llm_opt.search.robust import most_robust
from e2llm_opt.search.roles import wanted_roles

if TYPE_CHECKING:
    from e2llm_opt.search.bound import Roles
    from e2llm_opt.search.candidates import Candidates
    from e2llm_opt.search.rules import Rules

_MAX_COLUMNS = 1500
_MAX_ROBUST = 200
"""Where losses must be survived: the program has two rows more for each."""
_MAX_NODES = 2000


def best_packing(candidates: Candidates, rules: Rules) -> Roles:
    """Return the groups and roles that serve most, of all columns so far; empty for none.

    Where losses must be survived, those that can, or else those that serve most after the worst.
    """
    columns = candidates.columns
    keys = [
        (group, role)
        for group in sorted(columns)
        for role in wanted_roles(candidates.costs.problem)
        if columns.rate(group, role) > 0 and rules.allows_group(group)
    ]
    if not keys:
        return ()
    keys.sort(key=lambda key: -columns.rate(*key) / len(key[0]))
    problem = candidates.costs.problem
    survive = problem.constraints.survive
    keys = keys[: _MAX_ROBUST if survive else _MAX_COLUMNS]
    classes = sorted(candidates.rows)
    counts = np.array([[float(group.count(k)) for k in classes] for group, _ in keys])
    rates = np.array([columns.rate(*key) for key in keys])
    side = Side(
        available=np.array([float(len(candidates.rows[k])) for k in classes]),
        must=np.array([float(rules.must.get(k, 0)) for k in classes]),
        replicas=candidates.costs.problem.constraints.replicas,
    )
    gives = served(rates, [role for _, role in keys])
    if survive:
        taken = most_robust(counts, gives, side, (survive, problem.workload.rate_per_s))
        return () if taken is None else tuple(sorted(repeated(keys, taken)))
    found = Packing(counts, gives, side).whole(np.inf, _MAX_NODES)
    if found.value <= 0:
        return ()
    return tuple(sorted(repeated(keys, found.x)))
