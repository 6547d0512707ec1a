"""Devices, links and inventories made by hand: what cannot be is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.inventory.inventory import Inventory
from tests.check.small import device, link

POSITIVE = ["memory_bytes", "fp16_flop_per_s", "decode_efficiency", "host_bus_bytes_per_s"]
NOT_NEGATIVE = ["reserved_bytes", "layer_overhead_s", "bus_bytes_per_s", "power_w"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((field, value) for field in POSITIVE for value in (0.0, -1.0, math.nan, math.inf)),
        *((field, value) for field in NOT_NEGATIVE for value in (-1.0, math.nan, math.inf)),
    ],
)
def test_a_device_with_an_impossible_number_is_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=rf"^Device 'a': {field} must be"):
        device("a", **{field: value})


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"reserved_bytes": 10_000.0}, "reserved_bytes 10000 leave nothing of memory_bytes 10000"),
        (
            {"memory_kind": MemoryKind.UNIFIED, "host_memory_bytes": 1.0},
            "its memory is the host's RAM",
        ),
        ({"memory_kind": MemoryKind.CPU, "host_memory_bytes": 1.0}, "its memory is the host's RAM"),
    ],
)
def test_memory_is_planned_on_once(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        device("a", **changes)


def test_a_device_has_a_name() -> None:
    with pytest.raises(InputError, match="A device needs a name"):
        device("")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        *(
            ({field: value}, "bandwidth must be positive and finite")
            for field in ("forward_bytes_per_s", "backward_bytes_per_s")
            for value in (0.0, -1.0, math.nan, math.inf)
        ),
        *(({"latency_s": v}, "latency must be zero or more") for v in (-1.0, math.nan, math.inf)),
    ],
)
def test_a_link_with_an_impossible_number_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=f"^Link a - b: {told}"):
        link("a", "b", **changes)


def test_a_link_has_two_ends() -> None:
    with pytest.raises(InputError, match=r"^Link a - a: both ends are the same"):
        link("a", "a")


def test_an_inventory_has_a_device() -> None:
    with pytest.raises(InputError, match="there are no devices"):
        Inventory(devices=())


def test_names_and_cards_are_listed_once() -> None:
    with pytest.raises(InputError, match="the name 'a' is given to 2 devices"):
        Inventory(devices=(device("a"), device("a")))
    with pytest.raises(InputError, match="uuid x is listed 2 times: a, b"):
        Inventory(devices=(device("a", uuid="x"), device("b", uuid="x")))
