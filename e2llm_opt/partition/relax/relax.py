"""Rates that no replica of a group can exceed, whatever its cut, slots and micro-batches."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.roofline import kv_bytes
from e2llm_opt.partition.collapse import allowed_starts
from e2llm_opt.partition.partition import decode_demand, mixed_demand, prefill_demand
from e2llm_opt.partition.relax.kernel import (
    decode_rates,
    decode_times,
    mixed_rates,
    mixed_times,
    prefill_rates,
    windows,
)
from e2llm_opt.partition.relax.large import (
    Group,
    Large,
    Step,
    decode_large,
    mixed_large,
    prefill_large,
)
from e2llm_opt.partition.relax.tables import Loads, Rules, Windows
from e2llm_opt.partition.stage_table import not_faster, stage_table
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.partition.partition import Demand

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


class Relaxation:
    """Over-estimates of what groups of devices can do, in each role.

    Parameters
    ----------
    costs
        Of the problem.
    rows
        Unit rows of each class that may be used [K]; the first ones stand for all.
    most_devices
        In one group.
    cards
        Role, device rows [K] -> how long a request keeps the network cards of each device busy
        that holds layers ``[b, a)`` [K, L+1, L+1] [s].
    """

    def __init__(
        self,
        costs: Costs,
        rows: Sequence[Sequence[int]],
        most_devices: int,
        cards: Callable[[Role, Ints], Floats],
    ) -> None:
        self._cards = cards
        self._costs = costs
        self._heads = np.array([own[0] for own in rows])
        self._seconds = np.array([own[min(1, len(own) - 1)] for own in rows])
        self._is_alone = np.array([len(own) == 1 for own in rows])
        self._sizes = costs.tables.num_devices[self._heads]
        problem = costs.problem
        self._starts = allowed_starts(problem)
        self.rules = Rules(
            output=float(costs.output_tokens),
            slowest=float(problem.workload.slowest_tpot_s),
            chunks=float(costs.num_chunks),
            is_pipelined=bool(problem.runtime.is_pipelined),
            is_short=problem.runtime.mixed_pause is MixedPause.OCCUPANCY,
        )
        most_micro = most_devices if problem.runtime.is_pipelined else 1
        self.entries = entries(problem.runtime.max_slots, problem.workload.slots, most_micro)

    def rates(self, role: Role, counts: Ints) -> Floats:
        """Return a rate that no replica of each group can exceed in *role* [G] [1/s].

        *counts* are units of each class [G, K]; some may idle. 0 where the role is impossible.
        """
        counts = np.ascontiguousarray(counts, dtype=np.int64)
        if role is Role.MIXED:
            return mixed_rates(self._windows, self._loads, self.rules, counts)
        return np.minimum(self.rates_of_phase(role, counts), self.rates_of_cards(role, counts))

    def rates_of_cards(self, role: Role, counts: Ints) -> Floats:
        """Return the same for what network cards leave, beside a prompt's other work [G] [1/s]."""
        if role is Role.PREFILL:
            return prefill_rates(self._sending, self.rules, counts)
        alone = self.rules._replace(chunks=1.0, is_pipelined=True)
        return prefill_rates(self._receiving, alone, counts)

    def rates_of_phase(self, role: Role, counts: Ints) -> Floats:
        """Return the same for PREFILL or DECODE where no KV cache has to move [G] [1/s]."""
        if role is Role.PREFILL:
            return prefill_rates(self._windows, self.rules, counts)
        found: Floats = decode_rates(self._windows, self._loads, self.rules, counts)
        return found

    def times(self, role: Role, count: Ints, rate: float) -> Floats:
        """Return a time that no cut of one group can beat, by entry [N] [s].

        A round of DECODE; of MIXED a request, pause + output · round / slots. Inf where no replica
        with these slots and micro-batches has more than *rate*.
        """
        times = decode_times if role is Role.DECODE else mixed_times
        count = np.ascontiguousarray(count, dtype=np.int64)
        return times(self._windows, self._loads, self.rules, count, float(rate))[1]

    def large(self, role: Role, size: int) -> list[Large]:
        """Return over-estimates of all groups of *size* devices or more, by range of batches.

        Of units: t devices that take a time together are busy for t times as long in all, a
        pipeline of so many devices has fewer stages, and each device has its share of the room.
        """
        costs = self._costs
        memory = costs.memory_prefix(0)[-1]
        group = Group(
            num_layers=costs.problem.model.num_layers,
            size=-(-size // int(self._sizes.max())),
            slots=self.entries[0].most,
            weights=float(memory),
            cache=float(costs.memory_prefix(1)[-1] - memory),
            room=(
                costs.room()[self._heads].max(axis=1)
                + costs.spill_rule.host[self._heads].max(axis=1)
            )
            / self._sizes,
        )
        chunk = self._step(prefill_demand(costs))
        if role is Role.PREFILL:
            found = [prefill_large(chunk, self.rules, group)]
        else:
            found = self._large_of_batches(role, chunk, group)
        found = [one._replace(busy=one.busy * self._sizes) for one in found]
        if role is Role.MIXED:
            return found
        layers = kv_bytes(costs.tables, costs.prompt_tokens)
        share = len(layers) * float(layers.min()) / max(float(layers.sum()), 1e-300)
        moved = share * self._cards(role, self._heads)[:, 0, -1]
        return [one._replace(busy=np.maximum(one.busy, moved)) for one in found]

    def _large_of_batches(self, role: Role, chunk: Step, group: Group) -> list[Large]:
        found, costs = [], self._costs
        for least, most in _batches(group.slots):
            step = self._step(decode_demand(costs, 1, least))
            if role is Role.DECODE:
                found.append(decode_large(step, self.rules, most, group))
            else:
                found.append(mixed_large((chunk, step), self.rules, most, group))
        return found

    def _step(self, demand: Demand) -> Step:
        _, single, hop, _ = self._one(demand)
        shortest = np.where(np.isfinite(hop), hop, np.inf).min(axis=1)
        return Step(np.maximum(single[1], 1e-300), shortest)

    @cached_property
    def _memories(self) -> list[int]:
        """Numbers of slots whose memory is asked for."""
        return sorted({1, *(entry.least for entry in self.entries)})

    @cached_property
    def _steps(self) -> list[tuple[int, int]]:
        """Slots whose memory is asked for, with the micro-batch."""
        return sorted({(entry.least, entry.batch) for entry in self.entries})

    @cached_property
    def _loads(self) -> Loads:
        memories = {slots: i for i, slots in enumerate(self._memories)}
        steps = {key: len(memories) + i for i, key in enumerate(self._steps)}
        return Loads(
            most=np.array([float(entry.most) for entry in self.entries]),
            least=np.array([float(entry.least) for entry in self.entries]),
            micro=np.array([entry.micro for entry in self.entries]),
            members=np.array([entry.members for entry in self.entries]),
            prompts=np.array([memories[entry.least] for entry in self.entries]),
            decoding=np.array([steps[entry.least, entry.batch] for entry in self.entries]),
            both=np.arange(len(self.entries)) + len(memories) + len(steps),
        )

    @cached_property
    def _windows(self) -> Windows:
        """Prompts for each memory (row 0: that of one slot), decode steps, and both together."""
        costs = self._costs
        found = [
            *(self._one(prefill_demand(costs, slots)) for slots in self._memories),
            *(self._one(decode_demand(costs, *key)) for key in self._steps),
            *(self._one(self._both(entry)) for entry in self.entries),
        ]
        parts = zip(*found, strict=True)
        return Windows(*(np.ascontiguousarray(np.stack(part)) for part in parts))

    @cached_property
    def _sending(self) -> Windows:
        """A chunk of a prompt whose KV cache must leave by the device's cards as fast."""
        rules, demand = self.rules, prefill_demand(self._costs, 1)
        if not rules.is_pipelined:
            return self._only(self._one(demand))
        cards = self._cards(Role.PREFILL, self._heads) / rules.chunks
        return self._only(self._one(demand, cards))

    @cached_property
    def _receiving(self) -> Windows:
        """What the cards of a DECODE replica take, whatever else it does."""
        demand = decode_demand(self._costs, 1, 1)
        nothing = [np.zeros_like(part) for part in (demand.time, demand.extra, demand.penalty)]
        time, extra, penalty = nothing
        alone = replace(demand, time=time, extra=extra, penalty=penalty, hops=(), back=(0.0, 0.0))
        stages, single, hop, back = self._one(alone, self._cards(Role.DECODE, self._heads))
        return self._only((stages, single, np.zeros((len(stages[0]), len(stages[0]))) + hop, back))

    def _only(self, one: tuple[Floats, ...]) -> Windows:
        return Windows(*(np.ascontiguousarray(np.stack([part])) for part in one))

    def _both(self, entry: Entry) -> Demand:
        weight = self._costs.output_tokens / entry.most
        if self.rules.is_short or not self.rules.is_pipelined:
            weight *= entry.micro / self._costs.num_chunks
        return mixed_demand(self._costs, entry.least, entry.batch, weight)

    def _one(self, demand: Demand, least: Floats | None = None) -> tuple[Floats, ...]:
        """Return the windows of *demand*, no stage with its hop below *least* [K, L+1, L+1] [s]."""
        costs, heads = self._costs, self._heads
        times = stage_table(costs, heads, demand)
        head = 1 if costs.problem.runtime.head == "first" else 2
        extra = np.ascontiguousarray(demand.extra[heads])
        hop = sum(
            (weight * self._hop(size) for size, weight in demand.hops if weight > 0), np.zeros(())
        )
        size, weight = demand.back
        back = weight * self._hop(size) if weight > 0 else np.zeros((1, 1))
        if least is not None:
            full = np.broadcast_to(hop, (len(heads), len(heads)))
            times = not_faster(times, least, full)
        return (*windows(times, extra, self._starts, head), hop, np.asarray(back.min()))

    def _hop(self, num_bytes: float) -> Floats:
        """Least hop between two classes, whichever device a star has at its centre [K, K] [s]."""
        heads, seconds = self._heads, self._seconds
        is_star = self._costs.problem.runtime.topology == "star"
        anchors = {*heads.tolist(), *seconds.tolist()} if is_star else {-1}
        target = np.broadcast_to(heads, (len(heads), len(heads))).copy()
        np.fill_diagonal(target, seconds)
        hop: Floats = np.min(
            [
                self._costs.hop(num_bytes, heads[:, None], target, anchor)
                for anchor in sorted(anchors)
            ],
            axis=0,
        )
        np.fill_diagonal(hop, np.where(self._is_alone, np.inf, np.diag(hop)))
        return hop


def _batches(slots: int) -> list[tuple[int, int]]:
    """Return ranges of micro-batch sizes, each an eighth longer than where it begins."""
    found, least = [], 1
    while least <= slots:
        most = min(least + least // 8, slots)
        found.append((least, most))
        least = most + 1
    return found


class Entry(NamedTuple):
    """Slots and micro-batches, or a block of *members* numbers of slots with one batch size."""

    least: int
    most: int
    micro: int
    members: int

    @property
    def batch(self) -> int:
        """Requests in a micro-batch."""
        return -(-self.most // self.micro)


def entries(max_slots: int, fixed: int | None, most_micro: int) -> list[Entry]:
    """Return blocks of slots and, behind each, its members; the most slots first."""
    if fixed is not None:
        return [Entry(fixed, fixed, m, 0) for m in range(1, min(most_micro, fixed) + 1)]
    blocks = [
        ((batch - 1) * micro + 1, min(batch * micro, max_slots), micro)
        for micro in range(1, min(most_micro, max_slots) + 1)
        for batch in range(1, -(-max_slots // micro) + 1)
    ]
    found = []
    for least, most, micro in sorted(blocks, key=lambda b: (-b[1], b[2])):
        slots = [n for n in range(most, least - 1, -1) if n >= micro]
        if len(slots) > 1:
            found.append(Entry(least, most, micro, len(slots)))
        found += [Entry(n, n, micro, 0) for n in slots]
    return found
