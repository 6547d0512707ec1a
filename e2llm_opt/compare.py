"""Every planner on the same inventory and the same arrivals: predicted, simulated, and how long."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from e2llm_opt.errors import InputError
from e2llm_opt.plan.plan import OURS, Plan
from e2llm_opt.planners import PLANNERS, planner_named
from e2llm_opt.workload.workload import context_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.rank_by_simulation import Finals
    from e2llm_opt.search.stop import Stop
    from e2llm_opt.simulate.simulate import Routing
    from e2llm_opt.simulate.statistics import Spread
    from e2llm_opt.workload.trace import Trace

COMPARED = ("waiting_time_s", "ttft_s", "tpot_s", "latency_s")
"""Simulated times of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One planner's plan, predicted and simulated.

    Parameters
    ----------
    planner
        Its name.
    plan
        None where it cannot place the model.
    simulated
        Spread of each of :data:`COMPARED` over the requests that count; None without a plan.
    rejected
        Requests that no slot of the plan can hold.
    planning_s
        Wall-clock time of the planner [s].
    reason
        Why there is no plan; empty where there is one.
    """

    planner: str
    plan: Plan | None
    simulated: Mapping[str, Spread] | None
    rejected: int = 0
    planning_s: float
    reason: str = ""

    @property
    def devices_used(self) -> int | None:
        """Devices that hold layers."""
        if self.plan is None:
            return None
        return len({stage.device for replica in self.plan.replicas for stage in replica.stages})

    def to_dict(self) -> dict[str, Any]:
        """Return the row as it stands in the JSON answer; ``reason`` only where there is one."""
        plan, simulated = self.plan, self.simulated
        row = {
            "planner": self.planner,
            "capacity_per_s": None if plan is None else plan.predicted.capacity_per_s,
            "predicted": None if plan is None else asdict(plan.predicted),
            "simulated": None
            if simulated is None
            else {name: asdict(simulated[name]) for name in COMPARED},
            "devices_used": self.devices_used,
            "planning_s": self.planning_s,
        }
        return {**row, "reason": self.reason} if self.reason else row


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTerms:
    """How planners are compared, the same for all.

    Parameters
    ----------
    seed, stop
        Of every planner.
    routing, mean_context, warmup
        Of every simulation; a warm-up of None is 5 % of the requests, none below 1000.
    ranks_by_simulation
        Whether our own planner simulates its best candidates and the other planners' plans on the
        arrivals, and takes the best; otherwise its formulas decide.
    """

    seed: int = 0
    stop: Stop | None = None
    routing: Routing = "shortest-wait"
    mean_context: bool = False
    warmup: int | None = None
    ranks_by_simulation: bool = True


def compare(
    problem: Problem,
    arrivals: Trace,
    *,
    planners: Sequence[str] = PLANNERS,
    terms: ComparisonTerms | None = None,
    progress: ProgressCallback | None = None,
) -> tuple[ComparisonRow, ...]:
    """Plan with each of *planners* and simulate every plan on the same *arrivals*.

    Parameters
    ----------
    problem
        What to serve on what.
    arrivals
        Requests, the same for all plans (common random numbers).
    planners
        Names, of :data:`e2llm_opt.planners.PLANNERS`; our own is ``e2llm-opt``.
    terms
        Seeds, limits, routing.
    progress
        Told by each planner how far it is.

    Returns
    -------
    tuple of ComparisonRow
        In the order of *planners*.

    Raises
    ------
    InputError
        When there is no such planner, or one is named twice.
    """
    return tuple(rows(problem, arrivals, planners=planners, terms=terms, progress=progress))


def rows(
    problem: Problem,
    arrivals: Trace,
    *,
    planners: Sequence[str] = PLANNERS,
    terms: ComparisonTerms | None = None,
    progress: ProgressCallback | None = None,
) -> Iterator[ComparisonRow]:
    """Yield the rows of :func:`compare` one by one, as they are done."""
    for name in planners:
        planner_named(name)
    if len(set(planners)) < len(planners):
        raise InputError("a planner is named twice.")
    from e2llm_opt.search.rank_by_simulation import Finals  # noqa: PLC0415 - slow

    _load_kernels(problem)
    terms = terms or ComparisonTerms()
    ours = Finals(
        arrivals=(arrivals,) if terms.ranks_by_simulation else (),
        rivals=tuple(name for name in planners if name != OURS),
        routing=terms.routing,
        mean_context=terms.mean_context,
        warmup=terms.warmup,
    )
    for name in planners:
        yield _row(problem, arrivals, name, (terms, ours), progress)


def _load_kernels(problem: Problem) -> None:
    """Start a search, so that not the first planner is charged for compiling."""
    from e2llm_opt.cost.costs import costs_of  # noqa: PLC0415 - slow
    from e2llm_opt.search.stop import Stop  # noqa: PLC0415 - slow

    search = planner_named(OURS)(costs_of(problem))
    search.run(Stop(max_evaluations=1, method="ga"), 0)
    search.ranked(1)


def traced(problem: Problem, trace: Trace) -> Problem:
    """Return *problem* with the rate and lengths of *trace*, and slots that hold its requests."""
    prompt, output = trace.workload_lengths()
    context = context_for(trace.prompt_p95, trace.output_p95)
    workload = replace(
        problem.workload,
        rate_per_s=trace.rate_per_s,
        prompt=prompt,
        output=output,
        context_tokens=max(problem.workload.context_tokens, context),
        scenarios=(),
    )
    return replace(problem, workload=workload)


def _row(
    problem: Problem,
    arrivals: Trace,
    name: str,
    how: tuple[ComparisonTerms, Finals],
    progress: ProgressCallback | None,
) -> ComparisonRow:
    from e2llm_opt.cost.costs import costs_of  # noqa: PLC0415 - slow
    from e2llm_opt.simulate.simulate import simulate  # noqa: PLC0415 - slow
    from e2llm_opt.simulate.summary import spreads_of  # noqa: PLC0415 - slow
    from e2llm_opt.solve import plan  # noqa: PLC0415 - slow

    terms, finals = how
    costs_of.cache_clear()  # what another planner has computed is no head start
    began = time.perf_counter()
    answer = plan(
        problem,
        planner=name,
        seed=terms.seed,
        stop=terms.stop,
        finals=finals,
        progress=progress,
    )
    took = time.perf_counter() - began
    if not isinstance(answer, Plan):
        return ComparisonRow(
            planner=name, plan=None, simulated=None, planning_s=took, reason=answer.reason
        )
    run = simulate(
        answer,
        problem,
        arrivals,
        routing=terms.routing,
        mean_context=terms.mean_context,
        warmup=finals.warmup_of(arrivals),
    )
    return ComparisonRow(
        planner=name,
        plan=answer,
        simulated=spreads_of(run),
        rejected=run.num_rejected,
        planning_s=took,
    )
