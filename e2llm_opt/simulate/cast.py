"""The replicas of a run: those of its plan, or of all plans that follow each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.problem import Role
from e2llm_opt.simulate.system import NO_RATE, Actor
from e2llm_opt.simulate.timeline import Moment, Shares, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.simulate.changes import Changes


class Cast(NamedTuple):
    """Who takes part in a run, and when."""

    actors: tuple[Actor, ...]
    names: tuple[str, ...]
    route_rates: Mapping[tuple[int, int], float]
    """Planned requests a second from PREFILL to DECODE actors, at the start."""
    timeline: Timeline | None
    costs: Costs
    """Whose rows the stages of all actors are."""


def costs_for(plans: Iterable[Plan], problem: Problem) -> Costs:
    """Return the costs of *problem* with every unit that *plans* form, whoever made them.

    Raises
    ------
    InputError
        When a plan names unknown devices.
    """
    units: set[tuple[int, ...]] = set()
    for plan in plans:
        rows = _rows(plan, problem)
        stages = [stage for replica in plan.replicas for stage in replica.stages]
        units.update(tuple(rows[name] for name in stage.devices) for stage in stages)
    joint = tuple(sorted(own for own in units if len(own) > 1))
    return costs_of(problem, joint) if joint else costs_of(problem)


def actors_of(plan: Plan, problem: Problem, costs: Costs) -> list[Actor]:
    """Return the replicas of *plan* as they run, by the rows of its :func:`costs_for`.

    Raises
    ------
    InputError
        When the plan names unknown devices.
    """
    rows, units = _rows(plan, problem), costs.units
    return [
        Actor(
            role=Role(replica.role),
            cut=tuple(
                (units.known(rows[name] for name in stage.devices), *stage.layers)
                for stage in replica.stages
            ),
            slots=replica.slots,
            spilled=replica.spilled,
            max_context_tokens=replica.max_context_tokens,
            rate_per_s=replica.arrival_rate_per_s,
        )
        for replica in plan.replicas
    ]


def _rows(plan: Plan, problem: Problem) -> dict[str, int]:
    """Return the row of each device, by name; those of *plan* must be known."""
    rows = {device.name: d for d, device in enumerate(problem.devices)}
    used = {name for replica in plan.replicas for stage in replica.stages for name in stage.devices}
    missing = used - rows.keys()
    if missing:
        raise InputError(f"the plan uses {', '.join(sorted(missing))}, which the inventory lacks.")
    return rows


def cast_of(
    plan: Plan, problem: Problem, changes: Changes | None, costs: Costs | None = None
) -> Cast:
    """Return the replicas of a run that begins with *plan*; *costs* where they are made already.

    A replica that several plans have - the same role, layers, slots and spilled layers - is one;
    others of later plans are called ``r0@600``, by the time from which their plan is used.

    Raises
    ------
    InputError
        When a plan names unknown devices.
    """
    later_plans = [] if changes is None else [later for _, later in changes.plans]
    costs = costs or costs_for([plan, *later_plans], problem)
    actors = actors_of(plan, problem, costs)
    names = [replica.id for replica in plan.replicas]
    rates = _route_rates(plan, range(len(actors)))
    if changes is None:
        return Cast(tuple(actors), tuple(names), rates, None, costs)
    rows = {_what(actor): r for r, actor in enumerate(actors)}
    rows_of = [tuple(range(len(actors)))]
    for at_s, later in changes.plans:
        for replica, actor in zip(later.replicas, actors_of(later, problem, costs), strict=True):
            if _what(actor) not in rows:
                rows[_what(actor)] = len(actors)
                actors.append(actor)
                names.append(f"{replica.id}@{at_s:g}")
        rows_of.append(tuple(rows[_what(actor)] for actor in actors_of(later, problem, costs)))
    switches = [
        Moment(at_s, "switch", own, _shares(later, own, len(actors)))
        for (at_s, later), own in zip(changes.plans, rows_of[1:], strict=True)
    ]
    moments = sorted([*_failures(changes, problem), *switches], key=lambda moment: moment.at_s)
    timeline = Timeline(
        begin=rows_of[0],
        moments=tuple(moments),
        drains=changes.drain,
        load_bytes_per_s=changes.load_bytes_per_s,
        start_s=changes.start_s,
    )
    return Cast(tuple(actors), tuple(names), rates, timeline, costs)


def _what(actor: Actor) -> Actor:
    """Return what makes a replica the same in another plan: all but its planned rate."""
    return replace(actor, rate_per_s=1.0)


def _failures(changes: Changes, problem: Problem) -> Iterator[Moment]:
    rows = {device.name: d for d, device in enumerate(problem.devices)}
    for failure in sorted(changes.failures, key=lambda own: own.at_s):
        yield Moment(failure.at_s, "fail", (rows[failure.device],))
        if failure.recover_s is not None:
            yield Moment(failure.recover_s, "recover", (rows[failure.device],))


def _route_rates(plan: Plan, rows: range | tuple[int, ...]) -> dict[tuple[int, int], float]:
    index = {replica.id: r for replica, r in zip(plan.replicas, rows, strict=True)}
    return {(index[r.prefill], index[r.decode]): r.rate_per_s for r in plan.routes}


def _shares(plan: Plan, rows: tuple[int, ...], num: int) -> Shares:
    """Return the shares of the routing ``plan`` from a plan on; others have next to none."""
    shares = Shares(np.full(num, NO_RATE), np.full((num, num), NO_RATE))
    for replica, r in zip(plan.replicas, rows, strict=True):
        shares.replicas[r] = max(replica.arrival_rate_per_s, NO_RATE)
    for pair, rate in _route_rates(plan, rows).items():
        shares.routes[pair] = max(rate, NO_RATE)
    return shares
