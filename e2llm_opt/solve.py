"""A problem to a plan: the whole algorithm on one screen."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from e2llm_opt import __version__
from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import OURS, Plan, RunProvenance
from e2llm_opt.planners import PLANNERS, planner_named
from e2llm_opt.problem import Objective

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.planners.planner import Planner
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.islands import Islands
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.quick import Evolver
    from e2llm_opt.search.rank_by_simulation import Finals
    from e2llm_opt.search.stop import Stop

NUM_SIMULATED = 20
"""Candidates of a search that are simulated (DESIGN section 5)."""
NUM_DRAWN = 5_000
"""Requests on which they are, where none are given."""
_INTERRUPTED = "the search was interrupted: this is the best plan found until then"


def plan(
    problem: Problem,
    *,
    planner: str = OURS,
    seed: int = 0,
    stop: Stop | None = None,
    finals: Finals | None = None,
    islands: Islands | None = None,
    progress: ProgressCallback | None = None,
) -> Plan | Infeasible:
    """Place the model: cluster devices into replicas, cut the layers, choose roles and routes.

    Parameters
    ----------
    problem
        What to serve on what.
    planner
        Who plans: ``e2llm-opt``, or one of the others of :data:`e2llm_opt.planners.PLANNERS`, for
        comparison. Every plan is judged by the same formulas.
    seed
        Of the genetic algorithm. The same problem, seed and evaluation budget give the same plan.
    stop
        Limits and method of the search; default: all groupings up to 8 devices, the genetic
        algorithm above.
    finals
        How our planner's best candidates are simulated before one is chosen, and on what; then the
        objective goes by what comes out, and other planners' plans are candidates, too. None: where
        the objective is the waiting time and the best candidate's is worth looking at, on requests
        drawn from the workload; else the formulas decide. ``Finals(arrivals=())``: they always do.
        The first simulation ever compiles the simulator.
    islands
        Several genetic algorithms side by side, in processes of this machine or on a Dask cluster,
        where groupings are evolved at all; None: one, in this process.
    progress
        Called now and then with the state of the search; where it raises KeyboardInterrupt the
        search ends as after Ctrl-C.

    Returns
    -------
    Plan or Infeasible
        Infeasible says who lacks what, and which verified change would help.

    Raises
    ------
    InputError
        When there is no such planner; when *islands* are for another planner, or cannot be reached.
    KeyboardInterrupt
        When interrupted before any plan was found. Afterwards the best plan is returned, with a
        warning; and while changes are tried that may make a plan possible, those known to help.
    """
    answer = plans(
        problem,
        top=1,
        planner=planner,
        seed=seed,
        stop=stop,
        finals=finals,
        islands=islands,
        progress=progress,
    )
    return answer[0] if isinstance(answer, tuple) else answer


def plans(
    problem: Problem,
    *,
    top: int,
    planner: str = OURS,
    seed: int = 0,
    stop: Stop | None = None,
    finals: Finals | None = None,
    islands: Islands | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[Plan, ...] | Infeasible:
    """Return up to *top* plans that differ in groups or roles, the best first.

    Parameters and errors are those of :func:`plan`; the first plan is what it returns.

    Raises
    ------
    InputError
        When *top* is not positive, and as :func:`plan`.
    """
    from e2llm_opt.cost.costs import costs_of  # noqa: PLC0415 - numpy and numba come with it
    from e2llm_opt.search.price import limited, unconstrained  # noqa: PLC0415
    from e2llm_opt.search.progress import Interruption  # noqa: PLC0415
    from e2llm_opt.search.single_loads import offer_single_loads  # noqa: PLC0415
    from e2llm_opt.search.stop import Stop  # noqa: PLC0415

    if top < 1:
        raise InputError(f"top must be at least 1, got {top}.")
    if islands is not None and planner != OURS:
        raise InputError(f"islands are for planner {OURS}, not for {planner}.")
    began = time.monotonic()
    limits = stop or Stop()
    run = planner_named(planner)(costs_of(problem), progress)
    mean = None
    with Interruption() as interruption, _evolver(islands) as run.search.evolver:
        if problem.workload.scenarios and planner == OURS:
            mean = offer_single_loads(run.search, limits, seed, progress)
        run.run(limited(limits, problem), seed)
        run.search.exact.bind(limits)
        chosen, lines = _ranked(run, top, finals, (limits, seed, progress))
    if interruption.happened:
        chosen, lines = run.ranked(top), ()
    elif chosen and planner == OURS:
        with Interruption():  # the plan is there; what is not known then is its price
            run.search.free = unconstrained(run.search, limits, seed, progress)
        if not lines:
            chosen = run.search.with_free(chosen)
    if not chosen:
        if interruption.happened:
            raise KeyboardInterrupt
        return run.explain(seed)
    notes = (_INTERRUPTED,) if interruption.happened else ()
    asked = Asked(planner, limits.method, seed, None if islands is None else islands.num)
    return tuple(
        document(run, outcome, asked, rank=rank, said=Said(notes, lines, mean), began=began)
        for rank, outcome in enumerate(chosen, start=1)
    )


@contextmanager
def _evolver(islands: Islands | None) -> Iterator[Evolver]:
    """Give what evolves groupings: this process, or islands elsewhere."""
    from e2llm_opt.search.quick import evolve_alone  # noqa: PLC0415 - as above

    if islands is None:
        yield evolve_alone
        return
    with islands.evolver() as evolver:
        yield evolver


def _ranked(
    run: Planner, top: int, finals: Finals | None, how: tuple[Stop, int, ProgressCallback | None]
) -> tuple[list[Outcome], tuple[str, ...]]:
    """Return the best outcomes, and how they were ranked where a simulation did it."""
    outcomes = run.ranked(top)
    if run.NAME != OURS:
        return outcomes, ()
    given = finals if finals is not None else _drawn(run, outcomes)
    if not given.arrivals:
        return outcomes, ()
    from e2llm_opt.search.polish import without_idle  # noqa: PLC0415 - numba takes long to load
    from e2llm_opt.search.rank_by_simulation import rank_by_simulation  # noqa: PLC0415 - as above

    rules = run.search.rules
    outcomes = [
        without_idle(run.evaluator, outcome, rules)
        for outcome in run.ranked(max(top, NUM_SIMULATED))
    ]
    rivals: list[Outcome] = []
    stop, seed, progress = how
    for name in PLANNERS if given.rivals is None else given.rivals:
        if name != OURS:
            rival = planner_named(name)(run.costs, progress)
            rival.run(stop, seed)
            rivals += rival.ranked(1)
    if len(outcomes) + len(rivals) == 1:
        return outcomes, ()
    found = rank_by_simulation(
        run.evaluator,
        outcomes,
        given,
        rivals=rivals,
        tell=lambda number: run.tell("simulation", number),
    )
    num = sum(arrivals.num_requests for arrivals in given.arrivals)
    line = f"Simulated: {len(found)} candidates on the same {num} requests; this one is the best."
    return [one.outcome for one in found[:top]], (line,)


def _drawn(run: Planner, outcomes: Sequence[Outcome]) -> Finals:
    """Return requests drawn from the workload where queueing decides; else none.

    It does where the best candidate has a steady state, and requests wait noticeably in it.
    """
    from e2llm_opt.search.rank_by_simulation import Finals  # noqa: PLC0415 - as above
    from e2llm_opt.workload.arrivals import draw_arrivals  # noqa: PLC0415

    problem, unit_s = run.problem, run.evaluator.ranking.wait_unit_s
    is_asked = problem.objective is Objective.WAITING_TIME and problem.workload.rate_per_s > 0
    is_asked &= not problem.workload.scenarios  # one load says little of the others
    best = outcomes[0] if outcomes else None
    is_waiting = best is not None and best.is_stable and best.waiting_time_s >= unit_s
    if not (is_asked and is_waiting):
        return Finals(arrivals=())
    arrivals = draw_arrivals(problem.workload, NUM_DRAWN)
    return Finals(arrivals=(arrivals,), rivals=())


class Asked(NamedTuple):
    """Who was asked for a plan, and how."""

    planner: str = OURS
    method: str = "auto"
    seed: int = 0
    islands: int | None = None


class Said(NamedTuple):
    """What a search says beside the plan."""

    warnings: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    """How the plan was chosen, where a simulation did it."""
    mean: Outcome | None = None
    """The plan for the mean load, where the workload has scenarios."""


def document(
    run: Planner,
    outcome: Outcome,
    asked: Asked,
    *,
    rank: int = 1,
    said: Said | None = None,
    began: float | None = None,
) -> Plan:
    """Return the plan document of an outcome.

    Parameters
    ----------
    run
        The planner that ran on the problem; alternatives and the bound are those it found.
    outcome
        One of its outcomes, or another one of the same problem.
    asked
        Stands in the plan's options.
    rank
        Place among the plans that are returned; 1 for the best, 0 for one of a front.
    said
        Warnings and sentences that are not about this outcome; None: nothing.
    began
        When the search did, on the monotonic clock [s]; None: now.
    """
    from e2llm_opt.search import alternatives, assemble  # noqa: PLC0415 - as above
    from e2llm_opt.search.cautions import cautions  # noqa: PLC0415
    from e2llm_opt.search.certificate import bound_of  # noqa: PLC0415
    from e2llm_opt.search.explain import explain  # noqa: PLC0415
    from e2llm_opt.search.in_scenarios import with_scenarios  # noqa: PLC0415
    from e2llm_opt.search.intervals import with_intervals  # noqa: PLC0415
    from e2llm_opt.search.price import survival  # noqa: PLC0415
    from e2llm_opt.search.scenarios import ScenarioEvaluator  # noqa: PLC0415

    costs, search = run.costs, run.search
    said = said or Said()
    is_first = rank == 1 and asked.planner == OURS and not said.simulated
    better = alternatives.WORSE_SIMULATED if said.simulated else alternatives.BETTER
    better = alternatives.TRADED if rank == 0 else better
    bound, proof = bound_of(search, outcome, is_first=is_first)
    now = time.monotonic()
    found = Plan(
        problem=assemble.problem_of(costs.problem, *asked),
        replicas=assemble.replicas_of(costs, outcome),
        routes=assemble.routes_of(costs, outcome),
        unused_devices=alternatives.unused_devices(search, outcome, run.idle_reason),
        predicted=assemble.predicted_of(costs, outcome),
        bound=bound,
        alternatives=alternatives.alternatives_of(search, outcome, better=better),
        warnings=(*said.warnings, *run.remarks(outcome)),
        provenance=RunProvenance(
            e2llm_opt=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            elapsed_s=round(now - (now if began is None else began), 3),
        ),
    )
    first, *others = explain(costs, outcome, found, rank)
    spare = survival(costs, run.evaluator, outcome, search.free)
    found = replace(
        with_intervals(run.evaluator, outcome, found),
        explain=(first, *proof, *others, *((spare,) if spare else ()), *said.simulated),
        warnings=(*found.warnings, *cautions(costs, outcome, found)),
    )
    if not isinstance(run.evaluator, ScenarioEvaluator):
        return found
    return with_scenarios(run.evaluator, outcome, found, said.mean)
