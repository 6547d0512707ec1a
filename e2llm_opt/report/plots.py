"""Plots: waiting time over time, waits of several planners, and what serves while weights move."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.plan.output import refuse_unwritable, replaced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from e2llm_opt.compare import ComparisonRow
    from e2llm_opt.replan.answer import Replan
    from e2llm_opt.simulate.simulate import Simulation

    Floats = NDArray[np.float64]

_FORMATS = (".svg", ".png")
_BINS = 100
"""Stretches of time, of each of which mean and P90 are drawn."""


def refuse_plot_file(path: str | os.PathLike[str]) -> None:
    """Refuse what cannot become a plot, before a simulation is spent on it.

    Raises
    ------
    InputError
        When *path* is neither .svg nor .png or not writable, or matplotlib is missing.
    """
    name = os.fspath(path)
    if PurePath(name).suffix.lower() not in _FORMATS:
        raise InputError([Fault(file=name, wrong="no format for a plot", right="use .svg or .png")])
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - optional, and slow to import
    except ImportError:
        right = "pip install 'e2llm-opt[plot]'"
        raise InputError([Fault(file=name, wrong="plots need matplotlib", right=right)]) from None
    refuse_unwritable(path)


def plot_waits(simulation: Simulation, path: str | os.PathLike[str]) -> None:
    """Draw mean and P90 of the waiting time over the time of arrival into *path*.

    Raises
    ------
    InputError
        As :func:`refuse_plot_file`.
    """
    refuse_plot_file(path)
    served = simulation.entry >= 0
    at, waits = simulation.arrivals.arrival_s[served], simulation.waiting_time_s[served]
    figure, axes = _figure()
    if len(at):
        middle, mean, p90 = binned(at, waits)
        axes.plot(middle, p90, label="P90", color="tab:orange", linewidth=1)
        axes.plot(middle, mean, label="mean", color="tab:blue")
        axes.legend()
    if 0 < simulation.warmup < len(simulation.entry):
        end = float(simulation.arrivals.arrival_s[simulation.warmup])
        axes.axvspan(0, end, color="0.9")
        axes.annotate(
            "warm-up", (0, 1), (4, -12), xycoords="axes fraction", textcoords="offset points"
        )
    axes.set_xlabel("time of arrival [s]")
    axes.set_ylabel("waiting time [s]")
    axes.set_ylim(bottom=0)
    save_plot(figure, path)


def binned(at: Floats, waits: Floats) -> tuple[Floats, Floats, Floats]:
    """Return middles, mean and P90 of equal stretches of time in which something arrived [s]."""
    edges = np.linspace(at[0], at[-1], min(_BINS, len(at)) + 1)
    place = np.searchsorted(at, edges[1:-1])
    parts = [
        (0.5 * (low + high), part.mean(), np.quantile(part, 0.9))
        for low, high, part in zip(edges, edges[1:], np.split(waits, place), strict=False)
        if len(part)
    ]
    middle, mean, p90 = np.array(parts).T
    return middle, mean, p90


def plot_comparison(rows: Sequence[ComparisonRow], path: str | os.PathLike[str]) -> None:
    """Draw mean and P90 of the simulated waiting time of each planner into *path*.

    Raises
    ------
    InputError
        As :func:`refuse_plot_file`.
    """
    refuse_plot_file(path)
    placed = [(row.planner, row.simulated) for row in rows if row.simulated is not None]
    figure, axes = _figure()
    place = np.arange(len(placed))
    for offset, name, label in ((-0.2, "mean", "mean"), (0.2, "p90", "P90")):
        waits = [getattr(spreads["waiting_time_s"], name) or 0.0 for _, spreads in placed]
        axes.barh(place + offset, waits, 0.4, label=label)
    axes.set_yticks(place, [planner for planner, _ in placed])
    axes.invert_yaxis()
    axes.set_xlabel("waiting time [s]")
    if placed:
        axes.legend()
    save_plot(figure, path)


def plot_way(answer: Replan, path: str | os.PathLike[str]) -> None:
    """Draw the capacity of what serves before, in every step of, and after a change into *path*.

    Above the arrival rate requests do not queue up; each step is named by the devices that get
    weights in it.

    Raises
    ------
    InputError
        As :func:`refuse_plot_file`.
    """
    refuse_plot_file(path)
    figure, axes = _figure()
    steps = [step for step in answer.way if step.seconds > 0]
    total = sum(step.seconds for step in steps) or 1.0
    edges = np.cumsum([-0.1 * total, 0.1 * total, *(step.seconds for step in steps), 0.1 * total])
    capacity = [
        answer.before.capacity_per_s,
        *(step.capacity_per_s for step in steps),
        answer.plan.predicted.capacity_per_s,
    ]
    axes.stairs(capacity, edges, baseline=0, fill=True, color="tab:blue", alpha=0.5)
    for low, high, step in zip(edges[1:], edges[2:], steps, strict=False):
        names = dict.fromkeys(move.device for move in answer.moves if move.order == step.order)
        axes.annotate(
            "\n".join(names),
            (0.5 * (low + high), 0),
            (0, 4),
            textcoords="offset points",
            ha="center",
        )
    rate = float(answer.plan.problem.workload["rate_per_s"])
    axes.axhline(rate, color="tab:red", label="arrival rate")
    axes.set_xlabel("time since the first step began [s]")
    axes.set_ylabel("capacity of what serves [requests/s]")
    axes.legend(loc="upper left")
    save_plot(figure, path)


def _figure() -> tuple[Any, Any]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to import

    # Not pyplot: that keeps figures, and asks for a screen.
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    return figure, figure.subplots()


def save_plot(figure: Any, path: str | os.PathLike[str]) -> None:  # noqa: ANN401 - matplotlib's
    """Write *figure* into *path*.

    Raises
    ------
    InputError
        As :func:`refuse_plot_file`.
    """
    refuse_plot_file(path)
    from matplotlib import rc_context  # noqa: PLC0415 - as above

    kind = PurePath(path).suffix.lower().removeprefix(".")
    # Without a date and random ids, equal runs give equal files.
    with replaced(path) as file, rc_context({"svg.hashsalt": "e2llm-opt"}):
        figure.savefig(file, format=kind, metadata={"Date": None} if kind == "svg" else None)
