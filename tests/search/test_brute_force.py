"""The search against every grouping in every role, tried one by one."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from e2llm_opt.cost.costs import Costs
from e2llm_opt.inventory.classes import DeviceClasses
from e2llm_opt.problem import Role
from e2llm_opt.search.atlas import moved
from e2llm_opt.search.evaluate import ROLE_CODES
from e2llm_opt.search.polish import is_whole
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.roles import Scope, engine_roles
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.search.variant import all_variants
from tests.oracles import groupings
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.variant import Variant

EXHAUSTIVE = Stop(method="exhaustive")
NOTHING: Key = (9.0,)


def test_five_devices_have_203_groupings() -> None:
    """Bell(6): every partition of every subset is one of the set and a 'left over' device."""
    found = {frozenset(map(frozenset, grouping)) for grouping in groupings(range(5))}
    assert len(found) == len(list(groupings(range(5)))) == 203


def searched(problem: Problem) -> tuple[Search, Outcome | None]:
    search = Search(Costs(problem))
    search.run(EXHAUSTIVE, 0)
    return search, search.best(Scope.ANY)


def outcomes(search: Search) -> Iterator[tuple[Outcome, bool]]:
    """Yield the allowed outcomes of all groupings, roles and cuts.

    With each comes whether its cuts are all for rate, or all for latency.
    """
    class_of = search.evaluator.costs.classes.class_of
    known = set()
    for grouping in groupings(search.devices):
        groups = tuple(sorted(tuple(sorted(class_of[d] for d in group)) for group in grouping))
        if not groups or groups in known:
            continue
        known.add(groups)
        for chosen in product(*(options(search, group) for group in groups)):
            candidates = sorted((candidate for candidate, _ in chosen), key=turn)
            replicas = placed(search, candidates)
            if not is_whole(replicas):
                continue
            outcome = search.evaluator.outcome(replicas)
            is_possible = search.evaluator.key(outcome)[0] < IMPOSSIBLE
            if search.rules.is_obeyed(outcome) and is_possible:
                shared = set.intersection(*(variants for _, variants in chosen))
                yield outcome, bool(shared)


def options(search: Search, group: Group) -> list[tuple[Candidate, set[Variant]]]:
    """Return every replica that *group* can be, with the kinds of cut that it stands for."""
    problem = search.evaluator.costs.problem
    is_mixed = problem.constraints.roles == "mixed"
    found: dict[object, tuple[Candidate, set[Variant]]] = {}
    for role in (Role.MIXED,) if is_mixed else engine_roles(problem):
        for variant in all_variants(problem):
            candidate = search.candidates.find(group, role, variant)
            if candidate is not None:
                key = (role, candidate.cut, candidate.slots)
                found.setdefault(key, (candidate, set()))[1].add(variant)
    return list(found.values())


def turn(candidate: Candidate) -> tuple[object, ...]:
    """Where the search lists a replica: of equally fast ones, the first listed gets most work."""
    counts = [candidate.group.count(k) for k in range(8)]
    return counts, ROLE_CODES[candidate.role]


def placed(search: Search, chosen: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return the replicas on disjoint devices."""
    waiting = {k: list(rows) for k, rows in search.candidates.rows.items()}
    found = []
    for candidate in chosen:
        rows = [waiting[k].pop(0) for k in candidate.group]
        old = search.candidates.concrete(candidate.group)
        there = moved(search.candidates.costs, candidate, old, rows)
        found += [] if there is None else [there]
    return tuple(found)


def identity(search: Search, outcome: Outcome) -> list[tuple[object, ...]]:
    """Return who does what, by device class."""
    class_of = search.evaluator.costs.classes.class_of
    return sorted(
        (str(c.role), c.slots, tuple((class_of[d], start, stop) for d, start, stop in c.cut))
        for c in outcome.replicas
    )


def compare(problem: Problem) -> None:
    """Nothing uniform beats what the search found, and that is one of all these plans."""
    search, chosen = searched(problem)
    key = search.evaluator.key
    everything = list(outcomes(search))
    uniform = [key(outcome) for outcome, is_uniform in everything if is_uniform]
    if chosen is None:
        assert not everything
        return
    assert key(chosen) <= min(uniform, default=NOTHING)
    plans = [
        *(o for o, _ in everything),
        *filter(search.rules.is_obeyed, search.baselines.values()),
    ]
    assert identity(search, chosen) in [identity(search, plan) for plan in plans]
    assert key(search.evaluator.outcome(chosen.replicas)) == key(chosen)


@given(problems(max_devices=4, max_layers=5, is_constrained=True))
def test_up_to_four_devices_no_grouping_and_no_roles_beat_the_search(problem: Problem) -> None:
    compare(problem)


@given(problems(min_devices=3, max_devices=4, is_linked=True, is_tight=True))
def test_where_replicas_need_several_devices_nothing_beats_the_search(problem: Problem) -> None:
    compare(problem)


@pytest.mark.slow
@settings(max_examples=20)
@given(problems(min_devices=5, max_devices=5, max_layers=4, is_linked=True))
def test_up_to_five_devices_no_grouping_and_no_roles_beat_the_search(problem: Problem) -> None:
    compare(problem)


@given(problems(max_devices=5, max_layers=5, is_constrained=True))
def test_telling_alike_devices_apart_changes_nothing(problem: Problem) -> None:
    """Classes only save time: with each device a class of its own the best key is the same."""
    keys = []
    for is_apart in (False, True):
        costs = Costs(problem)
        if is_apart:
            order = costs.classes.order
            places = tuple(order.index(d) for d in range(len(order)))
            costs.classes = DeviceClasses(class_of=places, order=order)
        search = Search(costs)
        search.run(EXHAUSTIVE, 0)
        best = search.best(Scope.ANY)
        keys.append(NOTHING if best is None else search.evaluator.key(best))
    assert keys[0] == pytest.approx(keys[1], rel=1e-6)
