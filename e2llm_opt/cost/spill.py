"""Which layers of a stage lie in host RAM: as few as memory needs (DESIGN section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from e2llm_opt.cost.tables import Tables

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Spilled = tuple[tuple[int, ...], ...]
"""Spilled layers of each stage of a cut."""


class SpillRule(NamedTuple):
    """What may spill where, and in which order; the same for every demand."""

    spillable: Floats
    """Bytes of each layer that may lie in host RAM [L] [bytes]."""
    order: Ints
    """Layers that may spill, in the order in which they do: the largest first, of equals the
    later one."""
    host: Floats
    """Host RAM for them by position MIDDLE, FIRST, LAST, ONLY [D, 4] [bytes]."""
    is_even: bool
    """Every layer spills the same bytes, which are read alike."""

    def most(self, stage: tuple[int, int, int], position: int) -> float:
        """Return how much of *stage* can lie in host RAM [bytes]."""
        spilled = 0.0
        for layer in self._layers(stage):
            if spilled + self.spillable[layer] > self.host[stage[0], position]:
                break
            spilled += float(self.spillable[layer])
        return spilled

    def chosen(self, stage: tuple[int, int, int], need: float) -> tuple[int, ...]:
        """Return the layers of *stage* that spill to free *need* bytes, sorted; all, if too few."""
        found = []
        spilled = 0.0
        for layer in self._layers(stage):
            if spilled >= need:
                break
            spilled += float(self.spillable[layer])
            found.append(layer)
        return tuple(sorted(found))

    def _layers(self, stage: tuple[int, int, int]) -> Iterator[int]:
        _, start, stop = stage
        return (layer for layer in self.order.tolist() if start <= layer < stop)


def spill_rule(tables: Tables, host_tables: Floats) -> SpillRule:
    """Return the rule of a problem.

    Parameters
    ----------
    tables
        Of the problem.
    host_tables
        Embedding in host RAM by position: it shares the device's share [D, 4] [bytes].
    """
    spillable = tables.spill_dense + tables.spill_routed
    order = np.lexsort((-np.arange(len(spillable)), -spillable))
    kinds = set(zip(tables.spill_dense, tables.spill_routed, tables.fraction, strict=True))
    return SpillRule(
        spillable=spillable,
        order=order[spillable[order] > 0].astype(np.int64),
        host=np.maximum(tables.host_memory[:, None] - host_tables, 0.0),
        is_even=len(kinds) == 1,
    )
