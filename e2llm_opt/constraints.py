"""What every plan must obey, whatever would be faster."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from e2llm_opt.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


Roles = Literal["auto", "disaggregated", "mixed"]
MAX_SURVIVE = 2
"""Most failures at once that a plan can be asked to survive."""
DEGREES = (2, 4, 8)
"""Devices that may serve one stage together."""
Degrees = Literal["auto", "off", 2, 4, 8]
"""Whether they do: where it is better, never, or exactly so many for every stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """What every plan must obey.

    Parameters
    ----------
    replicas
        Exactly so many; None: the planner chooses.
    use_all_devices
        No device may stay without layers (excluded ones do).
    roles
        ``auto``, ``disaggregated`` (PREFILL and DECODE only) or ``mixed`` (MIXED only).
    exclude
        Names of devices that are not to be used.
    pin
        Replica: names of devices that must hold layers in it, and in no other. The plan calls the
        replica by that name. A mapping, kept as sorted pairs.
    layers
        Device: exactly so many layers it must hold. A mapping, kept as sorted pairs.
    survive
        After any so many devices have failed, what is left must be stable at the workload's rate,
        with the same layers in the same roles; 0: failures do not matter.
    tensor_parallel
        Whether several devices of a host may serve one stage: ``auto`` (where the engine does that
        unasked, and where it is better), ``off``, or 2, 4 or 8 for every stage.
    """

    replicas: int | None = None
    use_all_devices: bool = False
    roles: Roles = "auto"
    exclude: tuple[str, ...] = ()
    pin: Mapping[str, Sequence[str]] | tuple[tuple[str, tuple[str, ...]], ...] = ()
    layers: Mapping[str, int] | tuple[tuple[str, int], ...] = ()
    survive: int = 0
    tensor_parallel: Degrees = "auto"

    def __post_init__(self) -> None:
        """Keep mappings as sorted pairs, which can be hashed."""
        pin = sorted((name, tuple(devices)) for name, devices in dict(self.pin).items())
        object.__setattr__(self, "pin", tuple(pin))
        object.__setattr__(self, "layers", tuple(sorted(dict(self.layers).items())))

    @property
    def pins(self) -> dict[str, tuple[str, ...]]:
        """Devices of each pinned replica."""
        return {name: tuple(devices) for name, devices in dict(self.pin).items()}

    @property
    def pinned(self) -> dict[str, str]:
        """Replica of each pinned device."""
        return {device: name for name, devices in self.pins.items() for device in devices}

    @property
    def fixed_layers(self) -> dict[str, int]:
        """Number of layers of each device that has one."""
        return dict(self.layers)

    def faults(self, names: Sequence[str], num_layers: int) -> list[Fault]:
        """Return what is wrong with the constraints for devices called *names*."""
        return [
            *self._unknown(names),
            *self._pin_faults(),
            *self._layer_faults(num_layers),
            *self._survive_faults(names),
        ]

    def _unknown(self, names: Sequence[str]) -> Iterator[Fault]:
        uses = {
            "exclude": self.exclude,
            "pin": tuple(self.pinned),
            "layers": tuple(self.fixed_layers),
        }
        for key, devices in uses.items():
            for device in devices:
                if device not in names:
                    wrong = f"no device is called '{device}'"
                    yield Fault(path=f"constraints.{key}", wrong=wrong)
                elif key != "exclude" and device in self.exclude:
                    wrong = f"'{device}' is excluded (constraints.exclude)"
                    yield Fault(path=f"constraints.{key}", wrong=wrong, right="remove one of them")
        if set(names) <= set(self.exclude):
            yield Fault(path="constraints.exclude", wrong="every device is excluded")

    def _pin_faults(self) -> Iterator[Fault]:
        pins = self.pins
        uses = Counter(device for devices in pins.values() for device in devices)
        for device, times in uses.items():
            if times > 1:
                wrong = f"'{device}' is pinned {times} times"
                yield Fault(path="constraints.pin", wrong=wrong, right="a device has one replica")
        for name, devices in pins.items():
            if not devices:
                yield Fault(path="constraints.pin", wrong=f"'{name}' names no device")
        if self.replicas is not None and len(pins) > self.replicas:
            wrong = f"{len(pins)} replicas are pinned, but constraints.replicas is {self.replicas}"
            yield Fault(path="constraints.pin", wrong=wrong)

    def _layer_faults(self, num_layers: int) -> Iterator[Fault]:
        for device, layers in self.fixed_layers.items():
            if not 1 <= layers <= num_layers:
                yield Fault(
                    path="constraints.layers",
                    wrong=f"{device}: must be 1 to {num_layers}, the model's layers, got {layers}",
                    right="to leave the device out, use constraints.exclude",
                )

    def _survive_faults(self, names: Sequence[str]) -> Iterator[Fault]:
        """Yield what leaves no plan that survives, whatever the devices are worth."""
        path, survive = "constraints.survive", self.survive
        if not 0 <= survive <= MAX_SURVIVE:
            wrong = f"must be 0 to {MAX_SURVIVE}, the most failures at once, got {survive}"
            yield Fault(path=path, wrong=wrong)
        elif survive:
            need, asked = survive + 1, f"survive: {survive}"
            if self.roles == "disaggregated":
                need, asked = 2 * need, f"{asked} with roles: disaggregated"
            free = [name for name in names if name not in {*self.exclude, *self.pinned}]
            most = len(self.pins) + len(free)
            if self.replicas is not None and self.replicas < need:
                wrong = f"{asked} needs {need} replicas or more, but replicas is {self.replicas}"
                yield Fault(path=path, wrong=wrong, right="remove one of them")
            elif most < need:
                wrong = f"{asked} needs {need} replicas or more, but there can be {most} at most"
                yield Fault(path=path, wrong=wrong, right="add devices, or exclude or pin fewer")
