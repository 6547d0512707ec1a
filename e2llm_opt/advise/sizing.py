"""What a sizing asks and answers: a target, and the cheapest devices that reach it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.advise.network import Wire
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem

SIZING_SCHEMA: Final = "e2llm-opt/sizing/v1"
DEFAULT_MAX_DEVICES: Final = 32
DEFAULT_TRIALS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingTarget:
    """What the devices must do, and what may be bought.

    Parameters
    ----------
    rate_per_s
        Requests a second that are served in a steady state.
    ttft_s, tpot_s
        Service levels [s]; None: those of the problem.
    by
        ``money``: the least price; ``power``: the least power.
    max_devices
        In all.
    prices
        Catalogue type -> price that wins over the catalogue's [USD].
    types
        Catalogue types that can be bought; None: all.
    wire
        How each device is linked to the one switch; None: gigabit, 0.2 ms.
    trials
        Sets of devices that are planned at most.
    seed
        Of each search.
    time_limit_s
        For all searches together [s]; None: none.

    Raises
    ------
    InputError
        When a number is impossible or a word unknown.
    """

    rate_per_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None
    by: Literal["money", "power"] = "money"
    max_devices: int = DEFAULT_MAX_DEVICES
    prices: Mapping[str, float] | None = None
    types: Sequence[str] | None = None
    wire: Wire | None = None
    trials: int = DEFAULT_TRIALS
    seed: int = 0
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name in ("rate_per_s", "ttft_s", "tpot_s", "time_limit_s"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"{name} must be positive and finite, got {value}.")
        if self.by not in {"money", "power"}:
            raise InputError(f"by must be money or power, got '{self.by}'.")
        if self.max_devices < 1 or self.trials < 1:
            raise InputError("max_devices and trials must be at least 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The cheapest devices found that reach a target.

    Parameters
    ----------
    target
        What was asked.
    devices
        Catalogue type -> how many, by name.
    price, power_w
        Of all together [USD, W]; None where one of them has none.
    bound
        No set of catalogue devices that reaches the target costs less [USD, or W by power].
    gap
        (cost - bound) / cost.
    is_cheapest
        Every cheaper set was ruled out: by the bound, or by planning it.
    plan
        For these devices.
    problem
        What was planned: these devices on one switch.
    tried
        Sets that were planned.
    warnings
        What else to know.
    """

    target: SizingTarget
    devices: Mapping[str, int]
    price: float | None
    power_w: float | None
    bound: float
    gap: float
    is_cheapest: bool
    plan: Plan
    problem: Problem
    tried: int
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as it is printed as JSON."""
        return {
            "schema": SIZING_SCHEMA,
            "target": {
                "rate_per_s": self.target.rate_per_s,
                "ttft_s": self.target.ttft_s,
                "tpot_s": self.target.tpot_s,
                "by": self.target.by,
            },
            "devices": [{"type": name, "count": num} for name, num in self.devices.items()],
            "price": self.price,
            "power_w": self.power_w,
            "bound": self.bound,
            "gap": self.gap,
            "cheapest": self.is_cheapest,
            "tried": self.tried,
            "warnings": list(self.warnings),
            "plan": self.plan,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreachable:
    """No catalogue devices reach the target, and why.

    Parameters
    ----------
    reason
        One sentence.
    is_proven
        Whether none can; else none was found.
    """

    reason: str
    is_proven: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as it is printed as JSON."""
        return {"schema": SIZING_SCHEMA, "reason": self.reason, "proven": self.is_proven}
