"""A cut of the layers, and what the place of a stage in it is called."""

Cut = tuple[tuple[int, int, int], ...]
"""Stages (device, start, stop) in pipeline order."""
POSITIONS = ((False, False), (True, False), (False, True), (True, True))
"""(is first, is last) of the positions MIDDLE, FIRST, LAST, ONLY of the kernels."""


def position_of(cut: Cut, j: int) -> int:
    """Return MIDDLE, FIRST, LAST or ONLY (0 … 3) for stage j."""
    return (1 if j == 0 else 0) + (2 if j == len(cut) - 1 else 0)
