"""Plans a problem for the most requests and for the shortest wait; keeps what counts of both."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import planner_named
from e2llm_opt.problem import Objective
from e2llm_opt.search.link_cautions import crossed
from e2llm_opt.search.progress import NONE_YET, Progress
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import Asked, document

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import ProgressCallback

_LEAST_TIME_S, _FIRST_SHARE = 0.05, 1 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What devices can do.

    Parameters
    ----------
    capacity_per_s
        Most requests a second; 0 without a plan.
    waiting_time_s
        Least mean wait at the workload's rate [s]; None where there is no steady state.
    plan
        The one that waits least, where it was asked for, else the one with most requests; None
        where there is none.
    carrying
        Links that carry something in it, by their index.
    """

    capacity_per_s: float
    waiting_time_s: float | None
    plan: Plan | None
    carrying: frozenset[int] = frozenset()

    @property
    def is_stable(self) -> bool:
        """Whether all that arrives is served."""
        return self.waiting_time_s is not None


NOTHING = Figures(capacity_per_s=0.0, waiting_time_s=None, plan=None)


class Judge:
    """Plans by the formulas alone; nothing is simulated.

    Parameters
    ----------
    stop, seed
        Of each search.
    time_limit_s
        For all of them together [s]; None: none.
    progress
        Told of each search; may raise KeyboardInterrupt.

    Attributes
    ----------
    doing, done, planned
        What the progress says.
    share
        Of the time for all searches that one may take.
    """

    def __init__(
        self,
        stop: Stop | None,
        seed: int,
        time_limit_s: float | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._stop, self.seed = stop or Stop(), seed
        self._began = time.monotonic()
        self._time_limit_s = time_limit_s
        self._progress = progress
        self.share = _FIRST_SHARE
        self.doing, self.done, self.planned = "the inventory as it is", 0, 0

    @property
    def is_late(self) -> bool:
        """Whether the time for all searches is over."""
        left = self._left_s()
        return left is not None and left <= 0

    def capacity(self, problem: Problem) -> Figures:
        """Return the figures of the plan with most requests a second; no wait is looked for."""
        return self.planned_for(problem, Objective.THROUGHPUT)

    def waiting(self, problem: Problem, figures: Figures) -> Figures:
        """Return *figures*, those of :meth:`capacity`, with the least wait instead of any."""
        if not figures.is_stable or problem.workload.rate_per_s == 0:
            return figures
        found = self.planned_for(problem, Objective.WAITING_TIME)
        waits = [w for w in (found.waiting_time_s, figures.waiting_time_s) if w is not None]
        return Figures(
            capacity_per_s=max(figures.capacity_per_s, found.capacity_per_s),
            waiting_time_s=min(waits),
            plan=found.plan if found.is_stable else figures.plan,
            carrying=found.carrying | figures.carrying,
        )

    def planned_for(self, problem: Problem, objective: Objective) -> Figures:
        """Return the figures of the best plan by *objective*.

        Raises
        ------
        KeyboardInterrupt
            When the progress callback does.
        """
        stop = self._stop
        if objective is not Objective.THROUGHPUT:
            method = "auto" if stop.method == "exact" else stop.method
            stop = replace(stop, max_refinements=0, method=method)  # no bound is asked for
        left = self._left_s()
        if left is not None:
            own = stop.time_limit_s
            most = max(min(left, self.share * (self._time_limit_s or 0.0)), _LEAST_TIME_S)
            stop = replace(stop, time_limit_s=most if own is None else min(own, most))
        run = planner_named(OURS)(costs_of(replace(problem, objective=objective)), self._tell)
        run.run(stop, self.seed)
        run.search.exact.bind(stop)
        found = run.ranked(1)
        if not found:
            return NOTHING
        plan = document(run, found[0], Asked(method=stop.method, seed=self.seed))
        resources = crossed(run.costs, found[0])
        return Figures(
            capacity_per_s=plan.predicted.capacity_per_s,
            waiting_time_s=plan.predicted.waiting_time_s if plan.predicted.stable else None,
            plan=plan,
            carrying=frozenset(int(name) for what, name, _ in resources if what == "link"),
        )

    def breathe(self) -> None:
        """Tell what is done between two searches; raises KeyboardInterrupt as the callback does."""
        if self._progress is not None:
            self._tell(Progress(evaluations=0, elapsed_s=0.0, best=NONE_YET))

    def _left_s(self) -> float | None:
        if self._time_limit_s is None:
            return None
        return self._time_limit_s - (time.monotonic() - self._began)

    def _tell(self, state: Progress) -> None:
        if self._progress is not None:
            text = self.doing
            if self.planned:
                text = f"change {self.done} of {self.planned}: {text}"
            self._progress(replace(state, doing=text, done=None, planned=None))
