"""Plans for one load at a time, where the workload has scenarios: what a plan for all must beat."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.search.scenarios import followed
from e2llm_opt.search.search import Search

if TYPE_CHECKING:
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop


def offer_single_loads(
    search: Search, stop: Stop, seed: int, progress: ProgressCallback | None
) -> Outcome | None:
    """Search for the mean load and for each scenario alone; *search* takes what they find.

    Parameters
    ----------
    search
        Of a problem with scenarios; it was not run yet.
    stop
        Limits of each search; a time limit is shared by all, and the one for all scenarios.
    seed, progress
        Of each search.

    Returns
    -------
    Outcome or None
        The plan for the mean load, as *search* judges it; None: there is none, or with it streams
        would be too slow.
    """
    problem = search.evaluator.costs.problem
    workload = problem.workload
    loads = [workload.alone, *map(workload.in_scenario, workload.scenarios)]
    if stop.time_limit_s is not None:
        stop = replace(stop, time_limit_s=stop.time_limit_s / (len(loads) + 1))
    mean: Outcome | None = None
    for number, load in enumerate(loads):
        alone = Search(costs_of(replace(problem, workload=load)), progress)
        alone.evolver = search.evolver
        alone.run(stop, seed)
        best = alone.best(alone.aim)
        if best is None:
            continue
        here = [followed(search.candidates, one) for one in best.replicas]
        kept = [one for one in here if one is not None]
        if len(kept) == len(here):
            outcome = search.evaluator.outcome(kept)
            search.found.append(outcome)
            mean = outcome if number == 0 else mean
    return mean
