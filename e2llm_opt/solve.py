"""A problem to a plan: the whole algorithm on one screen."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from e2llm_opt import __version__
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import Bound, Plan, RunProvenance

if TYPE_CHECKING:
    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.search import Search
    from e2llm_opt.search.stop import Stop

_INTERRUPTED = "the search was interrupted: this is the best plan found until then"


def plan(
    problem: Problem,
    *,
    seed: int = 0,
    stop: Stop | None = None,
    progress: ProgressCallback | None = None,
) -> Plan | Infeasible:
    """Place the model: cluster devices into replicas, cut the layers, choose roles and routes.

    Parameters
    ----------
    problem
        What to serve on what.
    seed
        Of the genetic algorithm. The same problem, seed and evaluation budget give the same plan.
    stop
        Limits and method of the search; default: all groupings up to 8 devices, the genetic
        algorithm above.
    progress
        Called now and then with the state of the search; where it raises KeyboardInterrupt the
        search ends as after Ctrl-C.

    Returns
    -------
    Plan or Infeasible
        Infeasible says who lacks what, and which verified change would help.

    Raises
    ------
    KeyboardInterrupt
        When interrupted before any plan was found. Afterwards the best plan is returned, with a
        warning; and while changes are tried that may make a plan possible, those known to help.
    """
    answer = plans(problem, top=1, seed=seed, stop=stop, progress=progress)
    return answer[0] if isinstance(answer, tuple) else answer


def plans(
    problem: Problem,
    *,
    top: int,
    seed: int = 0,
    stop: Stop | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Plan, ...] | Infeasible:
    """Return up to *top* plans that differ in groups or roles, the best first.

    Parameters and errors are those of :func:`plan`; the first plan is what it returns.

    Raises
    ------
    InputError
        When *top* is not positive.
    """
    from e2llm_opt.cost.costs import costs_of  # noqa: PLC0415 - numpy and numba come with it
    from e2llm_opt.search.paper.refusal import explain_no_plan  # noqa: PLC0415
    from e2llm_opt.search.progress import Interruption  # noqa: PLC0415
    from e2llm_opt.search.search import Search  # noqa: PLC0415
    from e2llm_opt.search.stop import Stop  # noqa: PLC0415
    from e2llm_opt.search.suggest import explain_infeasible  # noqa: PLC0415

    if top < 1:
        raise InputError(f"top must be at least 1, got {top}.")
    began = time.monotonic()
    limits = stop or Stop()
    search = Search(costs_of(problem), progress)
    with Interruption() as interruption:
        search.run(limits, seed)
    chosen = search.ranked(top)
    if not chosen:
        if interruption.happened:
            raise KeyboardInterrupt
        explain = explain_infeasible if search.paper is None else explain_no_plan
        return explain(search, seed=seed)
    notes = (_INTERRUPTED,) if interruption.happened else ()
    run = seed, limits.method, began
    return tuple(
        _document(search, (rank, outcome), notes, run)
        for rank, outcome in enumerate(chosen, start=1)
    )


def _document(
    search: Search,
    ranked: tuple[int, Outcome],
    notes: tuple[str, ...],
    run: tuple[int, str, float],
) -> Plan:
    from e2llm_opt.search import alternatives, assemble  # noqa: PLC0415 - as above
    from e2llm_opt.search.cautions import cautions  # noqa: PLC0415
    from e2llm_opt.search.explain import explain  # noqa: PLC0415

    costs = search.evaluator.costs
    rank, chosen = ranked
    seed, method, began = run
    found = Plan(
        problem=assemble.problem_of(costs.problem, seed, method),
        replicas=assemble.replicas_of(costs, chosen),
        routes=assemble.routes_of(costs, chosen),
        unused_devices=alternatives.unused_devices(search, chosen),
        predicted=assemble.predicted_of(costs, chosen),
        bound=Bound(),
        alternatives=alternatives.alternatives_of(search, chosen),
        warnings=(*notes, *search.remarks(chosen)),
        provenance=RunProvenance(
            e2llm_opt=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            elapsed_s=round(time.monotonic() - began, 3),
        ),
    )
    return replace(
        found,
        explain=explain(costs, chosen, found, rank),
        warnings=(*found.warnings, *cautions(costs, chosen, found)),
    )
