"""Each rule broken once; a plan that breaks none is valid."""

import itertools
import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from e2llm_opt.check.check import check
from e2llm_opt.constraints import Constraints
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.problem import Problem
from tests.check.small import (
    MODEL,
    WORKLOAD,
    device,
    link,
    pair,
    problem,
    replica,
    runtime,
    split,
    stage,
    star,
)

TWO = star("a", "b")
FOUR = star("a", "b", "c", "d")


def violations(plan: Any, asked: Problem) -> list[tuple[str, str | None, Any, Any]]:
    return [(v.what, v.device, v.need, v.have) for v in check(plan, asked).violations]


def single(plan: Any, asked: Problem) -> tuple[str, str | None, Any, Any]:
    """Return the only violation."""
    (only,) = violations(plan, asked)
    return only


def by_hand(*stages: dict[str, Any], role: str = "MIXED") -> dict[str, Any]:
    return {"replicas": [replica(role, *stages)]}


# ---- plans that are right


@pytest.mark.parametrize("plan", [pair(), pair(slots=2), pair(slots=4)])
def test_a_plan_that_breaks_no_rule_is_valid(plan: Any) -> None:
    report = check(plan, problem(TWO))
    assert report.valid
    assert report.capacity_per_s == report.replicas[0].service_rate_per_s


def test_capacity_is_the_lesser_pool_and_all_mixed_replicas() -> None:
    plan = split()
    plan["replicas"].append(replica("MIXED", stage("e", 0, 4), slots=1))
    report = check(plan, problem(star(*"abcde")))
    assert report.valid
    # PREFILL 1/12.8. DECODE of two streams on 3 + 1 layers: 3 · 2.58 + 0.5 + 2.58 + 0.8 + 0.34
    # = 11.96 in two micro-batches, but twice the first stage is 16.48; one of both streams is
    # 3 · 2.66 + 0.7 + 2.66 + 1.6 + 0.38 = 13.32, so 2 / (8 · 13.32). MIXED: pause 18.8, round
    # 4 · 2.58 + 0.8 = 11.12.
    expected = min(1 / 12.8, 2 / (8 * 13.32)) + 1 / (18.8 + 8 * 11.12)
    assert report.capacity_per_s == pytest.approx(expected)


def test_the_answer_is_json_as_the_design_has_it() -> None:
    answer = check(by_hand(stage("a", 0, 3)), problem(TWO)).to_dict()
    assert answer["valid"] is False
    assert [set(entry) for entry in answer["violations"]] == [{"what", "device", "need", "have"}]
    assert json.loads(json.dumps(answer, allow_nan=False))["recomputed"]["capacity_per_s"] is None


# ---- the bound


@pytest.mark.parametrize(
    ("bound", "rule"),
    [
        ({"capacity_per_s": 0.5, "gap": 0.1, "proof": "bounded"}, "gap is not as recomputed"),
        ({"capacity_per_s": 1e-9, "gap": 0.0, "proof": "optimal"}, "is below the capacity"),
        ({"capacity_per_s": None, "gap": 0.1, "proof": "none"}, "capacity_per_s is missing"),
        ({"capacity_per_s": None, "gap": None, "proof": "optimal"}, "capacity_per_s is missing"),
        ({"capacity_per_s": 1.0, "gap": None, "proof": "none"}, "proof is none"),
    ],
)
def test_a_bound_that_contradicts_the_plan_is_a_violation(bound: Any, rule: str) -> None:
    plan = by_hand(stage("a", 0, 2), stage("b", 2, 4))
    capacity = check(plan, problem(TWO)).capacity_per_s
    plan |= {"predicted": {"capacity_per_s": capacity}, "bound": bound}
    whats = [violation.what for violation in check(plan, problem(TWO)).violations]
    assert any(rule in what for what in whats)


def test_a_bound_with_the_gap_that_it_has_is_none() -> None:
    plan = by_hand(stage("a", 0, 2), stage("b", 2, 4))
    capacity = check(plan, problem(TWO)).capacity_per_s
    assert capacity is not None
    bound = {"capacity_per_s": capacity / 0.9, "gap": 0.1, "proof": "bounded"}
    plan |= {"predicted": {"capacity_per_s": capacity}, "bound": bound}
    assert check(plan, problem(TWO)).valid


# ---- devices and layers


def test_an_unknown_device_is_a_violation() -> None:
    what, name, _, _ = single(by_hand(stage("a", 0, 2), stage("z", 2, 4)), problem(TWO))
    assert (what, name) == ("unknown device", "z")


def test_a_device_in_two_replicas_is_a_violation() -> None:
    plan = {"replicas": [replica("MIXED", stage("a", 0, 4)), replica("MIXED", stage("a", 0, 4))]}
    assert single(plan, problem(TWO)) == ("device holds several stages", "a", 1, 2)


def test_a_device_in_two_stages_is_a_violation() -> None:
    plan = by_hand(stage("a", 0, 2), stage("a", 2, 4))
    assert single(plan, problem(TWO)) == ("device holds several stages", "a", 1, 2)


@pytest.mark.parametrize(
    ("stages", "rule", "need", "have"),
    [
        (((1, 2), (2, 4)), "left out before", 0, 1),
        (((0, 1), (2, 4)), "left out before", 1, 2),
        (((0, 3), (2, 4)), "held twice", 3, 2),
        (((0, 2), (2, 3)), "left out at the end", 4, 3),
        (((0, 2), (2, 5)), "beyond the model's", 4, 5),
    ],
)
def test_layers_are_covered_exactly_once(stages: Any, rule: str, need: int, have: int) -> None:
    (first, last) = stages
    found = single(by_hand(stage("a", *first), stage("b", *last)), problem(TWO))
    what, _, *amounts = found
    assert rule.replace("left out before", "are left out before") in what
    assert amounts == [need, have]


def test_a_stage_starts_only_where_the_model_allows_it() -> None:
    picky = replace(MODEL, allowed_stage_starts=(0, 1, 3))
    what, name, need, have = single(pair(), problem(TWO, model=picky))
    assert "must not start" in what
    assert (name, need, have) == ("b", "0, 1, 3", 2)
    assert check(pair(), problem(TWO, model=replace(MODEL, allowed_stage_starts=(2,)))).valid


def test_unconnected_neighbours_are_a_violation_each_way() -> None:
    apart = Inventory(devices=(device("a"), device("b")))
    found = violations(pair(), problem(apart))
    assert [what for what, *_ in found] == ["r0: no way from a to b", "r0: no way from b to a"]


def test_memory_exceeded_says_by_what_kind_of_bytes() -> None:
    tight = Inventory(devices=(device("a", memory_bytes=2855.0), device("b")), links=TWO.links)
    # 2500 of weights, 2 slots · 2 layers · 2 B · 32 tokens, 100 of the engine: one byte over.
    what, name, need, have = single(pair(slots=2), problem(tight))
    assert "weights 2500 + KV cache 256 + overhead 100" in what
    assert (name, need, have) == ("a", 2856, 2855)


def test_memory_full_to_the_byte_is_no_violation() -> None:
    tight = Inventory(devices=(device("a", memory_bytes=2856.0), device("b")), links=TWO.links)
    assert check(pair(slots=2), problem(tight)).valid


def test_reserved_memory_is_never_planned_on() -> None:
    kept = Inventory(devices=(device("a", reserved_bytes=7145.0), device("b")), links=TWO.links)
    assert single(pair(slots=2), problem(kept))[2:] == (2856, 2855)


def test_memory_is_judged_even_where_layers_are_missing() -> None:
    tight = Inventory(devices=(device("a", memory_bytes=1000.0), device("b")), links=TWO.links)
    found = violations(by_hand(stage("a", 0, 2), stage("b", 3, 4)), problem(tight))
    assert ["left out" in found[0][0], "memory exceeded" in found[1][0]] == [True, True]
    # 2000 of layers, 500 of the embedding, 100 of the engine, and one slot: 2 · 2 B · 32 tokens.
    assert found[1][2] == 2728


# ---- slots and speed


def test_slots_over_the_engine_s_are_a_violation() -> None:
    assert single(pair(slots=5), problem(TWO)) == (
        "r0: slots over the engine's max_slots",
        None,
        4,
        5,
    )


def test_slots_unlike_those_asked_for_are_a_violation() -> None:
    asked = problem(TWO, workload=replace(WORKLOAD, slots=3))
    assert single(pair(slots=2), asked) == ("r0: workload.slots", None, 3, 2)


def test_a_replica_that_decodes_has_a_slot() -> None:
    assert single(pair(slots=0), problem(TWO)) == ("r0: slots", None, 1, 0)


def test_a_prefill_replica_has_one_slot() -> None:
    plan = split()
    plan["replicas"][0]["slots"] = 2
    what, _, need, have = single(plan, problem(FOUR))
    assert "PREFILL" in what
    assert (need, have) == (1, 2)


def test_a_prefill_replica_may_say_that_it_has_no_slot_to_decode_in() -> None:
    plan = split()
    plan["replicas"][0]["slots"] = 0
    assert check(plan, problem(FOUR)).valid


def test_a_floor_of_speed_is_judged_with_the_pauses() -> None:
    # 16.385 s a token with pauses, 11.96 without.
    floor = problem(TWO, workload=replace(WORKLOAD, min_tokens_per_s=1 / 16))
    what, _, need, have = single(pair(slots=2), floor)
    assert what == "r0: workload.min_tokens_per_s"
    assert (need, have) == (1 / 16, pytest.approx(1 / 16.385))


def test_a_tpot_limit_is_judged_with_the_pauses() -> None:
    limit = problem(TWO, workload=replace(WORKLOAD, slo_tpot_s=16.0))
    assert single(pair(slots=2), limit)[2:] == (16.0, pytest.approx(16.385))


@pytest.mark.parametrize(("share", "is_valid"), [(5e-10, True), (2e-9, False)])
def test_a_limit_is_met_but_for_rounding(share: float, is_valid: bool) -> None:
    tpot_s = check(pair(slots=2), problem(TWO)).replicas[0].tpot_s
    assert tpot_s is not None
    limit = problem(TWO, workload=replace(WORKLOAD, slo_tpot_s=tpot_s * (1 - share)))
    assert check(pair(slots=2), limit).valid is is_valid
    floor = problem(TWO, workload=replace(WORKLOAD, min_tokens_per_s=(1 + share) / tpot_s))
    assert check(pair(slots=2), floor).valid is is_valid


def test_a_decode_replica_does_not_pause() -> None:
    limit = problem(FOUR, workload=replace(WORKLOAD, slo_tpot_s=14.0))
    assert check(split(), limit).valid


# ---- roles and constraints


@pytest.mark.parametrize("role", ["PREFILL", "DECODE"])
def test_half_a_disaggregated_plan_is_a_violation(role: str) -> None:
    assert "without a" in single(pair(role), problem(TWO))[0]


def test_an_engine_that_cannot_move_kv_caches_is_mixed() -> None:
    fixed = problem(FOUR, runtime=runtime(has_disaggregation=False))
    what, _, *amounts = single(split(), fixed)
    assert "cannot move" in what
    assert amounts == ["MIXED only", "2 PREFILL or DECODE"]
    assert check(pair(), fixed).valid


@pytest.mark.parametrize(
    ("constraints", "plan", "what"),
    [
        (Constraints(roles="mixed"), split(), "constraints.roles: mixed"),
        (Constraints(replicas=1), split(), "constraints.replicas"),
        (Constraints(exclude=("d",)), split(), "constraints.exclude"),
        (Constraints(roles="disaggregated"), pair(), "constraints.roles: disaggregated"),
    ],
)
def test_constraints_hold(constraints: Constraints, plan: Any, what: str) -> None:
    assert single(plan, problem(FOUR, constraints=constraints))[0] == what


def test_use_all_devices_means_each_that_is_not_excluded() -> None:
    constraints = Constraints(use_all_devices=True, exclude=("d",))
    found = single(pair(), problem(FOUR, constraints=constraints))
    assert found == ("constraints.use_all_devices", "c", "layers", "no layers")


# ---- where things are


@pytest.mark.parametrize(
    ("claim", "thing"),
    [
        ({"head": True}, "head"),
        ({"embedding": False}, "embedding"),
        ({"next_hop": {"device": "z"}}, "next hop"),
    ],
)
def test_claims_about_places_are_checked(claim: dict[str, Any], thing: str) -> None:
    plan = by_hand(stage("a", 0, 2, **claim), stage("b", 2, 4))
    what, name, _, _ = single(plan, problem(TWO))
    assert what == f"r0: {thing} of stage 0"
    assert name == "a"


@pytest.mark.parametrize(
    ("head", "embedding", "at"),
    [("last", "first", (2, 0)), ("last", "host", (2, 2)), ("first", "first", (0, 0))],
)
def test_head_and_embedding_lie_where_the_engine_puts_them(
    head: Any, embedding: Any, at: tuple[int, int]
) -> None:
    engine = problem(FOUR, runtime=runtime(head=head, embedding=embedding))
    for places in itertools.product(range(3), repeat=2):
        stages = [
            stage(name, start, stop, head=index == places[0], embedding=index == places[1])
            for index, (name, start, stop) in enumerate(
                zip("abc", (0, 2, 3), (2, 3, 4), strict=True)
            )
        ]
        found = {what for what, *_ in violations(by_hand(*stages), engine)}
        assert found == {
            f"r0: {thing} of stage {index}"
            for thing, right, said in zip(("head", "embedding"), at, places, strict=True)
            for index in (right, said)
            if right != said
        }


def test_a_single_stage_has_no_next_hop() -> None:
    plan = by_hand(stage("a", 0, 4, next_hop={"device": "a"}))
    assert single(plan, problem(TWO)) == ("r0: next hop of stage 0", "a", "none", "a")


@pytest.mark.parametrize("hops", ["bca", "cab"])
def test_next_hops_lead_once_around(hops: str) -> None:
    stages = [
        stage(name, start, stop, next_hop={"device": hop})
        for name, start, stop, hop in zip("abc", (0, 2, 3), (2, 3, 4), hops, strict=True)
    ]
    found = violations(by_hand(*stages), problem(FOUR))
    expected = [] if hops == "bca" else [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")]
    assert [tuple(rest) for _, *rest in found] == expected


@pytest.mark.parametrize(
    ("listed", "what", "name"),
    [
        (["c"], "device without layers is not listed in unused_devices", "d"),
        (["c", "d", "a"], "listed as unused", "a"),
        (["c", "d", "z"], "listed as unused", "z"),
    ],
)
def test_the_list_of_unused_devices_is_right(listed: list[str], what: str, name: str) -> None:
    unused = [{"device": entry, "reason": "slow"} for entry in listed]
    assert single({**pair(), "unused_devices": unused}, problem(FOUR))[:2] == (what, name)


def test_a_plan_of_another_inventory_is_a_violation() -> None:
    other = {**pair(), "problem": {"inventory_sha256": inventory_sha256(FOUR)}}
    assert single(other, problem(TWO))[0] == "plan was made for another inventory"
    own = {**pair(), "problem": {"inventory_sha256": inventory_sha256(TWO)}}
    assert check(own, problem(TWO)).valid


# ---- routes and links


def routed(**more: Any) -> dict[str, Any]:
    return {**split(), "routes": [{"prefill": "p", "decode": "d", **more}]}


@pytest.mark.parametrize(("source", "target"), [("p", "z"), ("d", "p")])
def test_a_route_leads_from_prefill_to_decode(source: str, target: str) -> None:
    plan = {**split(), "routes": [{"prefill": source, "decode": target}]}
    what, *_ = violations(plan, problem(FOUR))[0]
    assert what == f"route {source} to {target}"


def test_a_prefill_replica_needs_a_route() -> None:
    found = violations({**split(), "routes": []}, problem(FOUR))
    assert [what for what, *_ in found] == [
        "p: no route for its KV cache",
        "d: no route for its KV cache",
    ]


def test_without_routes_nothing_is_served_together() -> None:
    plan = {**split(), "routes": [], "predicted": {"capacity_per_s": 1e-3}}
    found = violations(plan, problem(FOUR))
    assert ("predicted.capacity_per_s is not as recomputed", None, 0.0, 1e-3) in found


@pytest.mark.parametrize("plan", [split(), routed()])
def test_a_kv_cache_needs_a_way(plan: Any) -> None:
    links = (link("a", "left"), link("b", "left"), link("c", "right"), link("d", "right"))
    islands = Inventory(devices=FOUR.devices, links=links)
    found = violations(plan, problem(islands))
    assert all("KV cache" in what for what, *_ in found)
    assert {"p: no route for its KV cache", "d: no route for its KV cache"} <= {v[0] for v in found}


def test_a_link_saturated_at_the_planned_rates_is_a_violation() -> None:
    # 480 B a request out of a: 100 B/s carry 0.2083 a second.
    full = pair(slots=2, arrival_rate_per_s=100 / 480)
    assert check(full, problem(TWO)).valid
    hair = pair(slots=2, arrival_rate_per_s=(1 + 5e-10) * 100 / 480)
    assert check(hair, problem(TWO)).valid
    found = violations(pair(slots=2, arrival_rate_per_s=0.25), problem(TWO))
    assert [(need, have) for _, _, need, have in found] == [(pytest.approx(120), 100)] * 2
    assert all("saturated" in what for what, *_ in found)


def test_half_duplex_links_add_both_directions() -> None:
    shared = Inventory(
        devices=TWO.devices, links=(link("a", "b", is_half_duplex=True, latency_s=0.05),)
    )
    # 480 B out and 32 B back: 0.2 a second would fit one direction only.
    found = single(pair(slots=2, arrival_rate_per_s=0.2), problem(shared))
    assert found[2:] == (pytest.approx(102.4), 100)


# ---- stated numbers


def stated(plan: Any, asked: Problem) -> dict[str, Any]:
    """Return the plan with all its numbers, as recomputed."""
    report = check(plan, asked)
    assert report.valid
    replicas = []
    for given, own in zip(plan["replicas"], report.replicas, strict=True):
        figures = json.loads(json.dumps(asdict(own)))
        for key in ("tpot_s", "latency_s"):
            del figures[key]
        figures["arrival_rate_per_s"] = 0.5 * own.service_rate_per_s
        figures["utilisation"] = 0.5
        replicas.append({**given, **figures})
    routes = [asdict(route) for route in report.routes]
    predicted = {"capacity_per_s": report.capacity_per_s, "stable": True}
    return {"replicas": replicas, "routes": routes, "predicted": predicted}


def numbers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all numbers that a plan states about itself."""
    if isinstance(value, dict):
        return [found for key, entry in value.items() for found in numbers(entry, (*path, key))]
    if isinstance(value, list) and "layers" not in path:
        return [f for index, entry in enumerate(value) for f in numbers(entry, (*path, index))]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [path] if is_number else []


MIXED_PLAN = stated(pair(slots=2), problem(TWO))
SPLIT_PLAN = stated(split(), problem(FOUR))
FREE = {"arrival_rate_per_s", "rate_per_s", "slots"}
"""What a plan decides rather than predicts."""
UNUSED = (0, "decode", "micro_batches")
"""Micro-batches of a PREFILL replica mean nothing."""


@pytest.mark.parametrize(("plan", "asked"), [(MIXED_PLAN, TWO), (SPLIT_PLAN, FOUR)])
def test_a_plan_that_states_what_is_recomputed_is_valid(plan: Any, asked: Inventory) -> None:
    assert violations(plan, problem(asked)) == []


CASES = [
    (plan, asked, path)
    for plan, asked in ((MIXED_PLAN, TWO), (SPLIT_PLAN, FOUR))
    for path in numbers(plan)
    if path[-1] not in FREE and not (plan is SPLIT_PLAN and path[1:] == UNUSED)
]


@pytest.mark.parametrize(
    ("plan", "asked", "path"), CASES, ids=["/".join(map(str, path)) for _, _, path in CASES]
)
def test_every_wrong_number_is_a_violation(plan: Any, asked: Inventory, path: Any) -> None:
    wrong = json.loads(json.dumps(plan))
    place: Any = wrong
    for key in path[:-1]:
        place = place[key]
    is_whole = isinstance(place[path[-1]], int)
    place[path[-1]] = place[path[-1]] + 3 if is_whole else place[path[-1]] * 1.00001 + 1e-12
    what, _, need, have = single(wrong, problem(asked))
    assert str(path[-1]) in what
    assert need != have


def test_a_difference_below_the_tolerance_is_none() -> None:
    near = json.loads(json.dumps(MIXED_PLAN))
    near["replicas"][0]["decode"]["tpot_s"] *= 1 + 5e-7
    assert check(near, problem(TWO)).valid


@pytest.mark.parametrize(("more", "is_valid"), [(-2, False), (-1, True), (1, True), (2, False)])
def test_bytes_may_be_rounded_to_the_next(more: int, is_valid: bool) -> None:
    plan = json.loads(json.dumps(SPLIT_PLAN))
    plan["routes"][0]["kv_bytes"] += more
    assert check(plan, problem(FOUR)).valid is is_valid
    plan = json.loads(json.dumps(MIXED_PLAN))
    plan["replicas"][0]["stages"][0]["memory_bytes"]["kv_cache"] += more
    assert check(plan, problem(TWO)).valid is is_valid


def test_zero_in_the_phase_a_replica_takes_no_part_in_is_not_stated() -> None:
    plan = json.loads(json.dumps(SPLIT_PLAN))
    for key in plan["replicas"][0]["decode"].keys() - {"micro_batches", "tpot_interval_s"}:
        plan["replicas"][0]["decode"][key] = 0.0
    for own in plan["replicas"][1]["stages"]:
        own["prefill_time_s"] = 0.0
    assert check(plan, problem(FOUR)).valid
    plan["replicas"][0]["prefill"]["latency_s"] = 0.0
    assert not check(plan, problem(FOUR)).valid


def test_micro_batches_that_are_not_the_best_are_one_violation() -> None:
    found = single(pair(slots=2, decode={"micro_batches": 1}), problem(TWO))
    assert found == ("r0: decode.micro_batches is not the best", None, 2, 1)


def test_more_micro_batches_than_stages_are_impossible() -> None:
    what, _, need, have = single(pair(slots=4, decode={"micro_batches": 3}), problem(TWO))
    assert "more than" in what
    assert have == 3
    assert need in {1, 2}


def test_a_lower_capacity_is_accepted_where_it_fills_a_link() -> None:
    # Two replicas send 480 B a request over one line of 1 B/s.
    links = (*(link(n, "left") for n in "ac"), *(link(n, "right") for n in "bd"))
    thin = problem(Inventory(devices=FOUR.devices, links=(*links, link("left", "right", 1.0))))
    twice = {
        "replicas": [
            replica("MIXED", stage("a", 0, 2), stage("b", 2, 4), slots=2),
            replica("MIXED", stage("c", 0, 2), stage("d", 2, 4), slots=2),
        ]
    }
    alone = check(twice, thin).capacity_per_s
    limit = 1 / 480
    assert alone is not None
    assert alone > limit
    assert check({**twice, "predicted": {"capacity_per_s": alone}}, thin).valid
    assert check({**twice, "predicted": {"capacity_per_s": limit}}, thin).valid
    lower = single({**twice, "predicted": {"capacity_per_s": 0.9 * limit}}, thin)
    assert "capacity" in lower[0]
    # Replicas could serve what arrives, links not.
    rate = (limit + alone) / 2
    busy = problem(thin.inventory, workload=replace(WORKLOAD, rate_per_s=rate))
    found = single({**twice, "predicted": {"capacity_per_s": limit, "stable": True}}, busy)
    assert found[2:] == (rate, limit)


def test_kv_transfers_may_be_what_limits_capacity() -> None:
    plan = {**split(), "predicted": {"capacity_per_s": 1e-3}}
    # 16 tokens · 20 B of activations and 64 B of KV cache leave a for each request.
    links = (link("a", "lan", 0.384), *(link(name, "lan") for name in "bcd"))
    thin = Inventory(devices=FOUR.devices, links=links)
    assert check(plan, problem(thin)).valid
    assert not check(plan, problem(FOUR)).valid


def test_stable_is_refused_where_more_arrives_than_can_be_served() -> None:
    busy = problem(TWO, workload=replace(WORKLOAD, rate_per_s=1.0))
    plan = {**pair(slots=2), "predicted": {"stable": True}}
    what, _, need, have = single(plan, busy)
    assert "stable" in what
    assert (need, have) == (1.0, pytest.approx(1 / 65.54))


@pytest.mark.parametrize(("share", "is_valid"), [(0.5, True), (1 + 5e-7, True), (1 + 2e-6, False)])
def test_stable_is_believed_up_to_the_capacity(share: float, is_valid: bool) -> None:
    capacity = check(pair(slots=2), problem(TWO)).capacity_per_s
    assert capacity is not None
    busy = problem(TWO, workload=replace(WORKLOAD, rate_per_s=share * capacity))
    assert check({**pair(slots=2), "predicted": {"stable": True}}, busy).valid is is_valid
    assert check({**pair(slots=2), "predicted": {"stable": False}}, busy).valid


def test_a_context_longer_than_fits_is_a_violation() -> None:
    assert single(pair(slots=2, max_context_tokens=926), problem(TWO))[2:] == (925, 926)


def test_a_longest_context_that_is_not_the_longest_is_a_violation() -> None:
    assert single(pair(slots=2, max_context_tokens=923), problem(TWO))[2:] == (925, 923)


def test_a_context_that_fills_memory_to_the_byte_may_be_rounded_down() -> None:
    """925 tokens fill it exactly; another order of the same sum may find them a hair too many."""
    assert check(pair(slots=2, max_context_tokens=924), problem(TWO)).valid


@pytest.mark.parametrize(
    ("stated", "is_valid"),
    [
        (36_996, False),
        (36_997, True),
        (37_000, True),
        (37_001, True),
        (37_002, True),
        (37_003, False),
    ],
)
def test_half_a_byte_is_no_matter_of_the_longest_context(stated: int, is_valid: bool) -> None:
    # 0.2 B a token in 7400 B: 37000 tokens, or two more with half a byte too many.
    light = problem(TWO, model=replace(MODEL, layer_kv_bytes_per_token=(0.05,) * 4))
    assert check(pair(slots=2), light).replicas[0].max_context_tokens == 37_002
    assert check(pair(slots=2, max_context_tokens=stated), light).valid is is_valid


# ---- plans as objects


def test_a_plan_object_is_read_like_its_document() -> None:
    from tests.samples import sample_plan

    found = [v.what for v in check(sample_plan(), problem(TWO)).violations]
    document = json.loads(sample_plan().to_json())
    assert found == [v.what for v in check(document, problem(TWO)).violations]
    assert "plan was made for another inventory" in found
    assert "unknown device" in found


def test_numbers_may_be_numpy_s() -> None:
    numpy = pytest.importorskip("numpy")
    plan = by_hand(
        stage("a", numpy.int64(0), numpy.int64(2), decode_time_s=numpy.float64(5.32)),
        stage("b", 2, 4),
    )
    plan["replicas"][0]["slots"] = numpy.int64(2)
    what, _, need, have = single(plan, problem(TWO))
    assert "decode_time_s" in what
    assert (need, have) == (pytest.approx(5.16), 5.32)
