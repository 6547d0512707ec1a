"""What crosses the network: KV caches from PREFILL to DECODE, and the load of every link."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.check.formulas import kv_bytes
from e2llm_opt.check.verdict import LinkLoad

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from e2llm_opt.check.paths import Card, Leg, Ways, Wire
    from e2llm_opt.check.pipeline import Pipeline
    from e2llm_opt.inventory.device import Device

_Resource = tuple[str, ...] | tuple[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTransfer:
    """The KV cache of one mean prompt on its way from PREFILL to DECODE.

    Parameters
    ----------
    num_bytes
        All of it [bytes].
    exposed_s
        What of the transfer is not hidden behind the prefill [s].
    carried
        Bytes on each link direction and network card.
    """

    num_bytes: float
    exposed_s: float
    carried: Mapping[Wire | Card, float]


def kv_transfer(source: Pipeline, target: Pipeline) -> KVTransfer | None:
    """Return the KV transfer of one request between two replicas; None where there is no way.

    Notes
    -----
    Transfers between each pair of devices go on together and share network cards, link directions
    and host buses; the busiest of those decides, and the longest latency comes on top. With
    ``layerwise_kv``, layers go out while later ones are computed (DESIGN section 5).
    """
    ways, runtime = source.ways, source.problem.runtime
    busy: dict[_Resource, float] = defaultdict(float)
    carried: dict[Wire | Card, float] = defaultdict(float)
    latency = 0.0
    for giver, taker, num_bytes in _device_pairs(source, target):
        if giver.host == taker.host:
            leg: Leg | None = ways.inside(giver, taker, num_bytes)
        else:
            leg = ways.network(giver.host, taker.host, num_bytes)
        if leg is None:
            return None
        latency = max(latency, leg.latency_s)
        for resource, speed in _resources(ways, giver, leg):
            busy[resource] += num_bytes / speed
        for carrier in ways.carriers(leg):
            carried[carrier] += num_bytes
    sizes = _layer_bytes(source)
    longest = max(busy.values(), default=0.0)
    exposed = longest
    if runtime.layerwise_kv and sum(sizes) > 0:
        hidden = source.prefill().latency_s * (1 - 1 / len(sizes))
        exposed = max(longest * sizes[-1] / sum(sizes), longest - hidden)
    return KVTransfer(num_bytes=sum(sizes), exposed_s=exposed + latency, carried=carried)


def request_bytes(pipeline: Pipeline, slots: int, micro_batches: int) -> dict[Wire | Card, float]:
    """Return the activation bytes that one request of a replica puts on links and cards."""
    workload = pipeline.problem.workload
    batch = math.ceil(slots / micro_batches)
    last = len(pipeline.seats) - 1
    hops: list[tuple[int, float, float]] = []  # stage, bytes that choose the way, bytes a request
    for index in range(last):
        if pipeline.prefills:
            whole = workload.prompt.mean * pipeline.decode_bytes(1)
            hops.append((index, pipeline.chunk_bytes, whole))
        if pipeline.decodes:
            whole = workload.output.mean * pipeline.decode_bytes(1)
            hops.append((index, pipeline.decode_bytes(batch), whole))
    if pipeline.decodes and last > 0:
        whole = workload.output.mean * pipeline.return_bytes(1)
        hops.append((last, pipeline.return_bytes(batch), whole))
    load: dict[Wire | Card, float] = defaultdict(float)
    for index, at_once, whole in hops:
        for leg in pipeline.legs(index, at_once) or ():
            for carrier in pipeline.ways.carriers(leg):
                load[carrier] += whole
    return load


def link_loads(
    ways: Ways, flows: Iterable[tuple[float, Mapping[Wire | Card, float]]]
) -> tuple[LinkLoad, ...]:
    """Add up the traffic on every link direction and network card.

    Parameters
    ----------
    ways
        Knows the links.
    flows
        Pairs of a rate [requests/s] and the bytes of one such request on each of them.
    """
    load: dict[Wire | Card, float] = defaultdict(float)
    for rate, carried in flows:
        for carrier, num_bytes in carried.items():
            load[carrier] += rate * num_bytes
    return tuple(
        _link_load(ways, carrier, load[carrier])
        for carrier in sorted(load, key=str)
        if load[carrier] > 0
    )


def _link_load(ways: Ways, carrier: Wire | Card, load: float) -> LinkLoad:
    if isinstance(carrier[0], int):
        link = ways.link(carrier)
        ends, interface, direction = link.ends, link.interface, carrier[1]
    else:
        host, interface, direction = carrier
        ends = (host, "network card")
    return LinkLoad(
        ends=ends,
        interface=interface,
        direction=direction,
        load_bytes_per_s=load,
        bandwidth_bytes_per_s=ways.speed(carrier),
    )


def _layer_bytes(pipeline: Pipeline) -> list[float]:
    """KV bytes of one mean prompt in each layer."""
    problem = pipeline.problem
    prompt = problem.workload.prompt.mean
    return [kv_bytes(problem.model, layer, prompt) for layer in range(problem.model.num_layers)]


def _device_pairs(source: Pipeline, target: Pipeline) -> Iterator[tuple[Device, Device, float]]:
    """Yield what each device sends to each other one: the layers that both hold [bytes]."""
    sizes = _layer_bytes(source)
    for giver in source.seats:
        for taker in target.seats:
            shared = [layer for layer in giver.layers if layer in taker.layers]
            if shared:
                yield giver.device, taker.device, sum(sizes[layer] for layer in shared)


def _resources(ways: Ways, giver: Device, leg: Leg) -> Iterator[tuple[_Resource, float]]:
    """Yield what a transfer occupies, with the speed there [bytes/s]."""
    if not leg.wires:
        yield ("bus", giver.host), leg.bandwidth_bytes_per_s
    for carrier in ways.carriers(leg):
        yield carrier, ways.speed(carrier)
