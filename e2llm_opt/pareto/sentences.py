"""What a front says in words: its knee against its ends, and which objectives do not conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.search.phrases import named, number_text, percent, time_text
from e2llm_opt.search.tradeoff.aim import WAITS, Aim
from e2llm_opt.search.tradeoff.geometry import conflicts, ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.search.tradeoff.aims import Aims
    from e2llm_opt.search.tradeoff.front import Archive

    Floats = NDArray[np.float64]

_BEST = {
    Aim.WAITING_TIME: "the shortest wait",
    Aim.TTFT: "the earliest first token",
    Aim.TPOT: "the fastest tokens",
    Aim.LATENCY: "the shortest latency",
    Aim.CAPACITY: "the most capacity",
    Aim.COST_PER_HOUR: "the lowest cost",
    Aim.POWER_W: "the least power",
    Aim.DEVICES: "the fewest devices",
    Aim.LOST_CAPACITY: "the least capacity lost on a failure",
}
_CHANGES = {
    Aim.WAITING_TIME: ("longer wait", "shorter wait"),
    Aim.TTFT: ("later first token", "earlier first token"),
    Aim.TPOT: ("longer time per token", "shorter time per token"),
    Aim.LATENCY: ("longer latency", "shorter latency"),
    Aim.CAPACITY: ("more capacity", "less capacity"),
    Aim.COST_PER_HOUR: ("dearer", "cheaper"),
    Aim.POWER_W: ("more power", "less power"),
    Aim.DEVICES: ("more devices", "fewer devices"),
    Aim.LOST_CAPACITY: ("more capacity lost on a failure", "less capacity lost on a failure"),
}
"""Of a larger, and of a smaller figure."""
_MOST = 2.0
"""Beyond so many times as much, both figures say more than a percentage."""
_TIMES = {Aim.WAITING_TIME, Aim.TTFT, Aim.TPOT, Aim.LATENCY}


def sentences(archive: Archive, values: Sequence[Floats], knee: int, how: str) -> tuple[str, ...]:
    """Return two to six sentences about a front.

    Parameters
    ----------
    archive
        The whole front.
    values
        Objectives of the plans that are shown.
    knee
        Which of them is the knee.
    how
        How the search went, in a few words.
    """
    num, every = len(values), len(archive)
    which = f"These are all {num}" if num == every else f"Shown are {num} of the {every}"
    shown_of = f"{which} plans found of which none is better than another in everything; {how}."
    if every == 1:
        shown_of = f"Of all plans tried none was better than this one in anything; {how}."
    return (
        _knee(archive.aims, values, knee),
        *_unstable(archive.aims),
        *_unopposed(archive),
        shown_of,
    )


def _knee(aims: Aims, values: Sequence[Floats], knee: int) -> str:
    points = aims.points(np.array(values))
    if len(values) == 1:
        return "Knee: plan 1, the only one: no other plan is better in anything."
    begin = f"Knee: plan {knee + 1}"
    best = {aim: _best(points, column) for column, aim in enumerate(aims.names)}
    aim = next((aim for aim in aims.names if (points[best[aim]] != points[knee]).any()), None)
    if aim is None:
        return f"{begin}, which is the best in everything."
    own, other = aims.figures(values[knee]), aims.figures(values[best[aim]])
    parts = [
        _change(name, own[name], other[name])
        for column, name in enumerate(aims.names)
        if points[knee, column] != points[best[aim], column]
    ]
    return f"{begin}. Against plan {best[aim] + 1}, which has {_BEST[aim]}: {', '.join(parts)}."


def _best(points: Floats, column: int) -> int:
    """Return the plan with the best value of one objective; its rank among the ends decides."""
    rows = [row for row in ends(points) if points[row, column] == points[:, column].min()]
    return rows[0]


def _change(aim: Aim, own: float, other: float) -> str:
    words = _CHANGES[aim][0 if own > other else 1]
    if min(own, other) > 0 and max(own, other) <= _MOST * min(own, other):
        return f"{percent(abs(own / other - 1.0))} {words}"
    return f"{words} ({shown(aim, own)} instead of {shown(aim, other)})"


def shown(aim: str, value: float) -> str:
    """Return a figure of an objective with its unit."""
    if aim in _TIMES:
        return time_text(value)
    if aim == Aim.LOST_CAPACITY:
        return percent(value)
    unit = {Aim.CAPACITY: "/s", Aim.COST_PER_HOUR: "/h", Aim.POWER_W: " W"}.get(Aim(aim), "")
    return f"{number_text(value)}{unit}"


def _unstable(aims: Aims) -> Iterator[str]:
    if not aims.is_stable:
        replaced = named([str(aim) for aim in WAITS])
        yield f"No plan is stable at this arrival rate: capacity stands for {replaced}."


def _unopposed(archive: Archive) -> Iterator[str]:
    """Yield which objectives are the same in all plans, and which do not conflict."""
    points, names = archive.points, archive.aims.names
    if len(points) == 1:
        return
    is_same = points.min(axis=0) == points.max(axis=0)
    same = [str(name) for name, one in zip(names, is_same, strict=True) if one]
    if same:
        yield f"{named(same)} {'is' if len(same) == 1 else 'are'} the same in all plans."
    opposed = conflicts(points)
    for i, j in zip(*np.triu_indices(len(names), 1), strict=True):
        if not (opposed[i, j] or is_same[i] or is_same[j]):
            yield (
                f"{names[i]} and {names[j]} do not conflict here: no plan is better in one and "
                f"worse in the other than another plan."
            )
