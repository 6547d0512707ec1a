"""From a plan and a changed problem to the next plan: routing, roles, layers, and which pays."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.replan.answer import Figures, Offer, Replan
from e2llm_opt.replan.differences import differences
from e2llm_opt.replan.layers import Layers
from e2llm_opt.replan.mover import Effort
from e2llm_opt.replan.option import Option, option_of
from e2llm_opt.replan.spoken import moves_of, role_changes_of, warnings_of, way_of
from e2llm_opt.replan.terms import ALL_DEVICES, STEPS, ReplanTerms
from e2llm_opt.replan.today import Today
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import Asked, Said, document
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from e2llm_opt.plan.infeasible import Infeasible
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.replan.answer import Difference
    from e2llm_opt.replan.terms import StepName
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback

    Options = dict[StepName, Option]

_INTERRUPTED = "replan was interrupted: this is the best found until then"
_MOST_NAMED = 5


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
        ``weights_on`` says; when devices of the old plan share the layers of a stage.

    Notes
    -----
    Deterministic, as no clock decides, unless *stop* has a time limit.
    """
    began = time.monotonic()
    terms = terms or ReplanTerms()
    _refuse_unknown(terms, problem)
    _refuse_shared(old_plan)
    found = differences(old_plan, problem)
    if not found and old_plan.problem.inventory_sha256 == inventory_sha256(problem.inventory):
        return _unchanged(old_plan, terms)
    if problem.constraints.tensor_parallel == "auto" and problem.runtime.tensor_parallel != "no":
        off = replace(problem.constraints, tensor_parallel="off")
        problem = replace(problem, constraints=off)  # whole layers are moved
    today = Today(old_plan, problem, terms, found, progress)
    options: Options = {}
    is_whole = _fill(options, today, terms, found, (seed, stop, effort or Effort()))
    if not options:
        if not is_whole:
            raise KeyboardInterrupt
        return _nothing(today, terms, seed, stop)
    notes = () if is_whole else (_INTERRUPTED,)
    chosen = _chosen(options, today, terms)
    plan = document(today.planner, chosen.outcome, Asked(seed=seed), said=Said(notes), began=began)
    return _answer(today, terms, found, options, (chosen, plan, notes))


def _refuse_unknown(terms: ReplanTerms, problem: Problem) -> None:
    names = [device.name for device in problem.devices]
    if terms.weights_on is not None and terms.weights_on not in {ALL_DEVICES, *names}:
        right = f"{ALL_DEVICES}, or the name of a device: {', '.join(names[:_MOST_NAMED])} …"
        wrong = f"no device is called '{terms.weights_on}'"
        raise InputError([Fault(path="weights_on", wrong=wrong, right=right)])


def _refuse_shared(plan: Plan) -> None:
    """Refuse a plan with stages on several devices: only whole layers are moved."""
    for replica in plan.replicas:
        for stage in replica.stages:
            if len(stage.devices) > 1:
                wrong = f"{stage.label} share the layers of a stage (tensor_parallel)"
                right = "plan anew, or start from a plan made with --tensor-parallel off"
                raise InputError([Fault(path=f"replicas.{replica.id}", wrong=wrong, right=right)])


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


def _fill(
    options: Options,
    today: Today,
    terms: ReplanTerms,
    found: tuple[Difference, ...],
    how: tuple[int, Stop | None, Effort],
) -> bool:
    """Put into *options* what each step reaches, the cheapest first; whether nobody interrupted."""
    if today.routed is not None and today.is_allowed:
        options["routing"] = option_of(today, terms, "routing", today.routed)
    if terms.step == "routing":
        return True
    layers, (seed, stop, effort) = Layers(today, terms, found), how
    roles = _roles(today, terms, layers, effort, options.get("routing"))
    if roles is not None:
        options["roles"] = roles
    if terms.step == "roles":
        return not layers.is_interrupted
    best = layers.best(tuple(options.values()), seed, stop, effort)
    if best is not None:
        options["layers"] = best
    return not layers.is_interrupted


def _roles(
    today: Today, terms: ReplanTerms, layers: Layers, effort: Effort, routing: Option | None
) -> Option | None:
    """Return the best roles and slots of the replicas that stand; noise is no reason for others."""
    found: Option | None = None
    if routing is None or not today.is_quiet:
        best = layers.roles(effort)
        if best is not None:
            found = option_of(today, terms, "roles", best)
    if routing is not None and (found is None or found.net <= routing.net):
        return replace(routing, step="roles")
    return found


def _chosen(options: Options, today: Today, terms: ReplanTerms) -> Option:
    """Return the dearest option that is worth more than the cheaper ones, price and all."""
    chosen, *others = options.values()
    for option in others:
        gain, price = option.gain - chosen.gain, option.way.lost - chosen.way.lost
        least = max(terms.hysteresis * (today.loss - chosen.gain), today.losses.least)
        if gain > least and gain > (1 + terms.hysteresis) * price:
            chosen = option
    return chosen


def _nothing(today: Today, terms: ReplanTerms, seed: int, stop: Stop | None) -> Infeasible:
    """Say that nothing is possible; an error where only the limits are in the way."""
    planner = today.planner
    planner.run(stop or Stop(), seed)
    best = next(iter(planner.ranked(1)), None)
    if best is None:
        return planner.explain(seed)
    replicas = Layers(today, ReplanTerms(), ()).named(best)
    way = today.ways.to(today.evaluator.outcome(replicas))
    step = [] if terms.step == "layers" else [f"step {terms.step}"]
    raise InputError(
        f"What is left of the plan cannot serve as the constraints ask within "
        f"{' and '.join([*terms.limits, *step]) or 'the limits'}: the best plan takes "
        f"{way.num_moves} moves, {way.num_bytes / GIB:.3g} GiB in all, with replicas down for "
        f"{way.downtime_s:.3g} s; allow that, or leave a limit or a constraint out."
    )


def _answer(
    today: Today,
    terms: ReplanTerms,
    found: tuple[Difference, ...],
    options: Options,
    said: tuple[Option, Plan, tuple[str, ...]],
) -> Replan:
    """Return the answer in names and numbers."""
    costs, (chosen, plan, notes) = today.evaluator.costs, said
    changes, moves = (
        role_changes_of(costs, today.standing, chosen.outcome),
        moves_of(costs, chosen.way),
    )
    is_same = not chosen.way.legs and not changes
    is_none = is_same and chosen.gain <= today.losses.least
    return Replan(
        plan=plan,
        recommended="none" if is_none else chosen.step,
        why=_why(today, terms, options, None if is_none else chosen),
        before=_figures(today.before),
        offers=tuple(_offer(step, options.get(step)) for step in STEPS),
        moves=moves,
        way=way_of(costs, chosen.way),
        role_changes=changes,
        differences=found,
        horizon_s=terms.horizon_s,
        warnings=(
            *notes,
            *warnings_of(chosen.way, chosen.outcome, is_same_model=today.is_same_model),
        ),
    )


def _offer(step: StepName, option: Option | None) -> Offer:
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


def _why(today: Today, terms: ReplanTerms, options: Options, chosen: Option | None) -> str:
    """Return one sentence that says why this step and no other; None: nothing changes."""
    if chosen is None and today.is_quiet:
        return (
            f"Nothing that serves changed by more than {100 * terms.noise:g} %: the plan stays as "
            "it is (--noise 0 looks all the same)."
        )
    if chosen is None:
        return "No change gains enough for its price: the plan stays as it is."
    text = (
        f"Step {chosen.step} gains {chosen.gain:.3g} request-seconds at a price of "
        f"{chosen.way.lost:.3g}"
    )
    dearer = [one for one in options.values() if STEPS.index(one.step) > STEPS.index(chosen.step)]
    top = max(dearer, key=lambda one: one.net, default=None)
    if top is None:
        return f"{text}."
    if top.gain - chosen.gain <= today.losses.least:
        return f"{text}; no dearer step gains noticeably more."
    return (
        f"{text}; {top.step} would gain {top.gain:.3g} at {top.way.lost:.3g}, which is too little "
        "more."
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
