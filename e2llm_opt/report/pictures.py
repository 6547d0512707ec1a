"""The pictures of a plan: who is linked with whom, and how long requests wait at which rate.

Drawn with matplotlib in the inks of :data:`INKS`, so that a page can give them the colours of its
own theme.
"""

from __future__ import annotations

import io
import math
import os
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from e2llm_opt.check.verdict import Report
    from e2llm_opt.plan.plan import Plan

Width = Literal["wide", "narrow"]
INKS = {
    "ink": "#1b1f24",
    "faint": "#6b7480",
    "line": "#c3cad2",
    "prefill": "#0b7285",
    "decode": "#2b7a0b",
    "mixed": "#8a2be2",
    "alarm": "#c92a2a",
}
"""Name -> colour on white paper; each has a contrast of at least 4.5 where it is text."""
WIDTHS: dict[Width, float] = {"wide": 7.6, "narrow": 3.5}
"""Inches of a picture beside text, and on a phone."""
_ROW_IN, FONT = 0.2, 8.0
_MOST_LABEL = {"wide": 44, "narrow": 20}
_BUSY = 0.7
"""Share of a link's bandwidth from which it is drawn as an alarm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A link, or where links are not known a hop of a pipeline; *share* of it is busy."""

    ends: tuple[str, str]
    share: float
    is_hop: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A device in a replica (*role*), an unused one, or a switch (no role)."""

    name: str
    group: str
    role: str


def require_matplotlib(what: str) -> None:
    """Refuse to draw without matplotlib.

    Raises
    ------
    InputError
        Saying how to install it.
    """
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - optional, and slow to import
    except ImportError:
        right = "pip install 'e2llm-opt[report]'"
        raise InputError([Fault(wrong=f"{what} needs matplotlib", right=right)]) from None


def nodes_of(plan: Plan, edges: Sequence[Edge]) -> tuple[Node, ...]:
    """Return devices by replica in pipeline order, then unused ones, then switches."""
    found = [
        Node(name=name, group=replica.id, role=replica.role)
        for replica in plan.replicas
        for stage in replica.stages
        for name in stage.devices
    ]
    found += [Node(name=one.device, group="unused", role="") for one in plan.unused_devices]
    known = {node.name for node in found}
    ends = dict.fromkeys(end for edge in edges for end in edge.ends)
    others = [Node(name=end, group="network", role="") for end in ends if end not in known]
    return (*found, *others)


def edges_of(
    plan: Plan, report: Report | None, hosts: Mapping[str, str] | None = None
) -> tuple[Edge, ...]:
    """Return the links that carry anything, by load; without a *report*, the hops of pipelines.

    Links end at hosts: a device of another name hangs on its host.
    """
    if report is not None and report.links:
        loads: dict[tuple[str, str], float] = {}
        for link in report.links:
            share = link.load_bytes_per_s / link.bandwidth_bytes_per_s
            loads[link.ends] = max(loads.get(link.ends, 0.0), share)
        linked = {end for ends in loads for end in ends}
        loads |= {
            (device, host): 0.0
            for device, host in (hosts or {}).items()
            if device != host and host in linked
        }
        return tuple(Edge(ends=ends, share=share, is_hop=False) for ends, share in loads.items())
    return tuple(_hops(plan))


def _hops(plan: Plan) -> Iterator[Edge]:
    """Yield the hops of pipelines, and thin arcs between devices that share a stage."""
    for replica in plan.replicas:
        for stage in replica.stages:
            for ends in pairwise(stage.devices):
                yield Edge(ends=ends, share=0.0, is_hop=True)
        for stage in replica.stages[:-1]:
            hop = stage.next_hop
            if hop is not None:
                whole = replica.decode.tpot_s or math.inf
                yield Edge(
                    ends=(stage.device, hop.device),
                    share=min(1.0, hop.decode_time_s / whole),
                    is_hop=True,
                )


def draw_graph(
    plan: Plan,
    report: Report | None = None,
    hosts: Mapping[str, str] | None = None,
    width: Width = "wide",
) -> Figure:
    """Return devices, one a row with a bar in the colour of its role, and arcs between the linked.

    Arcs are as wide as their share of the link is busy; without *report*, of a token's time.
    """
    from matplotlib.patches import PathPatch, Rectangle  # noqa: PLC0415 - optional, slow
    from matplotlib.path import Path as Curve  # noqa: PLC0415 - the same

    edges = edges_of(plan, report, hosts)
    nodes = nodes_of(plan, edges)
    place = {node.name: -float(i) for i, node in enumerate(nodes)}
    figure, axes = new_figure(width, _ROW_IN * (len(nodes) + 1.5))
    reach = max((abs(place[a] - place[b]) for a, b in (e.ends for e in edges)), default=1.0)
    for edge in edges:
        top, bottom = place[edge.ends[0]], place[edge.ends[1]]
        bulge = 0.25 + 0.75 * abs(top - bottom) / reach
        points = [(0.0, top), (-bulge, top), (-bulge, bottom), (0.0, bottom)]
        codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
        axes.add_patch(
            PathPatch(
                Curve(points, codes),
                fill=False,
                edgecolor=INKS["alarm" if edge.share > _BUSY else "faint"],
                linewidth=0.6 + 4.0 * math.sqrt(min(edge.share, 1.0)),
                alpha=0.8,
            )
        )
    for node in nodes:
        ink = INKS[node.role.lower() if node.role else "line"]
        axes.add_patch(Rectangle((0.02, place[node.name] - 0.38), 0.05, 0.76, color=ink))
    _label(axes, nodes, place, width)
    axes.set_xlim(-1.05, 2.2 if width == "wide" else 1.6)
    axes.set_ylim(-len(nodes) + 0.3, 0.7)
    axes.axis("off")
    return figure


def _label(axes: Axes, nodes: Sequence[Node], place: dict[str, float], width: Width) -> None:
    most, shown = _MOST_LABEL[width], ""
    for node in nodes:
        is_new, shown = node.group != shown, node.group
        title = f"{node.group} {node.role}".strip() if is_new else ""
        name = node.name if len(node.name) <= most else f"{node.name[: most - 1]}…"
        ink = INKS["ink" if node.role else "faint"]
        _text(axes, (0.12, place[node.name]), name, color=ink, va="center")
        if title:
            ink = INKS[node.role.lower() if node.role else "faint"]
            edge = 2.15 if width == "wide" else 1.58
            _text(
                axes, (edge, place[node.name]), title, color=ink, va="center", ha="right",
                fontweight="bold",
            )  # fmt: skip


def _text(axes: Axes, at: tuple[float, float], text: str, **style: str) -> None:
    axes.text(*at, text, fontsize=FONT, parse_math=False, **style)  # type: ignore[arg-type] # words


def draw_load(plan: Plan, width: Width = "wide") -> Figure:
    """Return the waiting time against the arrival rate: today's rate, the capacity, the bound."""
    figure, axes = new_figure(width, 2.7 if width == "wide" else 2.9)
    curve = plan.predicted.load_curve
    rates = [point.rate_per_s for point in curve]
    waits = [max(point.waiting_time_s, 1e-6) for point in curve]
    top = max(waits, default=1.0) * 2.0
    if curve:
        ends = [point.waiting_time_interval_s for point in curve]
        low = [max(end[0], 1e-6) for end in ends]
        high = [top if end[1] is None else min(end[1], top) for end in ends]
        axes.fill_between(rates, low, high, color=INKS["mixed"], alpha=0.18, linewidth=0)
        axes.plot(rates, waits, color=INKS["mixed"], linewidth=1.6, label="waiting time")
        axes.set_yscale("log")
        axes.set_ylim(min(low) / 2.0, top)
    lines = [("capacity", plan.predicted.capacity_per_s, "alarm", "--")]
    if plan.bound.capacity_per_s is not None:
        lines.append(("bound of any plan", plan.bound.capacity_per_s, "faint", ":"))
    asked = float(plan.problem.workload.get("rate_per_s") or 0.0)
    if asked > 0:
        lines.append(("today's rate", asked, "ink", "-"))
    for name, rate, ink, style in lines:
        if math.isfinite(rate):
            axes.axvline(rate, color=INKS[ink], linestyle=style, linewidth=1.2, label=name)
    axes.set_xlim(left=0.0)
    axes.set_xlabel("arrival rate [requests/s]", fontsize=FONT, color=INKS["ink"])
    axes.set_ylabel("mean wait [s]", fontsize=FONT, color=INKS["ink"])
    axes.tick_params(labelsize=FONT, colors=INKS["ink"], which="both")
    for side in axes.spines.values():
        side.set_color(INKS["line"])
    # Below the axes: nothing of the curve is ever covered.
    axes.legend(
        fontsize=FONT, frameon=False, labelcolor=INKS["ink"], loc="upper center",
        bbox_to_anchor=(0.5, -0.2), ncols=4 if width == "wide" else 2,
    )  # fmt: skip
    return figure


def new_figure(width: Width, height: float) -> tuple[Figure, Axes]:
    """Return an empty figure without pyplot, which would keep every one of them."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

    figure = Figure(figsize=(WIDTHS[width], height), layout="constrained")
    figure.patch.set_alpha(0.0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0.0)
    return figure, axes


def svg_of(figure: Figure, prefix: str) -> str:
    """Return *figure* as an ``<svg>`` element; ids begin with *prefix*, inks are CSS variables.

    Text stays text: it is small, can be read aloud and found.
    """
    import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to import

    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r"<svg [^>]*>", _without_size, text, count=1)
    for name, colour in INKS.items():
        text = text.replace(colour, f"var(--{name})")
    return text.strip()


def _without_size(match: re.Match[str]) -> str:
    return re.sub(r' (width|height)="[^"]*"', "", match[0])


def write_figures(
    plan: Plan,
    folder: str | os.PathLike[str],
    report: Report | None = None,
    hosts: Mapping[str, str] | None = None,
) -> tuple[Path, ...]:
    """Write ``devices`` and ``load`` into *folder*, each as SVG and as PNG; return their paths.

    Raises
    ------
    InputError
        Without matplotlib, or when the folder cannot be written to.
    """
    require_matplotlib("drawing")
    target = Path(folder)
    written = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, figure in (
            ("devices", draw_graph(plan, report, hosts)),
            ("load", draw_load(plan)),
        ):
            for ending in ("svg", "png"):
                path = target / f"{name}.{ending}"
                figure.savefig(path, dpi=150, facecolor="white")
                written.append(path)
    except OSError as error:
        wrong = f"cannot be written: {error.strerror or error}"
        raise InputError([Fault(file=os.fspath(folder), wrong=wrong)]) from None
    return tuple(written)
