"""Which catalogue devices are worth trying."""

from __future__ import annotations

import pytest

from e2llm_opt.advise.kinds import Kind, kinds_of, undominated
from e2llm_opt.catalogue.catalogue import device_entries
from e2llm_opt.errors import InputError
from tests.advise.lab import lab

PROBLEM = lab("raspberry-pi-5-8gb", "apple-m4")


def is_as_good(one: Kind, other: Kind) -> bool:
    """Whether *one* can take the place of *other*, from the numbers of the devices alone."""
    a, b = one.speed, other.speed
    return (
        a.memory_bytes - a.reserved_bytes >= b.memory_bytes - b.reserved_bytes
        and a.memory_bandwidth_bytes_per_s * a.decode_efficiency
        >= b.memory_bandwidth_bytes_per_s * b.decode_efficiency
        and a.fp16_flop_per_s * a.prefill_efficiency >= b.fp16_flop_per_s * b.prefill_efficiency
        and a.layer_overhead_s <= b.layer_overhead_s
        and a.memory_kind in {"discrete", b.memory_kind}
    )


@pytest.mark.parametrize("by_power", [False, True])
def test_what_is_left_out_is_replaced_by_something_no_dearer(by_power: bool) -> None:
    kinds = kinds_of(PROBLEM, {})
    assert len(kinds) == len(device_entries())
    kept = undominated(kinds, by_power=by_power)
    assert 0 < len(kept) < len(kinds)
    cost = [(kind.power_w if by_power else kind.price) for kind in kept]
    for kind in kinds:
        own = kind.power_w if by_power else kind.price
        if kind not in kept:
            assert own is not None
            assert any(
                c is not None and c <= own and is_as_good(other, kind)
                for c, other in zip(cost, kept, strict=True)
            )


def test_no_kind_that_is_kept_replaces_another() -> None:
    kept = undominated(kinds_of(PROBLEM, {}))
    for one in kept:
        for other in kept:
            if one is not other and one.price is not None and other.price is not None:
                assert one.price > other.price or not is_as_good(one, other)


def test_prices_that_are_given_win() -> None:
    (kind,) = kinds_of(PROBLEM, {"RTX 3090": 650.0}, ["rtx-3090"])
    assert kind.price == 650.0
    assert kind.cost(by_power=True) == kind.power_w


@pytest.mark.parametrize("price", [0.0, -5.0, float("nan"), float("inf")])
def test_impossible_prices_are_refused(price: float) -> None:
    with pytest.raises(InputError, match="price of rtx-3090: must be positive"):
        kinds_of(PROBLEM, {"rtx-3090": price})


def test_unknown_types_are_refused() -> None:
    with pytest.raises(InputError, match="rtx-309x"):
        kinds_of(PROBLEM, {}, ["rtx-309x"])
    with pytest.raises(InputError, match="rtx-309x"):
        kinds_of(PROBLEM, {"rtx-309x": 3.0})
