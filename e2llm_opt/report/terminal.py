"""A plan on one screen: who does what, how fast, and why nothing else was chosen."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from e2llm_opt.plan.plan import Proof
from e2llm_opt.report.names import listed
from e2llm_opt.report.quantities import gib, number, percent, rate, seconds, size, span
from e2llm_opt.report.screen import section, show, table
from e2llm_opt.speed import MEDIAN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from e2llm_opt.plan.plan import Interval, Plan, Replica, Scenarios, Stage

_ROLE_STYLES = {"PREFILL": "cyan", "DECODE": "green", "MIXED": "magenta"}
_PROOFS = {
    Proof.OPTIMAL: "proven optimal",
    Proof.BOUNDED: "proven bound",
    Proof.NONE: "no proof",
}
_CLOSE = 1e-5
"""A gap that is none."""


def print_plan(plan: Plan, file: IO[str]) -> None:
    """Print *plan* on one screen of *file*."""
    show(file, plan_report(plan))


def plan_report(plan: Plan) -> RenderableType:
    """Return what :func:`print_plan` prints, for a console of your own."""
    return Group(*_parts(plan))


def _parts(plan: Plan) -> Iterator[RenderableType]:
    yield _headline(plan)
    yield from section("Replicas", _replicas(plan))
    yield from section(_predicted_title(plan), _predicted(plan))
    if plan.routes:
        yield from section("Routes", _routes(plan))
    if plan.scenarios is not None:
        yield from section(scenarios_title(plan.scenarios), _scenarios(plan.scenarios))
    if plan.alternatives:
        yield from section("Alternatives", _alternatives(plan))
    if plan.explain:
        yield from section("Why", _listed(plan.explain))
    if plan.unused_devices:
        yield from section("Unused devices", _unused(plan))
    if plan.warnings:
        yield from section("Warnings", Text("\n".join(plan.warnings), style="yellow"))


def _headline(plan: Plan) -> Text:
    asked = plan.problem
    used = {stage.device for replica in plan.replicas for stage in replica.stages}
    num_devices = len(used) + len(plan.unused_devices)
    text = Text(str(asked.model.get("name", "model")), style="bold")
    text.append(f" on {len(used)} of {num_devices} devices, runtime {asked.runtime}", "not bold")
    text.append(f"\nobjective {asked.options.get('objective', '-')}", "not bold")
    text.append(f", arrival rate {rate(asked.workload.get('rate_per_s'))}", "not bold")
    quantile = asked.options.get("pessimistic", MEDIAN)
    if quantile != MEDIAN:
        text.append(f", times that {percent(quantile)} of such devices keep", "not bold")
    return text


def _replicas(plan: Plan) -> Table:
    answer = table(
        *("replica", "device", "layers", "GiB used", "slots", "prefill\ntok/s"),
        *("tok/s a\nstream", "tok/s\nin all", "utili-\nsation"),
        right=(3, 4, 5, 6, 7, 8),
        dense=True,
    )
    for replica in plan.replicas:
        for index, stage in enumerate(replica.stages):
            figures = _figures(replica) if index == 0 else [""] * 5
            name = _name(replica) if index == 0 else Text("")
            answer.add_row(name, stage.device, _layers(stage), _memory(stage), *figures)
    return answer


def _name(replica: Replica) -> Text:
    return Text(f"{replica.id} {replica.role}", style=_ROLE_STYLES.get(replica.role, ""))


def _figures(replica: Replica) -> list[str]:
    decodes = replica.role != "PREFILL"
    prefills = replica.role != "DECODE"
    return [
        str(replica.slots) if decodes else "",
        number(replica.prefill.tokens_per_s) if prefills else "",
        number(replica.decode.tokens_per_s_per_stream) if decodes else "",
        number(replica.decode.tokens_per_s) if decodes else "",
        percent(replica.utilisation),
    ]


def _layers(stage: Stage) -> Text:
    start, stop = stage.layers
    spilled = f"\n{len(stage.spilled_layers)} spilled" if stage.spilled_layers else ""
    return Text(f"[{start}, {stop}){spilled}", no_wrap=True)


def _memory(stage: Stage) -> Text:
    memory = stage.memory_bytes
    used = memory.capacity - memory.free
    share = used / memory.capacity if memory.capacity else 0.0
    style = "yellow" if share > 0.95 else ""  # noqa: PLR2004
    return Text(f"{gib(used)}/{gib(memory.capacity)}", style=style)


def _predicted_title(plan: Plan) -> str:
    return "Predicted" if plan.predicted.intervals is None else "Predicted, with 80 % intervals"


def _predicted(plan: Plan) -> RenderableType:
    figures, bound = plan.predicted, plan.bound
    grid = Table.grid(padding=(0, 2, 0, 0))
    price = "-" if figures.cost_per_hour is None else f"{figures.cost_per_hour:.3g}/h"
    power = "-" if figures.power_w is None else f"{number(figures.power_w)} W"
    best = f"{rate(bound.capacity_per_s)}, gap {percent(bound.gap)}, {_proof(plan)}"
    rows = (
        ("waiting time", seconds(figures.waiting_time_s), "capacity", rate(figures.capacity_per_s)),
        ("TTFT", seconds(figures.ttft_s), "bound", best if bound.capacity_per_s else "none"),
        ("TPOT", seconds(figures.tpot_s), "prefill", _share(figures.prefill_share_of_work)),
        ("latency", seconds(figures.latency_s), "power", power),
        ("longest request", f"{_longest(plan)} tokens", "cost", price),
    )
    between = figures.intervals
    times = ("waiting_time_s", "ttft_s", "tpot_s", "latency_s")
    ranges = [*(_between(getattr(between, name, None)) for name in times), Text()]
    for (left, value, right, other), likely in zip(rows, ranges, strict=True):
        grid.add_row(left, Text(value, style="bold"), likely, right, Text(other, style="bold"))
    if figures.stable:
        return grid
    asked = rate(plan.problem.workload.get("rate_per_s"))
    above = f"Not stable: {asked} arrive, more than the capacity; the queue grows for ever."
    return Group(grid, Text(above, style="bold red"))


def _between(interval: Interval | None) -> Text:
    """Return an 80 % interval in few characters; nothing where there is none."""
    if interval is None:
        return Text()
    return Text(span(*interval), style="dim", no_wrap=True)


def _proof(plan: Plan) -> str:
    """Say what is proven: a plan can be the best by its objective far below the best capacity."""
    bound = plan.bound
    if bound.proof is Proof.OPTIMAL and (bound.gap or 0.0) > _CLOSE:
        objective = str(plan.problem.options.get("objective", "plan"))
        return f"{objective.replace('_', ' ')} {_PROOFS[bound.proof]}"
    return _PROOFS[bound.proof]


def _longest(plan: Plan) -> int:
    """Return the longest request that MIXED, or PREFILL and DECODE together, can hold [tokens]."""
    most = dict.fromkeys(_ROLE_STYLES, 0)
    for replica in plan.replicas:
        most[replica.role] = max(most[replica.role], replica.max_context_tokens)
    return max(most["MIXED"], min(most["PREFILL"], most["DECODE"]))


def _share(share: float) -> str:
    return f"{percent(share)} of the work"


def _routes(plan: Plan) -> Table:
    answer = table("from", "to", "rate", "KV cache", "KV transfer", right=(2, 3, 4))
    for route in plan.routes:
        answer.add_row(
            route.prefill,
            route.decode,
            rate(route.rate_per_s),
            size(route.kv_bytes),
            seconds(route.kv_transfer_s),
        )
    return answer


def scenarios_title(found: Scenarios) -> str:
    """Return what a table of scenarios shows, and how they count together."""
    together = {
        "expected": "their mean by weight counts",
        "worst": "the worst counts",
        "cvar": f"the mean of the worst {percent(1 - found.cvar_level)} counts",
    }
    return f"Scenarios; {together[found.risk]}"


def _scenarios(found: Scenarios) -> Table:
    answer = table(
        *("scenario", "rate", "tokens\nin", "tokens\nout", "capacity"),
        *("waiting", "TTFT", "waiting,\nmean plan"),
        right=(1, 2, 3, 4, 5, 6, 7),
        dense=True,
    )
    for one in found.cases:
        answer.add_row(
            *(one.name, rate(one.rate_per_s), number(one.prompt_tokens), number(one.output_tokens)),
            *(rate(one.capacity_per_s), seconds(one.waiting_time_s), seconds(one.ttft_s)),
            seconds(one.mean_plan_waiting_time_s),
        )
    together, mean = seconds(found.waiting_time_s), seconds(found.mean_plan_waiting_time_s)
    answer.add_row(found.risk, *[""] * 4, together, "", mean, style="bold")
    return answer


def _alternatives(plan: Plan) -> RenderableType:
    figures = table("plan", "waiting", "TTFT", "TPOT", "capacity", right=(1, 2, 3, 4))
    reasons = []
    for other in plan.alternatives:
        figures.add_row(
            other.name,
            seconds(other.waiting_time_s),
            seconds(other.ttft_s),
            seconds(other.tpot_s),
            rate(other.capacity_per_s),
        )
        reason = f"{other.name}: {other.why_not}"
        if any(reason in line for line in plan.explain):
            continue
        if other.break_even_bandwidth_mbit_s is not None:
            reason += f" (would pay above {number(other.break_even_bandwidth_mbit_s)} Mbit/s)"
        reasons.append(reason)
    if not reasons:
        return figures
    return Group(figures, Text("\nWhy not:", style="bold"), _listed(reasons))


def _listed(lines: Iterable[str]) -> Table:
    answer = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        answer.add_row("-", line)
    return answer


def _unused(plan: Plan) -> Text:
    by_reason: dict[str, list[str]] = {}
    for unused in plan.unused_devices:
        by_reason.setdefault(unused.reason, []).append(unused.device)
    return Text("\n".join(f"{listed(names)}: {reason}" for reason, names in by_reason.items()))
