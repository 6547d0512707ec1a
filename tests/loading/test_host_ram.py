"""Host RAM that cards may use is never planned on a second time."""

from __future__ import annotations

import pytest

from e2llm_opt import Device, InputError, Inventory, MemoryKind
from e2llm_opt.loading.load import problem_from_mapping

GIB = 2**30
CARD = {
    "name": "card",
    "type": "rtx-3060-12gb",
    "host": "pc",
    "host_memory_gib": 20,
    "host_bandwidth_gb_s": 40,
    "bus_gb_s": 12,
}
IGPU = {"name": "igpu", "type": "ryzen-ai-9-hx-370", "host": "pc", "memory_gib": 64}


def inventory(*devices: dict[str, object]) -> Inventory:
    return problem_from_mapping(
        {
            "devices": list(devices),
            "model": "llama-3.2-3b",
            "workload": {"prompt_tokens": 100, "output_tokens": 100},
        }
    ).inventory


def test_a_device_that_computes_in_ram_leaves_the_cards_their_share() -> None:
    alone = inventory(IGPU).devices[0]
    together = inventory(CARD, IGPU).devices[1]
    assert together.usable_bytes == pytest.approx(alone.usable_bytes - 20 * GIB)
    assert inventory({**CARD, "host": "other"}, IGPU).devices[1] == alone


def test_a_stated_reserve_must_hold_the_share() -> None:
    assert inventory(CARD, {**IGPU, "reserved_gib": 20}).devices[1].reserved_bytes == 20 * GIB
    with pytest.raises(
        InputError, match="'igpu' is planned on RAM that cards of host 'pc' may use"
    ):
        inventory(CARD, {**IGPU, "reserved_gib": 19})


def test_a_device_that_computes_in_ram_has_no_host_ram_beside_it() -> None:
    with pytest.raises(InputError, match="its memory is the host's RAM"):
        inventory({**CARD, "type": "jetson-agx-orin-32"})


def test_shares_of_several_cards_add_up() -> None:
    second = {**CARD, "name": "second", "host_memory_gib": 10}
    with pytest.raises(InputError, match="30 GiB in all"):
        inventory(CARD, second, {**IGPU, "reserved_gib": 29})
    inventory(CARD, second, {**IGPU, "reserved_gib": 30})


def test_objects_made_in_python_are_held_to_the_same() -> None:
    def device(name: str, kind: MemoryKind, host_gib: float) -> Device:
        return Device(
            name=name,
            host="pc",
            memory_bytes=32 * GIB,
            memory_bandwidth_bytes_per_s=100e9,
            fp16_flop_per_s=10e12,
            memory_kind=kind,
            host_memory_bytes=host_gib * GIB,
            host_bandwidth_bytes_per_s=40e9,
            bus_bytes_per_s=10e9,
        )

    with pytest.raises(InputError, match="8 GiB in all"):
        Inventory(
            devices=(device("card", MemoryKind.DISCRETE, 8), device("cpu", MemoryKind.CPU, 0))
        )
    with pytest.raises(InputError, match="its memory is the host's RAM"):
        device("cpu", MemoryKind.CPU, 8)
