"""Why the paper's method finds no plan: because no method does, or because of what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.infeasible import Infeasible, Suggestion
from e2llm_opt.search.changes import freed
from e2llm_opt.search.shortage import shortage_of
from e2llm_opt.search.stop import PAPER
from e2llm_opt.search.suggest import explain_infeasible
from e2llm_opt.search.trials import Trials

if TYPE_CHECKING:
    from e2llm_opt.search.search import Search

_REASON = (
    f"method {PAPER} finds no plan: it needs a PREFILL and a DECODE replica, each with the whole "
    "model on devices of its own, every stream fast enough, and a way for the KV cache between them"
)


def explain_no_plan(search: Search, *, seed: int) -> Infeasible:
    """Return why the paper's method found nothing in *search*.

    Where another method finds a plan, that is the suggestion. Where none does, the answer and its
    suggestions are those for any method.
    """
    problem = search.evaluator.costs.problem
    if not Trials(problem, search.teller, seed).is_feasible(problem):
        return explain_infeasible(search, seed=seed)
    shortage = shortage_of(costs_of(freed(problem)), search.devices)
    return Infeasible(
        reason=_REASON,
        kv_cache_bytes=shortage.kv_cache_bytes,
        total_bytes=shortage.total_bytes,
        devices=shortage.devices,
        shortfall_bytes=shortage.shortfall_bytes,
        suggestions=(Suggestion(change="method: auto"),),
    )
