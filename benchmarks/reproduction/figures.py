"""The figures that the project promised to reach, judged: reached, missed, or not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.reproduction import printed
from benchmarks.reproduction.cells import E2LLM_BATCHES, SPLITWISE_BATCHES, Cell
from benchmarks.reproduction.choice import ADAPTED
from benchmarks.reproduction.setting import CELLS, HOPS_MS
from e2llm_opt.plan.plan import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW_HOP_MS: Final = 20.0
"""The cost of a hop that explains the decode speeds the paper measured."""
TOLERANCE: Final = 0.2
HALF, MOST, NUM_HALVED = 0.5, 0.6, 6
_EQUAL_S: Final = 1e-3
"""Waits are compared in milliseconds, as the planner compares itself with rivals."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One promised figure.

    Parameters
    ----------
    figure
        What was promised.
    is_reached
        None where too little was run to say.
    found
        What came out.
    """

    figure: str
    is_reached: bool | None
    found: str

    @property
    def word(self) -> str:
        """Return the verdict in a word."""
        return {True: "reached", False: "MISSED", None: "not run"}[self.is_reached]


def verdicts(cells: Sequence[Cell]) -> list[Verdict]:
    """Return what became of every promised figure."""
    return [_paper_ratio(cells), *(_halved(cells, hop) for hop in HOPS_MS), _never_worse(cells)]


def eight(cells: Sequence[Cell], hop_ms: float, pattern: str = "fixed") -> list[Cell]:
    """Return the eight cells in the paper's order; fewer where some were not run."""
    found = {
        (cell.data_set, cell.period_s): cell
        for cell in cells
        if cell.hop_ms == hop_ms and cell.pattern == pattern
    }
    return [found[key] for key in CELLS if key in found]


def ratio_to_printed(cell: Cell) -> float:
    """Return our mean wait over that of the paper's Splitwise plan, in its better batches."""
    best = min(cell.means[name].wait_s for name in (printed.SPLITWISE, SPLITWISE_BATCHES))
    return cell.means[OURS].wait_s / best


def _paper_ratio(cells: Sequence[Cell]) -> Verdict:
    figure = (
        f"printed E2LLM / printed Splitwise, fixed period, hop {SLOW_HOP_MS:g} ms: each cell "
        f"within {TOLERANCE:g} of the paper's"
    )
    found = eight(cells, SLOW_HOP_MS)
    if len(found) < len(CELLS):
        return Verdict(figure=figure, is_reached=None, found=_missing(found))
    ratios = [cell.ratio(E2LLM_BATCHES, SPLITWISE_BATCHES) for cell in found]
    wanted = [printed.printed_ratio(cell.data_set, cell.period_s) for cell in found]
    furthest = max(abs(a - b) for a, b in zip(ratios, wanted, strict=True))
    return Verdict(
        figure=figure,
        is_reached=furthest <= TOLERANCE,
        found=f"{_row(ratios)} for {_row(wanted)}: at most {furthest:.3f} off",
    )


def _halved(cells: Sequence[Cell], hop_ms: float) -> Verdict:
    figure = (
        f"ours / printed Splitwise, fixed period, hop {hop_ms:g} ms: <= {HALF:g} in {NUM_HALVED} "
        f"cells and <= {MOST:g} in all"
    )
    found = eight(cells, hop_ms)
    if len(found) < len(CELLS):
        return Verdict(figure=figure, is_reached=None, found=_missing(found))
    ratios = [ratio_to_printed(cell) for cell in found]
    halved = sum(ratio <= HALF for ratio in ratios)
    return Verdict(
        figure=figure,
        is_reached=halved >= NUM_HALVED and max(ratios) <= MOST,
        found=f"{_row(ratios)}: {halved} cells <= {HALF:g}, at most {max(ratios):.3f}",
    )


def _never_worse(cells: Sequence[Cell]) -> Verdict:
    figure = "ours never worse than splitwise-adapted searched, in any cell that was run"
    pairs = [(c.means[OURS].wait_s, c.means[ADAPTED].wait_s) for c in cells if ADAPTED in c.means]
    if not pairs:
        return Verdict(figure=figure, is_reached=None, found="no cell was run")
    worse = sum(ours > adapted + _EQUAL_S for ours, adapted in pairs)
    ratios = [ours / adapted for ours, adapted in pairs]
    return Verdict(
        figure=figure,
        is_reached=worse == 0,
        found=f"worse in {worse} of {len(pairs)} cells; ratios {min(ratios):.3f} to "
        f"{max(ratios):.3f}",
    )


def _row(ratios: Sequence[float]) -> str:
    return " ".join(f"{ratio:.2f}" for ratio in ratios)


def _missing(found: Sequence[Cell]) -> str:
    return f"{len(found)} of {len(CELLS)} cells were run"
