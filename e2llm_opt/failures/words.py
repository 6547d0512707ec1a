"""Which loss hurts most, and what would help, in sentences that were computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.search.phrases import named, number_text, percent, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.failures.answer import Left, LossReport
    from e2llm_opt.problem import Problem

_MOST = 6
"""Losses that are named of those that the plan does not survive."""


def explained(problem: Problem, intact: Left, losses: Sequence[LossReport]) -> tuple[str, ...]:
    """Return what the *losses*, the worst first, come down to."""
    return tuple(_sentences(problem, intact, losses)) if losses else ()


def _sentences(problem: Problem, intact: Left, losses: Sequence[LossReport]) -> Iterator[str]:
    worst = losses[0]
    if worst.re_roled is None:
        yield "No loss changes anything."
        return
    gone = f"it takes {named(worst.replicas_lost)} with it; " if worst.replicas_lost else ""
    yield (
        f"Hurts most: the loss of {worst.name}: {gone}{left_text(worst.as_is)}, in place of "
        f"{left_text(intact)}."
    )
    fatal = [loss for loss in losses if not loss.as_is.stable]
    if not intact.stable:
        yield "Not stable: the plan cannot serve what arrives even without a loss."
    elif fatal:
        shown = [loss.name for loss in fatal[:_MOST]]
        rest = f" and {len(fatal) - _MOST} more" if len(fatal) > _MOST else ""
        yield (
            f"Not survived: {len(fatal)} of {len(losses)} losses ({', '.join(shown)}{rest}) leave "
            "less than what arrives."
        )
    else:
        yield f"Survived: what is left serves what arrives after each of the {len(losses)} losses."
    if fatal and intact.stable:
        yield from _help(problem, worst)


def _help(problem: Problem, worst: LossReport) -> Iterator[str]:
    """Yield the least that keeps what is left stable after the worst loss."""
    left, again = worst.re_roled, worst.re_planned
    if left is not None and left.stable:
        roles = ", ".join(f"{one.id} {one.role}" for one in left.replicas)
        yield f"Would help: other roles, no weights moved ({roles}): {left_text(left)}."
    elif again is not None and again.stable:
        groups = ", ".join(f"{named(one.devices)} {one.role}" for one in again.replicas)
        yield f"Would help: a new plan of what is left ({groups}): {left_text(again)}."
    elif again is not None:
        yield (
            f"Would help: fewer requests; the best plan found of what is left serves "
            f"{number_text(again.capacity_per_s)} requests/s."
        )
    if not problem.constraints.survive:
        yield (
            "constraints.survive: 1 asks for a plan that stays stable whichever device fails, if "
            "there is one."
        )


def left_text(left: Left) -> str:
    """Return what is left in a few words."""
    if left.capacity_per_s <= 0:
        return "nothing is served"
    capacity = f"a capacity of {number_text(left.capacity_per_s)} requests/s"
    if not left.stable:
        return f"{capacity}, {number_text(left.lacking_per_s)} too few"
    return f"{capacity} and a wait of {time_text(left.waiting_time_s or 0.0)}"


def share_text(loss: LossReport) -> str:
    """Return the share of the capacity that a loss takes."""
    return percent(max(loss.damage, 0.0))
