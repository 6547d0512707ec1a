"""Role codes for replicas: all assignments, those by comparative advantage, and small changes."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING, TypeAlias

from e2llm_opt.cost import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

Kinds: TypeAlias = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
"""Of replicas that are alike: where they stand, and which role codes each can have."""


def assignments(kinds: Kinds, num: int) -> Iterator[list[int]]:
    """Yield role codes for all *num* groups; equal groups take them in order, so none repeats."""
    ways = [combinations_with_replacement(sorted(ways), len(own)) for own, ways in kinds]
    for chosen in product(*ways):
        codes = [0] * num
        for (own, _), found in zip(kinds, chosen, strict=True):
            for i, code in zip(own, found, strict=True):
                codes[i] = code
        if is_paired(codes):
            yield codes


def is_paired(codes: Sequence[int]) -> bool:
    """Whether PREFILL and DECODE are both there or both absent."""
    return (kernel.PREFILL in codes) == (kernel.DECODE in codes)


def by_advantage(
    order: NDArray[np.int64], options: Sequence[tuple[int, ...]]
) -> Iterator[list[int]]:
    """Yield all MIXED, every split into PREFILL and DECODE, and splits with a MIXED middle."""
    num = len(order)
    middles = {0, num // 4, num // 2, num}
    for front in range(num + 1):
        for back in sorted({min(front + middle, num) for middle in middles}):
            codes = [kernel.MIXED] * num
            for i in order[:front]:
                codes[i] = kernel.PREFILL
            for i in order[back:]:
                codes[i] = kernel.DECODE
            fits = all(code in option for code, option in zip(codes, options, strict=True))
            if fits and is_paired(codes):
                yield codes


def splits(order: NDArray[np.int64], options: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Yield PREFILL in front and DECODE behind: in the order of prefill rates, the adapted rule."""
    for front in range(1, len(order)):
        codes = [kernel.DECODE] * len(order)
        for i in order[:front]:
            codes[i] = kernel.PREFILL
        if all(code in option for code, option in zip(codes, options, strict=True)):
            yield codes


def neighbours(codes: Sequence[int], options: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
    """Yield *codes* with one of them changed."""
    for i, option in enumerate(options):
        for code in option:
            changed = [*codes[:i], code, *codes[i + 1 :]]
            if code != codes[i] and is_paired(changed):
                yield changed
