"""The cheapest catalogue devices that reach a target, and what no devices could cost less than.

A program over replicas of equal devices proposes a set; the planner plans it. Where it misses the
target, more is asked of the program. Then single devices are left out or replaced, and where few
cheaper sets are left, all of them are planned, the cheapest first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.advise.advice import PRICES_ASSUMED
from e2llm_opt.advise.judge import Judge
from e2llm_opt.advise.kinds import kinds_of, undominated
from e2llm_opt.advise.network import Wire
from e2llm_opt.advise.pooled import Pool
from e2llm_opt.advise.program import cheapest, columns_of, with_devices
from e2llm_opt.advise.sets import cheaper_sets, smaller
from e2llm_opt.advise.sizing import Sizing, SizingTarget, Unreachable
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.problem import Objective
from e2llm_opt.search.phrases import number_text, time_text
from e2llm_opt.search.progress import Interruption
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.advise.judge import Figures
    from e2llm_opt.advise.kinds import Kind
    from e2llm_opt.advise.program import Column
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import ProgressCallback

_STEP, _MOST_STEPS = 1.1, 16
"""More of the rate is asked of the program by such steps, so many times."""
_EQUAL = 1e-6
"""A cost within this share of the bound is the bound."""
_INTERRUPTED = "interrupted: a cheaper set may be left"
_NOT_USED = "the devices and links of the inventory are not used, only what it serves"


def size(
    problem: Problem, target: SizingTarget, *, progress: ProgressCallback | None = None
) -> Sizing | Unreachable:
    """Find the cheapest catalogue devices that serve what *problem* serves, at the target's rate.

    Parameters
    ----------
    problem
        Model, formats, engine, lengths and limits; its devices and links are not used.
    target
        What they must do.
    progress
        Told of each search; where it raises KeyboardInterrupt, the best until then is returned.

    Returns
    -------
    Sizing or Unreachable
        All devices hang on one switch, as the target's wire says.

    Raises
    ------
    InputError
        When constraints contradict the target: all of them, by name.
    KeyboardInterrupt
        When interrupted before any set was found.
    """
    _refuse(problem, target)
    run = _Run(problem, target, progress)
    reason = run.impossible()
    if reason:
        return Unreachable(reason=reason, is_proven=True)
    with Interruption() as interruption:
        run.search()
    if run.best is None:
        if interruption.happened:
            raise KeyboardInterrupt
        return Unreachable(reason=run.missed(), is_proven=False)
    return run.answer(interrupted=interruption.happened)


def _refuse(problem: Problem, target: SizingTarget) -> None:
    """Refuse constraints that no set of new devices can obey."""
    limits = problem.constraints
    faults = [
        Fault(
            path=f"constraints.{key}",
            wrong="names devices of the inventory, and a sizing does not use these",
            right="leave it out",
        )
        for key in ("pin", "layers")
        if getattr(limits, key)
    ]
    least = 2 if limits.roles == "disaggregated" else 1
    if limits.replicas is not None and limits.replicas < least:
        faults.append(
            Fault(
                path="constraints.replicas",
                wrong=f"{limits.replicas} contradicts roles: disaggregated",
                right="PREFILL and DECODE need two replicas; leave one of them out",
            )
        )
    least = max(least, limits.replicas or 1)
    if target.max_devices < least:
        key = "replicas" if limits.replicas == least else "roles"
        faults.append(
            Fault(
                path=f"constraints.{key}",
                wrong=f"needs {least} devices, but at most {target.max_devices} are allowed",
                right="allow more devices",
            )
        )
    if faults:
        raise InputError(faults)


class _Run:
    """One sizing in the making."""

    def __init__(
        self, problem: Problem, target: SizingTarget, progress: ProgressCallback | None
    ) -> None:
        self._target, self._by_power = target, target.by == "power"
        workload = replace(
            problem.workload,
            rate_per_s=target.rate_per_s,
            slo_ttft_s=target.ttft_s or problem.workload.slo_ttft_s,
            slo_tpot_s=target.tpot_s or problem.workload.slo_tpot_s,
        )
        self._objective = problem.objective
        self._problem = replace(problem, workload=workload, objective=Objective.COST)
        self._wire = target.wire or Wire()
        given = kinds_of(self._problem, target.prices or {}, target.types)
        known = [kind for kind in given if kind.cost(by_power=self._by_power) is not None]
        self._unpriced = len(given) - len(known)
        if not known:
            raise InputError(f"none of the types has a {'power' if self._by_power else 'price'}.")
        self._kinds = undominated(known, by_power=self._by_power)
        self._costs = [kind.cost(by_power=self._by_power) or 0.0 for kind in self._kinds]
        self._pool = Pool(with_devices(self._problem, self._kinds, self._wire))
        self._bound = self._pool.cheapest(self._costs, target.rate_per_s, target.max_devices)
        self._judge = Judge(None, target.seed, target.time_limit_s, progress)
        self._tried: dict[tuple[int, ...], Figures] = {}
        self._is_cheapest = False
        self.best: tuple[int, ...] | None = None
        """Devices of each kind in the best set so far."""

    def impossible(self) -> str:
        """Return why no devices can reach the target; empty where they may."""
        workload, pool, most = self._problem.workload, self._pool, self._target.max_devices
        prompt_s, step_s = pool.quickest_s
        quick, fast = (self._kinds[place].name for place in pool.fastest)
        if workload.slo_ttft_s is not None and prompt_s > workload.slo_ttft_s:
            return (
                f"TTFT of {time_text(workload.slo_ttft_s)}: the prefill of a mean prompt takes at "
                f"least {time_text(prompt_s)}, and no catalogue device is faster than {quick}"
            )
        if step_s > workload.slowest_tpot_s:
            return (
                f"TPOT of {time_text(workload.slowest_tpot_s)}: no catalogue device decodes fast "
                f"enough; the fastest, {fast}, has a TPOT of {time_text(step_s)}"
            )
        largest = most * float(pool.room.max())
        if largest < pool.need:
            return (
                f"does not fit: weights and the KV cache of one request need "
                f"{pool.need / GIB:.1f} GiB, and {most} of the largest devices leave "
                f"{largest / GIB:.1f} GiB"
            )
        if self._bound is None:
            alike = np.eye(len(self._kinds)) * most
            rate = number_text(max(pool.most(counts.tolist()) for counts in alike))
            return (
                f"rate of {number_text(self._target.rate_per_s)} requests/s: {most} devices of one "
                f"type serve at most {rate} requests/s"
            )
        return ""

    def missed(self) -> str:
        """Return why nothing was found, though no bound rules it out."""
        workload = self._problem.workload
        if not self._tried:
            most = self._target.max_devices
            return f"no replicas of equal devices reach it, {most} devices at most"
        counts = max(self._tried, key=self._cost)
        free = replace(workload, slo_ttft_s=None)
        problem = replace(self._priced(counts), workload=free)
        plan = self._judge.planned_for(problem, Objective.WAITING_TIME).plan
        text = f"none of the {len(self._tried)} sets that were planned reaches the target"
        if plan is None:
            return f"{text}: the dearest, {self._words(counts)}, has no plan"
        text += f": the dearest, {self._words(counts)}, serves "
        text += f"{number_text(plan.predicted.capacity_per_s)} requests/s"
        if plan.predicted.ttft_s is not None:
            text += f" with a TTFT of {time_text(plan.predicted.ttft_s)}"
        return text

    def search(self) -> None:
        """Look for a set, then for cheaper ones."""
        target = self._target
        columns: list[Column] = []
        for place, kind in enumerate(self._kinds):
            self._judge.doing = f"replicas of {kind.name}"
            self._judge.breathe()
            if columns and self._judge.is_late:
                break
            columns += columns_of(self._problem, place, kind, self._wire, target.max_devices)
        limits = (target.max_devices, self._problem.constraints.replicas)
        rate = target.rate_per_s
        for _ in range(_MOST_STEPS):
            counts = cheapest(columns, self._costs, rate, limits)
            if counts is None or self._is_over or self._try(counts):
                break
            rate *= _STEP
        self._improve()
        self._exhaust()

    def _improve(self) -> None:
        """Leave out or replace one device after the other, as long as that does."""
        is_better = self.best is not None
        while is_better and not self._is_over and self.best is not None:
            options = smaller(self.best, self._costs)
            is_better = any(self._may_do(one) and self._try(one) for one in options)

    def _exhaust(self) -> None:
        """Plan every cheaper set that may do, the cheapest first, where these are few."""
        most = self._cost(self.best) if self.best is not None else float("inf")
        sets = cheaper_sets(self._costs, most, self._bound or 0.0, self._target.max_devices)
        if sets is None:
            return
        left = [one for one in sets if one not in self._tried and self._may_do(one)]
        if len(left) > self._target.trials - len(self._tried):
            return
        for one in left:
            if self._is_over:
                return
            if self._try(one):
                break
        self._is_cheapest = True

    @property
    def _is_over(self) -> bool:
        return self._judge.is_late or len(self._tried) >= self._target.trials

    def _may_do(self, counts: tuple[int, ...]) -> bool:
        return self._pool.most(counts) >= self._target.rate_per_s

    def _try(self, counts: tuple[int, ...]) -> bool:
        """Plan a set; whether it, or what the plan uses of it, is the best so far."""
        if counts in self._tried:
            return False
        self._judge.doing = self._words(counts)
        if self.best is not None:
            self._judge.doing += f" (best: {self._words(self.best)})"
        figures = self._judge.planned_for(self._priced(counts), Objective.COST)
        self._tried[counts] = figures
        if figures.plan is None or not self._is_met(figures.plan):
            return False
        used = self._used(figures.plan)
        self._tried.setdefault(used, figures)
        if self.best is None or self._cost(used) < self._cost(self.best) * (1 - 1e-12):
            self.best = used
            return True
        return False

    def _priced(self, counts: Sequence[int]) -> Problem:
        """Return the problem on a set, where the objective minimises what is paid for it."""
        problem = with_devices(self._problem, self._listed(counts), self._wire)
        prices = {k.name: cost for k, cost in zip(self._kinds, self._costs, strict=True)}
        return problem.with_devices(
            replace(device, cost_per_hour=prices[device.type])
            for device in problem.inventory.devices
        )

    def _listed(self, counts: Sequence[int]) -> list[Kind]:
        return [kind for kind, num in zip(self._kinds, counts, strict=True) for _ in range(num)]

    def _used(self, plan: Plan) -> tuple[int, ...]:
        """Return how many devices of each kind hold layers."""
        names = {stage.device for replica in plan.replicas for stage in replica.stages}
        types = [name.rpartition("-")[0] for name in names]
        return tuple(types.count(kind.name) for kind in self._kinds)

    def _cost(self, counts: Sequence[int]) -> float:
        return sum(num * cost for num, cost in zip(counts, self._costs, strict=True))

    def _words(self, counts: Sequence[int]) -> str:
        pairs = zip(self._kinds, counts, strict=True)
        return ", ".join(f"{num} {kind.name}" for kind, num in pairs if num)

    def _is_met(self, plan: Plan) -> bool:
        """Whether a plan serves the rate in a steady state, within the service levels."""
        workload, figures = self._problem.workload, plan.predicted
        is_served = figures.stable and figures.capacity_per_s >= workload.rate_per_s
        is_soon = workload.slo_ttft_s is None or (
            figures.ttft_s is not None and figures.ttft_s <= workload.slo_ttft_s
        )
        return is_served and is_soon  # TPOT is a hard limit of every plan

    def answer(self, *, interrupted: bool) -> Sizing:
        """Return the best set with its plan."""
        counts = self.best or ()
        problem = with_devices(self._problem, self._listed(counts), self._wire)
        problem, plan = self._final(problem, self._tried[counts])
        kinds, cost = self._listed(counts), self._cost(counts)
        prices, power = [kind.price for kind in kinds], [kind.power_w for kind in kinds]
        bound = self._bound or 0.0
        bound = cost if bound >= cost * (1 - _EQUAL) else bound
        return Sizing(
            target=self._target,
            devices={k.name: n for k, n in zip(self._kinds, counts, strict=True) if n},
            price=None if None in prices else sum(p or 0.0 for p in prices),
            power_w=None if None in power else sum(p or 0.0 for p in power),
            bound=bound,
            gap=(cost - bound) / cost,
            is_cheapest=self._is_cheapest or bound == cost,
            plan=plan,
            problem=problem,
            tried=len(self._tried),
            warnings=tuple(self._warnings(interrupted=interrupted)),
        )

    def _final(self, problem: Problem, found: Figures) -> tuple[Problem, Plan]:
        """Return the problem on the best set, and its plan: by its own objective if that will do.

        Else by cost, where the time to first token is a hard limit.
        """
        for objective in dict.fromkeys((self._objective, Objective.COST)):
            asked = replace(problem, objective=objective)
            plan = self._judge.planned_for(asked, objective).plan
            if plan is not None and self._is_met(plan):
                return asked, plan
        if found.plan is None:
            msg = "the best set has a plan"
            raise RuntimeError(msg)
        return problem, found.plan

    def _warnings(self, *, interrupted: bool) -> Iterator[str]:
        yield _NOT_USED
        yield PRICES_ASSUMED
        if interrupted:
            yield _INTERRUPTED
        elif self._is_over and not self._is_cheapest:
            yield f"the search ended after {len(self._tried)} sets: a cheaper one may be left"
        if self._unpriced:
            yield f"{self._unpriced} types without a price were not considered"
