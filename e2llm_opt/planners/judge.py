"""What a plan is worth to planners that have their own idea of that.

Splitwise sizes its pools with a simulator, and so does this package. HexGen simulates every
grouping of its genetic algorithm, thousands of them: here the queueing formulas answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.search.evaluate import ROLE_CODES
from e2llm_opt.search.rank_by_simulation import Finals, rank_by_simulation
from e2llm_opt.workload.arrivals import draw_arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.problem import Role
    from e2llm_opt.search.candidates import Group
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.variant import Variant

_NUM_REQUESTS = 2000
"""Of one simulation; the first twentieth warms up."""
MOST_SIMULATED = 64
"""Outcomes that are simulated; of more, the best by our formulas."""


def best_by_simulation(evaluator: Evaluator, outcomes: Sequence[Outcome]) -> Outcome:
    """Return the best of *outcomes* on Poisson arrivals, routed as every plan is by default.

    Without an arrival rate nothing waits, and our formulas decide.
    """
    workload = evaluator.costs.problem.workload
    kept = sorted(outcomes, key=evaluator.key)[:MOST_SIMULATED]
    if len(kept) == 1 or workload.rate_per_s <= 0:
        return kept[0]
    finals = Finals(
        arrivals=(draw_arrivals(workload, _NUM_REQUESTS),),
    )
    return rank_by_simulation(evaluator, kept, finals)[0].outcome


def ranks(
    evaluator: Evaluator,
    groups: Sequence[Group],
    assignments: Sequence[Sequence[Role]],
    variant: Variant,
) -> list[Key]:
    """Return what each assignment of roles to *groups* is worth: a key, the smaller the better.

    Links are left out, as in our own search until the end.
    """
    rows = np.array([[ROLE_CODES[role] for role in roles] for roles in assignments], dtype=np.int64)
    keys = evaluator.screen([(groups, rows)], variant)
    return [tuple(key) for key in keys.tolist()]
