"""The catalogue's devices that are worth trying: with this model and engine, at this price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.catalogue.catalogue import device_entries, device_entry
from e2llm_opt.errors import InputError
from e2llm_opt.inventory.device import MemoryKind, device_of_type
from e2llm_opt.speed import believed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from e2llm_opt.inventory.device import Device
    from e2llm_opt.problem import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One type of device that can be bought.

    Parameters
    ----------
    device
        As the catalogue describes it, under the name of its type.
    speed
        The same as fast as it is believed to be with the problem's model and engine.
    price
        [USD]; None where unknown.
    power_w
        [W]; None where unknown.
    """

    device: Device
    speed: Device
    price: float | None
    power_w: float | None

    @property
    def name(self) -> str:
        """Key of the catalogue entry."""
        return self.device.type

    def cost(self, *, by_power: bool) -> float | None:
        """Return what is paid for it: power [W] or price [USD]; None where unknown or nothing."""
        return (self.power_w if by_power else self.price) or None


def kinds_of(
    problem: Problem, prices: Mapping[str, float], names: Sequence[str] | None = None
) -> tuple[Kind, ...]:
    """Return the catalogue's devices, those called *names* or all, with their prices.

    Parameters
    ----------
    problem
        Whose model and engine they would run.
    prices
        Type -> price that wins over the catalogue's [USD].
    names
        Types that can be bought; None: all.

    Raises
    ------
    InputError
        When the catalogue has no such type, or a price is not positive.
    """
    known = {device_entry(name).key: price for name, price in prices.items()}
    for name, price in known.items():
        if not 0 < price < float("inf"):
            raise InputError(f"price of {name}: must be positive and finite, got {price:g}.")
    entries = device_entries() if names is None else tuple(device_entry(name) for name in names)
    found = {}
    for entry in entries:
        device = device_of_type(entry.key, name=entry.key)
        found[entry.key] = Kind(
            device=device,
            speed=believed(device, problem.model, problem.runtime.name, problem.pessimistic),
            price=known.get(entry.key, entry.price_usd),
            power_w=entry.power_w,
        )
    return tuple(found.values())


def undominated(kinds: Iterable[Kind], *, by_power: bool = False) -> tuple[Kind, ...]:
    """Return the kinds that no other one replaces: as fast, as large, and no dearer.

    A plan with one of the others stays a plan, no slower and no dearer, when that one takes its
    place. Kinds whose cost is unknown replace nothing; they stay.
    """
    kept: list[Kind] = []
    for kind in sorted(kinds, key=lambda kind: (_order(kind, by_power=by_power), kind.name)):
        if not any(_replaces(other, kind, by_power=by_power) for other in kept):
            kept.append(kind)
    return tuple(kept)


def _order(kind: Kind, *, by_power: bool) -> tuple[float, ...]:
    """Return what sorts a kind behind every one that may replace it."""
    cost = kind.cost(by_power=by_power)
    return (float("inf") if cost is None else cost, *(-value for value in _worth(kind.speed)))


def _replaces(other: Kind, kind: Kind, *, by_power: bool) -> bool:
    mine, theirs = kind.cost(by_power=by_power), other.cost(by_power=by_power)
    if mine is None or theirs is None or theirs > mine:
        return False
    is_discrete = other.speed.memory_kind is MemoryKind.DISCRETE
    if not is_discrete and other.speed.memory_kind is not kind.speed.memory_kind:
        return False  # an engine may keep the embedding of a card in host RAM
    pairs = zip(_worth(other.speed), _worth(kind.speed), strict=True)
    return all(one >= two for one, two in pairs)


def _worth(device: Device) -> tuple[float, ...]:
    """Return figures of which more is never worse [bytes, bytes/s, FLOP/s, -s]."""
    return (
        device.usable_bytes,
        device.decode_efficiency * device.memory_bandwidth_bytes_per_s,
        device.prefill_efficiency * device.fp16_flop_per_s,
        -device.layer_overhead_s,
    )
