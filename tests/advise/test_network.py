"""Devices come with links like the others', and leave none behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from e2llm_opt.advise.network import Wire, on_one_switch, unused_name, with_device, without_device
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import device_of_type
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.problem import Problem
from tests.advise.lab import lab
from tests.strategies import inventories

NEW = device_of_type("apple-m4", name="new")


def link(one: str, other: str, mbit_s: float, latency_s: float) -> Link:
    speed = mbit_s * 1e6 / 8
    return Link(
        ends=(one, other),
        forward_bytes_per_s=speed,
        backward_bytes_per_s=speed,
        latency_s=latency_s,
    )


@given(inventories(max_devices=4))
def test_what_is_added_and_taken_away_leaves_the_inventory_as_it_was(inventory: Inventory) -> None:
    device = replace(NEW, name=unused_name(inventory, "new"), host="")
    device = replace(device, host=device.name)
    more = with_device(inventory, device, Wire())
    assert without_device(more, device.name) == inventory
    if len(inventory.devices) > 1:  # every switch that is left joins two links, or this raises
        for old in inventory.devices:
            less = without_device(inventory, old.name)
            assert {d.name for d in less.devices} == {d.name for d in inventory.devices} - {
                old.name
            }


def test_a_device_hangs_on_the_busiest_switch_as_most_do() -> None:
    inventory = Problem.load("examples/homelab.yaml").inventory
    (added,) = with_device(inventory, NEW, Wire()).links[len(inventory.links) :]
    assert added == link("new", "lan", 940, 0.15e-3)
    (fast,) = with_device(inventory, NEW, Wire(mbit_s=9400, latency_ms=0.05)).links[
        len(inventory.links) :
    ]
    assert (fast.forward_bytes_per_s, fast.latency_s) == (9400e6 / 8, 0.05e-3)


def test_without_a_switch_it_is_linked_to_all_as_the_median_link() -> None:
    devices = [replace(NEW, name=name, host=name) for name in "abc"]
    pairs = (link("a", "b", 100, 1e-3), link("b", "c", 300, 3e-3), link("a", "c", 200, 2e-3))
    inventory = Inventory(devices=tuple(devices), links=pairs)
    added = with_device(inventory, NEW, Wire()).links[3:]
    assert added == tuple(link("new", name, 200, 2e-3) for name in "abc")


def test_the_second_device_gets_a_gigabit_link() -> None:
    inventory = lab("apple-m4").inventory
    (added,) = with_device(inventory, NEW, Wire()).links
    assert added == link("new", "a", 940, 0.2e-3)


def test_the_only_device_cannot_go() -> None:
    with pytest.raises(InputError, match="no devices"):
        without_device(lab("apple-m4").inventory, "a")


def test_devices_on_one_switch_reach_each_other() -> None:
    one, two = (replace(NEW, name=name, host=name) for name in "ab")
    assert on_one_switch([one], Wire()).links == ()
    assert len(on_one_switch([one, two], Wire()).links) == 2


@pytest.mark.parametrize("wrong", [{"mbit_s": 0.0}, {"mbit_s": float("inf")}, {"latency_ms": -1.0}])
def test_impossible_links_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="of a link must be"):
        Wire(**wrong)
