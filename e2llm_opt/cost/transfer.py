"""Moving a KV cache between replicas, and what a replica's traffic puts on each link."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from e2llm_opt.cost.roofline import kv_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.inventory.network import Path, Resource

    Loads = dict[Resource, float]


class KvTransfer(NamedTuple):
    """One request's KV cache on its way from a PREFILL to a DECODE replica."""

    num_bytes: float
    exposed_s: float
    """Time that is not hidden behind the prefill [s]; inf where some layer has no way."""
    loads: Loads
    """Bytes on each link and network card."""


class KvRoute(NamedTuple):
    """What a KV cache crosses on its way from one replica to another."""

    latency_s: float
    last_share: float
    """KV cache of the last layer, as a share of the whole."""
    parts: tuple[tuple[range, Resource, float], ...]
    """Layers, a link or card or bus that they cross, and its bandwidth [bytes/s]."""


def kv_routes(costs: Costs, source: Cut, target: Cut) -> KvRoute | None:
    """Return the way of a KV cache, layer by layer from holder to holder; None: there is none.

    Paths are those that are best for a mean prompt, as in :func:`kv_transfer`.
    """
    layers = kv_bytes(costs.tables, costs.prompt_tokens)
    total = float(layers.sum())
    latency = 0.0
    parts: list[tuple[range, Resource, float]] = []
    shares = _shares(source, target, layers)
    for d, start, stop in source:
        for e, first, end in target:
            low, high = max(start, first), min(stop, end)
            if low >= high or d == e:
                continue
            path = costs.path(d, e, shares[d, e])
            if path is None:
                return None
            latency = max(latency, path.latency_s)
            for resource in path.resources:
                speed = costs.network.capacity.get(resource, path.bandwidth_bytes_per_s)
                parts.append((range(low, high), resource, speed))
    last = float(layers[-1]) / total if total > 0 else 0.0
    return KvRoute(latency, last, tuple(parts))


def kv_transfer(costs: Costs, source: Cut, target: Cut, prefill_latency_s: float) -> KvTransfer:
    """Return the transfer of a mean prompt's KV cache, layer by layer from holder to holder.

    All transfers of one request share the links and cards they cross; the slowest of these sets
    the time κ/B. With ``layerwise_kv`` the exposed part is
    max(κ_last/B, κ/B - prefill latency · (1 - 1/L)) + latency, otherwise κ/B + latency.
    """
    layers = kv_bytes(costs.tables, costs.prompt_tokens)
    total = float(layers.sum())
    busy: dict[Resource, float] = {}
    loads: Loads = {}
    latency = 0.0
    for pair, num_bytes in _shares(source, target, layers).items():
        path = costs.path(*pair, num_bytes)
        if path is None:
            return KvTransfer(total, float("inf"), {})
        latency = max(latency, path.latency_s)
        for resource in path.resources:
            speed = costs.network.capacity.get(resource, path.bandwidth_bytes_per_s)
            busy[resource] = busy.get(resource, 0.0) + num_bytes / speed
            loads[resource] = loads.get(resource, 0.0) + num_bytes
    moving = max(busy.values(), default=0.0)
    if costs.problem.runtime.layerwise_kv and total > 0:
        hidden = prefill_latency_s * (1 - 1 / len(layers))
        moving = max(moving * float(layers[-1]) / total, moving - hidden)
    return KvTransfer(total, moving + latency, loads)


def prefill_loads(costs: Costs, cut: Cut) -> Loads:
    """Return the bytes that one request's prefill puts on each link and card."""
    chunk = costs.prompt_tokens / costs.num_chunks
    loads: Loads = {}
    anchor = costs.anchor(cut[0][0], cut[-1][0])
    for here, there in pairwise(cut):
        paths = costs.legs(here[0], there[0], costs.forward_bytes(chunk), anchor)
        _add(loads, paths, costs.forward_bytes(costs.prompt_tokens))
    return loads


def decode_loads(costs: Costs, cut: Cut, batch: int) -> Loads:
    """Return the bytes that one request's decoding puts on each link and card.

    The paths are those that are best for a micro-batch of *batch* requests.
    """
    loads: Loads = {}
    if len(cut) == 1:
        return loads
    anchor = costs.anchor(cut[0][0], cut[-1][0])
    for here, there in pairwise(cut):
        paths = costs.legs(here[0], there[0], costs.forward_bytes(batch), anchor)
        _add(loads, paths, costs.output_tokens * costs.forward_bytes(1))
    paths = costs.legs(cut[-1][0], cut[0][0], costs.return_bytes(batch), anchor)
    _add(loads, paths, costs.output_tokens * costs.return_bytes(1))
    return loads


def _shares(source: Cut, target: Cut, layers: NDArray[np.float64]) -> dict[tuple[int, int], float]:
    """Bytes from each holder in *source* to each holder in *target*, where these differ."""
    shares: dict[tuple[int, int], float] = {}
    for d, start, stop in source:
        for e, first, end in target:
            low, high = max(start, first), min(stop, end)
            if low < high and d != e:
                shares[d, e] = shares.get((d, e), 0.0) + float(layers[low:high].sum())
    return shares


def _add(loads: Loads, paths: list[Path], num_bytes: float) -> None:
    for path in paths:
        for resource in path.resources:
            if resource[0] != "bus":
                loads[resource] = loads.get(resource, 0.0) + num_bytes
