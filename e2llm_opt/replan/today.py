"""The plan as it stands today: what still serves, who holds what, and what requests lose."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners.planner import SearchPlanner
from e2llm_opt.replan.differences import has_same_weights, is_noise
from e2llm_opt.replan.losses import Losses
from e2llm_opt.replan.way import Ways
from e2llm_opt.replan.weights import Weights
from e2llm_opt.search.polish import is_whole
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.standing import as_planned, cuts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.replan.answer import Difference
    from e2llm_opt.replan.terms import ReplanTerms
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback

_NO_SHARE = 1e-9


class _Kept(SearchPlanner):
    """Our own search, beside a plan that is kept as far as it pays."""

    NAME = OURS

    @property
    def idle_reason(self) -> str:
        """Why a device without layers has none."""
        return "layers on it are not worth moving them there"


class Today:
    """An old plan in a problem that may be another one than it was made for.

    Parameters
    ----------
    plan, problem, terms
        The old plan, today's problem, and what moving may cost.
    found
        How the problem differs from the plan's.
    progress
        Told by an ordinary search how far it is; may be None.

    Attributes
    ----------
    planner
        Holds the search: candidates, rules and the evaluator.
    is_same_model, is_quiet
        Whether layers can stay where they are, and whether nothing but noise changed.
    may_use_idle
        Whether, even so, devices without layers must have changed: the inventory is another one,
        and no device that serves is.
    cuts, standing
        Pipelines whose devices are all there, and the replicas among them that still serve in their
        roles, with their slots.
    routed
        What these serve with requests going where they wait least; None: nothing.
    before
        The same with requests going where the old routes send them.
    old, broken
        Who holds what, and what is left of pipelines that do not serve, in order.
    weights, losses, ways
        What moving takes, what requests lose, and the way to another plan.
    is_allowed
        Whether the plan as it stands obeys today's constraints.
    loss
        What requests lose in it within the horizon [request-seconds].
    """

    def __init__(
        self,
        plan: Plan,
        problem: Problem,
        terms: ReplanTerms,
        found: tuple[Difference, ...],
        progress: ProgressCallback | None,
    ) -> None:
        self.plan, self.problem = plan, problem
        costs = costs_of(problem)
        self.planner = _Kept(costs, progress)
        self.search = self.planner.search
        self.evaluator = self.search.evaluator
        self.is_same_model = has_same_weights(plan, problem)
        self.is_quiet = is_noise(found, terms.noise)
        is_other = plan.problem.inventory_sha256 != inventory_sha256(problem.inventory)
        self.may_use_idle = is_other and all(one.what == "workload" for one in found)
        cuts = cuts_of(costs, plan) if self.is_same_model else ((),) * len(plan.replicas)
        self.cuts = tuple(cut for cut in cuts if cut)
        standing = as_planned(self.evaluator.candidates, plan, cuts)
        self.standing = tuple(one for one in standing if one is not None)
        self.routed = self._outcome(self.standing)
        self.before = self._as_routed(cuts)
        self.weights = Weights(costs, terms)
        self.losses = Losses(self.evaluator, self.routed, terms.horizon_s)
        self.old = self.weights.held(self.cuts)
        self.broken = tuple(self._broken(cuts))
        self.ways = Ways(self.evaluator, self.weights, self.losses, self.routed, self.old)
        rules = self.search.rules
        self.is_allowed = self.routed is not None and rules.is_obeyed(self.routed)
        self.loss = self.losses.of(self.before if self.is_allowed else None)

    def _outcome(self, replicas: tuple[Candidate, ...]) -> Outcome | None:
        """Return what *replicas* serve; None where that is nothing."""
        if not replicas or not is_whole(replicas):
            return None
        outcome = self.evaluator.outcome(replicas)
        return outcome if self.evaluator.key(outcome)[0] < IMPOSSIBLE else None

    def _as_routed(self, cuts: Sequence[Cut]) -> Outcome | None:
        """Return the plan as it stands: each request still goes where the old routes send it."""
        rate_then = self.plan.problem.workload["rate_per_s"]
        if self.routed is None or rate_then <= 0:
            return self.routed
        rates = {
            c.cut: c.service_rate(self.evaluator.costs.output_tokens) for c in self.routed.replicas
        }
        most = self.routed.traffic.capacity_per_s
        for cut, old in zip(cuts, self.plan.replicas, strict=True):
            share = old.arrival_rate_per_s / rate_then
            if share > _NO_SHARE:
                most = min(most, rates.get(cut, 0.0) / share)
        if self.problem.workload.rate_per_s < most * (1 - 1e-9):
            return self.routed
        inf = float("inf")
        return replace(
            self.routed,
            traffic=replace(self.routed.traffic, capacity_per_s=most),
            waiting_time_s=inf,
            ttft_s=inf,
            latency_s=inf,
        )

    def _broken(self, cuts: Sequence[Cut]) -> Iterator[tuple[int, ...]]:
        """Yield what is left of the pipelines that do not serve, and note what they hold."""
        if not self.is_same_model:
            return
        serving = {replica.cut for replica in self.standing}
        allowed = {self.problem.devices[d].name: d for d in self.search.devices}
        for cut, old in zip(cuts, self.plan.replicas, strict=True):
            if cut and cut in serving:
                continue
            left = []
            for j, stage in enumerate(old.stages):
                if (d := allowed.get(stage.device)) is not None:
                    left.append(d)
                    place = (1 if j == 0 else 0) + (2 if j == len(old.stages) - 1 else 0)
                    self.old[d] = self.weights.stage(d, stage.layers, place)
            if left:
                yield tuple(left)
