"""Ways between devices: which one is taken, and what it costs."""

import itertools
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.check.paths import Ways
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from tests.check.small import RUNTIME, device, link, runtime, star

A, B, C = device("a"), device("b"), device("c")


def hop_s(ways: Ways, pair: str, num_bytes: float, head_host: str = "-") -> float:
    devices = {"a": A, "b": B, "c": C}
    legs = ways.hop(devices[pair[0]], devices[pair[1]], num_bytes, head_host)
    return math.inf if legs is None else sum(leg.time(num_bytes) for leg in legs)


def test_a_hop_costs_latencies_bytes_and_the_engine_s_fixed_cost() -> None:
    # 2 · 0.025 + 20 / 100 + 0.25.
    assert hop_s(Ways(star("a", "b"), RUNTIME), "ab", 20) == pytest.approx(0.5)


def test_the_slowest_link_of_a_path_decides() -> None:
    links = (link("a", "lan", 100.0), link("b", "lan", 10.0))
    ways = Ways(Inventory(devices=(A, B), links=links), RUNTIME)
    assert hop_s(ways, "ab", 20) == pytest.approx(0.05 + 2 + 0.25)


def test_directions_may_differ() -> None:
    one = link("a", "b", backward_bytes_per_s=10.0)
    ways = Ways(Inventory(devices=(A, B), links=(one,)), RUNTIME)
    assert hop_s(ways, "ab", 20) == pytest.approx(0.025 + 0.2 + 0.25)
    assert hop_s(ways, "ba", 20) == pytest.approx(0.025 + 2.0 + 0.25)


def test_the_number_of_bytes_chooses_the_link() -> None:
    links = (
        link("a", "b", 1000.0, latency_s=1.0, interface="wide"),
        link("a", "b", 10.0, latency_s=0.0, interface="quick"),
    )
    ways = Ways(Inventory(devices=(A, B), links=links), RUNTIME)
    few, many = ways.network("a", "b", 5), ways.network("a", "b", 50)
    assert few is not None
    assert many is not None
    assert (few.name, many.name) == ("quick", "wide")


def test_of_equally_quick_ways_the_widest_is_taken() -> None:
    # 256 B: 0.5 + 0.25 s and 0.25 + 0.5 s, exactly.
    lines = [
        link("a", "b", 1024.0, latency_s=0.5, interface="wide"),
        link("a", "b", 512.0, latency_s=0.25, interface="quick"),
    ]
    for links in (lines, lines[::-1]):
        leg = Ways(Inventory(devices=(A, B), links=tuple(links)), RUNTIME).network("a", "b", 256)
        assert leg is not None
        assert leg.name == "wide"


def test_hosts_do_not_forward() -> None:
    chain = Inventory(devices=(A, B, C), links=(link("a", "b"), link("b", "c")))
    assert Ways(chain, RUNTIME).network("a", "c", 1) is None


def test_switches_forward_and_name_the_way() -> None:
    links = (link("a", "left", interface="eth0"), link("left", "right"), link("right", "b"))
    leg = Ways(Inventory(devices=(A, B), links=links), RUNTIME).network("a", "b", 1)
    assert leg is not None
    assert leg.name == "left+right/eth0"
    assert leg.wires == ((0, "forward"), (1, "forward"), (2, "forward"))


def test_devices_of_one_host_talk_over_the_slower_of_their_buses() -> None:
    first, second = device("a", host="h"), device("b", host="h", host_bus_bytes_per_s=40.0)
    ways = Ways(Inventory(devices=(first, second)), RUNTIME)
    legs = ways.hop(first, second, 20, "h")
    assert legs is not None
    assert sum(leg.time(20) for leg in legs) == pytest.approx(20e-6 + 0.5 + 0.125)


def test_a_private_link_is_taken_only_where_it_is_faster() -> None:
    first, second = device("a", host="h"), device("b", host="h")
    bridge = link("a", "b", 4000.0, latency_s=0.01, interface="bridge")
    ways = Ways(Inventory(devices=(first, second), links=(bridge,)), RUNTIME)
    names = [[leg.name for leg in ways.hop(first, second, n, "h") or ()] for n in (1, 100)]
    # 1 B: bus 0.00252 s against 0.01025 s; 100 B: 0.25002 s against 0.035 s.
    assert names == [["bus"], ["bridge"]]


def test_a_star_pays_one_leg_to_the_head_and_two_between_workers() -> None:
    ways = Ways(star("a", "b", "c"), runtime(topology="star"))
    for hop, head in (("ac", "c"), ("ca", "c"), ("ac", "a"), ("ca", "a")):
        assert hop_s(ways, hop, 20, head_host=head) == pytest.approx(0.5)
    assert hop_s(ways, "ab", 20, head_host="c") == pytest.approx(1.0)


def test_a_star_sends_even_neighbours_of_one_host_through_the_head() -> None:
    first, second = device("a", host="h"), device("b", host="h")
    links = (link("h", "lan"), link("c", "lan"))
    ways = Ways(Inventory(devices=(first, second, C), links=links), runtime(topology="star"))
    away, home = ways.hop(first, second, 20, "c"), ways.hop(first, second, 20, "h")
    assert away is not None
    assert home is not None
    assert sum(leg.time(20) for leg in away) == pytest.approx(1.0)
    assert [leg.name for leg in home] == ["bus"]


def test_a_half_duplex_link_is_one_wire() -> None:
    shared = Inventory(devices=(A, B), links=(link("a", "b", is_half_duplex=True),))
    ways = Ways(shared, RUNTIME)
    there, back = ways.network("a", "b", 1), ways.network("b", "a", 1)
    assert there is not None
    assert back is not None
    assert there.wires == back.wires == ((0, "both"),)


@st.composite
def networks(draw: st.DrawFn) -> Inventory:
    """Three hosts and up to three switches, joined at random."""
    places = ["a", "b", "c", "s1", "s2", "s3"]
    numbers = st.sampled_from([1.0, 2.0, 5.0, 10.0])
    chosen = draw(st.lists(st.sampled_from(list(itertools.combinations(places, 2))), max_size=9))
    links = [
        Link(
            ends=ends,
            forward_bytes_per_s=draw(numbers),
            backward_bytes_per_s=draw(numbers),
            latency_s=draw(numbers),
        )
        for ends in chosen
    ]
    # A switch with a single link is refused: give each that occurs a second one.
    for switch in places[3:]:
        if sum(switch in one.ends for one in links) == 1:
            links.append(link("a", switch, 1.0, latency_s=5.0))
    return Inventory(devices=(A, B, C), links=tuple(links))


def all_times(inventory: Inventory, source: str, target: str, num_bytes: float) -> Iterator[float]:
    """Every simple way through switches, by plain recursion."""

    def walk(place: str, seen: frozenset[str], latency: float, speed: float) -> Iterator[float]:
        if place == target:
            yield latency + num_bytes / speed
        elif place == source or place.startswith("s"):
            for one in inventory.links:
                arcs = [(*one.ends, one.forward_bytes_per_s)]
                arcs.append((one.ends[1], one.ends[0], one.backward_bytes_per_s))
                for start, stop, wide in arcs:
                    if start == place and stop not in seen:
                        further = latency + one.latency_s
                        yield from walk(stop, seen | {stop}, further, min(speed, wide))

    yield from walk(source, frozenset({source}), 0.0, math.inf)


@given(networks(), st.sampled_from([0.5, 5.0, 50.0]))
def test_the_way_taken_is_the_best_of_all_ways(inventory: Inventory, num_bytes: float) -> None:
    ways = Ways(inventory, runtime(hop_overhead_s=0.0))
    for source, target in itertools.permutations("abc", 2):
        leg = ways.network(source, target, num_bytes)
        found = math.inf if leg is None else leg.time(num_bytes)
        best = min(all_times(inventory, source, target, num_bytes), default=math.inf)
        assert found == pytest.approx(best)
