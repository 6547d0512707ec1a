"""The design page once more in plain Python, slow and obvious: what fast code is compared with.

Imports nothing of the package but the domain objects. Devices are rows of ``problem.devices``;
a cut is a tuple of (row, start, stop) in pipeline order; times in seconds, sizes in bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations, pairwise, permutations
from typing import TYPE_CHECKING

from e2llm_opt.inventory.device import MemoryKind
from e2llm_opt.runtime import MixedPause

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.inventory.link import Link
    from e2llm_opt.problem import Problem

Cut = tuple[tuple[int, int, int], ...]
BUS_LATENCY_S = 20e-6
TOKEN_ID_BYTES = LOGIT_BYTES = 4


# ---------------------------------------------------------------- ways between devices


def ways(inventory: Inventory, source: int, target: int) -> list[tuple[float, float]]:
    """Return (latency, bandwidth) of every way: the bus, private links, or over switches only."""
    here, there = inventory.devices[source], inventory.devices[target]
    if here.host != there.host:
        return list(_walks(inventory, here.host, there.host))
    found = [(BUS_LATENCY_S, min(here.host_bus_bytes_per_s, there.host_bus_bytes_per_s))]
    for link in inventory.links:
        if link.ends == (here.name, there.name):
            found.append((link.latency_s, link.forward_bytes_per_s))
        if link.ends == (there.name, here.name):
            found.append((link.latency_s, link.backward_bytes_per_s))
    return found


def _walks(inventory: Inventory, source: str, target: str) -> Iterator[tuple[float, float]]:
    hosts = {device.host for device in inventory.devices}
    arcs = []
    for link in inventory.links:
        first, second = (inventory.endpoint(end) for end in link.ends)
        arcs.append((first, second, link.latency_s, link.forward_bytes_per_s))
        arcs.append((second, first, link.latency_s, link.backward_bytes_per_s))

    def walk(
        end: str, seen: set[str], latency: float, speed: float
    ) -> Iterator[tuple[float, float]]:
        for start, stop, more, limit in arcs:
            if start != end or stop in seen:
                continue
            if stop == target:
                yield latency + more, min(speed, limit)
            elif stop not in hosts:
                yield from walk(stop, seen | {stop}, latency + more, min(speed, limit))

    yield from walk(source, {source}, 0.0, math.inf)


@dataclass
class World:
    """One problem with the formulas of DESIGN section 5."""

    problem: Problem
    _known: dict[tuple[int, int], list[tuple[float, float]]] = field(default_factory=dict)

    @property
    def chunks(self) -> int:
        return self.num_chunks(self.problem.workload.prompt.mean)

    def num_chunks(self, tokens: float) -> int:
        return max(1, math.ceil(tokens / self.problem.runtime.prefill_chunk_tokens))

    def bytes_per_s(self, d: int) -> float:
        device = self.problem.devices[d]
        return device.decode_efficiency * device.memory_bandwidth_bytes_per_s

    def flop_per_s(self, d: int) -> float:
        device = self.problem.devices[d]
        return device.prefill_efficiency * device.fp16_flop_per_s

    def read_bytes(self, layer: int, tokens: float) -> float:
        """A_i(n)."""
        model = self.problem.model
        share = model.layer_routed_fraction[layer]
        touched = 1.0 - math.pow(1.0 - share, tokens)
        return model.layer_dense_bytes[layer] + model.layer_routed_bytes[layer] * touched

    def kv(self, layer: int, tokens: float) -> float:
        """κ_i(c)."""
        model = self.problem.model
        return model.layer_kv_bytes_per_token[layer] * min(tokens, model.layer_window_tokens[layer])

    def flops(self, layer: int, context: float) -> float:
        """F_i(c)."""
        model = self.problem.model
        seen = min(context, model.layer_window_tokens[layer])
        return model.layer_flops_per_token[layer] + model.layer_attention_flops[layer] * seen

    def prefill_layer(self, d: int, layer: int, tokens: float) -> float:
        chunk = self.problem.runtime.prefill_chunk_tokens
        left, read = tokens, 0.0
        while left > 0:
            read += self.read_bytes(layer, min(chunk, left))
            left -= chunk
        work = tokens * self.flops(layer, tokens / 2)
        slower = max(work / self.flop_per_s(d), read / self.bytes_per_s(d))
        return slower + self.problem.devices[d].layer_overhead_s

    def decode_layer(self, d: int, layer: int, batch: int, *, is_spilled: bool) -> float:
        context = self.problem.workload.prompt.mean + self.problem.workload.output.mean / 2
        read = self.read_bytes(layer, batch) + batch * self.kv(layer, context)
        work = batch * self.flops(layer, context)
        there = 0.0
        if is_spilled:
            there = self.spilled_bytes(layer, batch)
            read -= there
            there /= self.problem.devices[d].host_bandwidth_bytes_per_s
        slower = max(read / self.bytes_per_s(d), work / self.flop_per_s(d))
        return slower + there + self.problem.devices[d].layer_overhead_s

    def head(self, d: int, batch: int) -> float:
        model = self.problem.model
        reading = model.head_bytes / self.bytes_per_s(d)
        return max(reading, batch * model.head_flops_per_token / self.flop_per_s(d))

    def holds_head(self, cut: Cut, j: int) -> bool:
        return j == (0 if self.problem.runtime.head == "first" else len(cut) - 1)

    def spilled_bytes(self, layer: int, tokens: float) -> float:
        """A^s_i(n): what is read of the part of a layer that may lie in host RAM."""
        model = self.problem.model
        routed = min(model.layer_spillable_bytes[layer], model.layer_routed_bytes[layer])
        touched = 1.0 - math.pow(1.0 - model.layer_routed_fraction[layer], tokens)
        return model.layer_spillable_bytes[layer] - routed + routed * touched

    def host_bytes(self, cut: Cut, j: int) -> float:
        """Host RAM for spilled weights on stage j; 0 where its device cannot spill."""
        device = self.problem.devices[cut[j][0]]
        if not (device.host_bandwidth_bytes_per_s and device.bus_bytes_per_s):
            return 0.0
        is_in_host = self.problem.runtime.embedding == "host" and self.holds_head(cut, j)
        is_in_host = is_in_host and device.memory_kind is MemoryKind.DISCRETE
        return device.host_memory_bytes - is_in_host * self.problem.model.embedding_bytes

    def spilled(self, cut: Cut, j: int, slots: int) -> set[int]:
        """Layers of stage j that lie in host RAM: the fewest, large and late ones first."""
        spillable = self.problem.model.layer_spillable_bytes
        d, start, stop = cut[j]
        layers = [layer for layer in range(start, stop) if spillable[layer] > 0]
        layers.sort(key=lambda layer: (-spillable[layer], -layer))
        need = self.whole_stage_bytes(cut, j, slots) - self.problem.devices[d].usable_bytes
        chosen: set[int] = set()
        while need > 0 and layers:
            chosen.add(layers[0])
            need -= spillable[layers.pop(0)]
        fits = sum(spillable[layer] for layer in chosen) <= self.host_bytes(cut, j)
        return chosen if fits else set()

    def stage_bytes(self, cut: Cut, j: int, slots: int) -> float:
        """What stage j holds in its device's memory, as little spilled as that needs."""
        spillable = self.problem.model.layer_spillable_bytes
        spilled = sum(spillable[layer] for layer in self.spilled(cut, j, slots))
        return self.whole_stage_bytes(cut, j, slots) - spilled

    def whole_stage_bytes(self, cut: Cut, j: int, slots: int) -> float:
        """Everything that stage j holds, but an embedding in host RAM."""
        runtime, model = self.problem.runtime, self.problem.model
        d, start, stop = cut[j]
        held = runtime.overhead_bytes
        for layer in range(start, stop):
            held += model.layer_weight_bytes[layer]
            held += slots * self.kv(layer, self.problem.workload.context_tokens)
        has_head = self.holds_head(cut, j)
        has_embedding = has_head if runtime.embedding == "host" else j == 0
        if has_head:
            held += model.head_bytes
            if runtime.logits_buffer:
                held += runtime.prefill_chunk_tokens * model.vocab_size * LOGIT_BYTES
        is_discrete = self.problem.devices[d].memory_kind is MemoryKind.DISCRETE
        is_in_host = runtime.embedding == "host" and is_discrete
        if has_embedding and not is_in_host and not (has_head and model.is_tied):
            held += model.embedding_bytes
        return held

    def fits(self, cut: Cut, slots: int) -> bool:
        return all(
            self.stage_bytes(cut, j, slots) <= self.problem.devices[cut[j][0]].usable_bytes
            for j in range(len(cut))
        )

    def hop(self, source: int, target: int, num_bytes: float, centre: int) -> float:
        """Nothing to send takes no time, but there must be a way for it."""
        if num_bytes == 0:
            return 0.0 if self.hop(source, target, 1.0, centre) < math.inf else math.inf
        devices, runtime = self.problem.devices, self.problem.runtime
        is_star = runtime.topology == "star"
        ends = {devices[source].host, devices[target].host}
        if is_star and devices[centre].host not in ends:
            first = self.hop(source, centre, num_bytes, centre)
            return first + self.hop(centre, target, num_bytes, centre)
        if (source, target) not in self._known:
            self._known[source, target] = ways(self.problem.inventory, source, target)
        times = [delay + num_bytes / speed for delay, speed in self._known[source, target]]
        is_local = len(ends) == 1
        fixed = runtime.bus_hop_overhead_s if is_local else runtime.hop_overhead_s
        return min(times, default=math.inf) + fixed

    def centre(self, cut: Cut) -> int:
        return cut[0 if self.problem.runtime.head == "first" else -1][0]

    def forward_bytes(self, tokens: float) -> float:
        return tokens * self.problem.model.hidden_size * self.problem.runtime.activation_bytes

    def back_bytes(self, batch: int) -> float:
        runtime = self.problem.runtime
        if not runtime.returns_tokens:
            return 0.0
        back = self.forward_bytes(batch) if runtime.head == "first" else batch * TOKEN_ID_BYTES
        if runtime.sends_logits:
            back += batch * self.problem.model.vocab_size * LOGIT_BYTES
        return float(back)

    def prefill_stages(self, cut: Cut, tokens: float, slots: int) -> list[tuple[float, float]]:
        """(stage, outgoing hop) of a whole prompt; *slots* requests must fit into memory."""
        chunks = self.num_chunks(tokens)
        found = []
        for j, (d, start, stop) in enumerate(cut):
            stage = sum(self.prefill_layer(d, layer, tokens) for layer in range(start, stop))
            for layer in self.spilled(cut, j, slots):
                left = tokens
                while left > 0:
                    chunk = min(self.problem.runtime.prefill_chunk_tokens, left)
                    moved = self.spilled_bytes(layer, chunk)
                    stage += moved / self.problem.devices[d].bus_bytes_per_s
                    left -= chunk
            if self.holds_head(cut, j):
                stage += self.head(d, 1)
            hop = 0.0
            if j < len(cut) - 1:
                num_bytes = self.forward_bytes(tokens / chunks)
                hop = chunks * self.hop(d, cut[j + 1][0], num_bytes, self.centre(cut))
            found.append((stage, hop))
        return found

    def decode_stages(self, cut: Cut, batch: int, slots: int) -> list[tuple[float, float]]:
        """(stage, outgoing hop) of a micro-batch, the last hop back to the first stage."""
        found = []
        for j, (d, start, stop) in enumerate(cut):
            spilled = self.spilled(cut, j, slots)
            stage = sum(
                self.decode_layer(d, layer, batch, is_spilled=layer in spilled)
                for layer in range(start, stop)
            )
            if self.holds_head(cut, j):
                stage += self.head(d, batch)
            hop, centre = 0.0, self.centre(cut)
            if j < len(cut) - 1:
                hop = self.hop(d, cut[j + 1][0], self.forward_bytes(batch), centre)
            elif len(cut) > 1:
                hop = self.hop(d, cut[0][0], self.back_bytes(batch), centre)
            found.append((stage, hop))
        return found

    def prefill(self, cut: Cut, tokens: float, slots: int) -> tuple[float, float]:
        """(latency, occupancy)."""
        chunks = self.num_chunks(tokens)
        times = [(stage + hop) / chunks for stage, hop in self.prefill_stages(cut, tokens, slots)]
        if self.problem.runtime.is_pipelined:
            return sum(times + [max(times)] * (chunks - 1)), chunks * max(times)
        return chunks * sum(times), chunks * sum(times)

    def rounds(self, cut: Cut, n: int, slots: int) -> float:
        """Best round of n requests over all micro-batches; *slots* must fit into memory."""
        most = min(len(cut), n) if self.problem.runtime.is_pipelined else 1
        found = []
        for m in range(1, most + 1):
            times = self.decode_stages(cut, -(-n // m), slots)
            total = sum(stage + hop for stage, hop in times)
            found.append(max(total, m * slowest(times)))
        return min(found)

    def pause(self, cut: Cut, tokens: float, slots: int) -> float:
        """How long a prompt stops decoding in a MIXED replica."""
        latency, occupancy = self.prefill(cut, tokens, slots)
        is_short = self.problem.runtime.mixed_pause is MixedPause.OCCUPANCY
        return occupancy if is_short else latency

    def times(
        self, cut: Cut, role: str, slots: int, micro_batches: int
    ) -> list[tuple[float, float]]:
        """What ``partition`` balances: (stage, hop) of a chunk, a micro-batch, or both."""
        tokens, output = self.problem.workload.prompt.mean, self.problem.workload.output.mean
        chunk = [
            (s / self.chunks, h / self.chunks) for s, h in self.prefill_stages(cut, tokens, slots)
        ]
        if role == "PREFILL":
            return chunk
        step = self.decode_stages(cut, -(-slots // micro_batches), slots)
        if role == "DECODE":
            return step
        weight = output * micro_batches / (slots * self.chunks)
        return [
            (s + weight * s2, h + weight * h2) for (s, h), (s2, h2) in zip(chunk, step, strict=True)
        ]

    def best_value(
        self, rows: Sequence[int], role: str, slots: int, micro_batches: int, criterion: str
    ) -> float:
        """Least slowest stage, or least sum, over all orders, subsets and cuts; inf for none."""
        best = math.inf
        for cut in self.cuts(rows):
            if self.fits(cut, slots) and self.is_allowed(cut, rows):
                times = self.times(cut, role, slots, micro_batches)
                total = sum(stage + hop for stage, hop in times)
                if total < math.inf:  # the way back must exist, even where it costs no stage
                    best = min(best, total if criterion == "sum" else slowest(times))
        return best

    def is_allowed(self, cut: Cut, rows: Sequence[int]) -> bool:
        """Whether a cut over some of *rows* has the layers that constraints ask for."""
        limits = self.problem.constraints
        held = {self.problem.devices[d].name: stop - start for d, start, stop in cut}
        names = [self.problem.devices[d].name for d in rows]
        pinned = {name for devices in limits.pins.values() for name in devices}
        return all(
            held.get(name, 0) == limits.fixed_layers[name]
            if name in limits.fixed_layers
            else name in held or not (limits.use_all_devices or name in pinned)
            for name in names
        )

    def cuts(self, rows: Sequence[int]) -> Iterator[Cut]:
        """Every legal cut over every ordered subset of *rows*."""
        num_layers = self.problem.model.num_layers
        allowed = self.problem.model.allowed_stage_starts
        starts = range(1, num_layers) if allowed is None else [b for b in allowed if b > 0]
        for num in range(1, min(len(rows), len(starts) + 1) + 1):
            for bounds in combinations(starts, num - 1):
                spans = list(pairwise((0, *bounds, num_layers)))
                for order in permutations(rows, num):
                    yield tuple(
                        (d, start, stop) for d, (start, stop) in zip(order, spans, strict=True)
                    )


def slowest(times: list[tuple[float, float]]) -> float:
    """Slowest stage with its outgoing hop; the hop back occupies nobody."""
    return max(stage + (hop if j < len(times) - 1 else 0.0) for j, (stage, hop) in enumerate(times))


# ---------------------------------------------------------------- the outer problem


def groupings(rows: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """Yield every set of disjoint non-empty subsets of *rows*, the empty one included."""
    if not rows:
        yield []
        return
    first, rest = rows[0], rows[1:]
    for found in groupings(rest):
        yield found
        yield [(first,), *found]
        for i, group in enumerate(found):
            yield [*found[:i], (first, *group), *found[i + 1 :]]


# ---------------------------------------------------------------- KV caches on the move


Thing = tuple[object, ...]
"""What transfers share: a link in one direction (in both if half duplex), a card, a bus."""


@dataclass(frozen=True)
class Way:
    """One way between two devices with everything it crosses."""

    latency_s: float
    bytes_per_s: float
    things: tuple[tuple[Thing, float], ...]
    """What is crossed, with its own speed."""


def whole_ways(inventory: Inventory, source: int, target: int) -> list[Way]:
    """Return the ways with what they cross; only for inventories without private links."""
    here, there = inventory.devices[source], inventory.devices[target]
    if here.host == there.host:
        speed = min(here.host_bus_bytes_per_s, there.host_bus_bytes_per_s)
        return [Way(BUS_LATENCY_S, speed, ((("bus", here.host), speed),))]
    arcs = _arcs(inventory)
    hosts = {device.host for device in inventory.devices}
    found: list[Way] = []
    walks: list[tuple[str, tuple[str, ...], Way]] = []
    walks.append((here.host, (here.host,), Way(0.0, math.inf, ())))
    while walks:
        end, seen, way = walks.pop()
        for start, stop, link, speed, thing in arcs:
            if start != end or stop in seen or (stop in hosts and stop != there.host):
                continue
            things = [*way.things, (thing, speed)]
            things += [_card(arcs, 0, start, link.interface)] if start == here.host else []
            things += [_card(arcs, 1, stop, link.interface)] if stop == there.host else []
            slower = min(way.bytes_per_s, speed)
            longer = Way(way.latency_s + link.latency_s, slower, tuple(things))
            if stop == there.host:
                found.append(longer)
            else:
                walks.append((stop, (*seen, stop), longer))
    return found


def _arcs(inventory: Inventory) -> list[tuple[str, str, Link, float, Thing]]:
    found: list[tuple[str, str, Link, float, Thing]] = []
    for i, link in enumerate(inventory.links):
        ends = [inventory.endpoint(end) for end in link.ends]
        for k, speed in enumerate((link.forward_bytes_per_s, link.backward_bytes_per_s)):
            thing = ("link", i, 0 if link.is_half_duplex else k)
            found.append((ends[k], ends[1 - k], link, speed, thing))
    return found


def _card(
    arcs: list[tuple[str, str, Link, float, Thing]], direction: int, host: str, interface: str
) -> tuple[Thing, float]:
    """Return a host's network card (out: 0, in: 1); it is as fast as its fastest link."""
    mine = [arc[3] for arc in arcs if arc[direction] == host and arc[2].interface == interface]
    return ("card", host, interface, direction), max(mine)


def kv_exposed_s(world: World, source: Cut, target: Cut, prefill_latency_s: float) -> float:
    """Return the KV transfer of a mean prompt that is not hidden behind the prefill."""
    tokens, num_layers = world.problem.workload.prompt.mean, world.problem.model.num_layers
    sent: dict[tuple[int, int], float] = {}
    for layer in range(num_layers):
        pair = holder(source, layer), holder(target, layer)
        sent[pair] = sent.get(pair, 0.0) + world.kv(layer, tokens)
    busy: dict[Thing, float] = {}
    latency = 0.0
    for (d, e), num_bytes in sent.items():
        found = whole_ways(world.problem.inventory, d, e)
        if not found:
            return math.inf
        way = min(found, key=lambda w: (w.latency_s + num_bytes / w.bytes_per_s, -w.bytes_per_s))
        latency = max(latency, way.latency_s)
        for thing, speed in way.things:
            busy[thing] = busy.get(thing, 0.0) + num_bytes / speed
    moving, total = max(busy.values()), sum(sent.values())
    if world.problem.runtime.layerwise_kv and total > 0:
        last = world.kv(num_layers - 1, tokens) / total
        hidden = prefill_latency_s * (1 - 1 / num_layers)
        moving = max(moving * last, moving - hidden)
    return moving + latency


def holder(cut: Cut, layer: int) -> int:
    """Return the device that holds a layer."""
    return next(d for d, start, stop in cut if start <= layer < stop)
