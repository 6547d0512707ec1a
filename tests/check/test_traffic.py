"""KV transfers and link loads against numbers worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from e2llm_opt.check.check import check
from e2llm_opt.inventory.inventory import Inventory
from tests.check.small import (
    MODEL,
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

FOUR = star("a", "b", "c", "d")


def test_transfers_of_one_request_share_the_cards_they_cross() -> None:
    (route,) = check(split(), problem(FOUR)).routes
    # 32 B a layer: a to c 64, b to c 32, b to d 32; 96 B enter c at 100 B/s.
    assert route.kv_bytes == 128
    assert route.kv_transfer_s == pytest.approx(0.96 + 0.05)


def test_layerwise_transfer_hides_behind_the_prefill() -> None:
    (route,) = check(split(), problem(FOUR, runtime=runtime(layerwise_kv=True))).routes
    # The last layer's quarter cannot hide.
    assert route.kv_transfer_s == pytest.approx(0.24 + 0.05)


def test_the_last_layer_s_cache_is_the_one_that_cannot_hide() -> None:
    uneven = replace(MODEL, layer_kv_bytes_per_token=(2.0, 2.0, 2.0, 6.0))
    asked = problem(FOUR, model=uneven, runtime=runtime(layerwise_kv=True))
    (route,) = check(split(), asked).routes
    # 32 B of layer 2 and 96 B of layer 3 leave b in 1.28 s; layer 3 is half of all.
    assert route.kv_bytes == 192
    assert route.kv_transfer_s == pytest.approx(0.64 + 0.05)


def test_layerwise_transfer_shows_what_is_longer_than_the_prefill() -> None:
    big = replace(MODEL, layer_kv_bytes_per_token=(100.0,) * 4)
    roomy = Inventory(
        devices=tuple(device(name, memory_bytes=1e6) for name in "abcd"), links=FOUR.links
    )
    asked = problem(roomy, model=big, runtime=runtime(layerwise_kv=True))
    (route,) = check(split(), asked).routes
    # 4800 B enter c in 48 s, of which 17.7 · 3/4 s hide.
    assert route.kv_transfer_s == pytest.approx(48 - 13.275 + 0.05)


def test_transfers_inside_a_host_share_its_bus() -> None:
    inside = Inventory(devices=tuple(device(name, host="h") for name in "abcd"))
    (route,) = check(split(), problem(inside)).routes
    assert route.kv_transfer_s == pytest.approx(128 / 400 + 20e-6)


def test_a_shared_link_carries_all_transfers() -> None:
    # Two sites: everything crosses one line of 50 B/s.
    links = (*(link(n, "left") for n in "ab"), *(link(n, "right") for n in "cd"))
    sites = Inventory(
        devices=FOUR.devices, links=(*links, link("left", "right", 50.0, latency_s=1.0))
    )
    (route,) = check(split(), problem(sites)).routes
    assert route.kv_transfer_s == pytest.approx(128 / 50 + 1.05)


# ---- network cards


def fork() -> Inventory:
    """Return a host a whose one card has a line to b and a slower one to c, which are joined."""
    lines = (
        link("a", "b", 100.0, backward_bytes_per_s=50.0, interface="eth0"),
        link("c", "a", 30.0, backward_bytes_per_s=80.0, interface="eth0"),
        link("b", "c", 100.0, interface="eth1"),
    )
    return Inventory(devices=tuple(device(name) for name in "abc"), links=lines)


def forked(*, is_single_first: bool) -> dict[str, Any]:
    """Return a plan with one replica on a alone and one on b and c."""
    alone, both = stage("a", 0, 4), (stage("b", 0, 2), stage("c", 2, 4))
    first, second = ((alone,), both) if is_single_first else (both, (alone,))
    return {
        "replicas": [
            replica("PREFILL", *first, id="p"),
            replica("DECODE", *second, id="d", slots=1),
        ],
        "routes": [{"prefill": "p", "decode": "d", "rate_per_s": 0.4}],
    }


@pytest.mark.parametrize(
    ("is_single_first", "seconds", "direction", "speed"),
    [
        # 128 B leave the card at the speed of its faster line, 100 B/s; 64 B at 80 B/s are less.
        (True, 1.28, "out", 100.0),
        # Into the card at no more than 50 B/s: 2.56 s; 64 B at 30 B/s are less.
        (False, 2.56, "in", 50.0),
    ],
)
def test_lines_of_one_interface_share_their_card(
    is_single_first: bool, seconds: float, direction: str, speed: float
) -> None:
    report = check(forked(is_single_first=is_single_first), problem(fork()))
    assert report.valid is (direction == "out")
    (route,) = report.routes
    assert route.kv_transfer_s == pytest.approx(seconds + 0.025)
    cards = [one for one in report.links if one.ends[1] == "network card"]
    (card,) = cards
    assert (card.ends[0], card.interface, card.direction) == ("a", "eth0", direction)
    assert card.load_bytes_per_s == pytest.approx(51.2)
    assert card.bandwidth_bytes_per_s == speed


def test_a_saturated_card_is_a_violation() -> None:
    (found,) = check(forked(is_single_first=False), problem(fork())).violations
    assert found.what == "link a - network card (eth0) is saturated in at the planned rates"
    assert found.need == pytest.approx(51.2)
    assert found.have == 50


def test_lines_of_different_interfaces_are_cards_of_their_own() -> None:
    lines = tuple(replace(one, interface=f"eth{i}") for i, one in enumerate(fork().links))
    apart = Inventory(devices=fork().devices, links=lines)
    report = check(forked(is_single_first=True), problem(apart))
    assert report.valid
    assert report.routes[0].kv_transfer_s == pytest.approx(0.8 + 0.025)
    assert [one.ends for one in report.links] == [("a", "b"), ("c", "a")]


def test_a_card_may_be_what_limits_capacity() -> None:
    # All 128 B of a request enter a at 50 B/s; the line from c would carry 0.47 requests a second.
    slow = tuple(
        replace(
            one,
            forward_bytes_per_s=one.forward_bytes_per_s / 100,
            backward_bytes_per_s=one.backward_bytes_per_s / 100,
        )
        for one in fork().links[:2]
    )
    thin = Inventory(devices=fork().devices, links=(*slow, fork().links[2]))
    plan = forked(is_single_first=False)
    del plan["routes"]
    for capacity, is_valid in ((0.5 / 128, True), (0.3 / 64, False)):
        own = {**plan, "predicted": {"capacity_per_s": capacity}}
        assert check(own, problem(thin)).valid is is_valid


def loads(plan: dict[str, Any], inventory: Inventory) -> dict[tuple[str, str], float]:
    report = check(plan, problem(inventory))
    return {(load.ends[0], load.direction): load.load_bytes_per_s for load in report.links}


def test_activations_load_both_links_of_a_hop() -> None:
    found = loads(pair(slots=2, arrival_rate_per_s=0.1), star("a", "b"))
    # 16 tokens of prompt and 8 of answer at 20 B; 8 ids of 4 B come back.
    assert found == {
        ("a", "forward"): pytest.approx(48),
        ("b", "backward"): pytest.approx(48),
        ("b", "forward"): pytest.approx(3.2),
        ("a", "backward"): pytest.approx(3.2),
    }


@pytest.mark.parametrize(
    ("role", "forth", "back"), [("PREFILL", 32.0, None), ("DECODE", 16.0, 3.2)]
)
def test_a_replica_loads_links_with_its_own_phase(
    role: str, forth: float, back: float | None
) -> None:
    found = loads(pair(role, arrival_rate_per_s=0.1), star("a", "b"))
    expected = {("a", "forward"): forth, ("b", "backward"): forth}
    if back is not None:
        expected |= {("b", "forward"): back, ("a", "backward"): back}
    assert found == pytest.approx(expected)


def test_streams_of_a_micro_batch_choose_the_link_together() -> None:
    lines = (
        link("a", "b", 1000.0, latency_s=0.5, interface="wide"),
        link("a", "b", 50.0, latency_s=0.0, interface="quick"),
    )
    both = Inventory(devices=(device("a"), device("b")), links=lines)
    plan = pair("DECODE", slots=3, arrival_rate_per_s=0.1, decode={"micro_batches": 2})
    # One stream of 20 B takes 0.4 s on the quick line and 0.52 s on the wide one, two 0.8 and
    # 0.54 s. Ids come back on the quick one.
    report = check(plan, problem(both))
    found = {(one.interface, one.direction): one.load_bytes_per_s for one in report.links}
    assert found == pytest.approx({("wide", "forward"): 16.0, ("quick", "backward"): 3.2})


def test_a_half_duplex_link_carries_both_directions() -> None:
    shared = Inventory(
        devices=(device("a"), device("b")), links=(link("a", "b", is_half_duplex=True),)
    )
    found = loads(pair(slots=2, arrival_rate_per_s=0.1), shared)
    assert found == {("a", "both"): pytest.approx(51.2)}


def test_kv_transfers_load_links_at_the_rate_of_the_route() -> None:
    plan = split()
    plan["routes"] = [{"prefill": "p", "decode": "d", "rate_per_s": 0.5}]
    found = loads(plan, FOUR)
    assert found == {
        ("a", "forward"): pytest.approx(32),
        ("b", "forward"): pytest.approx(32),
        ("c", "backward"): pytest.approx(48),
        ("d", "backward"): pytest.approx(16),
    }
