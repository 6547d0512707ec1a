"""What surviving losses costs: which loss is the worst, and what a plan could do without it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.search.phrases import named, number_text, time_text
from e2llm_opt.search.search import Search

if TYPE_CHECKING:
    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.spare import Loss
    from e2llm_opt.search.stop import Stop

WITHOUT = "without survive: {}"
"""The name among the alternatives of the best plan that need not survive so many losses."""


SHARE_OF_TIME = 0.75
"""Of a time limit, for the plan; the rest is for what it is compared with."""


def unconstrained(
    search: Search, stop: Stop, seed: int, progress: ProgressCallback | None
) -> Outcome | None:
    """Return the best outcome where no loss need be survived; None where none must be."""
    problem = search.evaluator.costs.problem
    if not problem.constraints.survive:
        return None
    limits = replace(problem.constraints, survive=0)
    free = Search(costs_of(replace(problem, constraints=limits)), progress)
    free.run(_part(stop, 1 - SHARE_OF_TIME), seed)
    return free.best(free.aim)


def limited(stop: Stop, problem: Problem) -> Stop:
    """Return the limits of the search itself, where another one says what losses cost."""
    return _part(stop, SHARE_OF_TIME) if problem.constraints.survive else stop


def _part(stop: Stop, share: float) -> Stop:
    limit = stop.time_limit_s
    return stop if limit is None else replace(stop, time_limit_s=share * limit)


def fragile(search: Search) -> tuple[str, float]:
    """Return why no plan survives the losses asked for, and the rate that one would [1/s].

    Empty and 0 where that is not the reason.
    """
    problem, spare = search.evaluator.costs.problem, search.evaluator.spare
    nearest = search.nearest() if spare else None
    if spare is None or nearest is None:
        return "", 0.0
    asked, loss = problem.constraints.survive, spare.worst(nearest.replicas)
    left = loss.serves_per_s
    whom = _lost(search.evaluator, nearest, loss)
    what = "one device" if asked == 1 else f"{asked} devices"
    stays = "serves anything"
    if problem.workload.rate_per_s > 0:
        stays = f"is stable at {problem.workload.rate_per_s:g} requests/s"
    return (
        f"no plan that was tried {stays} after the loss of any {what} (constraints.survive: "
        f"{asked}); the nearest one serves {number_text(left)} requests/s without {whom}"
    ), left


def survival(costs: Costs, evaluator: Evaluator, chosen: Outcome, free: Outcome | None) -> str:
    """Return a sentence about the worst loss that *chosen* survives, and the price of that.

    *free* is the best outcome that need not survive anything; None: not known.
    """
    if evaluator.spare is None:
        return ""
    loss = evaluator.spare.worst(chosen.replicas)
    asked = costs.problem.constraints.survive
    text = f"Survives: the worst loss is that of {_lost(evaluator, chosen, loss)}; "
    if loss.left is None:
        text += "nothing is served then"
    else:
        text += f"{_figures(loss.left)} then"
    if free is None:
        return f"{text}."
    name = WITHOUT.format(asked)
    if evaluator.key(free)[0] == evaluator.key(chosen)[0]:
        return f"{text}; the best plan {name} survives as well, so that this costs nothing."
    return (
        f"{text}. Its price: {name} a plan of {_size(free)} has {_figures(free)}; this one of "
        f"{_size(chosen)} has {_figures(chosen)}."
    )


def why_fragile(evaluator: Evaluator, rival: Outcome) -> str:
    """Return which loss *rival* does not survive; empty where it survives all asked for."""
    if evaluator.spare is None or not evaluator.spare.lacks(rival.replicas)[0]:
        return ""
    lost = _lost(evaluator, rival, evaluator.spare.worst(rival.replicas))
    return f"does not survive the loss of {lost}"


def _lost(evaluator: Evaluator, outcome: Outcome, loss: Loss) -> str:
    costs = evaluator.costs
    names = []
    for i in loss.lost:
        own = [name for row, _, _ in outcome.replicas[i].cut for name in costs.names(row)]
        names.append(own[0] if len(own) == 1 else f"any of {named(own)}")
    return " and ".join(names)


def _size(outcome: Outcome) -> str:
    num = outcome.num_devices
    return f"{num} device{'s' if num > 1 else ''}"


def _figures(outcome: Outcome) -> str:
    capacity = f"a capacity of {number_text(outcome.traffic.capacity_per_s)} requests/s"
    if not outcome.is_stable:
        return f"{capacity}, which is not enough"
    return f"{capacity} and a wait of {time_text(outcome.waiting_time_s)}"
