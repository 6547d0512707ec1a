"""Moves, steps and role changes in names and numbers, as the answer has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.replan.answer import Move, RoleChange, WayStep

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.replan.way import Leg, Way
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Outcome


def moves_of(costs: Costs, way: Way) -> tuple[Move, ...]:
    """Return the moves of *way*, in order."""
    name = [device.name for device in costs.problem.devices]
    return tuple(
        Move(
            device=name[one.device],
            layers=one.layers,
            tables=one.tables,
            source=None if one.source is None else name[one.source],
            num_bytes=round(one.num_bytes),
            seconds=seconds,
            order=order,
        )
        for order, leg in enumerate(way.legs, start=1)
        for one, seconds in zip(leg.fetches, leg.seconds, strict=True)
    )


def way_of(costs: Costs, way: Way) -> tuple[WayStep, ...]:
    """Return the steps of *way* with who serves meanwhile."""
    return tuple(_step(costs, order, leg) for order, leg in enumerate(way.legs, start=1))


def _step(costs: Costs, order: int, leg: Leg) -> WayStep:
    serving = () if leg.serving is None else leg.serving.replicas
    return WayStep(
        order=order,
        seconds=leg.duration_s,
        stopped=tuple(_names(costs, one) for one in leg.stopped),
        started=tuple(_names(costs, one) for one in leg.started),
        serving=tuple((str(one.role), _names(costs, one)) for one in serving),
        capacity_per_s=0.0 if leg.serving is None else leg.serving.traffic.capacity_per_s,
        stable=leg.is_stable,
    )


def role_changes_of(
    costs: Costs, standing: Sequence[Candidate], after: Outcome
) -> tuple[RoleChange, ...]:
    """Return which replicas keep their layers and play another role, or with other slots."""
    then = {one.cut: one for one in standing}
    return tuple(
        RoleChange(
            devices=_names(costs, one),
            old_role=str(then[one.cut].role),
            new_role=str(one.role),
            old_slots=then[one.cut].slots,
            new_slots=one.slots,
        )
        for one in after.replicas
        if one.cut in then and (then[one.cut].role, then[one.cut].slots) != (one.role, one.slots)
    )


def warnings_of(way: Way, outcome: Outcome, *, is_same_model: bool) -> Iterator[str]:
    """Yield what a reader must know of *way* and of where it leads."""
    if not outcome.is_stable:
        yield (
            f"the new plan cannot keep up, either: it serves {outcome.traffic.capacity_per_s:.3g} "
            "requests/s, less than arrive; add devices or lower the rate"
        )
    if not is_same_model:
        yield (
            "the old plan serves other weights: no layer of it can be kept, and all weights of the "
            "new plan are sent or loaded"
        )
    for order, leg in enumerate(way.legs, start=1):
        if leg.duration_s > 0 and leg.serving is None:
            yield f"step {order}: nothing serves for {leg.duration_s:.3g} s"
        elif leg.duration_s > 0 and not leg.is_stable:
            capacity = leg.serving.traffic.capacity_per_s if leg.serving else 0.0
            yield (
                f"step {order}: what serves meanwhile cannot keep up ({capacity:.3g} requests/s) "
                f"for {leg.duration_s:.3g} s; requests queue"
            )
    if any(one.source is None for leg in way.legs for one in leg.fetches):
        yield (
            "some layers are on no device that is left: they come from wherever the model file is, "
            "taken to be behind the slowest link of the device (--weights-on says where it is)"
        )


def _names(costs: Costs, replica: Candidate) -> tuple[str, ...]:
    return tuple(costs.problem.devices[d].name for d, _, _ in replica.cut)
