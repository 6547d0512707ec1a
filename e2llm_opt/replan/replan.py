"""From a plan and a changed problem to the next plan: routing, roles, layers, and which is worth it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import Fault, InputError
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import planner_named
from e2llm_opt.problem import Role
from e2llm_opt.replan.answer import Figures, Offer, Replan
from e2llm_opt.replan.differences import (
    changed_devices,
    differences,
    has_same_weights,
    is_noise,
)
from e2llm_opt.replan.losses import Losses
from e2llm_opt.replan.mover import Effort, Mover, Near, best_of, name_of
from e2llm_opt.replan.naming import named
from e2llm_opt.replan.neighbours import Neighbours
from e2llm_opt.replan.spoken import moves_of, role_changes_of, warnings_of, way_of
from e2llm_opt.replan.terms import ALL_DEVICES, STEPS, ReplanTerms
from e2llm_opt.replan.way import Way, Ways
from e2llm_opt.replan.weights import NOTHING, Weights
from e2llm_opt.search.polish import is_whole
from e2llm_opt.search.progress import Interruption
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.standing import Standing, cuts_of, fastest
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import Asked, Said, document

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.replan.answer import Difference
    from e2llm_opt.replan.terms import StepName
    from e2llm_opt.search.candidates import Candidate
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback

_SMALL = 6
"""Up to so many devices an ordinary search, too, says where to go."""
_NUM_FINALISTS = 10
"""Plans whose way is worked out."""
_NUM_STARTS = 3
"""Plans of an ordinary search from which changes are tried."""
_AS_GOOD = 0.02
"""Of plans whose gain is that close, relatively, the one that moves least is taken."""
_NO_SHARE = 1e-9
_INTERRUPTED = "replan was interrupted: this is the best found until then"


def replan(
    old_plan: Plan,
    problem: Problem,
    *,
    terms: ReplanTerms | None = None,
    seed: int = 0,
    stop: Stop | None = None,
    effort: Effort | None = None,
    progress: ProgressCallback | None = None,
) -> Replan | Infeasible:
    """Change a plan that runs as far as a change of workload or fleet makes worthwhile, no further.

    Three steps of growing cost: other routes; other roles and slots, without moving a layer; layers
    and groups. Each is offered with what it gains and costs; the dearest one that is worth its
    price is recommended.

    Parameters
    ----------
    old_plan
        What runs now; devices are matched by name.
    problem
        Today's machines, model and workload.
    terms
        Horizon, limits, and what moving costs.
    seed
        Of an ordinary search, where one runs.
    stop
        Limits of an ordinary search whose plans are candidates, too. None: one runs for up to six
        devices, and where nothing near the old plan is possible.
    effort
        How many changes are tried.
    progress
        Called now and then; where it raises KeyboardInterrupt, the best until then is the answer.

    Returns
    -------
    Replan or Infeasible
        Infeasible where no plan is possible on what is left.

    Raises
    ------
    InputError
        When limits and constraints leave no plan though there is one; when nobody is called as
        ``weights_on`` says.

    Notes
    -----
    Deterministic, as no clock decides, unless *stop* has a time limit.
    """
    began = time.monotonic()
    terms = terms or ReplanTerms()
    _refuse_unknown(terms, problem)
    found = differences(old_plan, problem)
    if not found and old_plan.problem.inventory_sha256 == inventory_sha256(problem.inventory):
        return _unchanged(old_plan, terms)
    run = _Run(old_plan, problem, terms, found, progress)
    return run.answer(seed, stop, effort or Effort(), began)


def _refuse_unknown(terms: ReplanTerms, problem: Problem) -> None:
    names = [device.name for device in problem.devices]
    if terms.weights_on is not None and terms.weights_on not in {ALL_DEVICES, *names}:
        right = f"{ALL_DEVICES} or the name of a device: {', '.join(names[:5])} …"
        wrong = f"no device is called '{terms.weights_on}'"
        raise InputError([Fault(path="weights_on", wrong=wrong, right=right)])


def _unchanged(plan: Plan, terms: ReplanTerms) -> Replan:
    figures = plan.predicted
    before = Figures(
        waiting_time_s=figures.waiting_time_s,
        capacity_per_s=figures.capacity_per_s,
        latency_s=figures.latency_s,
        stable=figures.stable,
    )
    return Replan(
        plan=plan,
        recommended="none",
        why="Nothing changed since the plan was made: it stays as it is.",
        before=before,
        offers=tuple(Offer(step=step, figures=before) for step in STEPS),
        moves=(),
        way=(),
        role_changes=(),
        differences=(),
        horizon_s=terms.horizon_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    """What one step reaches."""

    step: StepName
    outcome: Outcome
    way: Way
    gain: float
    role_changes: int

    @property
    def net(self) -> float:
        return self.gain - self.way.lost


class _Run:
    """One replanning: the plan as it stands, and what the three steps make of it."""

    def __init__(
        self,
        plan: Plan,
        problem: Problem,
        terms: ReplanTerms,
        found: tuple[Difference, ...],
        progress: ProgressCallback | None,
    ) -> None:
        self.plan, self.problem, self.terms, self.found = plan, problem, terms, found
        costs = costs_of(problem)
        self.planner = planner_named(OURS)(costs, progress)
        self.search = self.planner.search
        self.evaluator = self.search.evaluator
        self.is_same_model = has_same_weights(plan, problem)
        self.is_quiet = is_noise(found, terms.noise)
        cuts = cuts_of(costs, plan) if self.is_same_model else ((),) * len(plan.replicas)
        self.cuts = tuple(cut for cut in cuts if cut)
        self.standing = self._standing(cuts)
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
        self.reached = self.loss

    def _standing(self, cuts: Sequence[tuple[tuple[int, int, int], ...]]) -> tuple[Candidate, ...]:
        """Return the replicas of the plan that still serve, in their roles, with their slots."""
        at_cut = self.evaluator.candidates.at_cut
        found = (
            at_cut(cut, Role(old.role), None if old.role == Role.PREFILL else old.slots)
            for cut, old in zip(cuts, self.plan.replicas, strict=True)
            if cut
        )
        return tuple(one for one in found if one is not None)

    def _outcome(self, replicas: tuple[Candidate, ...]) -> Outcome | None:
        """Return what *replicas* serve; None where that is nothing."""
        if not replicas or not is_whole(replicas):
            return None
        outcome = self.evaluator.outcome(replicas)
        return outcome if self.evaluator.key(outcome)[0] < IMPOSSIBLE else None

    def _as_routed(self, cuts: Sequence[tuple[tuple[int, int, int], ...]]) -> Outcome | None:
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

    def _broken(self, cuts: Sequence[tuple[tuple[int, int, int], ...]]) -> Iterator[tuple[int, ...]]:
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

    def answer(
        self, seed: int, stop: Stop | None, effort: Effort, began: float
    ) -> Replan | Infeasible:
        """Return the best of the three steps that is worth its price."""
        with Interruption() as interruption:
            routing = self._option("routing", self.routed if self.is_allowed else None)
            options = [routing]
            if self.terms.step != "routing":
                options.append(self._roles(routing))
            if self.terms.step == "layers":
                options.append(self._layers(options, seed, stop, effort))
        if interruption.happened:
            options += [None] * (STEPS.index(self.terms.step) + 1 - len(options))
        chosen = self._chosen(options)
        if chosen is None:
            if interruption.happened:
                raise KeyboardInterrupt
            return self._nothing(seed, stop)
        notes = (_INTERRUPTED,) if interruption.happened else ()
        return self._spoken(options, chosen, notes, seed, began)

    def _option(self, step: StepName, outcome: Outcome | None) -> _Option | None:
        if outcome is None:
            return None
        limit = self.terms.max_downtime_s
        way = self.ways.to(outcome, float("inf") if limit is None else limit)
        return _Option(
            step=step,
            outcome=outcome,
            way=way,
            gain=self.loss - self.losses.of(outcome),
            role_changes=len(role_changes_of(self.evaluator.costs, self.standing, outcome)),
        )

    def _roles(self, routing: _Option | None) -> _Option | None:
        """Return the best roles and slots of the replicas that stand."""
        if self.is_quiet and routing is not None:
            return replace(routing, step="roles")
        best = Standing(self.evaluator, self.cuts).best()
        is_allowed = best is not None and self.search.rules.is_obeyed(best)
        return self._option("roles", best if is_allowed else None)

    def _layers(
        self, known: Sequence[_Option | None], seed: int, stop: Stop | None, effort: Effort
    ) -> _Option | None:
        """Return the best plan that moves layers, within the limits."""
        devices = self.search.devices
        neighbours = Neighbours(self.evaluator, self.weights, self.old, devices, self.broken)
        mover = Mover(
            self.search, self.weights, self.losses, neighbours, self.routed, self.old, self.terms
        )
        names = changed_devices(self.found, self.terms.noise)
        hot = frozenset(d for d in devices if self.problem.devices[d].name in names)
        hot |= {d for own in self.broken for d in own}
        best = min((one for one in known if one is not None), key=lambda one: -one.gain, default=None)
        self.reached = self.loss if best is None else self.loss - best.gain
        is_idle = bool(neighbours.idle(self.standing))
        is_hopeless = self.reached <= self.losses.least or (self.is_quiet and not is_idle)
        if best is not None and is_hopeless:
            return replace(best, step="layers")
        starts = [self.standing if is_whole(self.standing) else ()]
        starts += [one.outcome.replicas for one in known if one is not None]
        for start in {name_of(one): one for one in starts if one}.values():
            mover.climb(start, hot, effort, lambda near: (near.total, near.num_bytes))
        if stop is not None or len(devices) <= _SMALL or not mover.found:
            self._searched(mover, hot, (seed, stop, effort))
        return self._best_way(mover, known, effort)

    def _searched(
        self, mover: Mover, hot: frozenset[int], how: tuple[int, Stop | None, Effort]
    ) -> None:
        """Let an ordinary search say where to go, on the devices that move least."""
        seed, stop, effort = how
        self.planner.run(stop or Stop(), seed)
        for outcome in self.planner.ranked(_NUM_FINALISTS)[: 2 * _NUM_STARTS]:
            start = self._named(outcome)
            mover.judge(start)
            if len(mover.found) < 1000:  # noqa: PLR2004 - enough is known by then
                mover.climb(start, hot, effort, lambda near: (near.total, near.num_bytes))

    def _named(self, outcome: Outcome) -> tuple[Candidate, ...]:
        """Return the replicas of *outcome* on those of equal devices that need the fewest bytes."""
        costs, cuts = self.evaluator.costs, [c.cut for c in outcome.replicas]
        others = named(costs, self.weights, self.old, cuts, self.evaluator.candidates.rows)
        found = [
            self.evaluator.candidates.at_cut(cut, c.role, c.slots)
            for cut, c in zip(others, outcome.replicas, strict=True)
        ]
        whole = tuple(one for one in found if one is not None)
        return whole if len(whole) == len(found) else outcome.replicas

    def _best_way(
        self,
        mover: Mover,
        known: Sequence[_Option | None],
        effort: Effort,
    ) -> _Option | None:
        """Return the option with the most gain less price; of those as good, the fewest bytes."""
        found = [one for one in mover.found if self._may(one)]
        for near in best_of(found, 2)[:1]:
            self._thrifty(mover, near, effort)
        found = [one for one in mover.found if self._may(one)]
        options = [one for near in self._finalists(found) if (one := self._within(near))]
        options += [replace(one, step="layers") for one in known if one is not None]
        best = max((one.net for one in options), default=0.0)
        slack = _AS_GOOD * max(best - (self.loss - self.reached), 0.0)
        near_best = [one for one in options if one.net >= best - slack]
        return min(near_best, key=lambda one: (one.way.num_bytes, -one.net), default=None)

    def _thrifty(self, mover: Mover, near: Near, effort: Effort) -> None:
        """Look for plans that move less than one that is good, and lose about as little."""
        roles = Standing(self.evaluator, [c.cut for c in near.outcome.replicas]).best()
        if roles is not None:
            mover.judge(roles.replicas)
        new = self.weights.held(c.cut for c in near.outcome.replicas)
        moving = {d for d, held in new.items() if self.weights.gained(self.old.get(d, NOTHING), held)}
        limit = near.loss + _AS_GOOD * max(self.reached - near.loss, 0.0)
        mover.climb(
            near.outcome.replicas,
            frozenset(moving),
            replace(effort, rounds=2, ideas=effort.ideas // 3),
            lambda one: (max(one.loss - limit, 0.0), one.num_bytes),
        )

    def _finalists(self, found: list[Near]) -> list[Near]:
        """Return the plans whose way is worked out: good ones, and such as move little for it."""
        some = best_of(found, _NUM_FINALISTS)
        if some:
            least = min(one.loss for one in found)
            close = least + _AS_GOOD * max(self.reached - least, 0.0)
            few = sorted((one for one in found if one.loss <= close), key=lambda o: o.num_bytes)
            some += few[:3]
        return list({id(one): one for one in some}.values())

    def _within(self, near: Near) -> _Option | None:
        option = self._option("layers", near.outcome)
        limit = self.terms.max_downtime_s
        if option is None or (limit is not None and option.way.downtime_s > limit):
            return None
        most = self.terms.max_moves
        return None if most is not None and option.way.num_moves > most else option

    def _may(self, near: Near) -> bool:
        """Whether a plan may be recommended: noise is a reason only for devices that were idle."""
        if not self.is_quiet:
            return True
        return not {d for c in near.outcome.replicas for d, _, _ in c.cut} <= set(self.old)

    def _chosen(self, options: Sequence[_Option | None]) -> _Option | None:
        """Return the dearest option that is worth more than the cheaper ones, price and all."""
        chosen: _Option | None = None
        for option in options:
            if option is None:
                continue
            if chosen is None:
                chosen = option
                continue
            gain, price = option.gain - chosen.gain, option.way.lost - chosen.way.lost
            loss = self.loss - chosen.gain
            terms = self.terms
            least = max(terms.hysteresis * loss, self.losses.least)
            if gain > least and gain > (1 + terms.hysteresis) * price:
                chosen = option
        return chosen

    def _nothing(self, seed: int, stop: Stop | None) -> Infeasible:
        """Say that nothing is possible, or that only the limits are in the way."""
        self.planner.run(stop or Stop(), seed)
        best = next(iter(self.planner.ranked(1)), None)
        if best is None:
            return self.planner.explain(seed)
        way = self.ways.to(self.evaluator.outcome(self._named(best)))
        given = [*self.terms.limits, *([f"step {self.terms.step}"] * (self.terms.step != "layers"))]
        raise InputError(
            f"What is left of the plan cannot serve within {' and '.join(given) or 'the limits'}: "
            f"the best plan takes {way.num_moves} moves of {way.num_bytes / 2**30:.3g} GiB, with "
            f"replicas down for {way.downtime_s:.3g} s; allow that, or leave the limit out."
        )

    def _spoken(
        self,
        options: Sequence[_Option | None],
        chosen: _Option,
        notes: tuple[str, ...],
        seed: int,
        began: float,
    ) -> Replan:
        """Return the answer in names and numbers."""
        costs = self.evaluator.costs
        changes = role_changes_of(costs, self.standing, chosen.outcome)
        moves = moves_of(costs, chosen.way)
        is_same = not moves and not changes and chosen.step != "roles"
        gained = chosen.gain > self.losses.least
        is_none = is_same and not gained
        plan = document(
            self.planner, chosen.outcome, Asked(seed=seed), said=Said(notes), began=began
        )
        return Replan(
            plan=plan,
            recommended="none" if is_none else chosen.step,
            why=self._why(options, chosen, is_none=is_none),
            before=_figures(self.before),
            offers=tuple(
                self._offer(step, option)
                for step, option in zip(STEPS, [*options, None, None], strict=False)
            ),
            moves=moves,
            way=way_of(costs, chosen.way),
            role_changes=changes,
            differences=self.found,
            horizon_s=self.terms.horizon_s,
            warnings=(*notes, *warnings_of(chosen.way, is_same_model=self.is_same_model)),
        )

    def _offer(self, step: StepName, option: _Option | None) -> Offer:
        if option is None:
            return Offer(step=step, figures=None)
        way = option.way
        return Offer(
            step=step,
            figures=_figures(option.outcome),
            gain=option.gain,
            price=way.lost,
            disturbed=way.disturbed,
            moves=way.num_moves,
            num_bytes=round(way.num_bytes),
            seconds=sum(leg.duration_s for leg in way.legs),
            downtime_s=way.downtime_s,
            role_changes=option.role_changes,
        )

    def _why(
        self, options: Sequence[_Option | None], chosen: _Option, *, is_none: bool
    ) -> str:
        """Return one sentence that says why this step and no other."""
        if is_none and self.is_quiet:
            return (
                f"Nothing changed by more than {100 * self.terms.noise:g} % in the devices that "
                "serve, and no idle one is worth its price: the plan stays as it is."
            )
        if is_none:
            return "No change gains more than it costs: the plan stays as it is."
        others = [one for one in options if one is not None]
        dearer = [one for one in others if STEPS.index(one.step) > STEPS.index(chosen.step)]
        gain = f"{chosen.step} gains {chosen.gain:.3g} request-seconds for {chosen.way.lost:.3g}"
        if not dearer:
            return f"{gain}."
        top = max(dearer, key=lambda one: one.net)
        if top.gain - chosen.gain <= self.losses.least:
            return f"{gain}; no dearer step gains more."
        return (
            f"{gain}; {top.step} would gain {top.gain:.3g} for {top.way.lost:.3g}, "
            "which is not worth it."
        )


def _figures(outcome: Outcome | None) -> Figures:
    if outcome is None:
        return Figures(waiting_time_s=None, capacity_per_s=0.0, latency_s=None, stable=False)
    is_stable = outcome.is_stable
    return Figures(
        waiting_time_s=outcome.waiting_time_s if is_stable else None,
        capacity_per_s=outcome.traffic.capacity_per_s,
        latency_s=outcome.latency_s if is_stable else None,
        stable=is_stable,
    )
