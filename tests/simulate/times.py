"""How long a replica of docs/simulator.md takes for a prompt, a round, a KV cache: no closed forms.

Layer times and hops come from the plain oracles; nothing of the package but the domain objects.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.oracles import Thing, World, holder, slowest, whole_ways

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.oracles import Cut


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One replica: its role, (device, start, stop) of each stage, slots, and planned rate."""

    role: str
    cut: Cut
    slots: int
    max_context: int
    rate: float = 1.0


@dataclass
class Times:
    """What a replica needs for a prompt, a round, a KV transfer."""

    world: World
    mean_context: bool
    _rounds: dict[tuple[Cut, int, int], tuple[int, float]] = field(default_factory=dict)

    def chunks(self, replica: Replica, prompt: int) -> list[float]:
        """One chunk on each stage, its hop included."""
        slots = 1 if replica.role == "PREFILL" else replica.slots
        stages = self.world.prefill_stages(replica.cut, prompt, slots)
        return [(stage + hop) / self.world.num_chunks(prompt) for stage, hop in stages]

    def latency(self, replica: Replica, prompt: int) -> float:
        slots = 1 if replica.role == "PREFILL" else replica.slots
        return self.world.prefill(replica.cut, prompt, slots)[0]

    def pause(self, replica: Replica, prompt: int) -> float:
        latency = self.latency(replica, prompt)
        pause = self.world.pause(replica.cut, prompt, replica.slots)
        return latency if math.isclose(pause, latency) else pause

    def best_round(self, replica: Replica, n: int) -> tuple[int, float]:
        """(micro-batches, round) of n requests at the mean context."""
        key = replica.cut, replica.slots, n
        if key not in self._rounds:
            is_pipelined = self.world.problem.runtime.is_pipelined
            most = min(len(replica.cut), n) if is_pipelined else 1
            found = []
            for m in range(1, most + 1):
                stages = self.world.decode_stages(replica.cut, -(-n // m), replica.slots)
                total = sum(stage + hop for stage, hop in stages)
                found.append((max(total, m * slowest(stages)), m))
            round_s, m = min(found)
            self._rounds[key] = m, round_s
        return self._rounds[key]

    def round(self, replica: Replica, contexts: Sequence[int]) -> float:
        """One round of requests that see so many tokens each."""
        n = len(contexts)
        m, round_s = self.best_round(replica, n)
        if self.mean_context:
            return round_s
        batch = -(-n // m)
        at_mean = self.world.decode_stages(replica.cut, batch, replica.slots)
        stages = [
            (self._stage(replica, j, batch, contexts), hop) for j, (_, hop) in enumerate(at_mean)
        ]
        return max(sum(stage + hop for stage, hop in stages), m * slowest(stages))

    def _stage(self, replica: Replica, j: int, batch: int, contexts: Sequence[int]) -> float:
        """Stage j for a micro-batch of *batch*, its contexts as long as the mean of all."""
        world, (d, start, stop) = self.world, replica.cut[j]
        device = world.problem.devices[d]
        spilled = world.spilled(replica.cut, j, replica.slots)
        total = world.head(d, batch) if world.holds_head(replica.cut, j) else 0.0
        for layer in range(start, stop):
            kv = sum(world.kv(layer, context) for context in contexts) / len(contexts)
            flops = sum(world.flops(layer, context) for context in contexts) / len(contexts)
            read, there = world.read_bytes(layer, batch), 0.0
            if layer in spilled:
                moved = world.spilled_bytes(layer, batch)
                read, there = read - moved, moved / device.host_bandwidth_bytes_per_s
            reading = (read + batch * kv) / world.bytes_per_s(d)
            computing = batch * flops / world.flop_per_s(d)
            total += max(reading, computing) + there + device.layer_overhead_s
        return total

    def transfer(
        self, source: Replica, target: Replica, prompt: int
    ) -> tuple[dict[Thing, float], float, float]:
        """(how long each resource is busy, latency, share that is exposed at least)."""
        world = self.world
        busy: dict[Thing, float] = {}
        latency = 0.0
        pairs: dict[tuple[int, int], list[int]] = {}
        num_layers = world.problem.model.num_layers
        for layer in range(num_layers):
            pair = holder(source.cut, layer), holder(target.cut, layer)
            pairs.setdefault(pair, []).append(layer)
        mean = world.problem.workload.prompt.mean
        for (d, e), layers in pairs.items():
            planned = sum(world.kv(layer, mean) for layer in layers)
            ways = whole_ways(world.problem.inventory, d, e)
            way = min(ways, key=lambda w: (w.latency_s + planned / w.bytes_per_s, -w.bytes_per_s))
            latency = max(latency, way.latency_s)
            num_bytes = sum(world.kv(layer, prompt) for layer in layers)
            for thing, speed in way.things:
                busy[thing] = busy.get(thing, 0.0) + num_bytes / speed
        total = sum(world.kv(layer, mean) for layer in range(num_layers))
        last = world.kv(num_layers - 1, mean) / total if total else 1.0
        return busy, latency, last

    def hidden(self, source: Replica, prompt: int) -> float:
        """How long before the end of its prefill a KV cache may begin to leave."""
        if not self.world.problem.runtime.layerwise_kv:
            return 0.0
        return self.latency(source, prompt) * (1 - 1 / self.world.problem.model.num_layers)

    def rate(self, replica: Replica) -> float:
        """Requests a second with all slots full, of mean length."""
        load = self.world.problem.workload
        full = load.output.mean * self.best_round(replica, replica.slots)[1]
        if replica.role == "MIXED":
            full += replica.slots * self.world.pause(replica.cut, load.prompt.mean, replica.slots)
        return replica.slots / full
