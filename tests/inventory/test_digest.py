"""The fingerprint of an inventory tells inventories apart, and nothing else."""

from dataclasses import replace

import pytest

from e2llm_opt.inventory.device import Device
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link

A = Device(name="a", memory_bytes=8e9, memory_bandwidth_bytes_per_s=1e11, fp16_flop_per_s=1e12)
B = replace(A, name="b")
CABLE = Link(ends=("a", "b"), forward_bytes_per_s=1e8, backward_bytes_per_s=2e8, latency_s=1e-3)
SPARE = replace(CABLE, latency_s=2e-3)
OWN = Inventory(devices=(A, B), links=(CABLE, SPARE))


@pytest.mark.parametrize(
    "same",
    [
        Inventory(devices=(B, A), links=(CABLE, SPARE)),
        Inventory(devices=(A, B), links=(SPARE, CABLE)),
        Inventory(devices=(replace(A, memory_bytes=8_000_000_000), B), links=(CABLE, SPARE)),
        Inventory(
            devices=(A, B),
            links=(
                SPARE,
                replace(CABLE, ends=("b", "a"), forward_bytes_per_s=2e8, backward_bytes_per_s=1e8),
            ),
        ),
    ],
)
def test_order_and_spelling_change_nothing(same: Inventory) -> None:
    assert inventory_sha256(same) == inventory_sha256(OWN)


@pytest.mark.parametrize(
    "other",
    [
        Inventory(devices=(A,), links=()),
        Inventory(devices=(A, B), links=(CABLE,)),
        Inventory(devices=(A, replace(B, name="c")), links=()),
        Inventory(devices=(replace(A, memory_bytes=8e9 + 1), B), links=(CABLE, SPARE)),
        Inventory(devices=(A, B), links=(replace(CABLE, ends=("b", "a")), SPARE)),
    ],
)
def test_every_number_and_name_counts(other: Inventory) -> None:
    assert inventory_sha256(other) != inventory_sha256(OWN)


def test_it_is_a_sha256() -> None:
    digest = inventory_sha256(OWN)
    assert len(digest) == 64
    assert set(digest) <= set("0123456789abcdef")
