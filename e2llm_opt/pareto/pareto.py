"""A problem to a front of plans."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.errors import InputError
from e2llm_opt.pareto.front import DEFAULT_SIZE, Front
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import planner_named
from e2llm_opt.problem import Objective

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop

_LEAST_SIZE = 2
_INTERRUPTED = "the search was interrupted: this plan is of the front found until then"


def pareto(
    problem: Problem,
    *,
    objectives: Sequence[str] | None = None,
    size: int = DEFAULT_SIZE,
    seed: int = 0,
    stop: Stop | None = None,
    progress: ProgressCallback | None = None,
) -> Front | Infeasible:
    """Return plans of which none is better than another in all *objectives*.

    Parameters
    ----------
    problem
        What to serve on what. Its own objective decides between plans that are equal in all
        *objectives*, and what the plans' alternatives lose by; ``max_context``, which no front
        is about, is taken for ``waiting_time``.
    objectives
        ``waiting_time``, ``ttft``, ``tpot``, ``latency``, ``capacity``, ``cost_per_hour``,
        ``power_w``, ``devices`` and ``lost_capacity`` (the share of the capacity that is lost when
        the worst device fails and requests are only re-routed). None: waiting time (latency
        where nothing arrives), cost and power where all devices have them, devices, and lost
        capacity.
    size
        Plans at most: those that differ most, the best of each objective and the knee among them.
    seed
        Of the genetic algorithm. The same problem, seed and evaluation budget give the same front.
    stop
        Limits and method of each search; default: all groupings up to 8 devices, NSGA-II above,
        or NSGA-III for more than three objectives.
    progress
        Called now and then with the state of the search; where it raises KeyboardInterrupt the
        search ends as after Ctrl-C.

    Returns
    -------
    Front or Infeasible
        Infeasible says who lacks what, as :func:`e2llm_opt.plan` does. At a rate at which nothing
        is stable, capacity stands for waiting time, TTFT and latency.

    Raises
    ------
    InputError
        When an objective is unknown or lacks data, there are less than two, *size* is less than
        two, or *stop* asks for the exact method.
    KeyboardInterrupt
        When interrupted before any plan was found. Afterwards the front so far is returned, with a
        warning in each plan.
    """
    from e2llm_opt.cost.costs import costs_of  # noqa: PLC0415 - numpy and numba come with it
    from e2llm_opt.pareto.sentences import sentences  # noqa: PLC0415
    from e2llm_opt.search.progress import Interruption  # noqa: PLC0415
    from e2llm_opt.search.stop import Stop  # noqa: PLC0415
    from e2llm_opt.search.tradeoff.aims import asked_aims  # noqa: PLC0415
    from e2llm_opt.search.tradeoff.tradeoff import Tradeoff  # noqa: PLC0415
    from e2llm_opt.solve import Asked, Said, document  # noqa: PLC0415

    if size < _LEAST_SIZE:
        raise InputError(f"size must be at least {_LEAST_SIZE}, got {size}.")
    began, limits, asked = time.monotonic(), stop or Stop(), asked_aims(problem, objectives)
    if limits.method == "exact":
        raise InputError("method exact is for one objective; a front needs ga or exhaustive.")
    if problem.objective is Objective.MAX_CONTEXT:
        problem = replace(problem, objective=Objective.WAITING_TIME)
    run = planner_named(OURS)(costs_of(problem), progress)
    tradeoff = Tradeoff(run.search, asked, size, progress)
    with Interruption() as interruption:
        tradeoff.run(limits, seed)
        run.search.exact.bind(limits)
    outcomes, values, knee = tradeoff.thinned()
    if not outcomes:
        if interruption.happened:
            raise KeyboardInterrupt
        return run.explain(seed)
    said = Said((_INTERRUPTED,) if interruption.happened else ())
    how = Asked(method=limits.method, seed=seed)
    aims = tradeoff.archive.aims
    return Front(
        plans=tuple(
            document(run, outcome, how, rank=0, said=said, began=began) for outcome in outcomes
        ),
        knee=knee,
        objectives=tuple(str(name) for name in aims.names),
        figures=tuple(aims.figures(row) for row in values),
        explain=sentences(tradeoff.archive, values, knee, tradeoff.how),
    )
