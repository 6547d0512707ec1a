"""The numbers that a plan states, held against those that were recomputed."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from e2llm_opt.check.spill import WHOLE_BYTE
from e2llm_opt.check.verdict import Violation
from e2llm_opt.plan.plan import Proof
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from e2llm_opt.check.given import GivenPlan, GivenReplica, GivenRoute
    from e2llm_opt.check.pipeline import Pipeline
    from e2llm_opt.check.traffic import KVTransfer
    from e2llm_opt.check.verdict import LinkLoad, ReplicaFigures
    from e2llm_opt.problem import Problem

TOLERANCE = 1e-6
"""Relative difference up to which two numbers are the same."""
_ROUNDING = 1e-9
OTHER_PHASE = {Role.PREFILL: "decode", Role.DECODE: "prefill", Role.MIXED: "neither"}
"""Role: the phase that its replicas take no part in."""


def figure_violations(given: GivenReplica, figures: ReplicaFigures) -> Iterator[Violation]:
    """Yield each stated number of a replica and its stages that is not the recomputed one."""
    for index, (stage, own) in enumerate(zip(given.stages, figures.stages, strict=True)):
        for key, have in stage.stated.items():
            need = value_of(asdict(own), key)
            if need is not None and not _agrees(given.role, key, have, need):
                what = f"{given.id}: stages[{index}].{key} is not as recomputed"
                yield Violation(what=what, device=stage.device, need=need, have=have)
    expected: dict[str, Any] = asdict(figures)
    arrival = given.stated.get("arrival_rate_per_s")
    if arrival is not None:
        expected["utilisation"] = arrival / figures.service_rate_per_s
    for key, have in given.stated.items():
        need = value_of(expected, key)
        if key in {"max_context_tokens", "decode.micro_batches"} or need is None:
            continue
        if not _agrees(given.role, key, have, need):
            what = f"{given.id}: {key} is not as recomputed"
            yield Violation(what=what, need=need, have=have)


def context_violations(given: GivenReplica, pipeline: Pipeline, slots: int) -> Iterator[Violation]:
    """Yield a stated ``max_context_tokens`` that does not fit, or is not the most that does."""
    stated = given.stated.get("max_context_tokens")
    longest = pipeline.max_context_tokens(slots)
    if stated is None or longest is None or stated == longest:
        return
    # A context that fills the memory to the byte may fall on either side of a rounding.
    room = [
        -pipeline.excess_bytes(seat, slots, tokens)
        for tokens in (stated, stated + 1)
        for seat in pipeline.seats
    ]
    here, beyond = room[: len(pipeline.seats)], room[len(pipeline.seats) :]
    if min(here) < -WHOLE_BYTE or min(beyond) > WHOLE_BYTE:
        yield Violation(
            what=f"{given.id}: max_context_tokens is not as recomputed", need=longest, have=stated
        )


def micro_batch_violations(
    given: GivenReplica, pipeline: Pipeline, slots: int
) -> Iterator[Violation]:
    """Yield a stated number of micro-batches that is impossible or not the best."""
    stated = given.micro_batches
    if stated is None or not pipeline.decodes:
        return
    best = pipeline.best_micro_batches(slots)
    if not is_possible(stated, pipeline, slots):
        what = f"{given.id}: decode.micro_batches is more than stages, slots or engine allow"
        yield Violation(what=what, need=best, have=stated)
    elif pipeline.round_s(slots, stated) > pipeline.round_s(slots, best) * (1 + _ROUNDING):
        what = f"{given.id}: decode.micro_batches is not the best"
        yield Violation(what=what, need=best, have=stated)


def is_possible(micro_batches: int, pipeline: Pipeline, slots: int) -> bool:
    """Whether so many micro-batches can be in flight: m ≤ min(k, n), 1 without overlap."""
    most = min(len(pipeline.seats), slots) if pipeline.problem.runtime.is_pipelined else 1
    return 1 <= micro_batches <= most


def speed_violations(figures: ReplicaFigures, problem: Problem) -> Iterator[Violation]:
    """Yield the hard speed limits that a replica breaks at full slots, pauses counted."""
    if figures.tpot_s is None:
        return
    workload = problem.workload
    if workload.min_tokens_per_s > 0:
        speed = 1 / figures.tpot_s
        if speed < workload.min_tokens_per_s * (1 - _ROUNDING):
            what = f"{figures.id}: workload.min_tokens_per_s"
            yield Violation(what=what, need=workload.min_tokens_per_s, have=speed)
    limit = workload.slo_tpot_s
    if limit is not None and figures.tpot_s > limit * (1 + _ROUNDING):
        yield Violation(what=f"{figures.id}: slo.tpot_s", need=limit, have=figures.tpot_s)


def route_violations(route: GivenRoute, transfer: KVTransfer) -> Iterator[Violation]:
    """Yield each stated number of a route that is not the recomputed one."""
    expected = {"kv_bytes": transfer.num_bytes, "kv_transfer_s": transfer.exposed_s}
    for key, have in route.stated.items():
        if not _agrees(Role.MIXED, key, have, expected[key]):
            what = f"route {route.prefill} to {route.decode}: {key} is not as recomputed"
            yield Violation(what=what, need=expected[key], have=have)


def load_violations(links: tuple[LinkLoad, ...]) -> Iterator[Violation]:
    """Yield every link direction that the planned rates saturate."""
    for link in links:
        if link.load_bytes_per_s > link.bandwidth_bytes_per_s * (1 + _ROUNDING):
            name = " - ".join(link.ends) + (f" ({link.interface})" if link.interface else "")
            yield Violation(
                what=f"link {name} is saturated {link.direction} at the planned rates",
                need=link.load_bytes_per_s,
                have=link.bandwidth_bytes_per_s,
            )


def capacity_violations(
    given: GivenPlan,
    capacity: float | None,
    linked_capacity: Callable[[], float],
    rate_per_s: float,
) -> Iterator[Violation]:
    """Yield a stated capacity, or a claim to be stable, that the replicas do not bear out.

    Parameters
    ----------
    given
        What is stated.
    capacity
        Of the replicas alone, recomputed [requests/s].
    linked_capacity
        Computes what links and network cards leave of it; asked only where less is stated.
    rate_per_s
        Arrival rate of the workload.
    """
    if capacity is None:
        return
    stated = given.capacity_per_s
    if stated is not None and not is_close(stated, capacity):
        need = capacity if stated > capacity else min(capacity, linked_capacity())
        if not is_close(stated, need):
            what = "predicted.capacity_per_s is not as recomputed"
            yield Violation(what=what, need=need, have=stated)
    least = capacity if stated is None else min(stated, capacity)
    if given.is_stable and rate_per_s > least * (1 + TOLERANCE):
        what = "predicted.stable, but more arrives than can be served"
        yield Violation(what=what, need=rate_per_s, have=least)


def bound_violations(given: GivenPlan) -> Iterator[Violation]:
    """Yield what a stated bound contradicts: the capacity, its own gap, or the proof.

    Whether the bound is right is not recomputed: that would take the search.
    """
    bound, gap = given.bound.get("capacity_per_s"), given.bound.get("gap")
    have = given.capacity_per_s
    if bound is None:
        if gap is not None or given.proof != Proof.NONE:
            what = "bound.capacity_per_s is missing, but a gap or a proof is stated"
            yield Violation(what=what, need="a capacity", have=None)
        return
    if given.proof == Proof.NONE:
        what = "bound.proof is none, but a bound is stated"
        yield Violation(what=what, need="bounded", have="none")
    if have is None:
        return
    if bound < have * (1 - TOLERANCE):
        yield Violation(what="bound.capacity_per_s is below the capacity", need=have, have=bound)
        return
    need = (bound - have) / bound if bound > 0 else 0.0
    if gap is None or abs(gap - need) > TOLERANCE:
        yield Violation(what="bound.gap is not as recomputed", need=need, have=gap)


def _agrees(role: Role, key: str, have: float, need: float) -> bool:
    other = OTHER_PHASE[role]
    if have == 0 and (key.startswith(other) or key.rpartition(".")[2].startswith(other)):
        return True  # zero in the phase that the replica takes no part in: not stated
    if key.startswith("memory_bytes.") or key == "kv_bytes":
        return abs(have - need) <= 1 + TOLERANCE * abs(need)
    return is_close(have, need)


def is_close(have: float, need: float) -> bool:
    """Whether two numbers are the same but for rounding."""
    return math.isclose(have, need, rel_tol=TOLERANCE, abs_tol=1e-15)


def value_of(mapping: Mapping[str, Any], key: str) -> float | None:
    """Look up a dotted key; None where a part of it is missing."""
    value: Any = mapping
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value if value is None else float(value)
