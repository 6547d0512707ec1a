"""How far a plan is from the best, and what that rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.plan.plan import Bound, Proof
from e2llm_opt.problem import Objective
from e2llm_opt.search.columns import CLOSE, EXACT
from e2llm_opt.search.phrases import number_text, percent, time_text
from e2llm_opt.search.progress import figures_of

if TYPE_CHECKING:
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.search import Search
    from e2llm_opt.search.stop import Stop


def bound_of(search: Search, outcome: Outcome, *, is_first: bool) -> tuple[Bound, tuple[str, ...]]:
    """Return the bound on capacity, the gap of *outcome*, and a sentence that says what it is.

    ``optimal`` says that no plan is better by the objective: by capacity where that decides; by a
    wait that rounds to nothing; or because every grouping in every role was judged.
    """
    limit = search.exact.limit
    if limit is None:
        return Bound(), ()
    capacity = outcome.traffic.capacity_per_s
    if capacity > limit * (1 - EXACT):
        limit = max(limit, capacity)
    gap = (limit - capacity) / limit if limit > 0 else 0.0
    reason = _optimal(search, outcome, gap, is_first=is_first)
    bound = Bound(capacity_per_s=limit, gap=gap, proof=Proof.OPTIMAL if reason else Proof.BOUNDED)
    return bound, (_sentence(bound, reason),)


def _sentence(bound: Bound, reason: str) -> str:
    most = number_text(bound.capacity_per_s or 0.0)
    first = f"Bound: no plan can serve more than {most} requests/s"
    if bound.gap is None or bound.gap <= CLOSE:
        first += ", and this one does"
    else:
        first += f"; this one is {percent(bound.gap)} below that"
    return f"{first}{f'; {reason}' if reason else ''}."


def _optimal(search: Search, outcome: Outcome, gap: float, *, is_first: bool) -> str:
    """Return why no plan is better than *outcome* by the objective; empty where it may be."""
    objective = search.evaluator.costs.problem.objective
    if search.evaluator.costs.problem.workload.scenarios:
        return ""  # cuts are looked for at one load at a time
    ranking = search.evaluator.ranking
    decides = objective is Objective.THROUGHPUT
    decides |= not outcome.is_stable and objective is not Objective.MAX_CONTEXT
    if decides:
        return "it is optimal" if gap <= CLOSE else ""
    if objective is Objective.WAITING_TIME and outcome.waiting_time_s < 0.5 * ranking.wait_unit_s:
        wait = time_text(outcome.waiting_time_s)
        return f"a wait of {wait} is none worth counting, so it is optimal by waiting time"
    worst = search.archive.worst().get(search.aim)
    is_sure = worst is None or search.evaluator.key(outcome) <= worst
    if search.is_complete and is_first and is_sure:
        return (
            "it is optimal among all groupings and roles, each replica with its best cut for rate "
            "or each for latency"
        )
    return ""


def is_near(search: Search, stop: Stop) -> bool:
    """Whether the best plan so far is proven to be as close to the best as is asked for.

    By capacity where that decides. By waiting time, nobody waits less than not at all: a plan is
    close where the wait is so small a share of the time that a request takes.
    """
    key = search.best_key()
    if key is None or search.exact.limit is None:
        return False
    objective = search.evaluator.costs.problem.objective
    about = figures_of(str(objective), key, search.evaluator.ranking.wait_unit_s)
    if "capacity" in about and objective is not Objective.MAX_CONTEXT:
        return about["capacity"] >= search.exact.limit * (1 - max(stop.gap, CLOSE))
    is_wait = objective is Objective.WAITING_TIME and stop.gap > 0
    return is_wait and about["wait"] <= stop.gap * about["latency"]
