"""On tiny fleets no plan at all is worth more, price and all, than the one that is recommended."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations, product
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.problem import Role
from e2llm_opt.replan.answer import Replan
from e2llm_opt.replan.differences import differences
from e2llm_opt.replan.replan import replan
from e2llm_opt.replan.terms import ReplanTerms
from e2llm_opt.replan.today import Today
from e2llm_opt.search.polish import is_whole
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.standing import fastest
from tests.replan.fleets import at_rate, fleet, slower, without
from tests.replan.test_replan import planned

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Candidate

EAGER = ReplanTerms(hysteresis=0.0, noise=0.0, horizon_s=1e5)


def cuts(rows: tuple[int, ...], num_layers: int) -> Iterator[Cut]:
    """Yield every cut of the layers over all of *rows*, in every order."""
    for order in permutations(rows):
        for inner in combinations(range(1, num_layers), len(order) - 1):
            ends = (0, *inner, num_layers)
            yield tuple((d, ends[j], ends[j + 1]) for j, d in enumerate(order))


def groupings(rows: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield every set of disjoint groups; the other devices idle."""
    if not rows:
        yield ()
        return
    first, rest = rows[0], rows[1:]
    yield from groupings(rest)
    for num in range(len(rest) + 1):
        for others in combinations(rest, num):
            left = tuple(d for d in rest if d not in others)
            yield from (((first, *others), *more) for more in groupings(left))


def every_plan(today: Today) -> Iterator[tuple[Candidate, ...]]:
    """Yield all plans: groups, orders, cuts and roles."""
    problem = today.problem
    known: dict[tuple[int, ...], list[Candidate]] = {}
    for packing in groupings(tuple(today.search.devices)):
        for group in packing:
            if group not in known:
                found = (
                    fastest(today.evaluator, cut, role)
                    for cut in cuts(group, problem.model.num_layers)
                    for role in Role
                )
                known[group] = [one for one in found if one is not None]
        for replicas in product(*(known[group] for group in packing)):
            if replicas and is_whole(replicas):
                yield replicas


def best_net(old: Plan, problem: Problem, most_moves: int | None) -> float:
    """Return the most gain less price of all plans [request-seconds]."""
    today = Today(old, problem, EAGER, differences(old, problem), None)
    best = float("-inf")
    for replicas in every_plan(today):
        outcome = today.evaluator.outcome(replicas)
        gain = today.loss - today.losses.of(outcome)
        if today.evaluator.key(outcome)[0] >= IMPOSSIBLE or gain <= best:
            continue  # a price is never negative
        way = today.ways.to(outcome)
        if most_moves is None or way.num_moves <= most_moves:
            best = max(best, gain - way.lost)
    return best


BEFORE = fleet([350, 350, 350], 0.5, num_layers=4)
CASES = {
    "one slower": (BEFORE, slower(BEFORE, 3.0, "d0")),
    "one lost": (BEFORE, without(BEFORE, "d1")),
    "more requests": (BEFORE, at_rate(BEFORE, 6.0)),
    "a new one": (without(BEFORE, "d2"), at_rate(BEFORE, 4.0)),
}


@pytest.mark.parametrize("most_moves", [None, 1])
@pytest.mark.parametrize("name", CASES)
def test_no_plan_is_worth_more(name: str, most_moves: int | None) -> None:
    """Up to what is not worth counting: by that much a plan may lose to move less."""
    before, after = CASES[name]
    old = planned(before)
    found = replan(old, after, terms=replace(EAGER, max_moves=most_moves))
    assert isinstance(found, Replan)
    offered = {one.step: one.gain - one.price for one in found.offers if one.figures}
    today = Today(old, after, EAGER, differences(old, after), None)
    best = best_net(old, after, most_moves)
    standing = max(offered.get("routing", float("-inf")), offered.get("roles", float("-inf")))
    slack = max(0.02 * max(best - standing, 0.0), today.losses.least)
    assert max(offered.values()) <= best + max(1e-6 * abs(best), today.losses.least)
    assert offered["layers"] >= best - slack - 1e-6 * abs(best)
    if found.recommended != "none":
        assert offered[found.recommended] >= best - 2 * slack - 1e-6 * abs(best)
