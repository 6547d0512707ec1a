"""What an engine cannot express: the reason by name, and the nearest plan that it can."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from e2llm_opt.plan.plan import PLAN_SCHEMA
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

Cut = tuple[str, int, int]
"""Device, first layer, layer after the last."""


class NotExpressibleError(Exception):
    """The engine cannot express the plan.

    Never leaves :func:`e2llm_opt.export.export.export`, which answers with the reason.

    Parameters
    ----------
    reason
        A short name of what is missing.
    sentence
        Where it shows in this plan, and what to do.
    nearest
        Text of the nearest plan, as :func:`plan_text` writes it, or empty.
    """

    def __init__(self, reason: str, sentence: str, nearest: str = "") -> None:
        self.reason = reason
        self.sentence = sentence
        self.nearest = nearest
        super().__init__(f"{reason}: {sentence}")


def plan_text(
    replicas: Sequence[tuple[ReplicaSetup, Sequence[Cut]]], role: Role | None = None
) -> str:
    """Return a plan as a person would write it: each replica with other cuts, as JSON.

    Parameters
    ----------
    role
        Of every replica; its own unless given.
    """
    document = {
        "schema": PLAN_SCHEMA,
        "replicas": [
            {
                "id": own.id,
                "role": str(role or own.role),
                "slots": own.slots,
                "stages": [{"device": name, "layers": [start, stop]} for name, start, stop in cuts],
            }
            for own, cuts in replicas
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def mixed_text(setup: Setup) -> str:
    """Return the plan with the same cuts and without roles; it needs no more memory."""
    return plan_text([(own, cuts_of(own)) for own in setup.replicas], Role.MIXED)


def cuts_of(replica: ReplicaSetup) -> list[Cut]:
    """Return the cuts of a replica as they are."""
    return [(stage.device, stage.start, stage.stop) for stage in replica.stages]


def equal_cuts(devices: Sequence[str], num_layers: int) -> list[Cut]:
    """Return shares as equal as whole layers allow."""
    k = len(devices)
    bounds = [num_layers * i // k for i in range(k + 1)]
    return [(name, bounds[i], bounds[i + 1]) for i, name in enumerate(devices)]


def equal_share_fits(
    replica: ReplicaSetup, stage: StageSetup, num_shares: int, *, cache_factor: float = 1.0
) -> bool:
    """Whether one of *num_shares* equal shares of a replica fits the device of *stage*.

    A plan that states no capacities cannot tell.

    Parameters
    ----------
    cache_factor
        KV cache in comparison with the plan's.
    """
    own = stage.stage.memory_bytes
    held = [part.stage.memory_bytes for part in replica.stages]
    total = sum(part.weights + part.host + cache_factor * part.kv_cache for part in held)
    return own.capacity <= 0 or total / num_shares + own.overhead <= own.capacity


def refuse_spilled(setup: Setup, why: str) -> None:
    """Refuse plans that keep weights in host RAM.

    Raises
    ------
    NotExpressibleError
        Naming the devices.
    """
    spilling = [s.device for r in setup.replicas for s in r.stages if s.stage.spilled_layers]
    if spilling:
        raise NotExpressibleError(
            "spilled layers",
            f"{', '.join(spilling)} keep weights in host RAM; {why}; plan again without their "
            "host_memory_gib, or with smaller weights",
        )
