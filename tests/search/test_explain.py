"""Every sentence of ``explain`` is true: recomputed from the plan, or by the checker."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given

import e2llm_opt
from e2llm_opt import Problem
from e2llm_opt.plan.plan import Plan
from e2llm_opt.search.phrases import named, number_text, percent, size_text, time_text
from e2llm_opt.search.stop import Stop
from e2llm_opt.solve import NUM_DRAWN, NUM_SIMULATED, plan
from e2llm_opt.units import GIB, MIB
from tests.oracles import World
from tests.strategies import problems

if TYPE_CHECKING:
    from e2llm_opt.check.verdict import Report
    from e2llm_opt.plan.plan import Replica

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.yaml"))
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "alone": {"workload": {"rate_per_s": 0}},
    "overloaded": {"workload": {"rate_per_s": 1000}},
    "asked": {"workload": {"slots": 2}},
    "free": {"workload": {"min_tokens_per_s": 0, "slo": {}}},
    "generic": {"runtime": "generic"},
    "apart": {"runtime": "generic", "constraints": {"roles": "disaggregated"}},
}
LONG = "campus-fog"
"""The example whose search takes longest."""
CASES = [(name, variant) for name in EXAMPLES if name != LONG for variant in VARIANTS]
ABOUT = (
    *("the model in {},", "Limits: {} is the", "Limits: in {} ", "Slots: {} has "),
    *("a token of {} from", "each token of {}.", "; {} would serve"),
)
SIZES = {"GiB": GIB, "MiB": MIB}


@cache
def made(name: str, variant: str) -> tuple[Problem, Plan] | None:
    problem = Problem.load(ROOT / "examples" / f"{name}.yaml", **VARIANTS[variant])
    found = plan(problem, stop=Stop(max_evaluations=40, stagnation=2))
    return (problem, found) if isinstance(found, Plan) else None


def verified(problem: Problem, found: Plan) -> set[str]:
    """Check each sentence; return how they begin."""
    begins = [line.partition(": ")[0] for line in found.explain]
    assert begins == sorted(begins, key=list(CHECKS).index), "each topic once, in this order"
    assert len(set(begins)) == len(begins)
    assert {"Groups", "Roles", "Limits"} <= set(begins)
    for begin, line in zip(begins, found.explain, strict=True):
        assert line.endswith(".")
        CHECKS[begin](problem, found, line)
    return set(begins)


def focus(found: Plan, line: str) -> Replica:
    """Return the replica that a sentence is about."""
    (about,) = (
        replica
        for replica in found.replicas
        if any(words.format(replica.id) in line for words in ABOUT)
    )
    return about


def groups_are_true(problem: Problem, found: Plan, line: str) -> None:
    if "no token crosses a link" in line:
        assert all(len(replica.stages) == 1 for replica in found.replicas)
        devices = [replica.stages[0].device for replica in found.replicas]
        assert named(devices) in line
        return
    world, rows = World(problem), {device.name: d for d, device in enumerate(problem.devices)}
    whole = problem.model.num_layers
    if "share every layer" in line:
        assert all(len(replica.stages) == 1 for replica in found.replicas)
        for replica in found.replicas:
            names = replica.stages[0].devices
            does = "share every layer" if len(names) > 1 else "holds the whole model"
            assert f"{named(list(names))} {does}" in line
            could = "could" if world.fits(((rows[names[0]], 0, whole),), 1) else "could not"
            assert len(names) == 1 or f"in {replica.id}, one of them {could} hold" in line
        return
    stages = focus(found, line).stages
    devices = [stage.label for stage in stages]
    assert line.startswith(f"Groups: {named(devices)} share the model")
    if any(stage.tensor_parallel for stage in stages):
        return
    able = [name for name in devices if world.fits(((rows[name], 0, whole),), 1)]
    if "of them can hold it alone" in line:
        assert not able
    else:
        assert named(able) in line or ("each of them" in line and able == devices)


def comparisons_are_true(_: Problem, found: Plan, line: str) -> None:
    for other in found.alternatives:
        told_elsewhere = {"all MIXED", "best disaggregated", "plan for the mean load"}
        assert (f"{other.name}: {other.why_not}" in line) != (other.name in told_elsewhere)


def roles_are_true(problem: Problem, found: Plan, line: str) -> None:
    others = {other.name: other for other in found.alternatives}
    roles = {replica.role for replica in found.replicas}
    if "as asked for" in line:
        assert problem.constraints.roles != "auto"
        assert problem.constraints.roles in line
    elif "cannot move a KV cache" in line:
        assert not problem.runtime.has_disaggregation
    elif "one replica must do both" in line:
        assert (problem.constraints.replicas, roles) == (1, {"MIXED"})
    elif line.startswith("Roles: all MIXED"):
        assert roles == {"MIXED"}
        rival = others.get("best disaggregated")
        assert rival is None or f"best disaggregated: {rival.why_not}" in line
        assert (rival is None) == ("no plan with PREFILL and DECODE" in line)
        if "would pay above" in line:
            assert rival is not None
            assert rival.break_even_bandwidth_mbit_s is not None
            assert number_text(rival.break_even_bandwidth_mbit_s) in line
    else:
        for replica in found.replicas:
            assert len(found.replicas) > 4 or f"{replica.id}" in line
        assert all(f" {role}" in line for role in roles)
        assert "all MIXED" not in others or f"all MIXED: {others['all MIXED'].why_not}" in line


def limits_are_true(problem: Problem, found: Plan, line: str) -> None:
    replica = focus(found, line)
    if problem.workload.rate_per_s > 0:
        assert replica.utilisation == max(r.utilisation for r in found.replicas)
        assert f"is the busiest ({percent(replica.utilisation)})" in line
    is_prefill = replica.role == "PREFILL"
    times = [s.prefill_time_s if is_prefill else s.decode_time_s for s in replica.stages]
    slowest = replica.stages[times.index(max(times))]
    assert slowest.label in line
    assert f"{time_text(max(times))}" in line
    if len(replica.stages) == 1:
        return
    assert f"[{slowest.layers[0]}, {slowest.layers[1]})" in line
    hops = [stage.next_hop for stage in replica.stages if stage.next_hop]
    whole = sum(times) + sum(h.prefill_time_s if is_prefill else h.decode_time_s for h in hops)
    assert f"of the {time_text(whole)} that a {'prompt' if is_prefill else 'token'}" in line


def with_slots(problem: Problem, replica: Replica, slots: int) -> Report:
    """Ask the checker about one replica of the plan with other slots."""
    stages = [
        {"device": s.device, "tensor_parallel": s.tensor_parallel, "layers": list(s.layers)}
        for s in replica.stages
    ]
    document = {"replicas": [{"role": replica.role, "slots": slots, "stages": stages}]}
    return e2llm_opt.check(document, problem)


def rate(report: Report) -> float:
    return report.replicas[0].service_rate_per_s


def broken(report: Report) -> set[str]:
    return {violation.what for violation in report.violations}


def is_about_memory(what: str) -> bool:
    return "memory exceeded" in what or "host RAM exceeded" in what


def lone(problem: Problem) -> Problem:
    """Return *problem* without what a single replica of the plan need not obey."""
    return replace(
        problem,
        constraints=e2llm_opt.Constraints(),
        workload=replace(problem.workload, slots=None),
    )


def slots_are_true(problem: Problem, found: Plan, line: str) -> None:
    replica = focus(found, line)
    assert f"has {replica.slots}, because" in line
    if "workload.slots" in line:
        assert problem.workload.slots == replica.slots
        return
    if "max_slots" in line:
        assert problem.runtime.max_slots == replica.slots
        return
    now = with_slots(lone(problem), replica, replica.slots)
    more = with_slots(lone(problem), replica, replica.slots + 1)
    new = {v.what: v for v in more.violations if v not in now.violations}
    if "memory" in line:
        lacking = {v.device for v in more.violations if is_about_memory(v.what)}
        assert lacking
        assert named([s.label for s in replica.stages if s.device in lacking]) in line
    elif "too slow" in line:
        assert not any(map(is_about_memory, new)), new
        assert any("tokens" in what or "tpot" in what for what in new), new
    elif "longest request" in line:
        contexts = [report.replicas[0].max_context_tokens for report in (more, now)]
        assert None in contexts or contexts == sorted(contexts, key=lambda tokens: tokens or 0)
        assert rate(more) > rate(now)
    else:
        assert not any(map(is_about_memory, new)), new
        assert rate(more) <= rate(now) * (1 + 1e-6)


def helps_are_true(problem: Problem, found: Plan, line: str) -> None:
    if "moving KV caches" in line:
        moving = re.search(r"makes up (.+) of the (.+) that requests wait", line)
        assert moving
        assert moving[2] == time_text(found.predicted.waiting_time_s or 0.0)
        arriving = sum(r.arrival_rate_per_s for r in found.replicas if r.role != "DECODE")
        each = sum(r.rate_per_s * r.kv_transfer_s for r in found.routes) / arriving
        assert moving[1] == time_text(each)
        assert each > 0.25 * (found.predicted.waiting_time_s or 0.0)
    elif "faster link" in line:
        perfect_links_are_true(problem, found, line)
    elif "cheaper hops" in line:
        replica = focus(found, line)
        cheap = replace(problem.runtime, hop_overhead_s=0.0, bus_hop_overhead_s=0.0)
        report = with_slots(lone(replace(problem, runtime=cheap)), replica, replica.slots)
        assert report.replicas[0].decode is not None
        assert report.replicas[0].decode.tpot_s < replica.decode.tpot_s
        assert time_text(replica.decode.tpot_s) in line
    elif "softer limit" in line:
        replica = focus(found, line)
        free = replace(problem.workload, min_tokens_per_s=0.0, slo_tpot_s=None)
        free_problem = lone(replace(problem, workload=free))
        more = with_slots(free_problem, replica, replica.slots + 1)
        assert not any(map(is_about_memory, broken(more)))
        assert rate(more) > rate(with_slots(free_problem, replica, replica.slots))
    else:
        memory_helps(problem, found, line)


def perfect_links_are_true(problem: Problem, found: Plan, line: str) -> None:
    """No link at all between two devices of one host is the nearest thing to a perfect one."""
    parts = re.search(r"from (.+) to (.+) \(now .+\); .* from (.+) to (.+)\.$", line)
    assert parts
    replica = next(r for r in found.replicas if f"token of {r.id} " in line)
    assert parts[3] == time_text(replica.decode.tpot_s)
    stage = next(s for s in replica.stages if s.device == parts[1])
    assert stage.next_hop is not None
    assert stage.next_hop.device == parts[2]
    times = {
        s.device: (s.decode_time_s, s.next_hop.decode_time_s) for s in replica.stages if s.next_hop
    }
    devices = {device.name: device for device in problem.devices}
    is_local = devices[parts[1]].host == devices[parts[2]].host
    fixed = problem.runtime.bus_hop_overhead_s if is_local else problem.runtime.hop_overhead_s
    if problem.runtime.topology == "ring":
        times[parts[1]] = (times[parts[1]][0], fixed)
        last = replica.stages[-1].device
        busy = [a + (b if name != last else 0.0) for name, (a, b) in times.items()]
        m = replica.decode.micro_batches
        round_s = max(sum(a + b for a, b in times.values()), m * max(busy))
        assert parts[4] == time_text(round_s)
    assert problem.runtime.topology != "ring" or round_s < 0.95 * replica.decode.tpot_s


def memory_helps(problem: Problem, found: Plan, line: str) -> None:
    replica = focus(found, line)
    wanted = re.findall(r"([\d.e+]+) (GiB|MiB) more on ([^;, ]+)", line)
    each = re.search(r"([\d.e+]+) (GiB|MiB) more on each of ([^;]+);", line)
    if each:
        names = re.split(", | and ", each[3])
        wanted = [(each[1], each[2], name) for name in names]
    assert wanted
    for factor, fits in ((1.02, True), (0.98, False)):
        extra = {name: factor * float(size) * SIZES[unit] for size, unit, name in wanted}
        devices = tuple(
            replace(device, memory_bytes=device.memory_bytes + extra.get(device.name, 0.0))
            for device in problem.devices
        )
        larger = replace(problem, inventory=replace(problem.inventory, devices=devices))
        more = with_slots(lone(larger), replica, replica.slots + 1)
        is_held = not any(map(is_about_memory, broken(more)))
        assert is_held is fits or len(wanted) > 3 or each
        if fits:
            assert rate(more) > replica.service_rate_per_s


def bounds_are_true(_: Problem, found: Plan, line: str) -> None:
    bound, capacity = found.bound, found.predicted.capacity_per_s
    assert bound.capacity_per_s is not None
    assert bound.gap is not None
    assert f"more than {number_text(bound.capacity_per_s)} requests/s" in line
    assert bound.capacity_per_s >= capacity
    assert bound.gap == pytest.approx((bound.capacity_per_s - capacity) / bound.capacity_per_s)
    assert ("optimal" in line) == (bound.proof == "optimal")
    assert ("and this one does" in line) == (bound.gap < 1e-5)


def simulations_are_true(problem: Problem, found: Plan, line: str) -> None:
    """It is said only where requests wait; that the plan is the best is tested with the ranking."""
    words = re.fullmatch(
        r"Simulated: (\d+) candidates on the same (\d+) requests; this one is the best\.", line
    )
    assert words is not None
    assert 1 <= int(words[1]) <= NUM_SIMULATED
    assert int(words[2]) == NUM_DRAWN
    assert problem.objective == "waiting_time"
    assert (found.predicted.waiting_time_s or 0.0) > 0.0


def scenarios_are_true(_: Problem, found: Plan, line: str) -> None:
    told = found.scenarios
    assert told is not None
    waits = [one.waiting_time_s for one in told.cases]
    mean = any(other.name == "plan for the mean load" for other in found.alternatives)
    if None in waits:
        assert told.waiting_time_s is None
        late = [one.name for one in told.cases if not one.stable]
        assert line.endswith(f"this one does not in {', '.join(late)}.")
        return
    assert told.risk == "worst"
    worst = max(wait for wait in waits if wait is not None)
    assert told.waiting_time_s == worst
    assert f"requests wait {time_text(worst)} in the worst scenario" in line
    theirs = [one.mean_plan_waiting_time_s for one in told.cases]
    if not mean:
        assert "the plan for the mean load is the same" in line
    elif None in theirs:
        assert "the plan for the mean load does not keep up in all of them" in line
    else:
        longest = max(wait for wait in theirs if wait is not None)
        assert line.endswith(f"with the plan for the mean load {time_text(longest)}.")


CHECKS = {
    "Groups": groups_are_true,
    "Scenarios": scenarios_are_true,
    "Bound": bounds_are_true,
    "Other plans lose": comparisons_are_true,
    "Roles": roles_are_true,
    "Limits": limits_are_true,
    "Slots": slots_are_true,
    "Would help": helps_are_true,
    "Simulated": simulations_are_true,
}


@pytest.mark.parametrize(
    ("name", "variant"),
    [*CASES, pytest.param(LONG, "as it is", marks=pytest.mark.slow)],
)
def test_every_sentence_about_an_example_is_true(name: str, variant: str) -> None:
    found = made(name, variant)
    if found is None:
        assert variant in {"asked", "apart"}
        return
    verified(*found)


def two_macs(**changes: Any) -> tuple[Problem, Plan]:
    problem = Problem.load(ROOT / "examples" / "two-macs.yaml", **changes)
    found = plan(problem)
    assert isinstance(found, Plan)
    return problem, found


def test_dear_hops_are_what_helps_then() -> None:
    problem, found = two_macs(runtime={"name": "exo", "hop_overhead_ms": 60})
    verified(problem, found)
    assert found.explain[-1].startswith("Would help: cheaper hops; hop_overhead_ms of exo")


def test_a_slow_link_is_named_with_what_a_perfect_one_would_bring() -> None:
    problem, _ = two_macs()
    links = tuple(replace(link, latency_s=0.03) for link in problem.inventory.links)
    slow = replace(problem, inventory=replace(problem.inventory, links=links))
    found = plan(slow)
    assert isinstance(found, Plan)
    verified(slow, found)
    assert "a faster link from studio to macbook (now thunderbolt)" in found.explain[-1] or (
        "a faster link from macbook to studio (now thunderbolt)" in found.explain[-1]
    )


def test_moving_kv_caches_is_named_where_it_makes_up_the_wait() -> None:
    problem, found = two_macs(
        model="llama-3.1-8b",
        runtime="generic",
        constraints={"roles": "disaggregated", "replicas": 2},
    )
    verified(problem, found)
    (route,) = found.routes
    where = {replica.id: replica.stages[0].device for replica in found.replicas}
    ends = (
        f"from {where[route.prefill]} ({route.prefill}) to {where[route.decode]} ({route.decode})"
    )
    assert f"a faster link {ends}; moving KV caches makes up" in found.explain[-1]


def test_every_kind_of_sentence_is_among_them() -> None:
    lines = [line for case in CASES if (found := made(*case)) for line in found[1].explain]
    for words in (
        *("no token crosses a link", "of them can hold it alone", "could hold it alone"),
        *("cannot move a KV cache", "as asked for", "best disaggregated: ", "PREFILL, "),
        *("workload.slots asks", "max_slots", "does not fit into", "too slow (", "GiB more on"),
        *("softer limit", "memory bandwidth", "arithmetic (FLOP/s)"),
    ):
        assert any(words in line for line in lines), words


@given(problems(max_devices=4, max_layers=6, is_constrained=True))
def test_every_sentence_about_any_plan_is_true(problem: Problem) -> None:
    found = plan(problem)
    if isinstance(found, Plan):
        verified(problem, found)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "a"], "a and b"),
        (["a", "b", "c", "d"], "a, b, c and d"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_names_are_listed(names: list[str], text: str) -> None:
    assert named(names) == text


def test_numbers_have_the_unit_that_suits_them() -> None:
    assert [time_text(s) for s in (0, 2e-6, 0.0123, 1.5, 250)] == [
        *("0 s", "2 us", "12.3 ms", "1.5 s", "250 s")
    ]
    assert [size_text(b) for b in (3 * MIB, 2 * GIB)] == ["3 MiB", "2 GiB"]
    assert [percent(s) for s in (0, 0.001, 0.123, 1)] == ["0 %", "<1 %", "12 %", "100 %"]
    assert [number_text(n) for n in (0.5, 99.4, 34059, 1e7)] == ["0.5", "99.4", "34100", "10000000"]
