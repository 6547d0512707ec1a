"""The cells as tables: waits beside latencies and speeds, ratios, and where a gain comes from."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarks.reproduction import printed
from benchmarks.reproduction.cells import (
    E2LLM_BATCHES,
    LONG_PAUSE,
    NO_MIXED,
    SPLITWISE_BATCHES,
    Cell,
)
from benchmarks.reproduction.choice import ADAPTED, PAPER, SPLITWISE
from benchmarks.reproduction.figures import eight, verdicts
from benchmarks.reproduction.setting import CELLS, FLOOR_PER_S, PATTERNS
from benchmarks.reproduction.sheets import UNITS, Sheet, entry, rejections
from e2llm_opt.plan.plan import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAMES = tuple(f"{data_set[:3]} {period:g}" for data_set, period in CELLS)
"""The eight cells, as they head a table."""
_PAIRS = (
    ("printed E2LLM / printed Splitwise", printed.E2LLM, printed.SPLITWISE),
    ("… in the paper's own micro-batches", E2LLM_BATCHES, SPLITWISE_BATCHES),
    ("ours / printed Splitwise", OURS, printed.SPLITWISE),
    ("adapted / printed Splitwise", ADAPTED, printed.SPLITWISE),
    ("ours / adapted", OURS, ADAPTED),
    ("ours / splitwise", OURS, SPLITWISE),
)
_CHAIN = (
    ("better groups and cuts, the rule kept", ADAPTED, printed.SPLITWISE),
    ("the role rule given up", NO_MIXED, ADAPTED),
    ("MIXED replicas allowed", OURS, NO_MIXED),
    ("all three", OURS, printed.SPLITWISE),
    ("all three, MIXED stops longer", LONG_PAUSE, printed.SPLITWISE),
)


def hops_of(cells: Sequence[Cell]) -> list[float]:
    """Return the costs of a hop that were run [ms]."""
    return sorted({cell.hop_ms for cell in cells})


def verdict_sheet(cells: Sequence[Cell]) -> Sheet:
    """Return the promised figures."""
    rows = [(v.word, v.figure, v.found) for v in verdicts(cells)]
    return Sheet(
        title="Figures to reach",
        rows=[(figure, word) for word, figure, _ in rows],
        head=("figure", "verdict"),
        notes=[f"{figure.split(':')[0]}: {found}." for _, figure, found in rows],
    )


def paper_sheet() -> Sheet:
    """Return what the paper itself measured, and where it halves the wait."""
    waits = {
        who: [printed.WAITS_S[who, data_set][printed.PERIODS_S.index(t)] for data_set, t in CELLS]
        for who in (printed.E2LLM, printed.SPLITWISE)
    }
    ratios = [printed.printed_ratio(*key) for key in CELLS]
    missed = [name for name, ratio in zip(_NAMES, ratios, strict=True) if ratio > 0.5]
    note = (
        "The paper's headline, waits cut by more than half, holds in "
        f"{len(CELLS) - len(missed)} of its {len(CELLS)} cells; not in {' and '.join(missed)}."
    )
    return Sheet(
        title="The paper's own measurement: mean waits [s]",
        head=("", *_NAMES),
        rows=[
            *((who, *(f"{wait:g}" for wait in waits[who])) for who in waits),
            ("ratio", *map(_two, ratios)),
        ],
        notes=[note],
    )


def ratio_sheets(cells: Sequence[Cell]) -> list[Sheet]:
    """Return the ratios of mean waits, a sheet for each cost of a hop."""
    found = []
    for hop in hops_of(cells):
        for pattern in PATTERNS:
            group = eight(cells, hop, pattern)
            rows = [("the paper, measured", *(_two(_paper(cell)) for cell in group))]
            rows += [
                (name, *_ratios(group, a, b))
                for name, a, b in _PAIRS
                if all({a, b} <= cell.means.keys() for cell in group)
            ]
            found.append(
                Sheet(
                    title=f"Ratios of mean waits, {_arrivals(pattern)}, hop {hop:g} ms",
                    head=("", *map(_name, group)),
                    rows=rows,
                )
            )
    return found


def wait_sheets(cells: Sequence[Cell]) -> list[Sheet]:
    """Return wait, latency and speed of every plan in every cell, and the plans in words."""
    found = []
    for hop in hops_of(cells):
        for pattern in PATTERNS:
            for data_set in printed.LENGTHS:
                group = [c for c in eight(cells, hop, pattern) if c.data_set == data_set]
                if group:
                    found.append(_wait_sheet(group, hop, pattern, data_set))
    return found


def _wait_sheet(group: Sequence[Cell], hop: float, pattern: str, data_set: str) -> Sheet:
    head = [f"T = {cell.period_s:g} s" for cell in group]
    rows = [
        (name, *(entry(cell.means[name]) for cell in group))
        for name in group[0].means
        if all(name in cell.means for cell in group)
    ]
    for who in (printed.E2LLM, printed.SPLITWISE):
        at = [printed.PERIODS_S.index(cell.period_s) for cell in group]
        waits, speeds = printed.WAITS_S[who, data_set], printed.SPEEDS_PER_S[who, data_set]
        rows.append((f"{who}: measured", *(f"{waits[i]:g} · ? · {speeds[i]:g}" for i in at)))
    plans = {str(cell.plans[OURS]): cell.period_s for cell in reversed(group)}
    notes = [f"ours from T = {period:g} s: {text}" for text, period in reversed(plans.items())]
    notes += [
        f"{who} decodes {cell.means[who].tokens_per_s:.1f} tokens a second at T = "
        f"{cell.period_s:g} s; the searched plans must do {FLOOR_PER_S:g} with full slots."
        for who in (printed.E2LLM, printed.SPLITWISE)
        for cell in group[:1]
        if cell.means[who].tokens_per_s < FLOOR_PER_S
    ]
    notes += rejections(
        (f"{name} at T = {cell.period_s:g} s", means)
        for cell in group
        for name, means in cell.means.items()
    )
    return Sheet(
        title=f"{data_set.capitalize()}, {_arrivals(pattern)}, hop {hop:g} ms: {UNITS}",
        head=("plan", *head),
        rows=rows,
        notes=notes,
        is_on_page=pattern == "fixed",
    )


def part_sheets(cells: Sequence[Cell]) -> list[Sheet]:
    """Return what grouping, the rule and MIXED each do, and what the hop does."""
    found = []
    for hop in hops_of(cells):
        group = eight(cells, hop)
        rows = [
            (name, *_ratios(group, a, b))
            for name, a, b in _CHAIN
            if all({a, b} <= cell.means.keys() for cell in group)
        ]
        found.append(
            Sheet(
                title=f"Step by step from the printed Splitwise plan to ours, hop {hop:g} ms",
                head=("ratio of mean waits, fixed period", *map(_name, group)),
                rows=rows,
                notes=[_in_words(group)],
            )
        )
    return [*found, _hop_sheet(cells)]


def _in_words(group: Sequence[Cell]) -> str:
    """Return the additive share of each step in the seconds saved, over all cells together."""
    names = (printed.SPLITWISE, ADAPTED, NO_MIXED, OURS)
    total = [sum(cell.means[name].wait_s for cell in group) / len(group) for name in names]
    saved = total[0] - total[-1]
    parts = [f"{a - b:.1f} s ({_share(a - b, saved)})" for a, b in pairwise(total)]
    beside = [
        f"{name} {sum(cell.means[name].wait_s for cell in group) / len(group):.1f} s"
        for name in (SPLITWISE, PAPER, printed.E2LLM)
        if all(name in cell.means for cell in group)
    ]
    return (
        f"On average over these cells the printed Splitwise plan waits {total[0]:.1f} s and ours "
        f"{total[-1]:.1f} s. Of the {saved:.1f} s between them, searching groups and cuts under "
        f"the same rule accounts for {parts[0]}, giving up the role rule for {parts[1]}, and MIXED "
        f"replicas for {parts[2]}. Beside these wait: {', '.join(beside)}."
    )


def _hop_sheet(cells: Sequence[Cell]) -> Sheet:
    rows = [("the paper, measured", *(_two(printed.printed_ratio(*key)) for key in CELLS))]
    words = []
    for hop in hops_of(cells):
        group = eight(cells, hop)
        if len(group) < len(CELLS):
            continue
        ratios = [cell.ratio(E2LLM_BATCHES, SPLITWISE_BATCHES) for cell in group]
        rows.append((f"hop {hop:g} ms", *map(_two, ratios)))
        waits = [
            sum(cell.means[name].wait_s for cell in group) / len(group)
            for name in (E2LLM_BATCHES, SPLITWISE_BATCHES)
        ]
        words.append(f"{waits[0]:.1f} and {waits[1]:.1f} s at {hop:g} ms")
    note = (
        f"Mean waits of the printed E2LLM and Splitwise plans over all cells: {'; '.join(words)}. "
        "The Splitwise plans have pipelines of two and three devices, the E2LLM plans of one and "
        "two, so that a dear hop is a handicap of those plans, not of a rule about roles."
    )
    return Sheet(
        title="What a hop costs: the printed plans of both systems, nothing else changed",
        head=("printed E2LLM / printed Splitwise", *_NAMES),
        rows=rows,
        notes=[note] if words else [],
    )


def _paper(cell: Cell) -> float:
    return printed.printed_ratio(cell.data_set, cell.period_s)


def _ratios(group: Sequence[Cell], name: str, to: str) -> list[str]:
    return [_two(cell.ratio(name, to)) for cell in group]


def _two(value: float) -> str:
    return f"{value:.2f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole > 0 else "no gain"


def _name(cell: Cell) -> str:
    return _NAMES[CELLS.index((cell.data_set, cell.period_s))]


def _arrivals(pattern: str) -> str:
    return {"fixed": "fixed period", "poisson": "Poisson arrivals"}[pattern]
