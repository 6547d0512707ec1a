"""A device made from its catalogue entry."""

from __future__ import annotations

import pytest

from e2llm_opt.catalogue.catalogue import device_entries
from e2llm_opt.catalogue.names import UnknownNameError
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import MemoryKind, device_of_type
from e2llm_opt.provenance import Provenance
from e2llm_opt.units import GIB


def test_a_typed_device_has_the_entrys_numbers_in_si() -> None:
    card = device_of_type("GeForce RTX 3060 12GB", name="tower")
    assert card.type == "rtx-3060-12gb"
    assert card.memory_bytes == 12 * GIB
    assert card.reserved_bytes == 0.5 * GIB
    assert card.memory_bandwidth_bytes_per_s == 360e9
    assert card.fp16_flop_per_s == pytest.approx(25.6e12)
    assert card.layer_overhead_s == pytest.approx(15e-6)
    assert card.memory_kind is MemoryKind.DISCRETE
    assert card.power_w == 170
    assert card.provenance is Provenance.CATALOGUE


def test_every_entry_makes_a_device() -> None:
    for entry in device_entries():
        device = device_of_type(entry.key, name="d")
        assert device.usable_bytes == pytest.approx((entry.memory_gib - entry.reserved_gib) * GIB)


def test_overrides_win() -> None:
    card = device_of_type("rtx-3060-12gb", name="a", fp16_flop_per_s=51e12, host="tower")
    assert card.fp16_flop_per_s == 51e12
    assert card.host == "tower"


def test_the_reserve_of_unified_memory_follows_its_size() -> None:
    big = device_of_type("apple-m1", name="a", memory_bytes=64 * GIB)
    assert big.reserved_bytes == pytest.approx(16 * GIB)
    bare = device_of_type("apple-m1", name="a", memory_bytes=64 * GIB, reserved_bytes=0.0)
    assert bare.reserved_bytes == 0
    card = device_of_type("rtx-4090", name="a", memory_bytes=48 * GIB)
    assert card.reserved_bytes == 0.5 * GIB


def test_unknown_types_and_impossible_numbers_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="did you mean"):
        device_of_type("rtx-3061", name="a")
    with pytest.raises(InputError, match="memory_bytes must be positive"):
        device_of_type("rtx-3060-12gb", name="a", memory_bytes=-1.0)
