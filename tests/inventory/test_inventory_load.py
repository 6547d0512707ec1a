"""``Inventory.load`` reads devices and links, and looks at nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link

if TYPE_CHECKING:
    from pathlib import Path

DEVICES = "devices: [{name: a, type: apple-m1}, {name: b, type: apple-m2, uuid: X}]\n"


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Inventory]:
    def loaded(text: str) -> Inventory:
        path = tmp_path / "lab.yaml"
        path.write_text(text, encoding="utf-8")
        return Inventory.load(path)

    return loaded


Load = Callable[[str], Inventory]


def device(name: str, **fields: str) -> Device:
    numbers = {"memory_bytes": 8e9, "memory_bandwidth_bytes_per_s": 1e11, "fp16_flop_per_s": 1e12}
    return Device(name=name, **numbers, **fields)  # type: ignore[arg-type]


def test_links_are_optional(load: Load) -> None:
    inventory = load(DEVICES)
    assert [device.name for device in inventory.devices] == ["a", "b"]
    assert inventory.links == ()


def test_other_sections_are_not_looked_at(load: Load) -> None:
    wrong_elsewhere = "model: nonsense\nworkload: 5\nmodle: x\nmodel: !!y z\n"
    assert load(DEVICES + wrong_elsewhere) == load(DEVICES)


def test_faults_of_devices_and_links_come_with_line_and_path(load: Load) -> None:
    with pytest.raises(InputError) as caught:
        load(
            DEVICES
            + "model: 5\nlinks:\n  - {between: [a, c], bandwidth_mbit_s: 1, latency_ms: x}\n"
        )
    assert [fault.path for fault in caught.value.faults] == ["links[0].latency_ms"]
    assert [fault.line for fault in caught.value.faults] == [4]


def test_listing_a_card_twice_is_refused() -> None:
    with pytest.raises(InputError, match="uuid X is listed 2 times: a, b"):
        Inventory(devices=(device("a", uuid="X"), device("b", uuid="X")))


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(InputError, match="the name 'a' is given to 2 devices"):
        Inventory(devices=(device("a"), device("a")))


def test_a_switch_with_a_single_link_is_refused() -> None:
    link = Link(ends=("a", "lan"), forward_bytes_per_s=1, backward_bytes_per_s=1, latency_s=0)
    with pytest.raises(InputError, match="'lan' is no device and no host"):
        Inventory(devices=(device("a"),), links=(link,))


def test_a_device_end_means_its_host_but_a_host_means_itself() -> None:
    inventory = Inventory(devices=(device("a", host="h"), device("h", host="g")))
    assert [inventory.endpoint(end) for end in ("a", "h", "lan")] == ["h", "h", "lan"]
    assert inventory.hosts == ("h", "g")
