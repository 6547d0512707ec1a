"""What is left of a plan after each loss: figures, the worst first, and their JSON form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from e2llm_opt.plan.json_file import dump_json

if TYPE_CHECKING:
    from e2llm_opt.inventory.loss import Part

FAILURES_SCHEMA = "e2llm-opt/failures/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftReplica:
    """A replica that serves after a loss.

    Parameters
    ----------
    id
        Its name in the plan; empty where it is a new one.
    role, devices
        What it does, and on what.
    """

    id: str
    role: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What some replicas are worth together.

    Parameters
    ----------
    capacity_per_s
        Requests a second; 0 where nothing is served.
    stable
        Whether less arrives than can be served.
    lacking_per_s
        Requests a second that arrive but cannot be served.
    waiting_time_s, ttft_s, latency_s
        Means [s]; None above capacity.
    replicas
        Those that serve.
    """

    capacity_per_s: float
    stable: bool
    lacking_per_s: float
    waiting_time_s: float | None
    ttft_s: float | None
    latency_s: float | None
    replicas: tuple[LeftReplica, ...]

    @property
    def order(self) -> tuple[float, ...]:
        """Sorts what is left, the best first: stable, then capacity, then the wait."""
        if not self.stable:
            return (1.0, -self.capacity_per_s, 0.0)
        return (0.0, self.waiting_time_s or 0.0, self.latency_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossReport:
    """What one loss does.

    Parameters
    ----------
    lost
        What is lost: one thing, or two.
    replicas_lost
        Names of the replicas that cannot serve any more.
    damage
        Share of the capacity that is lost as it is.
    as_is
        The others in their roles, requests sent elsewhere.
    re_roled
        The same replicas, no layer moved, in the best roles; None: the loss changes nothing.
    re_planned
        The best plan found for what is left; None: the loss changes nothing, or it was not
        looked for, or none was found.
    was_replanned
        Whether it was looked for.
    """

    lost: tuple[Part, ...]
    replicas_lost: tuple[str, ...]
    damage: float
    as_is: Left
    re_roled: Left | None = None
    re_planned: Left | None = None
    was_replanned: bool = False

    @property
    def name(self) -> str:
        """What is lost, in words."""
        return " and ".join(f"{part.kind} {part.name}" for part in self.lost)

    @property
    def order(self) -> tuple[object, ...]:
        """Sorts losses, the worst first: not stable, then capacity lost, then the wait."""
        left = self.as_is
        return (
            left.stable,
            -self.damage,
            -(left.waiting_time_s or 0.0),
            -len(self.replicas_lost),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the loss as it stands in the JSON answer."""
        return {
            "lost": [part.name for part in self.lost],
            "kind": " + ".join(part.kind for part in self.lost),
            "replicas_lost": list(self.replicas_lost),
            "damage": self.damage,
            "as_is": asdict(self.as_is),
            "re_roled": None if self.re_roled is None else asdict(self.re_roled),
            "re_planned": None if self.re_planned is None else asdict(self.re_planned),
            "was_replanned": self.was_replanned,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """What every loss does to one plan.

    Parameters
    ----------
    rate_per_s
        What arrives [1/s].
    k
        Things lost at once.
    intact
        The plan without any loss.
    losses
        The worst first.
    explain
        Which loss hurts most, and what would help.
    warnings
        What else the reader should know.
    is_complete
        Whether every loss was looked at; otherwise it was interrupted.
    """

    rate_per_s: float
    k: int
    intact: Left
    losses: tuple[LossReport, ...]
    explain: tuple[str, ...]
    warnings: tuple[str, ...]
    is_complete: bool = True

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON values."""
        return {
            "schema": FAILURES_SCHEMA,
            "rate_per_s": self.rate_per_s,
            "k": self.k,
            "intact": asdict(self.intact),
            "losses": [loss.to_dict() for loss in self.losses],
            "explain": list(self.explain),
            "warnings": list(self.warnings),
            "complete": self.is_complete,
        }

    def to_json(self) -> str:
        """Return the answer as JSON text."""
        return dump_json(self.to_dict())
