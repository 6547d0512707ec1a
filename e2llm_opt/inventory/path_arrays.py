"""Paths of many hosts as arrays: by rank, and only those that no other beats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.inventory.network import Path

    Floats = NDArray[np.float64]


def attached(links: list[list[tuple[int, float, float]]]) -> Iterator[tuple[Floats, ...]]:
    """Yield switch, latency and bandwidth of each host's first, second … link to a switch [H]."""
    for rank in range(max(map(len, links), default=0)):
        nothing = 0, np.inf, np.inf
        own = [of_host[rank] if rank < len(of_host) else nothing for of_host in links]
        switch, latency, bandwidth = zip(*own, strict=True)
        yield np.array(switch), np.array(latency), np.array(bandwidth)


def by_rank(
    trunks: Mapping[tuple[str, str], Sequence[Path]], number: Mapping[str, int]
) -> Iterator[tuple[Floats, Floats]]:
    """Yield latency and bandwidth of the first, second … path between any two switches [S, S]."""
    for rank in range(max(map(len, trunks.values()), default=0)):
        latency = np.full((len(number), len(number)), np.inf)
        bandwidth = np.full(latency.shape, np.inf)
        for (source, target), paths in trunks.items():
            if rank < len(paths):
                pair = number[source], number[target]
                latency[pair] = paths[rank].latency_s
                bandwidth[pair] = paths[rank].bandwidth_bytes_per_s
        yield latency, bandwidth


def undominated(latency: Floats, inverse: Floats) -> tuple[Floats, Floats]:
    """Keep the paths that no other between the same hosts beats in both, widest first."""
    order = np.lexsort((latency, np.where(np.isfinite(latency), inverse, np.inf)), axis=2)
    latency, inverse = (np.take_along_axis(one, order, axis=2) for one in (latency, inverse))
    least = np.minimum.accumulate(latency, axis=2)
    is_kept = np.isfinite(latency)
    is_kept[:, :, 1:] &= latency[:, :, 1:] < least[:, :, :-1]
    order = np.argsort(~is_kept, axis=2, kind="stable")
    most = max(1, int(is_kept.sum(axis=2).max()))
    kept = np.take_along_axis(is_kept, order, axis=2)[:, :, :most]
    latency, inverse = (
        np.take_along_axis(one, order, axis=2)[:, :, :most] for one in (latency, inverse)
    )
    return np.where(kept, latency, np.inf), np.where(kept, inverse, 0.0)
