"""What an engine cannot express: the reason by name, and the nearest plan that it can."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from e2llm_opt.plan.plan import PLAN_SCHEMA
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.export.setup import ReplicaSetup, Setup, StageSetup

Cut = tuple[str | tuple[str, ...], int, int]
"""Device or the devices that share a stage, first layer, layer after the last."""


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
                "stages": [_stage(*cut) for cut in cuts],
            }
            for own, cuts in replicas
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _stage(devices: str | tuple[str, ...], start: int, stop: int) -> dict[str, Any]:
    names = (devices,) if isinstance(devices, str) else devices
    shared = {"tensor_parallel": list(names)} if len(names) > 1 else {}
    return {"device": names[0], **shared, "layers": [start, stop]}


def mixed_text(setup: Setup) -> str:
    """Return the plan with the same cuts and without roles; it needs no more memory."""
    return plan_text([(own, cuts_of(own)) for own in setup.replicas], Role.MIXED)


def cuts_of(replica: ReplicaSetup) -> list[Cut]:
    """Return the cuts of a replica as they are."""
    return [(stage.stage.devices, stage.start, stage.stop) for stage in replica.stages]


def equal_cuts(devices: Sequence[str], num_layers: int) -> list[tuple[str, int, int]]:
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


def refuse_shared(setup: Setup, engine: str) -> None:
    """Refuse stages of several devices, for engines whose stages have one each.

    Raises
    ------
    NotExpressibleError
        With the same layers, a part of them on each device, where there are enough.
    """
    shared = [stage for own in setup.replicas for stage in own.stages if stage.degree > 1]
    if shared:
        raise NotExpressibleError(
            "tensor parallel stages",
            f"{_named(shared[0])} share every layer of a stage, and a stage of {engine} is one "
            "device; plan again with --tensor-parallel off, or export to vllm or sglang"
            + _NEAREST_SPLIT,
            _split_text(setup),
        )


def refuse_unlike_degrees(setup: Setup, option: str) -> None:
    """Refuse replicas whose stages have unlike numbers of devices.

    Raises
    ------
    NotExpressibleError
        As :func:`refuse_shared` does; *option* is the one number for all stages.
    """
    for replica in setup.replicas:
        degrees = [stage.degree for stage in replica.stages]
        if len(set(degrees)) > 1:
            raise NotExpressibleError(
                "one tensor parallel degree a replica",
                f"{replica.id} has stages of {', '.join(map(str, degrees))} devices, and {option} "
                f"holds for all of them{_NEAREST_SPLIT}",
                _split_text(setup),
            )


_NEAREST_SPLIT = "; the nearest, if any, has one device a stage"


def _named(stage: StageSetup) -> str:
    return " and ".join(stage.stage.devices)


def _split_text(setup: Setup) -> str:
    """Return the plan with every device a stage of its own; empty where layers are too few."""
    found = []
    for replica in setup.replicas:
        cuts: list[Cut] = []
        for stage in replica.stages:
            if stage.num_layers < stage.degree:
                return ""
            parts = equal_cuts(stage.stage.devices, stage.num_layers)
            cuts += [(name, stage.start + a, stage.start + b) for name, a, b in parts]
        found.append((replica, cuts))
    return plan_text(found)
