"""What engines do otherwise than a plan says: roles dropped, the head moved, shares not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.export import front_door
from e2llm_opt.export.refusal import NotExpressibleError, cuts_of, plan_text
from e2llm_opt.problem import Role
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from e2llm_opt.export.setup import Setup


def roles_dropped(engine: str) -> str:
    """Return the warning that every replica serves whole requests."""
    return (
        f"{engine} cannot move a KV cache between replicas: roles are dropped, every replica reads "
        "prompts and writes answers, behind one front door; plan again with --roles mixed"
    )


def head_warnings(setup: Setup, engine: str) -> list[str]:
    """Return warnings for replicas whose head is not on the last stage, where the engine puts it.

    Raises
    ------
    NotExpressibleError
        When the last device has no memory left for it.
    """
    head_bytes = float(setup.plan.problem.model.get("head_bytes") or 0.0)
    found = []
    for replica in setup.replicas:
        if replica.last.stage.head or not any(own.stage.head for own in replica.stages):
            continue
        free = replica.last.stage.memory_bytes.free * replica.last.degree
        if head_bytes > free:
            raise NotExpressibleError(
                "head on the last stage only",
                f"{replica.id}: {engine} holds the output head with the last layer, on "
                f"{replica.last.device}, which has {free / GIB:.2f} GiB free for its "
                f"{head_bytes / GIB:.2f} GiB; plan again with --runtime {engine}",
                plan_text([(own, cuts_of(own)) for own in setup.replicas]),
            )
        found.append(
            f"{replica.id}: {engine} holds the output head with the last layer, so its "
            f"{head_bytes / GIB:.2f} GiB move to {replica.last.device}, where they fit"
        )
    return found


def uneven_shares(setup: Setup, what_it_does: str) -> list[str]:
    """Return a warning where replicas of a role have unlike shares that a router cannot keep."""
    found = []
    for role in (Role.PREFILL, Role.DECODE):
        own = setup.of_role(role)
        weights = front_door.weights([front_door.share(r) for r in own]) if own else ()
        if len(set(weights)) > 1:
            named = ", ".join(f"{r.id} {w} %" for r, w in zip(own, weights, strict=True))
            found.append(f"{what_it_does}, so {role} replicas do not keep the plan's {named}")
    return found
