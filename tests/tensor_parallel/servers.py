"""Hosts with several identical devices, and one device of a shared stage, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from e2llm_opt.constraints import Constraints
from e2llm_opt.inventory.inventory import Inventory
from e2llm_opt.inventory.link import Link
from tests.oracles import World
from tests.strategies import problems

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.problem import Problem

HEADS = ((8, 8), (8, 4), (8, 2), (4, 1), (12, 6), (6, 3))
"""Attention heads and KV heads; 6 and 12 cannot be shared by 8, nor 6 by 4."""


@st.composite
def servers(
    draw: st.DrawFn,
    sizes: Sequence[int] = (1, 2, 3, 4),
    *,
    max_hosts: int = 2,
    max_layers: int = 5,
    topology: str | None = None,
    is_constrained: bool = False,
) -> Problem:
    """Return a problem on hosts with *sizes* identical devices each, whose engine may share."""
    one = draw(problems(max_devices=1, max_layers=max_layers, topology=topology))
    kind = one.inventory.devices[0]
    devices, hosts = [], [f"h{i}" for i in range(draw(st.integers(1, max_hosts)))]
    for host in hosts:
        own = replace(
            kind,
            host=host,
            memory_bytes=kind.memory_bytes * draw(st.sampled_from((1.0, 0.5))),
            reserved_bytes=0.0,
            host_memory_bytes=draw(st.sampled_from((0.0, kind.host_memory_bytes))),
        )
        number = draw(st.sampled_from(sizes))
        devices += [replace(own, name=f"{host}-{i}") for i in range(number)]
    links = [
        Link(ends=(host, "lan"), forward_bytes_per_s=1e8, backward_bytes_per_s=1e8, latency_s=1e-3)
        for host in hosts
    ]
    heads, kv_heads = draw(st.sampled_from(HEADS))
    engine = replace(
        one.runtime,
        tensor_parallel="stages",
        collective_start_s=draw(st.sampled_from((8e-6, 0.0))),
        collective_step_s=draw(st.sampled_from((6e-6, 1e-3))),
    )
    return replace(
        one,
        inventory=Inventory(devices=tuple(devices), links=tuple(links) if len(hosts) > 1 else ()),
        facts=replace(one.facts, num_attention_heads=heads, num_key_value_heads=kv_heads),
        runtime=engine,
        constraints=Constraints(
            use_all_devices=is_constrained and draw(st.booleans()),
            roles=draw(st.sampled_from(("auto", "mixed"))) if is_constrained else "auto",
        ),
    )


class Shared(World):
    """One of *num* devices that share a stage: its part of a layer, and the steps of its ring."""

    num: int = 1

    def with_devices(self, num: int) -> Shared:
        found = Shared(self.problem)
        found.num = num
        return found

    @property
    def kv_share(self) -> float:
        """Part of the KV cache on each device: its heads, at least one."""
        facts = self.problem.facts
        return max(1, facts.num_key_value_heads // self.num) / facts.num_key_value_heads

    def ring(self, steps: int, num_bytes: float, bus: float) -> float:
        """So many steps, in each of which every device passes its part on."""
        if self.num == 1:
            return 0.0
        time = self.problem.runtime.collective_start_s
        for _ in range(steps):
            time += self.problem.runtime.collective_step_s + num_bytes / self.num / bus
        return time

    def all_reduces(self, d: int, tokens: float) -> float:
        """After attention and after the feed-forward part: add up, then hand out."""
        model, runtime = self.problem.model, self.problem.runtime
        size = tokens * model.hidden_size * runtime.activation_bytes
        bus = self.problem.devices[d].host_bus_bytes_per_s
        return sum(self.ring(2 * (self.num - 1), size, bus) for _ in ("attention", "ffn"))

    def prefill_layer(self, d: int, layer: int, tokens: float) -> float:
        device, chunk = self.problem.devices[d], self.problem.runtime.prefill_chunk_tokens
        read, talk, left = 0.0, 0.0, tokens
        while left > 0:
            read += self.read_bytes(layer, min(chunk, left)) / self.num
            talk += self.all_reduces(d, min(chunk, left))
            left -= chunk
        work = tokens * self.flops(layer, tokens / 2) / self.num
        slower = max(work / self.flop_per_s(d), read / self.bytes_per_s(d))
        return slower + talk + device.layer_overhead_s

    def decode_layer(self, d: int, layer: int, batch: int, *, is_spilled: bool = False) -> float:
        assert not is_spilled
        context = self.problem.workload.prompt.mean + self.problem.workload.output.mean / 2
        read = self.read_bytes(layer, batch) / self.num
        read += batch * self.kv(layer, context) * self.kv_share
        work = batch * self.flops(layer, context) / self.num
        slower = max(read / self.bytes_per_s(d), work / self.flop_per_s(d))
        return slower + self.all_reduces(d, batch) + self.problem.devices[d].layer_overhead_s

    def head(self, d: int, batch: int) -> float:
        model, runtime = self.problem.model, self.problem.runtime
        reading = model.head_bytes / self.num / self.bytes_per_s(d)
        work = batch * model.head_flops_per_token / self.num / self.flop_per_s(d)
        logits = batch * model.vocab_size * runtime.activation_bytes
        bus = self.problem.devices[d].host_bus_bytes_per_s
        return max(reading, work) + self.ring(self.num - 1, logits, bus)

    def free_bytes(self, d: int, stage: tuple[int, int], slots: int, tables: float) -> float:
        """What is left on one device beside its part of layers, caches and *tables*."""
        model, context = self.problem.model, self.problem.workload.context_tokens
        held = tables / self.num
        for layer in range(*stage):
            held += model.layer_weight_bytes[layer] / self.num
            held += slots * self.kv(layer, context) * self.kv_share
        return self.problem.devices[d].usable_bytes - held
