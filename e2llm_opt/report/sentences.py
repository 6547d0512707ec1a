"""A plan in plain sentences: what it does, how fast that is, why, and what to beware of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.report.names import listed
from e2llm_opt.report.quantities import number, percent, rate, seconds, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.plan.plan import Plan, Replica

_DOES = {
    "PREFILL": "reads prompts",
    "DECODE": "writes answers",
    "MIXED": "reads prompts and writes answers",
}


def sentences(plan: Plan) -> list[str]:
    """Return *plan* as sentences, the most important first."""
    return [*_what(plan), *_how_fast(plan), *plan.explain, *(_full(w) for w in plan.warnings)]


def _what(plan: Plan) -> Iterator[str]:
    used = set(plan.used_devices)
    model = plan.problem.model.get("name", "The model")
    replicas = f"{len(plan.replicas)} replica{'s' if len(plan.replicas) != 1 else ''}"
    whole = len(used) + len(plan.unused_devices)
    yield f"{model} runs as {replicas} on {len(used)} of {whole} devices."
    yield from map(_replica, plan.replicas)


def _replica(replica: Replica) -> str:
    names = [stage.title for stage in replica.stages]
    where = f"on {names[0]}" if len(names) == 1 else f"as a pipeline over {listed(names)}"
    busy = f"it is busy {percent(replica.utilisation)} of the time"
    slots = ""
    if replica.role != "PREFILL":
        slots = f" {replica.slots} at once," if replica.slots > 1 else " one at a time,"
    return f"{replica.id} {_DOES.get(replica.role, replica.role)}{slots} {where}; {busy}."


def _how_fast(plan: Plan) -> Iterator[str]:
    figures, between = plan.predicted, plan.predicted.intervals
    asked = rate(plan.problem.workload.get("rate_per_s"))
    if figures.waiting_time_s is None:
        yield (
            f"It serves {rate(figures.capacity_per_s)} at most, and {asked} arrive: the queue "
            "grows for ever."
        )
        return
    likely = ""
    if between is not None and between.waiting_time_s is not None:
        likely = f" (80 % of such devices: {span(*between.waiting_time_s)})"
    yield (
        f"At {asked} a request waits {seconds(figures.waiting_time_s)} on average{likely}, sees "
        f"its first token after {seconds(figures.ttft_s)} and "
        f"{number(1.0 / figures.tpot_s)} tokens a second from then on."
    )
    yield f"Up to {rate(figures.capacity_per_s)} can be served."


def _full(warning: str) -> str:
    """Return a warning as a sentence of its own."""
    return f"Beware: {warning}{'' if warning.endswith('.') else '.'}"
