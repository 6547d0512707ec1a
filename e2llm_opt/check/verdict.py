"""What the checker answers: violations with need and have, and every figure it recomputed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import DecodeFigures, PrefillFigures, Route, Stage

Amount = float | str | None
"""A number in SI units, or a few words where no number says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule that the plan breaks, or one number that it gets wrong.

    Parameters
    ----------
    what
        The rule, with the replica where it belongs to one.
    need, have
        What would be right, and what is there; bytes, seconds, tokens or requests/s.
    device
        The device concerned; None where it is a whole replica or the plan.
    """

    what: str
    need: Amount
    have: Amount
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFigures:
    """One replica recomputed; stages and figures have the fields of the plan.

    Parameters
    ----------
    slots
        As the plan says, else those of the best service rate that memory and the speed limits
        allow.
    tpot_s
        Time per output token at full slots, the pauses of a MIXED replica counted [s].
    latency_s
        One request alone with full slots: prefill in PREFILL, ``output`` tokens in DECODE, both
        in MIXED [s].
    service_rate_per_s
        Capacity of the replica in its role [requests/s].
    max_context_tokens
        None where the KV cache does not grow with the context.
    """

    id: str
    role: str
    slots: int
    stages: tuple[Stage, ...]
    prefill: PrefillFigures
    decode: DecodeFigures | None
    tpot_s: float | None
    latency_s: float
    service_rate_per_s: float
    max_context_tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoad:
    """Planned traffic of one link in one direction (``both`` where it is half duplex)."""

    ends: tuple[str, str]
    interface: str
    direction: str
    load_bytes_per_s: float
    bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The second opinion on one plan.

    Parameters
    ----------
    violations
        Empty where the plan is valid.
    replicas
        Those that could be recomputed: devices known, layers covered, stages connected.
    routes
        KV transfers of the plan's routes, or of all pairs where it names none.
    links
        Links that carry traffic at the planned rates.
    capacity_per_s
        Of the whole plan, before link limits; None where a replica could not be recomputed.
    """

    violations: tuple[Violation, ...]
    replicas: tuple[ReplicaFigures, ...]
    routes: tuple[Route, ...]
    links: tuple[LinkLoad, ...]
    capacity_per_s: float | None

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong with the plan."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Return the answer of ``e2llm-opt check --json`` (DESIGN section 4.3)."""
        return {
            "valid": self.valid,
            "violations": [
                {"what": v.what, "device": v.device, "need": v.need, "have": v.have}
                for v in self.violations
            ],
            "recomputed": {
                "capacity_per_s": self.capacity_per_s,
                "replicas": [asdict(replica) for replica in self.replicas],
                "routes": [asdict(route) for route in self.routes],
                "links": [asdict(link) for link in self.links],
            },
        }
