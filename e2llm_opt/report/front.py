"""A front of plans: one table on a screen, one picture, and the rows of a page."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from rich.text import Text

from e2llm_opt.report.pictures import FONT, INKS, WIDTHS, require_matplotlib
from e2llm_opt.report.quantities import number, percent, rate, seconds
from e2llm_opt.report.screen import section, show, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

    from e2llm_opt.pareto.front import Front
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.report.pictures import Width

TITLES = {
    "waiting_time": "waiting",
    "ttft": "TTFT",
    "tpot": "TPOT",
    "latency": "latency",
    "capacity": "capacity",
    "cost_per_hour": "cost",
    "power_w": "power",
    "devices": "devices",
    "lost_capacity": "lost on\nfailure",
}
"""Objective: the head of its column."""
_UNITS = {
    **dict.fromkeys(("waiting_time", "ttft", "tpot", "latency"), "[s]"),
    "capacity": "[requests/s]",
    "cost_per_hour": "[1/h]",
    "power_w": "[W]",
    "lost_capacity": "[share]",
}
_LONG_TAILED = {"waiting_time", "ttft", "latency"}
"""Close to capacity they grow without bound: on a picture they have a logarithmic axis."""
_HEIGHT_IN = {"wide": 2.7, "narrow": 2.4}


def print_front(front: Front, file: IO[str]) -> None:
    """Print *front* as a table, the knee marked, and what it says in words."""
    head = Text(front.heading, style="bold")
    show(file, head, Text(""), _rows(front))
    show(file, *section("What it says", Text("\n".join(f"- {line}" for line in front.explain))))


def _rows(front: Front) -> Table:
    heads = [TITLES[name] for name in front.objectives]
    answer = table("plan", *heads, "replicas", right=range(len(heads) + 1), dense=True)
    for i, plan in enumerate(front.plans):
        is_knee = i == front.knee
        figures = (shown(name, front.figures[i][name]) for name in front.objectives)
        name = f"{'knee ' if is_knee else ''}{i + 1}"
        answer.add_row(name, *figures, replicas_of(plan), style="bold" if is_knee else "")
    return answer


def replicas_of(plan: Plan) -> str:
    """Return the plan's replicas: ``tower+laptop PREFILL, mac DECODE``; MIXED needs no word."""
    return ", ".join(
        "+".join(name for stage in replica.stages for name in stage.devices)
        + ("" if replica.role == "MIXED" else f" {replica.role}")
        for replica in plan.replicas
    )


def shown(objective: str, value: float) -> str:
    """Return the figure of an objective for people."""
    if objective in {"waiting_time", "ttft", "tpot", "latency"}:
        return seconds(value)
    if objective == "lost_capacity":
        return percent(value)
    if objective == "capacity":
        return rate(value)
    units = {"power_w": " W", "cost_per_hour": "/h"}
    return f"{number(value)}{units.get(objective, '')}"


def draw_front(front: Front, marked: int | None = None, width: Width = "wide") -> Figure:
    """Return the first objective against each of the others, the knee and a plan marked.

    Parameters
    ----------
    front
        What to draw.
    marked
        Index of a plan to point out; None: only the knee.
    width
        Panels stand side by side where it is wide, else below each other.
    """
    require_matplotlib("drawing")
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

    others = front.objectives[1:] or front.objectives
    wide = width == "wide"
    across = min(len(others), 2) if wide else 1
    down = -(-len(others) // across)
    figure = Figure(figsize=(WIDTHS[width], _HEIGHT_IN[width] * down), layout="constrained")
    figure.patch.set_alpha(0.0)
    for place, other in enumerate(others, start=1):
        axes = figure.add_subplot(down, across, place)
        _panel(axes, front, other, marked)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, fontsize=FONT, frameon=False, labelcolor=INKS["ink"],
        loc="outside lower center", ncols=3 if wide else 2,
    )  # fmt: skip
    return figure


def _panel(axes: Axes, front: Front, other: str, marked: int | None) -> None:
    first = front.objectives[0]
    across = [row[other] for row in front.figures]
    up = [row[first] for row in front.figures]
    axes.patch.set_alpha(0.0)
    axes.plot(across, up, "o", color=INKS["faint"], markersize=4, label="plan", linestyle="none")
    for i, label, mark, ink in (
        (front.knee, f"knee, plan {front.knee + 1}", "D", "mixed"),
        (marked, "this plan", "s", "alarm"),
    ):
        if i is not None:
            axes.plot(
                [across[i]], [up[i]], mark, color=INKS[ink], markersize=9, label=label,
                fillstyle="none", markeredgewidth=1.6, linestyle="none",
            )  # fmt: skip
    for name, axis in ((other, axes.xaxis), (first, axes.yaxis)):
        axis.set_label_text(
            f"{name.replace('_', ' ').removesuffix(' w')} {_UNITS.get(name, '')}".strip(),
            fontsize=FONT,
            color=INKS["ink"],
        )
    if first in _LONG_TAILED:
        axes.set_yscale("symlog", linthresh=_least(up))
        axes.set_ylim(bottom=0.0)
    if other in _LONG_TAILED:
        axes.set_xscale("symlog", linthresh=_least(across))
    axes.tick_params(labelsize=FONT, colors=INKS["ink"], which="both")
    for side in axes.spines.values():
        side.set_color(INKS["line"])


def _least(values: Sequence[float]) -> float:
    """Return where a logarithmic axis becomes linear, so that there is room for 0."""
    return min((value for value in values if value > 0), default=1.0)


def page_rows(front: Front, marked: int | None) -> Iterator[dict[str, object]]:
    """Yield the plans of *front* as a page shows them."""
    for i, plan in enumerate(front.plans):
        notes = [("knee", i == front.knee), ("this plan", i == marked)]
        yield {
            "name": f"plan {i + 1}",
            "note": ", ".join(word for word, is_so in notes if is_so),
            "figures": [shown(name, front.figures[i][name]) for name in front.objectives],
            "replicas": replicas_of(plan),
        }
