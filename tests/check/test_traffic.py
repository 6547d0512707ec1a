"""KV transfers and link loads against numbers worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from e2llm_opt.check.check import check
from e2llm_opt.inventory.inventory import Inventory
from tests.check.small import MODEL, device, link, pair, problem, runtime, split, star

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
