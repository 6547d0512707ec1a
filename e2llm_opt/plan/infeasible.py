"""There is no plan: who lacks what, and which change would help. An answer, not an exception."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

INFEASIBLE_SCHEMA: Final = "e2llm-opt/infeasible/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceNeed:
    """What one device would have to hold in the least bad cut, and what it has [bytes]."""

    device: str
    need_bytes: int
    have_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """One change, in the words of the inventory file, that was verified by solving again."""

    change: str
    makes: str = "feasible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Infeasible:
    """Why no plan exists.

    Parameters
    ----------
    reason
        One sentence.
    kv_cache_bytes
        KV of all slots asked for (else of one) at the context asked for.
    total_bytes
        Weights, that KV, and the engine's overhead on every device.
    shortfall_bytes
        Total less usable memory; where the sum fits, the least excess on one device; 0 where
        memory is not the reason.
    """

    schema: Literal["e2llm-opt/infeasible/v1"] = INFEASIBLE_SCHEMA
    reason: str
    kv_cache_bytes: int
    total_bytes: int
    devices: tuple[DeviceNeed, ...]
    shortfall_bytes: int
    suggestions: tuple[Suggestion, ...]

    def to_json(self) -> str:
        """Return the answer as JSON text, fields in a fixed order."""
        from e2llm_opt.plan.json_file import dump_json  # noqa: PLC0415 - json_file imports this module

        return dump_json(self)
