"""The genetic algorithm: it finds the optimum, keeps its promises, and its operators keep laws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import e2llm_opt
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.plan import Plan, RunProvenance
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.search.operators import (
    UNUSED,
    call_up,
    canonical,
    crossover,
    leave_out,
    merge,
    move,
    mutate,
    random_labels,
    split,
    swap,
)
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from tests.strategies import problems

if TYPE_CHECKING:
    from e2llm_opt.search.ranking import Key

TESTBED = Path(__file__).parents[2] / "examples" / "e2llm-testbed.yaml"
PROVENANCE = RunProvenance(e2llm_opt="", created="", elapsed_s=0.0)
GENETIC = Stop(method="ga")
labels = st.lists(st.integers(-1, 5), min_size=1, max_size=12).map(np.array)
seeds = st.integers(0, 2**32 - 1)


def key_of(problem: Problem, stop: Stop, seed: int = 0) -> Key:
    search = Search(costs_of(problem))
    search.run(stop, seed)
    best = search.best(Scope.ANY)
    return (9.0,) if best is None else search.evaluator.key(best)


@pytest.fixture(scope="module", params=[Objective.WAITING_TIME, Objective.THROUGHPUT])
def testbed(request: pytest.FixtureRequest) -> tuple[Problem, Key]:
    """The paper's seven devices, with the best key of all groupings."""
    problem = replace(Problem.load(TESTBED), objective=request.param)
    return problem, key_of(problem, Stop(method="exhaustive"))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 10))]
)
@pytest.mark.needs_jit
def test_the_genetic_algorithm_finds_the_optimum_of_the_testbed(
    testbed: tuple[Problem, Key], seed: int
) -> None:
    problem, best = testbed
    assert key_of(problem, GENETIC, seed) == best


@pytest.mark.slow
@settings(max_examples=10)
@given(problems(min_devices=2, max_devices=4, is_linked=True))
def test_on_few_devices_the_genetic_algorithm_is_as_good_as_all_groupings(
    problem: Problem,
) -> None:
    assert key_of(problem, GENETIC) == key_of(problem, Stop(method="exhaustive"))


@pytest.mark.needs_jit
def test_the_same_seed_gives_the_same_plan_but_for_provenance() -> None:
    problem = Problem.load(TESTBED)
    texts = []
    for _ in range(2):
        found = e2llm_opt.plan(problem, seed=3, stop=GENETIC)
        assert isinstance(found, Plan)
        texts.append(replace(found, provenance=PROVENANCE).to_json())
    assert texts[0] == texts[1]


@pytest.mark.needs_jit
def test_costs_remembered_from_another_search_change_nothing() -> None:
    """Plans must not depend on what was asked before in the same process."""
    problem = Problem.load(TESTBED)
    warm = [key_of(problem, GENETIC, seed) for seed in (0, 1)]
    costs_of.cache_clear()
    assert key_of(problem, GENETIC, 1) == warm[1]


# ---------------------------------------------------------------- operators


def groups(genome: np.ndarray) -> set[frozenset[int]]:
    """Return the groups of a genome as sets of devices."""
    names = set(genome.tolist()) - {UNUSED}
    return {frozenset(np.flatnonzero(genome == name).tolist()) for name in names}


def unused(genome: np.ndarray) -> set[int]:
    return set(np.flatnonzero(genome == UNUSED).tolist())


@given(labels)
def test_canonical_labels_count_from_zero_and_say_the_same(genome: np.ndarray) -> None:
    found = canonical(genome)
    assert groups(found) == groups(genome)
    assert unused(found) == unused(genome)
    assert canonical(found).tolist() == found.tolist()
    firsts = [name for name in dict.fromkeys(found.tolist()) if name != UNUSED]
    assert firsts == list(range(len(firsts)))


@given(labels, st.permutations(range(6)))
def test_canonical_labels_do_not_depend_on_names(genome: np.ndarray, names: list[int]) -> None:
    renamed = np.array([label if label == UNUSED else names[label] for label in genome])
    assert canonical(renamed).tolist() == canonical(genome).tolist()


@given(st.integers(1, 12), seeds, seeds, seeds)
def test_crossover_inherits_groups_whole_or_what_is_free_of_them(
    num: int, one: int, other: int, chance: int
) -> None:
    mother, father = (random_labels(num, np.random.default_rng(seed)) for seed in (one, other))
    child = crossover(mother, father, np.random.default_rng(chance))
    kept = groups(child) & groups(mother)
    taken = {d for group in kept for d in group}
    for group in groups(child) - kept:
        assert any(group <= source for source in groups(father))
        source = next(source for source in groups(father) if group <= source)
        assert source - group <= taken
    assert child.tolist() == canonical(child).tolist()


@given(st.integers(1, 12), seeds, seeds)
def test_two_equal_parents_have_a_child_like_them(num: int, one: int, chance: int) -> None:
    parent = random_labels(num, np.random.default_rng(one))
    child = crossover(parent, parent.copy(), np.random.default_rng(chance))
    assert groups(child) == groups(parent)


@given(labels, seeds)
def test_mutations_do_what_their_names_say(genome: np.ndarray, chance: int) -> None:
    rng = np.random.default_rng(chance)
    before = genome.tolist()
    old = groups(genome)
    merged, parted = groups(merge(genome, rng)), groups(split(genome, rng))
    if len(old) > 1:
        (new,) = merged - old
        assert len(merged) == len(old) - 1
        assert all(group in merged or group <= new for group in old)
    else:
        assert merged == old
    if any(len(group) > 1 for group in old):
        assert len(parted) == len(old) + 1
        assert len(parted - old) == 2
        assert frozenset().union(*(parted - old)) in old
    else:
        assert parted == old
    swapped, moved = swap(genome, rng), move(genome, rng)
    assert sorted(swapped.tolist()) == sorted(before)
    assert (swapped != genome).sum() in {0, 2}
    assert (moved != genome).sum() <= 1
    left, called = groups(leave_out(genome, rng)), groups(call_up(genome, rng))
    assert left < old if len(old) > 1 else left == old
    assert len(old - left) == (len(old) > 1)
    if unused(genome):
        (new,) = called - old
        assert new <= unused(genome)
        assert called - {new} == old
    else:
        assert called == old
    mutated = mutate(genome, rng)
    assert mutated.tolist() == canonical(mutated).tolist()
    assert genome.tolist() == before
