"""What an adviser answers: the inventory as it is, and changes, the best first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from e2llm_opt.advise.changes import KINDS
from e2llm_opt.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.advise.network import Wire
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.search.stop import Stop

ADVICE_SCHEMA: Final = "e2llm-opt/advice/v1"
By = Literal["money", "power", "capacity", "waiting_time"]
BY: Final[tuple[By, ...]] = ("money", "power", "capacity", "waiting_time")
"""What changes are ranked by: gain in capacity a dollar, a watt, or in all; or in waiting time."""
PRICES_ASSUMED: Final = (
    "prices and power of the catalogue are assumed, from memory and unverified; prices of links too"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceTerms:
    """What is tried, and how it is ranked.

    Parameters
    ----------
    kinds
        Kinds of changes: ``add``, ``link``, ``format``, ``context``, ``retire``.
    by
        ``money``: gain in capacity for each dollar, then in waiting time; ``power``: for each
        watt; ``capacity`` and ``waiting_time``: the gain itself.
    top
        Devices that are added are tried until so many are known to be the best.
    prices
        Catalogue type -> price that wins over the catalogue's [USD].
    types
        Catalogue types that can be bought; None: all.
    wire
        How a device that is added is linked; None: as the others are.
    seed, stop
        Of each search.
    time_limit_s
        For all searches together [s]; None: none. With one, equal runs may differ.

    Raises
    ------
    InputError
        When a word is unknown, nothing is to be tried, or a number is impossible.
    """

    kinds: Sequence[str] = KINDS
    by: By = "money"
    top: int = 5
    prices: Mapping[str, float] | None = None
    types: Sequence[str] | None = None
    wire: Wire | None = None
    seed: int = 0
    stop: Stop | None = None
    time_limit_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse unknown words and limits that allow nothing."""
        for name in self.kinds:
            if name not in KINDS:
                raise InputError(f"kinds: '{name}' is not one of {', '.join(KINDS)}.")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise InputError("kinds: name at least one kind, and each once.")
        if self.by not in BY:
            raise InputError(f"by must be one of {', '.join(BY)}, got '{self.by}'.")
        if self.top < 1:
            raise InputError(f"top must be at least 1, got {self.top}.")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise InputError(f"time_limit_s must be positive, got {self.time_limit_s}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRow:
    """One change, and what it does.

    Parameters
    ----------
    kind, change
        What is changed: ``add``, ``link``, ``format``, ``context`` or ``retire``; and to what.
    capacity_per_s, waiting_time_s
        With the change [1/s, s]; no wait where there is no steady state.
    capacity_gain_per_s
        More requests a second than now; negative where there are fewer.
    waiting_time_gain_s
        Less waiting than now [s]; None where one of both has no steady state.
    price, power_w
        What the change costs [USD, W]; negative where it saves; None where unknown or not money.
    gives_up
        What is worse then, for people.
    plan
        With the change; None where there is none.
    """

    kind: str
    change: str
    capacity_per_s: float
    waiting_time_s: float | None
    capacity_gain_per_s: float
    waiting_time_gain_s: float | None
    price: float | None
    power_w: float | None
    gives_up: str
    plan: Plan | None

    @property
    def is_stable(self) -> bool:
        """Whether all that arrives is served with the change."""
        return self.waiting_time_s is not None

    def gain_per(self, cost: float | None) -> float | None:
        """Return the gain in capacity for each unit of *cost*; None where nothing is paid."""
        return self.capacity_gain_per_s / cost if cost is not None and cost > 0 else None

    def waiting_gain_per(self, cost: float | None) -> float | None:
        """Return the gain in waiting time [s] for each unit of *cost*; None as above."""
        gain = self.waiting_time_gain_s
        return gain / cost if gain is not None and cost is not None and cost > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the row as it stands in the JSON answer."""
        return {
            "kind": self.kind,
            "change": self.change,
            "capacity_per_s": self.capacity_per_s,
            "waiting_time_s": self.waiting_time_s,
            "stable": self.is_stable,
            "price": self.price,
            "power_w": self.power_w,
            "gives_up": self.gives_up,
            "gain": {
                "capacity_per_s": self.capacity_gain_per_s,
                "waiting_time_s": self.waiting_time_gain_s,
                "capacity_per_s_per_usd": self.gain_per(self.price),
                "waiting_time_s_per_usd": self.waiting_gain_per(self.price),
                "capacity_per_s_per_w": self.gain_per(self.power_w),
                "waiting_time_s_per_w": self.waiting_gain_per(self.power_w),
            },
            "plan": self.plan,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Untried:
    """Changes that were not planned, and why.

    Parameters
    ----------
    dominated
        Types that another one replaces: as fast, as large and no dearer.
    bounded
        Types whose gain cannot reach that of the best found.
    late
        Changes for which there was no time.
    kept
        Device that must stay -> the constraint that says so.
    """

    dominated: int
    bounded: int
    late: int
    kept: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The whole answer.

    Parameters
    ----------
    by
        What the rows are ranked by.
    capacity_per_s, waiting_time_s, plan
        Of the inventory as it is.
    reason
        Why it has no plan; empty where it has one.
    rows
        Changes that make a difference: ranked; then those without a price, or without power,
        where that is what they are ranked by; then devices that may be retired, those first whose
        loss costs nothing.
    num_ranked
        Rows that are ranked.
    untried
        What was not planned.
    warnings
        What else to know.
    """

    by: By
    capacity_per_s: float
    waiting_time_s: float | None
    plan: Plan | None
    reason: str
    rows: tuple[AdviceRow, ...]
    num_ranked: int
    untried: Untried
    warnings: tuple[str, ...]

    @property
    def is_stable(self) -> bool:
        """Whether all that arrives is served now."""
        return self.waiting_time_s is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as it is printed as JSON."""
        return {
            "schema": ADVICE_SCHEMA,
            "by": self.by,
            "now": {
                "capacity_per_s": self.capacity_per_s,
                "waiting_time_s": self.waiting_time_s,
                "stable": self.is_stable,
                "reason": self.reason,
                "plan": self.plan,
            },
            "advice": [
                {"rank": rank if rank <= self.num_ranked else None, **row.to_dict()}
                for rank, row in enumerate(self.rows, start=1)
            ],
            "untried": {
                "dominated": self.untried.dominated,
                "bounded": self.untried.bounded,
                "late": self.untried.late,
                "kept": dict(self.untried.kept),
            },
            "warnings": list(self.warnings),
        }
