"""One pipeline over all devices, layers in proportion to memory, at least one each.

What exo does by default (``placement_utils.py`` of its 2026 code base, as its users describe it):
largest remainders, and speed and links never asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut

NAME = "memory-proportional pipeline"


def cuts(costs: Costs, devices: Sequence[int]) -> Iterator[Cut]:
    """Yield the one cut over *devices* (rows) in the order given; none with too few layers."""
    num_layers = costs.problem.model.num_layers
    if len(devices) > num_layers:
        return
    memory = costs.tables.usable[list(devices)]
    cut = cut_by_counts(devices, shares(memory.tolist(), num_layers))
    if has_legal_starts(costs, cut):
        yield cut


def cut_by_counts(devices: Sequence[int], counts: Sequence[int]) -> Cut:
    """Return the cut in which each of *devices* (rows) holds so many layers, in this order."""
    stops = np.cumsum(counts).tolist()
    return tuple(
        (d, stop - count, stop) for d, count, stop in zip(devices, counts, stops, strict=True)
    )


def has_legal_starts(costs: Costs, cut: Cut) -> bool:
    """Whether every stage of *cut* starts where the model allows it."""
    allowed = costs.problem.model.allowed_stage_starts
    return allowed is None or {start for _, start, _ in cut[1:]} <= set(allowed)


def shares(memory: Sequence[float], num_layers: int) -> list[int]:
    """Return layers in proportion to *memory*, by largest remainder, at least one each.

    >>> shares([16.0, 8.0, 8.0], 32)
    [16, 8, 8]
    >>> shares([100.0, 1.0], 10)
    [9, 1]
    """
    ideal = [num_layers * part / sum(memory) for part in memory]
    counts = [max(1, int(share)) for share in ideal]
    while sum(counts) != num_layers:
        step = 1 if sum(counts) < num_layers else -1
        open_to = [i for i, count in enumerate(counts) if step > 0 or count > 1]
        chosen = max(open_to, key=lambda i: (step * (ideal[i] - counts[i]), -i))
        counts[chosen] += step
    return counts
