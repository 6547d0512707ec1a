"""A plan written by hand with everything that it leaves out, as the checker recomputed it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from e2llm_opt import __version__
from e2llm_opt.inventory.digest import inventory_sha256
from e2llm_opt.plan.plan import (
    Bound,
    DecodeFigures,
    Plan,
    PlanProblem,
    Predicted,
    Replica,
    RunProvenance,
    UnusedDevice,
)
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.check.verdict import ReplicaFigures, Report
    from e2llm_opt.problem import Problem

_NO_DECODE = DecodeFigures(tokens_per_s=0, tpot_s=0, bottleneck_s=0, tokens_per_s_per_stream=0)
_NO_LIMIT = 2**40
"""Longest request where no layer keeps a KV cache that grows [tokens]."""


def completed(report: Report, problem: Problem) -> Plan:
    """Return the plan that *report* is about, with the figures that it recomputed.

    Parameters
    ----------
    report
        Of a valid plan.
    problem
        What it was checked against.

    Notes
    -----
    Requests are shared in proportion to service rates. Waits are not predicted: that is what a
    simulation is for.
    """
    shares = _shares(report)
    return Plan(
        problem=_problem(problem),
        replicas=tuple(_replica(r, shares[r.id]) for r in report.replicas),
        routes=report.routes,
        unused_devices=_unused(report, problem),
        predicted=Predicted(
            capacity_per_s=report.capacity_per_s or 0.0,
            stable=False,
            waiting_time_s=None,
            ttft_s=None,
            tpot_s=max((r.tpot_s or 0.0 for r in report.replicas), default=0.0),
            latency_s=None,
            prefill_share_of_work=0.0,
            power_w=None,
            cost_per_hour=None,
        ),
        bound=Bound(),
        alternatives=(),
        warnings=("completed from a plan that states no figures",),
        provenance=RunProvenance(
            e2llm_opt=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            elapsed_s=0.0,
        ),
    )


def _shares(report: Report) -> dict[str, float]:
    """Return the rate of each replica as an entry or decoder, all used alike [requests/s]."""
    pool = dict.fromkeys(Role, 0.0)
    for replica in report.replicas:
        pool[Role(replica.role)] += replica.service_rate_per_s
    split = min(pool[Role.PREFILL], pool[Role.DECODE])
    rates = {}
    for replica in report.replicas:
        own = pool[Role(replica.role)]
        carried = own if replica.role == Role.MIXED else split
        rates[replica.id] = replica.service_rate_per_s * carried / own if own > 0 else 0.0
    return rates


def _unused(report: Report, problem: Problem) -> tuple[UnusedDevice, ...]:
    used = {name for r in report.replicas for stage in r.stages for name in stage.devices}
    return tuple(
        UnusedDevice(device=device.name, reason="not in the plan")
        for device in problem.devices
        if device.name not in used
    )


def _replica(figures: ReplicaFigures, rate: float) -> Replica:
    service = figures.service_rate_per_s
    return Replica(
        id=figures.id,
        role=figures.role,
        slots=figures.slots,
        arrival_rate_per_s=rate,
        service_rate_per_s=service,
        utilisation=rate / service if service > 0 else 0.0,
        stages=figures.stages,
        prefill=figures.prefill,
        decode=figures.decode or _NO_DECODE,
        max_context_tokens=figures.max_context_tokens or _NO_LIMIT,
    )


def _problem(problem: Problem) -> PlanProblem:
    return PlanProblem(
        inventory_sha256=inventory_sha256(problem.inventory),
        model={"name": problem.model.name},
        workload={"rate_per_s": problem.workload.rate_per_s},
        runtime=problem.runtime.name,
        options={"objective": str(problem.objective)},
    )
