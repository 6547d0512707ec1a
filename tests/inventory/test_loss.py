"""What can be lost of an inventory, and what the inventory is without it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from e2llm_opt.inventory.loss import LossKind, parts, without
from e2llm_opt.inventory.network import Network
from tests.strategies import inventories

ONE = Device(name="a", memory_bytes=1e9, memory_bandwidth_bytes_per_s=1e10, fp16_flop_per_s=1e12)


def link(first: str, second: str, interface: str = "") -> Link:
    return Link(
        ends=(first, second),
        forward_bytes_per_s=1e8,
        backward_bytes_per_s=1e8,
        latency_s=1e-3,
        interface=interface,
    )


def inventory(*links: Link) -> Inventory:
    machines = tuple(replace(ONE, name=name, host=host) for name, host in ("ah", "bh", "cc"))
    return Inventory(devices=machines, links=links)


def test_every_thing_is_listed_once_and_falls_with_what_hangs_on_it() -> None:
    found = parts(inventory(link("a", "lan"), link("lan", "c"), link("a", "c"), link("h", "c")))
    assert [(str(part.kind), part.name, part.devices, part.links) for part in found] == [
        ("device", "a", ("a",), ()),
        ("device", "b", ("b",), ()),
        ("device", "c", ("c",), ()),
        ("host", "h", ("a", "b"), (0, 2, 3)),
        ("switch", "lan", (), (0, 1)),
        ("link", "a - lan", (), (0,)),
        ("link", "lan - c", (), (1,)),
        ("link", "a - c", (), (2,)),
        ("link", "h - c", (), (3,)),
    ]


def test_two_links_of_one_name_are_told_apart() -> None:
    found = parts(inventory(link("a", "c"), link("a", "c"), link("a", "c", "wifi")))
    names = [part.name for part in found if part.kind is LossKind.LINK]
    assert names == ["a - c #1", "a - c #2", "a - c (wifi)"]


def test_a_switch_left_with_one_link_vanishes_and_so_does_the_next() -> None:
    whole = inventory(link("a", "s"), link("s", "t"), link("t", "c"), link("a", "c"))
    lost = next(part for part in parts(whole) if part.name == "a - s")
    assert [own.ends for own in without(whole, [lost]).links] == [("a", "c")]


@given(whole=inventories(min_devices=2), data=st.data())
def test_no_path_crosses_what_is_lost_and_all_others_stay(
    whole: Inventory, data: st.DataObject
) -> None:
    lost = data.draw(st.sampled_from(parts(whole)))
    rest = without(whole, [lost])
    assert rest.devices == whole.devices
    before, after = Network(whole), Network(rest)
    assert Counter(rest.links) <= Counter(whole.links)
    for one in whole.hosts:
        for other in whole.hosts:
            if one == other:
                continue
            old = {
                (path.latency_s, path.bandwidth_bytes_per_s, path.name)
                for path in before.paths(one, other)
                if not {int(n) for kind, n, _ in path.resources if kind == "link"} & {*lost.links}
            }
            new = {
                (path.latency_s, path.bandwidth_bytes_per_s, path.name)
                for path in after.paths(one, other)
            }
            assert old <= new
