"""What the reader of a plan should be warned of, by name of device, link or setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.cost.pipeline import decode_stages
from e2llm_opt.problem import Objective, Role
from e2llm_opt.provenance import Provenance
from e2llm_opt.search.assemble import hop_paths

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidates import Candidate
    from e2llm_opt.search.evaluate import Outcome

_SLOW_HOPS = 0.25
"""Share of a round that hops may take before the plan warns."""


def cautions(costs: Costs, outcome: Outcome) -> tuple[str, ...]:
    """Return warnings, the gravest first."""
    return (
        *_load(costs, outcome),
        *_levels(costs, outcome),
        *(line for c in outcome.replicas for line in _hops(costs, c)),
        *_inputs(costs, outcome),
    )


def _load(costs: Costs, outcome: Outcome) -> Iterator[str]:
    workload = costs.problem.workload
    if workload.rate_per_s > 0 and not outcome.is_stable:
        yield (
            f"rate_per_s {workload.rate_per_s:g} is above the capacity of "
            f"{outcome.traffic.capacity_per_s:.3g} requests/s: the queue grows without end"
        )
    if workload.rate_per_s == 0 and costs.problem.objective is Objective.WAITING_TIME:
        yield "no arrival rate was given (workload.rate_per_s): waits are 0 and latency decides"
    for kind, name, direction in outcome.traffic.saturated:
        what = name.rstrip("/") if kind == "card" else _link_label(costs, int(name))
        word = "network card" if kind == "card" else "link"
        yield f"{word} {what} ({direction}) limits the capacity"


def _link_label(costs: Costs, index: int) -> str:
    link = costs.problem.inventory.links[index]
    return " - ".join(link.ends) + (f" ({link.interface})" if link.interface else "")


def _levels(costs: Costs, outcome: Outcome) -> Iterator[str]:
    limit = costs.problem.workload.slo_ttft_s
    reached = outcome.ttft_s if outcome.is_stable else None
    if limit is not None and reached is not None and reached > limit:
        yield f"slo.ttft_s {limit:g} is missed: the mean TTFT is {reached:.3g} s"


def _hops(costs: Costs, candidate: Candidate) -> Iterator[str]:
    if len(candidate.cut) == 1 or candidate.role is Role.PREFILL:
        return
    batch = -(-candidate.slots // candidate.micro_batches)
    stage, hop = decode_stages(costs, candidate.cut, batch, candidate.spilled)
    share = float(hop.sum() / (stage + hop).sum())
    if share <= _SLOW_HOPS:
        return
    j = int(hop.argmax())
    here = costs.problem.devices[candidate.cut[j][0]].name
    there = costs.problem.devices[candidate.cut[(j + 1) % len(candidate.cut)][0]].name
    paths = hop_paths(costs, candidate.cut, j, batch)
    latency = sum(path.latency_s for path in paths)
    name = " and ".join(path.name for path in paths)
    yield (
        f"link latency and hop costs take {share:.0%} of every token; the slowest hop is "
        f"{here} -> {there} over {name} ({1e3 * latency:.3g} ms link latency of "
        f"{1e3 * float(hop[j]):.3g} ms)"
    )


def _inputs(costs: Costs, outcome: Outcome) -> Iterator[str]:
    assumed = [
        costs.problem.devices[d].name
        for c in outcome.replicas
        for d, _, _ in c.cut
        if costs.problem.devices[d].provenance is not Provenance.MEASURED
    ]
    if assumed:
        yield (
            "speeds follow from specifications and assumed efficiencies, not from measurements "
            f"({', '.join(sorted(set(assumed))[:4])}{' …' if len(set(assumed)) > 4 else ''})"  # noqa: PLR2004
        )
