"""Which of several interchangeable devices holds what, so that the fewest bytes move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.replan.weights import NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.replan.weights import Holdings, Weights


def named(
    costs: Costs,
    weights: Weights,
    old: Holdings,
    cuts: Sequence[Cut],
    rows: Mapping[int, Sequence[int]],
) -> tuple[Cut, ...]:
    """Return *cuts* on other devices of the same classes, so that the fewest bytes move.

    An assignment problem for each class: its devices against the stages that its devices hold.

    Parameters
    ----------
    costs, weights, old
        Classes, bytes, and who holds what now.
    cuts
        Of the replicas, on disjoint devices.
    rows
        Devices of each class that may be used.
    """
    from scipy.optimize import linear_sum_assignment  # noqa: PLC0415 - slow to import

    class_of = costs.classes.class_of
    new = weights.held(cuts)
    stages: dict[int, list[int]] = {}
    for d in new:
        stages.setdefault(class_of[d], []).append(d)
    where: dict[int, int] = {}
    for k, own in stages.items():
        devices = list(rows[k])
        need = np.array(
            [[weights.gained(old.get(e, NOTHING), new[d]) for e in devices] for d in own]
        )
        # Of equals, the device that has it already, then the first.
        need = need + 1e-3 * np.array([[e != d for e in devices] for d in own])
        for i, j in zip(*linear_sum_assignment(need), strict=True):
            where[own[i]] = devices[j]
    return tuple(tuple((where[d], a, b) for d, a, b in cut) for cut in cuts)
