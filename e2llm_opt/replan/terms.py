"""What moving may cost: over which time a gain counts, how fast weights load, and limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from e2llm_opt.errors import Fault, InputError

StepName: TypeAlias = Literal["routing", "roles", "layers"]
STEPS: Final[tuple[StepName, ...]] = get_args(StepName)
"""From the cheapest to the dearest."""
ALL_DEVICES: Final = "all-devices"
"""Of ``weights_on``: every device has the model file on its own disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanTerms:
    """What a change may cost, and what it must bring.

    Parameters
    ----------
    horizon_s
        How long the new plan is taken to serve: what is saved until then counts [s].
    hysteresis
        A change must gain 1 + hysteresis times its price, and this share of what requests lose in
        the plan as it stands.
    noise
        Where every stage, link and length is within this share of what the plan was made for, only
        devices that it left idle can be worth a change.
    load_bytes_per_s
        From disk or network buffer into the device [bytes/s].
    weights_on
        Who has the whole model file: :data:`ALL_DEVICES`, the name of one device, or None where
        nobody knows.
    max_moves
        Most moves; None: no limit.
    max_move_bytes
        Most weights that are sent or loaded, over all moves [bytes].
    max_downtime_s
        Longest time for which a replica that serves may be stopped [s].
    step
        The dearest step that may be taken.

    Raises
    ------
    InputError
        With every number that is impossible.
    """

    horizon_s: float = 3600.0
    hysteresis: float = 0.1
    noise: float = 0.03
    load_bytes_per_s: float = 1e9
    weights_on: str | None = None
    max_moves: int | None = None
    max_move_bytes: float | None = None
    max_downtime_s: float | None = None
    step: StepName = "layers"

    def __post_init__(self) -> None:
        """Refuse impossible numbers, all at once."""
        faults = [
            _fault(name, value, "positive")
            for name in ("horizon_s", "load_bytes_per_s")
            if not _is_positive(value := getattr(self, name))
        ]
        for name in ("hysteresis", "noise", "max_moves", "max_move_bytes", "max_downtime_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                faults.append(_fault(name, value, "zero or more"))
        if self.step not in STEPS:
            right = f"one of {', '.join(STEPS)}"
            faults.append(Fault(path="step", wrong=f"unknown step '{self.step}'", right=right))
        if faults:
            raise InputError(faults)

    @property
    def limits(self) -> tuple[str, ...]:
        """The limits that are set, in words."""
        given = {
            "max_moves": self.max_moves,
            "max_move_bytes": self.max_move_bytes,
            "max_downtime_s": self.max_downtime_s,
        }
        return tuple(f"{name} {value:g}" for name, value in given.items() if value is not None)


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _fault(name: str, value: float, right: str) -> Fault:
    return Fault(path=name, wrong=f"must be {right} and finite, got {value}")
