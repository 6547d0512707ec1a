"""A plan as one self-contained HTML page: no network, light and dark, for phones and readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2llm_opt.errors import InputError
from e2llm_opt.report import pictures
from e2llm_opt.report.front import TITLES, draw_front, page_rows
from e2llm_opt.report.names import listed
from e2llm_opt.report.quantities import gib, number, percent, rate, seconds, size, span
from e2llm_opt.report.terminal import scenarios_title
from e2llm_opt.speed import MEDIAN
from e2llm_opt.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2llm_opt.check.verdict import Report
    from e2llm_opt.pareto.front import Front
    from e2llm_opt.plan.plan import Interval, Plan, Replica, Stage

_FULL = 0.95
"""Share of a device's memory from which its bar is drawn as an alarm."""
_MOST_LINKS = 40
"""Links in the table; the busiest."""


def plan_page(
    plan: Plan,
    report: Report | None = None,
    *,
    hosts: Mapping[str, str] | None = None,
    texts: Sequence[tuple[str, str]] = (),
    front: Front | None = None,
) -> str:
    """Return *plan* as an HTML page.

    Parameters
    ----------
    plan
        What to show.
    report
        What the checker says of it, for the load of links; None: the hops of pipelines instead.
    hosts
        Device -> host, where they differ.
    texts
        Titles with what can be copied: the inventory, commands.
    front
        The plans that this one was chosen from, for the trade-offs; None: no such part.

    Raises
    ------
    InputError
        When matplotlib or Jinja is missing, saying how to install them.
    """
    pictures.require_matplotlib("a page")
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - optional
        from markupsafe import Markup  # noqa: PLC0415 - comes with Jinja
    except ImportError:
        raise InputError("a page needs Jinja: pip install 'e2llm-opt[report]'") from None
    environment = Environment(
        loader=PackageLoader("e2llm_opt.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    graphs, loads = [], []
    for width in pictures.WIDTHS:
        graph = pictures.draw_graph(plan, report, hosts, width)
        load = pictures.draw_load(plan, width)
        graphs.append({"width": width, "svg": Markup(pictures.svg_of(graph, f"g-{width}"))})  # noqa: S704 - matplotlib escapes
        loads.append({"width": width, "svg": Markup(pictures.svg_of(load, f"l-{width}"))})  # noqa: S704 - as above
    return environment.get_template("plan.html.j2").render(
        **_heading(plan),
        headline=list(_headline(plan)),
        graph_note=_graph_note(report),
        graph_label=_graph_label(plan),
        graphs=graphs,
        links=list(_links(report)),
        replicas=[_replica(replica) for replica in plan.replicas],
        load_note=_load_note(plan),
        load_label=_load_label(plan),
        loads=loads,
        scenarios=_scenarios(plan),
        alternatives=list(_alternatives(plan)),
        explain=plan.explain,
        warnings=plan.warnings,
        unused=list(_unused(plan)),
        texts=[{"name": name, "text": text} for name, text in texts],
        trade=None if front is None else _trade(plan, front),
    )


def _trade(plan: Plan, front: Front) -> dict[str, Any]:
    """Return what the page says about the front."""
    from markupsafe import Markup  # noqa: PLC0415 - optional

    marked = front.place_of(plan)
    where = "This plan is not one of them" if marked is None else f"This is plan {marked + 1}"
    figures = []
    for width in pictures.WIDTHS:
        svg = pictures.svg_of(draw_front(front, marked, width), f"f-{width}")
        figures.append({"width": width, "svg": Markup(svg)})  # noqa: S704 - matplotlib escapes
    names = [name.replace("_", " ") for name in front.objectives]
    return {
        "note": f"{front.heading}. {where}.",
        "label": f"{names[0]} of all plans against {listed(names[1:])}",
        "figures": figures,
        "heads": [TITLES[name].replace("\n", " ") for name in front.objectives],
        "rows": list(page_rows(front, marked)),
        "explain": front.explain,
    }


def _heading(plan: Plan) -> dict[str, Any]:
    asked = plan.problem
    used = set(plan.used_devices)
    whole = len(used) + len(plan.unused_devices)
    objective = str(asked.options.get("objective", "plan")).replace("_", " ")
    asked_rate = rate(asked.workload.get("rate_per_s"))
    subtitle = f"runtime {asked.runtime}, objective {objective}, {asked_rate} arrive"
    quantile = asked.options.get("pessimistic", MEDIAN)
    if quantile != MEDIAN:
        subtitle += f", times that {percent(quantile)} of such devices keep"
    unstable = ""
    if not plan.predicted.stable:
        unstable = f"Not stable: {asked_rate} arrive, more than the capacity; the queue grows."
    made = plan.provenance
    return {
        "title": f"{asked.model.get('name', 'model')} on {len(used)} of {whole} devices",
        "subtitle": subtitle,
        "unstable": unstable,
        "footer": f"Planned by e2llm-opt {made.e2llm_opt} in {seconds(made.elapsed_s)}, "
        f"{made.created}.",
    }


def _headline(plan: Plan) -> Iterator[dict[str, str]]:
    figures, between, bound = plan.predicted, plan.predicted.intervals, plan.bound
    for name, key in (
        ("waiting time", "waiting_time_s"),
        ("TTFT", "ttft_s"),
        ("TPOT", "tpot_s"),
        ("latency", "latency_s"),
    ):
        note = _between(getattr(between, key, None))
        yield {"name": name, "value": seconds(getattr(figures, key)), "note": note}
    note = ""
    if between is not None:
        low, high = between.capacity_per_s
        note = f"80 % between {number(low)} and {rate(high)}"
    yield {"name": "capacity", "value": rate(figures.capacity_per_s), "note": note}
    if bound.capacity_per_s is not None:
        value = f"{rate(bound.capacity_per_s)}"
        yield {"name": "bound of any plan", "value": value, "note": f"gap {percent(bound.gap)}"}
    if figures.power_w is not None:
        yield {"name": "power", "value": f"{number(figures.power_w)} W", "note": ""}
    if figures.cost_per_hour is not None:
        yield {"name": "cost", "value": f"{figures.cost_per_hour:.3g}/h", "note": ""}


def _between(interval: Interval | None) -> str:
    return "" if interval is None else f"80 % between {span(*interval)}"


def _graph_note(report: Report | None) -> str:
    if report is not None and report.links:
        return "Arcs are links that carry traffic: the wider, the busier."
    return "Arcs are the hops of pipelines: the wider, the larger their share of a token's time."


def _graph_label(plan: Plan) -> str:
    parts = (
        f"{replica.id} {replica.role}: {listed([stage.title for stage in replica.stages])}"
        for replica in plan.replicas
    )
    return "Devices by replica. " + "; ".join(parts)


def _links(report: Report | None) -> Iterator[dict[str, str]]:
    links = () if report is None else report.links
    by_share = sorted(links, key=lambda one: -one.load_bytes_per_s / one.bandwidth_bytes_per_s)
    for link in by_share[:_MOST_LINKS]:
        name = f" ({link.interface})" if link.interface else ""
        yield {
            "ends": f"{' - '.join(link.ends)}{name}",
            "direction": link.direction,
            "load": f"{size(link.load_bytes_per_s)}/s",
            "bandwidth": f"{size(link.bandwidth_bytes_per_s)}/s",
            "share": percent(link.load_bytes_per_s / link.bandwidth_bytes_per_s),
        }


def _replica(replica: Replica) -> dict[str, Any]:
    parts = []
    if replica.role != "DECODE":
        prompt = f"prompt in {seconds(replica.prefill.latency_s)}"
        parts.append(f"{prompt} ({number(replica.prefill.tokens_per_s)} tokens/s)")
    if replica.role != "PREFILL":
        parts.append(f"{replica.slots} slot{'s' if replica.slots != 1 else ''}")
        parts.append(f"{number(replica.decode.tokens_per_s_per_stream)} tokens/s a stream")
        parts.append(f"{number(replica.decode.tokens_per_s)} in all")
    parts.append(f"busy {percent(replica.utilisation)}")
    return {
        "id": replica.id,
        "role": replica.role,
        "figures": ", ".join(parts),
        "stages": [_stage(replica, stage) for stage in replica.stages],
    }


def _stage(replica: Replica, stage: Stage) -> dict[str, Any]:
    memory, (start, stop) = stage.memory_bytes, stage.layers
    used = memory.capacity - memory.free
    share = used / memory.capacity if memory.capacity else 0.0
    held = [name for name in ("embedding", "head") if getattr(stage, name)]
    held += [f"{len(stage.spilled_layers)} spilled"] if stage.spilled_layers else []
    times = []
    if replica.role != "DECODE":
        times.append(_time("prompt", stage.prefill_time_s, stage.prefill_time_interval_s))
    if replica.role != "PREFILL":
        times.append(_time("decode step", stage.decode_time_s, stage.decode_time_interval_s))
    host = f", host RAM {memory.host / GIB:.1f} GiB" if memory.host else ""
    hop = stage.next_hop
    each = " on each" if stage.tensor_parallel else ""
    return {
        "device": stage.title,
        "layers": f"[{start}, {stop})",
        "extra": ", ".join(held),
        "memory": f"{gib(used)} of {gib(memory.capacity)} GiB{each}{host}",
        "percent": f"{100 * min(max(share, 0.0), 1.0):.1f}",
        "is_full": share > _FULL,
        "times": times,
        "hop": "" if hop is None else f"then {hop.device} over {hop.link}",
    }


def _time(name: str, value: float, interval: Interval | None) -> str:
    shown = f"{name} {seconds(value)}"
    return shown if interval is None else f"{shown} ({span(*interval)})"


def _load_note(plan: Plan) -> str:
    if not plan.predicted.load_curve:
        return "The plan does not say how long requests wait at other rates; plan anew."
    return "The band holds 80 % of such devices; it ends where slow ones no longer keep up."


def _load_label(plan: Plan) -> str:
    curve = plan.predicted.load_curve
    some = [curve[i] for i in (0, len(curve) // 2, len(curve) - 1)] if curve else []
    points = (f"{seconds(one.waiting_time_s)} at {rate(one.rate_per_s)}" for one in some)
    return "Mean waiting time against the arrival rate: " + "; ".join(points)


def _scenarios(plan: Plan) -> dict[str, Any]:
    """Return title and rows of the table of scenarios; no rows where there are none."""
    if plan.scenarios is None:
        return {"rows": []}
    rows = [
        {
            "name": one.name,
            "cells": [
                rate(one.rate_per_s),
                number(one.prompt_tokens),
                number(one.output_tokens),
                rate(one.capacity_per_s),
                seconds(one.waiting_time_s),
                seconds(one.mean_plan_waiting_time_s),
            ],
        }
        for one in plan.scenarios.cases
    ]
    heads = ["rate", "prompt tokens", "output tokens", "capacity", "waiting", "plan for the mean"]
    return {"title": scenarios_title(plan.scenarios), "heads": heads, "rows": rows}


def _alternatives(plan: Plan) -> Iterator[dict[str, str]]:
    for other in plan.alternatives:
        yield {
            "name": other.name,
            "waiting": seconds(other.waiting_time_s),
            "ttft": seconds(other.ttft_s),
            "tpot": seconds(other.tpot_s),
            "capacity": rate(other.capacity_per_s),
            "why_not": other.why_not,
        }


def _unused(plan: Plan) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for unused in plan.unused_devices:
        by_reason.setdefault(unused.reason, []).append(unused.device)
    for reason, names in by_reason.items():
        yield f"{listed(names)}: {reason}"
