"""Random small systems with requests, run by the event loop and by the plain model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Problem, Role
from e2llm_opt.runtime import MixedPause
from e2llm_opt.simulate.simulate import Simulation, Simulator
from e2llm_opt.simulate.system import Actor
from e2llm_opt.workload.arrivals import Pattern, draw_arrivals
from e2llm_opt.workload.workload import Lengths
from tests.oracles import World
from tests.simulate.simpy_model import Model, Request
from tests.simulate.times import Replica
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.simulate.simulate import Routing
    from e2llm_opt.workload.trace import Trace

ROUTINGS: tuple[Routing, ...] = ("shortest-wait", "jsq", "plan")


@dataclass(frozen=True)
class Case:
    """Replicas of a problem and what arrives there."""

    problem: Problem
    replicas: tuple[Replica, ...]
    arrivals: Trace
    routing: Routing
    mean_context: bool
    route_rates: dict[tuple[int, int], float]

    def plain(self) -> list[Request]:
        found = requests_of(self.arrivals)
        model = Model(
            World(self.problem),
            self.replicas,
            routing=self.routing,
            mean_context=self.mean_context,
            route_rates=self.route_rates,
        )
        model.run(found)
        return found

    def fast(self) -> Simulation:
        world = World(self.problem)
        return Simulator(costs_of(self.problem), self.arrivals).run(
            [actor_of(world, own) for own in self.replicas],
            route_rates=self.route_rates,
            how=(self.routing, self.mean_context, 0),
        )


def requests_of(arrivals: Trace) -> list[Request]:
    columns = arrivals.arrival_s, arrivals.prompt_tokens, arrivals.output_tokens
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Request(at, prompt, output) for at, prompt, output in rows]


def actor_of(world: World, own: Replica) -> Actor:
    spilled = [world.spilled(own.cut, j, own.slots) for j in range(len(own.cut))]
    return Actor(
        role=Role(own.role),
        cut=own.cut,
        slots=own.slots,
        spilled=tuple(tuple(sorted(layers)) for layers in spilled),
        max_context_tokens=own.max_context,
        rate_per_s=own.rate,
    )


def assert_equal(fast: Simulation, plain: Sequence[Request]) -> None:
    """Every request has the same replicas, and times but for rounding."""

    def times(name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return np.array([getattr(request, name) for request in plain], dtype=np.float64)

    assert fast.entry.tolist() == [request.entry for request in plain]
    assert fast.decoder.tolist() == [request.decoder for request in plain]
    arrival, served = times("arrival"), fast.entry >= 0
    expected = (
        (fast.wait_prefill_s, times("wait_prefill")),
        (fast.wait_kv_s, times("wait_kv")),
        (fast.wait_decode_s, times("wait_decode")),
        (fast.ttft_s, times("first_token") - arrival),
        (fast.latency_s, times("finish") - arrival),
        (fast.tpot_s * times("output"), times("finish") - times("join")),
    )
    assert np.isnan(fast.waiting_time_s[~served]).all()
    last = np.nanmax(times("finish"), initial=1.0)
    for have, need in expected:
        np.testing.assert_allclose(have[served], need[served], rtol=1e-9, atol=1e-12 * last)


# ---------------------------------------------------------------- random cases


@st.composite
def cases(draw: st.DrawFn, *, roles: str = "any", routings: Sequence[Routing] = ROUTINGS) -> Case:
    """Draw a case; *roles* are any, MIXED only, or P/D only."""
    problem = draw(_problems())
    rows = draw(st.permutations(range(len(problem.devices))))
    replicas = draw(replicas_of(problem, rows, roles))
    world, load = World(problem), draw(st.sampled_from((0.7, 0.3, 1.2)))
    arrivals = draw_arrivals(
        problem.workload,
        draw(st.integers(1, 40)),
        rate_per_s=load * sum(_rate(world, own) for own in replicas if own.role != "PREFILL"),
        pattern=draw(st.sampled_from(patterns)),
        seed=draw(st.integers(0, 1000)),
    )
    rates = st.sampled_from((1.0, 0.3, 2.5))
    return Case(
        problem=problem,
        replicas=replicas,
        arrivals=arrivals,
        routing=draw(st.sampled_from(tuple(routings))),
        mean_context=draw(st.booleans()),
        route_rates={
            (p, d): draw(rates)
            for p, source in enumerate(replicas)
            for d, target in enumerate(replicas)
            if source.role == "PREFILL" and target.role == "DECODE"
        },
    )


patterns: tuple[Pattern, ...] = ("poisson", "fixed", "bursty")


@st.composite
def _problems(draw: st.DrawFn) -> Problem:
    """Draw a problem whose contexts matter: large caches, windows that fill, slow attention."""
    found = draw(problems(max_devices=5, max_layers=6, is_linked=True, has_host_ram=True))
    cv = found.workload.prompt.cv
    prompt = Lengths(mean=draw(st.sampled_from((300.0, 64.0, 1100.0))), cv=cv)
    output = Lengths(mean=draw(st.sampled_from((60.0, 5.0, 150.0))), cv=cv)
    larger = draw(st.sampled_from((1.0, 20.0)))
    kinds = st.sampled_from(("sliding_attention", "full_attention"))
    facts = replace(
        found.facts,
        layer_attention_flops=draw(st.sampled_from((0.0, 1e7, 1e8, 1e9))),
        kv_bytes_per_token=tuple(larger * own for own in found.model.layer_kv_bytes_per_token),
        sliding_window=int(prompt.mean + draw(st.sampled_from((0.5, 2.0, -0.1))) * output.mean),
        layer_types=tuple(draw(kinds) for _ in range(found.facts.num_hidden_layers)),
    )
    return replace(
        found,
        inventory=without_private_links(found.inventory),
        facts=facts,
        runtime=replace(
            found.runtime,
            mixed_pause=draw(st.sampled_from(MixedPause)),
            has_disaggregation=True,
        ),
        workload=replace(found.workload, prompt=prompt, output=output),
    )


def without_private_links(inventory: Inventory) -> Inventory:
    """Leave out links between two devices of one host, which the oracle's KV paths do not know."""
    links = [
        link
        for link in inventory.links
        if inventory.endpoint(link.ends[0]) != inventory.endpoint(link.ends[1])
    ]
    return replace(inventory, links=tuple(links))


def _rate(world: World, own: Replica) -> float:
    load = world.problem.workload
    full = load.output.mean * world.rounds(own.cut, own.slots, own.slots)
    if own.role == "MIXED":
        full += own.slots * world.pause(own.cut, load.prompt.mean, own.slots)
    return own.slots / full


@st.composite
def replicas_of(
    draw: st.DrawFn, problem: Problem, rows: Sequence[int], roles: str
) -> tuple[Replica, ...]:
    """Draw replicas of any cut; memory is no matter here, but for what spills."""
    num_layers = problem.model.num_layers
    tokens = problem.workload.prompt.mean + problem.workload.output.mean
    groups: list[list[int]] = []
    for d in rows:
        is_next: bool = draw(st.booleans())
        if groups and is_next and len(groups[-1]) < num_layers:
            groups[-1].append(d)
        else:
            groups.append([d])
    names = {"any": ("MIXED", "PREFILL", "DECODE"), "MIXED": ("MIXED",)}
    drawn = [draw(st.sampled_from(names.get(roles, ("PREFILL", "DECODE")))) for _ in groups]
    if roles != "MIXED" and len(groups) > 1:
        drawn[:2] = draw(st.sampled_from((drawn[:2], ["PREFILL", "DECODE"])))
    assume("MIXED" in drawn or {"PREFILL", "DECODE"} <= set(drawn))
    return tuple(
        Replica(
            role=role,
            cut=draw(_cuts(group, num_layers)),
            slots=1 if role == "PREFILL" else draw(st.integers(1, problem.runtime.max_slots)),
            max_context=int(tokens * draw(st.sampled_from((20.0, 1.5, 0.7)))),
            rate=draw(st.sampled_from((1.0, 0.4, 3.0))),
        )
        for role, group in zip(drawn, groups, strict=True)
    )


@st.composite
def _cuts(
    draw: st.DrawFn, group: Sequence[int], num_layers: int
) -> tuple[tuple[int, int, int], ...]:
    starts = draw(st.permutations(range(1, num_layers)))[: len(group) - 1]
    bounds = [0, *sorted(starts), num_layers]
    return tuple((d, bounds[j], bounds[j + 1]) for j, d in enumerate(group))
