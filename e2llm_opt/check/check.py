"""The second opinion on a plan: recompute everything, list every violation with need and have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from e2llm_opt.check import intervals, rules, stated
from e2llm_opt.check.formulas import Seat, embedding_stage, head_stage
from e2llm_opt.check.given import GivenRoute
from e2llm_opt.check.paths import Ways
from e2llm_opt.check.pipeline import Pipeline
from e2llm_opt.check.reading import read_plan
from e2llm_opt.check.spill import possible, spill_rules
from e2llm_opt.check.traffic import KVTransfer, kv_transfer, link_loads, request_bytes
from e2llm_opt.check.verdict import Report, Violation
from e2llm_opt.plan.plan import Route
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from e2llm_opt.check.given import GivenPlan, GivenReplica
    from e2llm_opt.check.paths import Card, Wire
    from e2llm_opt.check.verdict import ReplicaFigures
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem


def check(plan: Plan | Mapping[str, Any], problem: Problem) -> Report:
    """Recompute a plan from the design page alone and say what is wrong with it.

    Parameters
    ----------
    plan
        A plan, its JSON document, or one that a person wrote: only ``replicas[].role`` and
        ``replicas[].stages[].{device, layers}`` are needed. Numbers are checked where stated;
        slots and micro-batches that are not stated are chosen as well as possible, and spilled
        layers as few as memory needs.
    problem
        What the plan is an answer to.

    Returns
    -------
    Report
        Violations and all recomputed figures.

    Raises
    ------
    InputError
        When the document is no plan, with every fault by key path.
    """
    given = read_plan(plan)
    violations = list(rules.plan_rules(given, problem))
    ways = Ways(problem.inventory, problem.runtime)
    replicas = [_recompute(replica, problem, ways) for replica in given.replicas]
    for replica in replicas:
        violations += _replica_violations(replica, problem)
    violations += _interval_violations(replicas, problem, ways)
    violations += intervals.plan_violations(given)
    routes = list(_routes(given, replicas, violations))
    links = link_loads(ways, _planned_flows(replicas, routes))
    violations += stated.load_violations(links)
    figures = tuple(replica.figures for replica in replicas if replica.figures is not None)
    capacity = _capacity(figures) if len(figures) == len(replicas) else None
    violations += stated.capacity_violations(
        given,
        capacity,
        lambda: _linked_capacity(ways, replicas, routes),
        problem.workload.rate_per_s,
    )
    violations += stated.bound_violations(given)
    violations += _scenario_violations(given, problem, ways)
    return Report(
        violations=tuple(violations),
        replicas=figures,
        routes=tuple(route.answer() for route in routes),
        links=links,
        capacity_per_s=capacity,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recomputed:
    """A replica with what could be recomputed of it."""

    given: GivenReplica
    pipeline: Pipeline | None
    slots: int
    micro_batches: int
    figures: ReplicaFigures | None

    @property
    def arrival_rate_per_s(self) -> float:
        """Planned rate [requests/s]; 0 where none is stated."""
        return self.given.stated.get("arrival_rate_per_s", 0.0)

    def request_bytes(self) -> Mapping[Wire | Card, float]:
        """Return what one request puts on each link direction [bytes]."""
        if self.pipeline is None or self.figures is None:
            return {}
        return request_bytes(self.pipeline, self.slots, self.micro_batches)


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecomputedRoute:
    given: GivenRoute
    transfer: KVTransfer

    @property
    def rate_per_s(self) -> float:
        return self.given.rate_per_s or 0.0

    def answer(self) -> Route:
        return Route(
            prefill=self.given.prefill,
            decode=self.given.decode,
            rate_per_s=self.rate_per_s,
            kv_transfer_s=self.transfer.exposed_s,
            kv_bytes=round(self.transfer.num_bytes),
        )


def _recompute(given: GivenReplica, problem: Problem, ways: Ways) -> _Recomputed:
    """Recompute a replica as far as its devices are known, covered and connected."""
    seats = _seats(given, problem)
    slots = given.slots or problem.workload.slots or 1
    if given.role is Role.PREFILL:
        slots = 1
    if seats is None:
        return _Recomputed(given=given, pipeline=None, slots=slots, micro_batches=1, figures=None)
    pipeline = Pipeline(problem=problem, ways=ways, role=given.role, seats=seats)
    is_whole = not list(rules.layer_rules(given, problem)) and not list(pipeline.unconnected())
    if not is_whole:
        return _Recomputed(
            given=given,
            pipeline=pipeline.spilling(slots),
            slots=slots,
            micro_batches=1,
            figures=None,
        )
    slots = slots if given.slots else pipeline.choose_slots()
    pipeline = pipeline.spilling(slots)
    micro_batches = given.micro_batches or 0
    if not pipeline.decodes:
        micro_batches = 1
    elif not stated.is_possible(micro_batches, pipeline, slots):
        micro_batches = pipeline.best_micro_batches(slots)
    return _Recomputed(
        given=given,
        pipeline=pipeline,
        slots=slots,
        micro_batches=micro_batches,
        figures=pipeline.figures(given.id, slots, micro_batches),
    )


def _interval_violations(
    replicas: list[_Recomputed], problem: Problem, ways: Ways
) -> Iterator[Violation]:
    stating = [one for one in replicas if one.figures and intervals.states_intervals(one.given)]
    others = intervals.shifted(problem) if stating else ()
    for one in stating:
        # How many micro-batches are best depends on the speeds.
        numbers = {k: v for k, v in one.given.stated.items() if k != "decode.micro_batches"}
        given = replace(one.given, slots=one.slots, stated=numbers)
        found = [_recompute(given, other, ways).figures for other in others]
        versions = [figures for figures in (one.figures, *found) if figures is not None]
        if len(versions) == len(found) + 1:
            yield from intervals.interval_violations(one.given, versions)


def _scenario_violations(given: GivenPlan, problem: Problem, ways: Ways) -> Iterator[Violation]:
    """Yield what is wrong with the capacity that the plan states in each scenario."""
    known = {one.name: one for one in problem.workload.scenarios}
    for stating in given.scenarios:
        scenario = known.get(stating.name)
        if scenario is None:
            what, need = "a scenario that the workload does not have", ", ".join(known) or "none"
            yield Violation(what=what, need=need, have=stating.name)
            continue
        there = replace(problem, workload=problem.workload.in_scenario(scenario))
        # Only slots and layers are the same in all scenarios.
        bare = [replace(one, stated={}, intervals={}) for one in given.replicas]
        found = [_recompute(one, there, ways) for one in bare]
        figures = tuple(one.figures for one in found if one.figures is not None)
        if len(figures) < len(found):
            continue
        own = replace(given, capacity_per_s=stating.capacity_per_s, is_stable=stating.is_stable)
        routes = list(_routes(replace(given, routes=None), found, []))
        linked = partial(_linked_capacity, ways, found, routes)
        rate = scenario.rate_per_s
        for one in stated.capacity_violations(own, _capacity(figures), linked, rate):
            yield replace(one, what=f"scenario {scenario.name}: {one.what}")


def _seats(given: GivenReplica, problem: Problem) -> tuple[Seat, ...] | None:
    """Find the devices of a replica; None where one is unknown or layers lie out of range."""
    devices = {device.name: device for device in problem.devices}
    num_stages = len(given.stages)
    if any(s.device not in devices or s.stop > problem.model.num_layers for s in given.stages):
        return None
    return tuple(
        Seat(
            device=devices[stage.device],
            start=stage.start,
            stop=stage.stop,
            has_embedding=index == embedding_stage(problem.runtime, num_stages),
            has_head=index == head_stage(problem.runtime, num_stages),
            spilled=possible(problem.model, stage, devices[stage.device]),
            spills_as_needed=stage.spilled_layers is None,
        )
        for index, stage in enumerate(given.stages)
    )


def _replica_violations(replica: _Recomputed, problem: Problem) -> Iterator[Violation]:
    given, pipeline, slots = replica.given, replica.pipeline, replica.slots
    yield from rules.layer_rules(given, problem)
    yield from rules.stage_rules(given, problem)
    yield from spill_rules(given, problem)
    yield from rules.slot_rules(given, problem)
    if pipeline is None:
        return
    yield from rules.memory_rules(given.id, pipeline, slots)
    yield from rules.connection_rules(given.id, pipeline)
    if replica.figures is None:
        return
    yield from stated.speed_violations(replica.figures, problem)
    yield from stated.figure_violations(given, replica.figures)
    yield from stated.context_violations(given, pipeline, slots)
    yield from stated.micro_batch_violations(given, pipeline, slots)


def _routes(
    given: GivenPlan, replicas: list[_Recomputed], violations: list[Violation]
) -> Iterator[_RecomputedRoute]:
    """Yield the plan's routes, or every possible one where it names none; note what is wrong."""
    by_role = {role: {r.given.id: r for r in replicas if r.given.role is role} for role in Role}
    sources, targets = by_role[Role.PREFILL], by_role[Role.DECODE]
    joined: set[str] = set()
    for route in _all_routes(sources, targets) if given.routes is None else given.routes:
        name = f"route {route.prefill} to {route.decode}"
        source, target = sources.get(route.prefill), targets.get(route.decode)
        if source is None or target is None:
            need, have = "a PREFILL and a DECODE replica", f"{route.prefill}, {route.decode}"
            violations.append(Violation(what=name, need=need, have=have))
            continue
        if (
            source.pipeline is None
            or target.pipeline is None
            or not (source.figures and target.figures)
        ):
            joined |= {route.prefill, route.decode}
            continue
        transfer = kv_transfer(source.pipeline, target.pipeline)
        if transfer is not None:
            joined |= {route.prefill, route.decode}
            violations += stated.route_violations(route, transfer)
            yield _RecomputedRoute(given=route, transfer=transfer)
        elif given.routes is not None:
            what = f"{name}: no way for the KV cache"
            violations.append(Violation(what=what, need="a way", have="none"))
    if sources and targets:
        violations += [
            Violation(what=f"{name}: no route for its KV cache", need="a route", have="none")
            for name in (*sources, *targets)
            if name not in joined
        ]


def _all_routes(
    sources: Mapping[str, _Recomputed], targets: Mapping[str, _Recomputed]
) -> list[GivenRoute]:
    return [
        GivenRoute(prefill=source, decode=target, rate_per_s=None, stated={})
        for source in sources
        for target in targets
    ]


def _planned_flows(
    replicas: list[_Recomputed], routes: list[_RecomputedRoute]
) -> list[tuple[float, Mapping[Wire | Card, float]]]:
    """Return (rate, bytes on each wire) of everything at the planned rates."""
    return [(r.arrival_rate_per_s, r.request_bytes()) for r in replicas] + [
        (route.rate_per_s, route.transfer.carried) for route in routes
    ]


def _linked_capacity(
    ways: Ways, replicas: list[_Recomputed], routes: list[_RecomputedRoute]
) -> float:
    """Return the most requests a second that replicas, links and cards can carry together.

    A linear program: one flow for each MIXED replica and each route; no replica serves more than
    its service rate, no link or card carries more than its bandwidth.
    """
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import, seldom needed

    mixed = [r for r in replicas if r.given.role is Role.MIXED]
    one = {r.given.id: r.request_bytes() for r in replicas}
    flows = [((r.given.id,), [one[r.given.id]]) for r in mixed] + [
        (ends, [one[ends[0]], one[ends[1]], route.transfer.carried])
        for route in routes
        for ends in [(route.given.prefill, route.given.decode)]
    ]
    rows, bounds = [], []
    for r in replicas:
        rows.append([1.0 if r.given.id in ends else 0.0 for ends, _ in flows])
        bounds.append(r.figures.service_rate_per_s if r.figures else 0.0)
    for carrier in sorted({c for _, parts in flows for part in parts for c in part}, key=str):
        speed = ways.speed(carrier)
        rows.append([sum(part.get(carrier, 0.0) for part in parts) / speed for _, parts in flows])
        bounds.append(1.0)
    if not flows:
        return 0.0
    found = linprog([-1.0] * len(flows), A_ub=rows, b_ub=bounds, method="highs")
    return -float(found.fun or 0.0)


def _capacity(figures: tuple[ReplicaFigures, ...]) -> float:
    """Return min(Σ PREFILL, Σ DECODE) + Σ MIXED [requests/s]."""
    pool = {
        role: sum(own.service_rate_per_s for own in figures if own.role == role) for role in Role
    }
    return min(pool[Role.PREFILL], pool[Role.DECODE]) + pool[Role.MIXED]
