"""The inventory as a networkx graph."""

from __future__ import annotations

from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.network import BUS_LATENCY_S, graph
from tests.check.small import device, link


def test_the_graph_has_every_device_host_switch_and_way() -> None:
    inventory = Inventory(
        devices=(device("a", host="h"), device("b")),
        links=(
            link("h", "lan", 100.0, backward_bytes_per_s=50.0, interface="eth0"),
            link("b", "lan", 80.0),
        ),
    )
    found = graph(inventory)
    assert {name: data["kind"] for name, data in found.nodes(data=True)} == {
        "h": "host",
        "a": "device",
        "b": "device",
        "lan": "switch",
    }
    ways = {
        (source, target): (data["bandwidth_bytes_per_s"], data["latency_s"], data["interface"])
        for source, target, data in found.edges(data=True)
    }
    assert ways == {
        ("a", "h"): (400.0, BUS_LATENCY_S, "bus"),
        ("h", "a"): (400.0, BUS_LATENCY_S, "bus"),
        ("h", "lan"): (100.0, 0.025, "eth0"),
        ("lan", "h"): (50.0, 0.025, "eth0"),
        ("b", "lan"): (80.0, 0.025, ""),
        ("lan", "b"): (80.0, 0.025, ""),
    }
