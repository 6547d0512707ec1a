"""The event loop equals a plain SimPy model, request by request."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Problem, Role
from e2llm_opt.runtime import MixedPause
from e2llm_opt.simulate.simulate import Actor, Simulation, run_actors
from e2llm_opt.workload.arrivals import draw_arrivals
from e2llm_opt.workload.workload import Lengths
from tests.oracles import World
from tests.simulate.simpy_model import Model, Replica, Request
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.workload.trace import Trace

ROUTINGS = ("shortest-wait", "jsq", "plan")


@dataclass(frozen=True)
class Case:
    problem: Problem
    replicas: tuple[Replica, ...]
    arrivals: Trace
    routing: str
    mean_context: bool
    route_rates: dict[tuple[int, int], float]

    def plain(self) -> list[Request]:
        requests = [
            Request(arrival, prompt, output)
            for arrival, prompt, output in zip(
                self.arrivals.arrival_s.tolist(),
                self.arrivals.prompt_tokens.tolist(),
                self.arrivals.output_tokens.tolist(),
                strict=True,
            )
        ]
        model = Model(
            World(self.problem),
            self.replicas,
            routing=self.routing,
            mean_context=self.mean_context,
            route_rates=self.route_rates,
        )
        model.run(requests)
        return requests

    def fast(self) -> Simulation:
        world = World(self.problem)
        actors = [
            Actor(
                role=Role(own.role),
                cut=own.cut,
                slots=own.slots,
                spilled=tuple(
                    tuple(sorted(world.spilled(own.cut, j, own.slots)))
                    for j in range(len(own.cut))
                ),
                max_context_tokens=own.max_context,
                rate_per_s=own.rate,
            )
            for own in self.replicas
        ]
        return run_actors(
            costs_of(self.problem),
            actors,
            self.arrivals,
            route_rates=self.route_rates,
            how=(self.routing, self.mean_context, 0),
        )


def without_private_links(inventory: Inventory) -> Inventory:
    """The oracle's KV paths know no links between two devices of one host."""
    links = tuple(
        link
        for link in inventory.links
        if inventory.endpoint(link.ends[0]) != inventory.endpoint(link.ends[1])
    )
    return replace(inventory, links=links)


@st.composite
def cases(draw: st.DrawFn, *, roles: str = "any", routings: Sequence[str] = ROUTINGS) -> Case:
    problem = draw(problems(max_devices=5, max_layers=6, is_linked=True, has_host_ram=True))
    num_layers = problem.model.num_layers
    facts = problem.facts
    if draw(st.booleans()):
        kinds = st.sampled_from(("sliding_attention", "full_attention"))
        facts = replace(
            facts,
            sliding_window=draw(st.sampled_from((300, 80, 700))),
            layer_types=tuple(draw(kinds) for _ in range(num_layers)),
        )
    facts = replace(facts, layer_attention_flops=draw(st.sampled_from((0.0, 1e6, 3e7))))
    engine = replace(
        problem.runtime,
        mixed_pause=draw(st.sampled_from(MixedPause)),
        has_disaggregation=True,
    )
    load = replace(
        problem.workload,
        prompt=Lengths(mean=draw(st.sampled_from((300.0, 64.0, 1100.0))), cv=problem.workload.prompt.cv),
        output=Lengths(mean=draw(st.sampled_from((20.0, 5.0, 60.0))), cv=problem.workload.output.cv),
    )
    problem = replace(
        problem,
        inventory=without_private_links(problem.inventory),
        facts=facts,
        runtime=engine,
        workload=load,
    )
    rows = draw(st.permutations(range(len(problem.devices))))
    replicas = draw(_replicas(problem, rows, roles))
    decodes = [own for own in replicas if own.role != "PREFILL"]
    world = World(problem)
    rate = sum(_rate(world, own) for own in decodes) * draw(st.sampled_from((0.7, 0.3, 1.2)))
    arrivals = draw_arrivals(
        load,
        draw(st.integers(1, 40)),
        rate_per_s=rate,
        pattern=draw(st.sampled_from(("poisson", "fixed", "bursty"))),
        seed=draw(st.integers(0, 1000)),
    )
    shares = st.sampled_from((1.0, 0.3, 2.5))
    rates = {
        (p, d): draw(shares)
        for p, source in enumerate(replicas)
        for d, target in enumerate(replicas)
        if source.role == "PREFILL" and target.role == "DECODE"
    }
    return Case(
        problem=problem,
        replicas=replicas,
        arrivals=arrivals,
        routing=draw(st.sampled_from(tuple(routings))),
        mean_context=draw(st.booleans()),
        route_rates=rates,
    )


def _rate(world: World, own: Replica) -> float:
    load = world.problem.workload
    full = load.output.mean * world.rounds(own.cut, own.slots, own.slots)
    if own.role == "MIXED":
        full += own.slots * world.pause(own.cut, load.prompt.mean, own.slots)
    return own.slots / full


@st.composite
def _replicas(
    draw: st.DrawFn, problem: Problem, rows: Sequence[int], roles: str
) -> tuple[Replica, ...]:
    groups: list[list[int]] = []
    for d in rows:
        if groups and draw(st.booleans()) and len(groups[-1]) < problem.model.num_layers:
            groups[-1].append(d)
        else:
            groups.append([d])
    found = []
    for i, group in enumerate(groups):
        inner = range(1, problem.model.num_layers)
        marks = draw(st.sets(st.sampled_from(inner), min_size=len(group) - 1, max_size=len(group) - 1)) if len(group) > 1 else set()
        bounds = [0, *sorted(marks), problem.model.num_layers]
        cut = tuple((d, bounds[j], bounds[j + 1]) for j, d in enumerate(group))
        if roles == "MIXED" or len(groups) == 1:
            role = "MIXED"
        elif roles == "P/D" and i < 2:
            role = ("PREFILL", "DECODE")[i]
        elif roles == "P/D":
            role = draw(st.sampled_from(("PREFILL", "DECODE")))
        else:
            role = draw(st.sampled_from(("MIXED", "PREFILL", "DECODE")))
        found.append(
            Replica(
                role=role,
                cut=cut,
                slots=1 if role == "PREFILL" else draw(st.integers(1, problem.runtime.max_slots)),
                max_context=draw(st.sampled_from((2000, 500, 10_000))),
                rate=draw(st.sampled_from((1.0, 0.4, 3.0))),
            )
        )
    if roles == "P/D":
        assume(len(groups) > 1)
    has = {own.role for own in found}
    assume("MIXED" in has or {"PREFILL", "DECODE"} <= has)
    return tuple(found)


def assert_equal(case: Case) -> None:
    fast, plain = case.fast(), case.plain()
    names = ("entry", "decoder", "first_token", "wait_prefill", "wait_kv", "wait_decode", "join", "finish")
    expected = {name: np.array([getattr(r, name) for r in plain], dtype=float) for name in names}
    arrival = case.arrivals.arrival_s
    served = expected["entry"] >= 0
    assert fast.entry.tolist() == expected["entry"].tolist()
    assert fast.decoder.tolist() == expected["decoder"].tolist()
    scale = np.nanmax(expected["finish"], initial=1.0)
    for have, need in (
        (fast.wait_prefill_s, expected["wait_prefill"]),
        (fast.wait_kv_s, expected["wait_kv"]),
        (fast.wait_decode_s, expected["wait_decode"]),
        (fast.ttft_s, expected["first_token"] - arrival),
        (fast.latency_s, expected["finish"] - arrival),
        (fast.tpot_s, (expected["finish"] - expected["join"]) / case.arrivals.output_tokens),
    ):
        np.testing.assert_allclose(have[served], need[served], rtol=1e-9, atol=1e-9 * scale)


@settings(max_examples=100, deadline=None)
@given(cases(roles="P/D", routings=("plan",)))
def test_prefill_and_decode_pools(case: Case) -> None:
    assert_equal(case)


@settings(max_examples=100, deadline=None)
@given(cases(roles="MIXED", routings=("plan",)))
def test_mixed_replicas(case: Case) -> None:
    assert_equal(case)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_every_request_is_served_as_by_the_plain_model(case: Case) -> None:
    assert_equal(case)
