"""The store of columns as others see it."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import optimality_set
from e2llm_opt.cost.costs import Costs
from e2llm_opt.problem import Role
from e2llm_opt.search.polish import polish
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.variant import Variant


def test_a_better_replica_that_leaves_a_device_idle_stands_on_the_others() -> None:
    """It may be found after its group was judged; polishing it failed on the idle device."""
    search = Search(Costs(optimality_set.instance("distinct-4-0")))
    one, other = search.devices[:2]
    alone = search.candidates.at_cut(((one, 0, search.evaluator.costs.problem.model.num_layers),))
    assert alone is not None
    class_of = search.evaluator.costs.classes.class_of
    group = tuple(sorted((class_of[one], class_of[other])))
    assert search.candidates.find(group, Role.MIXED, Variant.RATE) is not None
    search.candidates.columns.take(replace(alone, group=group), 1e9)
    placed = search.evaluator.place([group], [Role.MIXED], Variant.RATE)
    assert placed is not None
    assert placed[0].group == alone.group
    outcome = search.evaluator.outcome(placed)
    polished = polish(search.evaluator, outcome, Scope.ANY, search.rules)
    assert search.evaluator.key(polished) <= search.evaluator.key(outcome)
