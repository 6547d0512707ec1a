"""The partitioner against all orders, subsets and cuts, tried one by one."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import e2llm_opt
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.model.facts import ModelFacts
from e2llm_opt.partition.partition import best_cut, demand_of
from e2llm_opt.problem import Problem, Role
from e2llm_opt.runtime import runtime
from e2llm_opt.workload.workload import Lengths, Workload
from tests.oracles import World, slowest
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.partition.partition import Partition

Goal = Literal["bottleneck", "sum"]
ROLES = ("PREFILL", "DECODE", "MIXED")
GOALS: tuple[Goal, ...] = ("bottleneck", "sum")
MB = 1e6
ONLY = 3
"""The position of a stage that is first and last."""

loads = st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))
"""(slots, micro-batches)."""


def value_of(cut: Partition | None, criterion: Goal) -> float:
    if cut is None:
        return math.inf
    return cut.latency_s if criterion == "sum" else cut.bottleneck_s


def compare(problem: Problem, role: str, load: tuple[int, int], criterion: Goal) -> None:
    rows = range(len(problem.devices))
    slots, micro_batches = load
    found = e2llm_opt.partition(
        problem, rows, role, slots=slots, micro_batches=micro_batches, criterion=criterion
    )
    best = World(problem).best_value(rows, role, slots, micro_batches, criterion)
    assert value_of(found, criterion) == pytest.approx(best, rel=1e-9)


@given(
    problems(min_devices=2, max_devices=5, is_linked=True, is_tight=True),
    st.sampled_from(ROLES),
    loads,
    st.sampled_from(GOALS),
)
def test_the_cut_is_as_good_as_the_best_of_all_orders_and_cuts(
    problem: Problem, role: str, load: tuple[int, int], criterion: Goal
) -> None:
    compare(problem, role, load, criterion)


@given(
    problems(min_devices=3, max_devices=5, is_tight=True, topology="star"),
    st.sampled_from(ROLES),
    loads,
    st.sampled_from(GOALS),
)
def test_the_cut_is_the_best_where_every_hop_passes_the_head(
    problem: Problem, role: str, load: tuple[int, int], criterion: Goal
) -> None:
    compare(problem, role, load, criterion)


@given(
    problems(min_devices=1, max_devices=4, is_linked=True, is_tight=True, has_host_ram=True),
    st.sampled_from(ROLES),
    loads,
    st.sampled_from(GOALS),
)
def test_the_cut_is_the_best_where_weights_spill_to_host_ram(
    problem: Problem, role: str, load: tuple[int, int], criterion: Goal
) -> None:
    compare(problem, role, load, criterion)


@given(
    problems(max_devices=4, is_linked=True),
    st.sampled_from(ROLES),
    loads,
    st.sampled_from(GOALS),
    st.dictionaries(st.integers(0, 3), st.integers(1, 4), max_size=2),
    st.booleans(),
)
def test_the_cut_is_the_best_of_those_that_the_constraints_allow(
    problem: Problem,
    role: str,
    load: tuple[int, int],
    criterion: Goal,
    fixed: dict[int, int],
    uses_all: bool,
) -> None:
    most = problem.model.num_layers
    layers = {device.name: fixed[d] for d, device in enumerate(problem.devices) if d in fixed}
    if any(num > most for num in layers.values()):
        return
    limits = Constraints(layers=layers, use_all_devices=uses_all)
    compare(replace(problem, constraints=limits), role, load, criterion)


@given(problems(max_devices=4, is_tight=True), loads, st.sampled_from(Role))
def test_any_cut_will_do_where_only_feasibility_is_asked(
    problem: Problem, load: tuple[int, int], role: Role
) -> None:
    costs, rows = costs_of(problem), tuple(range(len(problem.devices)))
    cut = best_cut(costs, rows, demand_of(costs, role, *load), "any")
    best = World(problem).best_value(rows, role, *load, "sum")
    assert (cut is None) == (best == math.inf)
    if cut is not None:
        times = World(problem).times(cut, role, *load)
        assert World(problem).fits(cut, load[0])
        assert math.isfinite(sum(map(sum, times)))


@given(problems(max_devices=4, is_linked=True), st.sampled_from(("PREFILL", "DECODE")), st.data())
def test_the_least_sum_within_a_limit_has_no_slower_stage(
    problem: Problem, role: str, data: st.DataObject
) -> None:
    costs, world, rows = costs_of(problem), World(problem), tuple(range(len(problem.devices)))
    slow = sorted(
        {slowest(world.times(cut, role, 2, 1)) for cut in world.cuts(rows) if world.fits(cut, 2)}
    )
    limit = data.draw(st.sampled_from(slow[:6] or [1.0])) * 1.0001
    demand = demand_of(costs, Role(role), 2, 1)
    cut = best_cut(costs, rows, demand, "sum", limit)
    totals = [
        sum(map(sum, world.times(other, role, 2, 1)))
        for other in world.cuts(rows)
        if world.fits(other, 2) and slowest(world.times(other, role, 2, 1)) <= limit
    ]
    if cut is None:
        assert not totals
        return
    times = world.times(cut, role, 2, 1)
    assert slowest(times) <= limit
    assert sum(map(sum, times)) == pytest.approx(min(totals), rel=1e-9)


@given(problems(max_devices=5), st.sampled_from(ROLES), loads)
def test_the_least_sum_is_exact_where_some_devices_have_no_way_to_others(
    problem: Problem, role: str, load: tuple[int, int]
) -> None:
    compare(problem, role, load, "sum")


@given(problems(max_devices=5, is_tight=True), loads)
def test_the_prefill_bottleneck_is_exact_where_some_devices_have_no_way_to_others(
    problem: Problem, load: tuple[int, int]
) -> None:
    compare(problem, "PREFILL", load, "bottleneck")


@given(problems(max_devices=5, is_tight=True), st.sampled_from(("DECODE", "MIXED")), loads)
def test_a_decode_bottleneck_is_only_taken_from_cuts_with_a_way_back(
    problem: Problem, role: str, load: tuple[int, int]
) -> None:
    compare(problem, role, load, "bottleneck")


@given(
    problems(max_devices=6, is_linked=True),
    st.sampled_from(ROLES),
    loads,
    st.sampled_from(GOALS),
)
def test_stages_are_contiguous_fit_and_reproduce_the_figures(
    problem: Problem, role: str, load: tuple[int, int], criterion: Goal
) -> None:
    slots, micro_batches = load
    cut = e2llm_opt.partition(
        problem,
        range(len(problem.devices)),
        role,
        slots=slots,
        micro_batches=micro_batches,
        criterion=criterion,
    )
    if cut is None:
        return
    world = World(problem)
    reached = 0
    for _, start, stop in cut.stages:
        assert start == reached < stop
        reached = stop
    assert reached == problem.model.num_layers
    assert len({d for d, _, _ in cut.stages}) == len(cut.stages)
    allowed = problem.model.allowed_stage_starts
    assert allowed is None or {start for _, start, _ in cut.stages} <= set(allowed)
    assert world.fits(cut.stages, slots)
    times = world.times(cut.stages, role, slots, micro_batches)
    assert cut.bottleneck_s == pytest.approx(slowest(times), rel=1e-9)
    assert cut.latency_s == pytest.approx(sum(map(sum, times)), rel=1e-9)


# ---------------------------------------------------------------- worlds made to be hard


def unlike(num_layers: int, weights: tuple[float, ...], speeds: Mapping[str, float]) -> Problem:
    """Return devices that all pairs of links tell apart, with layers of these MB."""
    names = sorted({name for pair in speeds for name in pair.split("-")})
    return Problem(
        inventory=Inventory(
            devices=tuple(
                Device(
                    name=name,
                    memory_bytes=(500 + 170 * i) * MB,
                    memory_bandwidth_bytes_per_s=(20 + 13 * i) * 1e9,
                    fp16_flop_per_s=1e13,
                    layer_overhead_s=0.0,
                )
                for i, name in enumerate(names)
            ),
            links=tuple(
                Link(
                    ends=(pair.split("-")[0], pair.split("-")[1]),
                    forward_bytes_per_s=speed * MB,
                    backward_bytes_per_s=speed * MB / 3,
                    latency_s=1e-4,
                )
                for pair, speed in speeds.items()
            ),
        ),
        facts=ModelFacts(
            name="unlike",
            num_hidden_layers=num_layers,
            hidden_size=16384,
            vocab_size=1000,
            layer_weight_bytes=tuple(value * MB for value in weights),
            kv_bytes_per_token=tuple(1000.0 * (1 + i % 3) for i in range(num_layers)),
            layer_flops_per_token=1e8,
            embedding_bytes=30 * MB,
            head_bytes=60 * MB,
        ),
        runtime=runtime("generic", overhead_bytes=20 * MB, hop_overhead_s=0.0, max_slots=8),
        workload=Workload(prompt=Lengths(mean=512.0), output=Lengths(mean=100.0)),
    )


FOUR = unlike(
    7,
    (150.0, 10.0, 240.0, 60.0, 10.0, 300.0, 120.0),
    {"a-b": 80, "a-c": 3, "a-d": 40, "b-c": 9, "b-d": 200, "c-d": 25},
)


@pytest.mark.parametrize("criterion", GOALS)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("head", ["first", "last"])
@pytest.mark.parametrize("topology", ["ring", "star"])
def test_unlike_layers_over_unlike_hops_are_cut_exactly(
    topology: Literal["ring", "star"], head: Literal["first", "last"], role: str, criterion: Goal
) -> None:
    """The farthest prefix alone is not exact here: a light layer may serve as a relay."""
    problem = replace(FOUR, runtime=replace(FOUR.runtime, topology=topology, head=head))
    for slots, micro_batches in ((1, 1), (4, 2), (8, 4)):
        compare(problem, role, (slots, micro_batches), criterion)


@given(
    weights=st.lists(st.sampled_from((40.0, 250.0, 10.0, 400.0)), min_size=2, max_size=8),
    speeds=st.lists(st.sampled_from((20, 2, 100, 600)), min_size=10, max_size=10),
    role=st.sampled_from(ROLES),
    criterion=st.sampled_from(GOALS),
    starts=st.none() | st.sets(st.integers(0, 7)),
)
def test_five_distinct_devices_with_unlike_layers_and_hops_are_cut_exactly(
    weights: list[float], speeds: list[int], role: str, criterion: Goal, starts: set[int] | None
) -> None:
    pairs = ("a-b", "a-c", "a-d", "a-e", "b-c", "b-d", "b-e", "c-d", "c-e", "d-e")
    problem = unlike(len(weights), tuple(weights), dict(zip(pairs, speeds, strict=True)))
    if starts is not None:
        allowed = tuple(start for start in starts if start < len(weights))
        facts = replace(problem.facts, allowed_stage_starts=allowed)
        problem = replace(problem, facts=facts)
    compare(problem, role, (2, 2), criterion)


@pytest.mark.parametrize("kind", ["speed", "latency"])
@pytest.mark.parametrize("hops", list(permutations((1, 4, 40))))
@pytest.mark.parametrize("is_turned", [False, True])
def test_the_way_back_is_part_of_the_sum_where_logits_travel_it(
    kind: str, hops: tuple[int, int, int], is_turned: bool
) -> None:
    """Three devices hold the layers only together, and no two hops are alike."""
    pairs = ("b-a", "c-a", "c-b") if is_turned else ("a-b", "a-c", "b-c")
    speeds = dict(zip(pairs, (200.0 / hop for hop in hops), strict=True))
    problem = unlike(6, (200.0,) * 6, speeds)
    if kind == "latency":
        links = tuple(
            replace(link, forward_bytes_per_s=1e8, backward_bytes_per_s=1e8, latency_s=hop / 100)
            for link, hop in zip(problem.inventory.links, hops, strict=True)
        )
        problem = replace(problem, inventory=replace(problem.inventory, links=links))
    problem = replace(
        problem,
        facts=replace(problem.facts, vocab_size=200_000, hidden_size=1000),
        runtime=replace(problem.runtime, sends_logits=True),
    )
    compare(problem, "DECODE", (1, 1), "sum")


@pytest.mark.parametrize("criterion", GOALS)
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("is_alike", [False, True])
def test_stages_in_the_middle_that_must_spill_are_timed_as_spilled(
    is_alike: bool, role: str, criterion: Goal
) -> None:
    """Each device holds one layer, or three with most of them in host RAM."""
    weights = (200.0,) * 7 if is_alike else (200.0, 140.0, 260.0, 200.0, 100.0, 240.0, 180.0)
    problem = unlike(7, weights, {"a-b": 80, "a-c": 3, "a-d": 40, "b-c": 9, "b-d": 20, "c-d": 25})
    machines = tuple(
        replace(
            device,
            memory_bytes=(320 + 30 * i) * MB,
            host_memory_bytes=4e9,
            host_bandwidth_bytes_per_s=(1 + 3 * i) * 1e9,
            bus_bytes_per_s=(2 + 3 * i) * 1e9,
        )
        for i, device in enumerate(problem.devices)
    )
    share = (0.6,) * 7 if is_alike else (0.6, 0.7, 0.2, 0.5, 0.8, 0.6, 0.6)
    spillable = tuple(weight * MB * part for weight, part in zip(weights, share, strict=True))
    problem = replace(
        problem,
        inventory=replace(problem.inventory, devices=machines),
        facts=replace(problem.facts, layer_spillable_bytes=spillable, hidden_size=1000),
    )
    compare(problem, role, (1, 1), criterion)
    compare(problem, role, (6, 2), criterion)


def test_a_relay_needs_a_layer_of_its_own() -> None:
    """Even with alike layers: leaving the last stage as much as it can take leaves none between."""
    fast = Device(
        name="fast",
        memory_bytes=500 * MB,
        memory_bandwidth_bytes_per_s=1e11,
        fp16_flop_per_s=1e13,
        prefill_efficiency=1.0,
        decode_efficiency=1.0,
        layer_overhead_s=0.0,
        host="h",
        host_bus_bytes_per_s=2.5e7,
    )
    slow = replace(fast, name="x", memory_bytes=1e9, fp16_flop_per_s=1e12, host_bus_bytes_per_s=1e9)
    problem = Problem(
        inventory=Inventory(devices=(fast, slow, replace(slow, name="y"))),
        facts=replace(
            FOUR.facts,
            num_hidden_layers=3,
            hidden_size=1000,
            layer_weight_bytes=100 * MB,
            kv_bytes_per_token=1000.0,
            embedding_bytes=0.0,
            head_bytes=850 * MB,
        ),
        runtime=runtime("generic", overhead_bytes=0.0, hop_overhead_s=0.0, head="first"),
        workload=Workload(prompt=Lengths(mean=100.0), output=Lengths(mean=100.0)),
    )
    compare(problem, "PREFILL", (1, 1), "bottleneck")


@pytest.mark.parametrize("load", [(1, 1), (4, 1), (5, 2), (6, 6), (8, 3)])
@pytest.mark.parametrize("role", ROLES)
def test_a_demand_is_what_the_role_asks_of_one_device(role: str, load: tuple[int, int]) -> None:
    slots, micro_batches = load
    problem = replace(FOUR, workload=replace(FOUR.workload, prompt=Lengths(mean=1300.0)))
    world, costs = World(problem), costs_of(problem)
    demand = demand_of(costs, Role(role), slots, micro_batches)
    for d in range(4):
        ((stage, _),) = world.times(((d, 0, 7),), role, slots, micro_batches)
        assert demand.time[d, 7] + demand.extra[d, ONLY] == pytest.approx(stage, rel=1e-9)
    weight = 100.0 * micro_batches / (slots * world.chunks) if role == "MIXED" else 1.0
    batch = math.ceil(slots / micro_batches)
    sent = {
        "PREFILL": [(world.forward_bytes(1300.0 / world.chunks), 1.0)],
        "DECODE": [(world.forward_bytes(batch), 1.0)],
    }
    sent["MIXED"] = [*sent["PREFILL"], (world.forward_bytes(batch), weight)]
    assert list(demand.hops) == [pytest.approx(pair) for pair in sent[role]]
    back = (world.back_bytes(batch), weight) if role != "PREFILL" else (0.0, 0.0)
    assert demand.back == pytest.approx(back)


@pytest.mark.parametrize(
    ("rows", "slots", "micro_batches", "criterion", "words"),
    [
        ((), 1, 1, "sum", "devices must be different rows"),
        ((0, 0), 1, 1, "sum", "devices must be different rows"),
        ((0, 4), 1, 1, "sum", "0 … 3"),
        ((-1,), 1, 1, "sum", "devices must be different rows"),
        ((0,), 0, 1, "sum", "slots and micro_batches must be positive"),
        ((0,), 1, 0, "sum", "slots and micro_batches must be positive"),
        ((0,), 2, 3, "sum", "micro_batches at most slots"),
        ((0,), 1, 1, "fastest", "criterion must be"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    rows: tuple[int, ...], slots: int, micro_batches: int, criterion: Goal, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        e2llm_opt.partition(
            FOUR, rows, "DECODE", slots=slots, micro_batches=micro_batches, criterion=criterion
        )
