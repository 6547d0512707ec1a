"""Would a changed problem have a plan? Each is searched once, quickly, and told of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import Teller

_QUICK = Stop(max_evaluations=400, stagnation=5, max_refinements=0)


class Trials:
    """Quick searches of variations of one problem.

    Parameters
    ----------
    problem
        What has no plan.
    teller
        Passes on what is tried.
    seed
        Of each search.

    Attributes
    ----------
    num_found
        Changes that are known to help, for the teller.
    """

    def __init__(self, problem: Problem, teller: Teller, seed: int) -> None:
        self._problem = problem
        self._teller = teller
        self._seed = seed
        self._known: dict[Problem, bool] = {}
        self.num_found = 0

    def is_feasible(self, changed: Problem) -> bool:
        """Whether a quick search finds any plan for *changed*."""
        if changed not in self._known:
            heard = self._teller.trial(difference(self._problem, changed), self.num_found)
            search = Search(costs_of(changed), heard)
            if not search.has_plan():  # the baselines alone may do
                search.run(_QUICK, self._seed)
            self._known[changed] = search.has_plan()
        return self._known[changed]


def difference(problem: Problem, changed: Problem) -> str:
    """Return what is changed, in the words of the inventory file."""
    return ", ".join(_differences(problem, changed)) or "the problem as it is"


def _differences(problem: Problem, changed: Problem) -> Iterator[str]:
    parts = (
        (problem, changed, ("weights", "kv_cache", "objective")),
        (problem.runtime, changed.runtime, ("name",)),
        (
            problem.workload,
            changed.workload,
            ("rate_per_s", "context_tokens", "slots", "min_tokens_per_s", "slo_tpot_s"),
        ),
        (problem.constraints, changed.constraints, changed.constraints.__slots__),
    )
    for old, new, names in parts:
        for name in names:
            value = getattr(new, name)
            if value != getattr(old, name):
                word = "runtime" if name == "name" else name
                yield f"{word}: {f'{value:.3g}' if isinstance(value, float) else value}"
