"""A plan as it was given: what is None is not stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from e2llm_opt.problem import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenStage:
    """A stage as the plan gives it; ``stated`` holds its numbers by dotted key.

    ``intervals`` holds low and high ends, infinity for no high end.
    ``spilled_layers`` is None where the plan leaves the choice to the checker.
    """

    device: str
    start: int
    stop: int
    embedding: bool | None
    head: bool | None
    spilled_layers: tuple[int, ...] | None
    next_device: str | None
    stated: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]

    @property
    def layers(self) -> str:
        """Its interval, for messages."""
        return f"[{self.start}, {self.stop})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenReplica:
    """A replica as the plan gives it; what is None is not stated."""

    id: str
    role: Role
    slots: int | None
    stages: tuple[GivenStage, ...]
    stated: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]

    @property
    def micro_batches(self) -> int | None:
        """Micro-batches in flight at full slots, where stated."""
        stated = self.stated.get("decode.micro_batches")
        return None if stated is None else int(stated)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRoute:
    """A route as the plan gives it."""

    prefill: str
    decode: str
    rate_per_s: float | None
    stated: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenScenario:
    """What the plan says of itself in one scenario."""

    name: str
    capacity_per_s: float | None
    is_stable: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenPlan:
    """A plan as it was given; ``routes`` and ``unused_devices`` are None where not stated."""

    replicas: tuple[GivenReplica, ...]
    routes: tuple[GivenRoute, ...] | None
    unused_devices: tuple[str, ...] | None
    inventory_sha256: str
    capacity_per_s: float | None
    is_stable: bool | None
    bound: Mapping[str, float]
    proof: str
    predicted: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    scenarios: tuple[GivenScenario, ...] = ()
