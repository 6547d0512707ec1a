"""The one place where planners that size their plans by simulation ask what a plan is worth.

Splitwise and HexGen judge plans with a simulator of their own. As long as this package has none,
our queueing formulas answer; a simulator replaces :func:`ranks` and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.search.evaluate import ROLE_CODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.problem import Role
    from e2llm_opt.search.candidates import Group
    from e2llm_opt.search.evaluate import Evaluator
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.variant import Variant


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
    _, keys = evaluator.screen([(groups, rows)], variant)
    return [tuple(key) for key in keys.tolist()]
