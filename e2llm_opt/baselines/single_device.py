"""Everything on one device: the plan to beat when the model fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut

NAME = "best single device"


def cuts(costs: Costs, devices: Sequence[int]) -> Iterator[Cut]:
    """Yield the whole model on each of *devices* (rows)."""
    for d in devices:
        yield ((d, 0, costs.problem.model.num_layers),)
