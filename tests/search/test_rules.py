"""Constraints while plans evolve: pinned devices stay together, and nearly allowed is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import Costs
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.rules import Rules
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from tests.check.small import problem, star

SIX = "abcdef"
PINS = {"x": ("a", "c"), "y": ("e",)}
labels = st.lists(st.integers(-1, 4), min_size=6, max_size=6).map(np.array)


def rules(**constraints: Any) -> Rules:
    costs = Costs(problem(star(*SIX), constraints=Constraints(**constraints)))
    return Rules(costs, range(6))


@given(labels)
def test_repaired_labels_obey_the_pins_and_leave_the_others_where_they_are(
    genome: np.ndarray[Any, Any],
) -> None:
    found = rules(pin=PINS).repaired(genome)
    assert found[0] == found[2] >= 0
    assert found[4] >= 0
    assert found[4] != found[0]
    assert [found[i] for i in (1, 3, 5)] == [genome[i] for i in (1, 3, 5)]


@given(labels)
def test_labels_that_obey_the_pins_are_not_repaired(genome: np.ndarray[Any, Any]) -> None:
    fixed = rules(pin=PINS).repaired(genome)
    assert rules(pin=PINS).repaired(fixed).tolist() == fixed.tolist()
    assert rules().repaired(genome).tolist() == genome.tolist()


def test_idle_devices_and_replicas_too_many_are_how_far_a_packing_is() -> None:
    own = rules(replicas=2)
    class_of = Costs(problem(star(*SIX))).classes.class_of
    one, three = [tuple(class_of)], [(k,) for k in class_of[:3]]
    two = [tuple(class_of[:3]), tuple(class_of[3:])]
    assert own.distance(two) == 0
    assert own.distance(one) == pytest.approx(0.01)
    assert own.distance(three) == pytest.approx(0.01 + 3 * 0.001)


@pytest.mark.parametrize("method", ["exhaustive", "ga"])
def test_either_search_obeys_pins_and_the_number_of_replicas(method: Any) -> None:
    asked = problem(star(*"abcd"), constraints=Constraints(pin={"x": ("a", "c")}, replicas=2))
    search = Search(Costs(asked))
    search.run(Stop(method=method, max_evaluations=60, stagnation=5), 0)
    best = search.best(Scope.ANY)
    assert best is not None
    assert len(best.replicas) == 2
    homes = [{d for d, _, _ in replica.cut} for replica in best.replicas]
    assert any({0, 2} <= home for home in homes)
