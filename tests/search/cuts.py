"""Every cut of a few devices, for tests that compare with all of them."""

from __future__ import annotations

from itertools import combinations, pairwise, permutations
from typing import TYPE_CHECKING

from e2llm_opt.problem import Role
from e2llm_opt.search.kv_limits import KvLimits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.search.cut_figures import CutFigures
    from e2llm_opt.search.search import Search


def all_cuts(costs: Costs, devices: Sequence[int]) -> Iterator[Cut]:
    """Yield every cut over some of *devices*, in every order, that the engine allows."""
    model = costs.problem.model
    top = model.num_layers
    starts = model.allowed_stage_starts
    allowed = range(1, top) if starts is None else [s for s in starts if 0 < s < top]
    for num in range(1, len(devices) + 1):
        for order in permutations(devices, num):
            for bounds in combinations(allowed, num - 1):
                spans = pairwise((0, *bounds, top))
                yield tuple((d, a, b) for d, (a, b) in zip(order, spans, strict=True))


def best_rate(
    figures: CutFigures, devices: Sequence[int], role: Role, *, has_cards: bool = True
) -> float:
    """Return the highest rate of any cut with any slots and micro-batches [1/s]."""
    costs, best = figures.costs, 0.0
    for cut in all_cuts(costs, devices):
        if any(costs.fixed_layers[d] not in {-1, b - a} for d, a, b in cut):
            continue
        used = {d for d, _, _ in cut}
        if any(costs.must_hold_layers[d] and d not in used for d in devices):
            continue
        if role is not Role.PREFILL:
            rates = figures.rates(cut, role)
            rate = float(rates.max()) if len(rates) else 0.0
        else:
            rate = 1.0 / figures.at(cut, 1).occupancy_s if figures.at(cut, 1).slots else 0.0
        if has_cards:
            rate = min(rate, KvLimits(costs).of_cut(role, cut))
        best = max(best, rate)
    return best


def rates_of(search: Search, devices: Sequence[int]) -> dict[Role, float]:
    """Return the highest rate of *devices* in each role [1/s]."""
    return {role: best_rate(search.candidates.figures, devices, role) for role in Role}
