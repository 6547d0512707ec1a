"""The best replica that one group of devices can be, in each role; kept by device class."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.partition.partition import best_cut, decode_demand, mixed_demand, prefill_demand
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.candidate import Candidate, Group
from e2llm_opt.search.columns import Columns
from e2llm_opt.search.context import longest_cut, max_context, slots_of, usable_slots
from e2llm_opt.search.cut_figures import CutFigures
from e2llm_opt.search.effort import FULL, Effort
from e2llm_opt.search.kv_limits import KvLimits
from e2llm_opt.search.slots import slot_counts
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.partition.partition import Criterion, Demand
    from e2llm_opt.search.cut_figures import Figures

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


_NOTHING: tuple[float, int, Cut] = (0.0, 0, ())


class Candidates:
    """The store: asks the partitioner once for each multiset of device classes and role.

    Parameters
    ----------
    costs
        Of the problem.
    devices
        Rows that may be used, in the canonical order.
    effort
        Spent on each group.
    columns
        The store that takes every replica; by default one of its own.

    Attributes
    ----------
    rows
        Device rows of each class, in the canonical order.
    columns
        Every replica so far with its rate.
    figures
        Of every cut so far.
    kv_limits
        What network cards leave of a replica's rate.
    """

    def __init__(
        self,
        costs: Costs,
        devices: Sequence[int],
        effort: Effort = FULL,
        columns: Columns | None = None,
    ) -> None:
        self.costs = costs
        self._effort = effort
        self.columns = Columns() if columns is None else columns
        self.kv_limits = KvLimits(costs)
        self.rows: dict[int, list[int]] = {}
        for d in devices:
            self.rows.setdefault(costs.classes.class_of[d], []).append(d)
        self._kept: dict[tuple[Group, Role, Variant], Candidate | None] = {}
        self.figures = CutFigures(costs)
        self._decode_cuts: dict[tuple[tuple[int, ...], int, int, str], Cut | None] = {}

    def find(self, group: Group, role: Role, variant: Variant) -> Candidate | None:
        """Return the best replica of *group* in *role*; None where there is none."""
        key = (group, role, variant)
        if variant is Variant.RATE and self.columns.is_exact(group, role):
            return self.columns.best(group, role)
        if key not in self._kept:
            found = self._search(group, role, variant) if self.fits(group) else None
            if found is not None:
                self._take(found)
            self._kept[key] = found
        best = self.columns.best(group, role) if variant is Variant.RATE else None
        return best or self._kept[key]

    def improve(self, group: Group, role: Role, cut: Cut, slots: int) -> None:
        """Keep a replica with *cut* and *slots*, both known to be legal."""
        self._take(self._candidate(group, role, cut, slots))

    def rate(self, replica: Candidate) -> float:
        """Return requests a second with everything busy, KV caches through network cards [1/s]."""
        rate = replica.service_rate(self.costs.output_tokens)
        return min(rate, self.kv_limits.of_cut(replica.role, replica.cut))

    def _take(self, replica: Candidate) -> None:
        self.columns.take(replica, self.rate(replica))

    def without_idle(self, replica: Candidate) -> Group:
        """Return the classes of the devices of *replica* that hold layers, and keep it as theirs.

        The replica must stand on the first devices of each class.
        """
        group, class_of = self.costs.group(replica.cut), self.costs.classes.class_of
        if group != replica.group:
            waiting = {k: list(rows) for k, rows in self.rows.items()}
            used = self.costs.units.devices(replica.cut)
            where = {d: waiting[class_of[d]].pop(0) for d in used}
            cut = self.costs.units.moved(replica.cut, where)
            if cut is not None:
                self._take(replace(replica, group=group, cut=cut))
        return group

    def first(self, group: Group, role: Role) -> tuple[float, int, Cut] | None:
        """Return (rate [1/s], slots, cut) of some good replica that decodes, found quickly."""
        for units in self.units(group):
            counts = slot_counts(self.costs, units, self._effort.max_states)
            cuts = (cut for slots in counts for cut in self._cuts(units, role, slots))
            for cut in cuts:
                found = self._best_slots(cut, role)
                if found[1]:
                    return found
        return None

    def fits(self, group: Group) -> bool:
        """Whether weights and the KV cache of one request fit into the group's memory at all."""
        room = self.costs.room()
        least = float(self.costs.memory_prefix(1)[-1])
        held = sum(float(room[self.rows[k][0], 0]) for k in group)
        held += self.costs.most_spilled(self.rows[k][0] for k in group)
        model = self.costs.problem.model
        return held >= least - model.embedding_bytes - model.head_bytes  # where these lie is open

    def at_cut(
        self,
        cut: Cut,
        role: Role = Role.MIXED,
        at_most: int | None = None,
        spilled: Spilled | None = None,
    ) -> Candidate | None:
        """Return a replica with a given cut and as many slots as it holds fast enough.

        With the *spilled* layers of one that stands already, which may be more than its slots need:
        they leave room for longer requests. None where it breaks memory, the speed limits, or has
        no path between two stages.
        """
        if spilled is not None and any(spilled):
            stands = self._spilled(cut, role, at_most or 1, spilled)
            if stands is not None:
                return stands
        slots = self._most_fast(cut, role, at_most)
        if at_most is None and self.costs.problem.objective is Objective.MAX_CONTEXT:
            slots = min(slots, slots_of(self.costs, role))
        return self._candidate(self.costs.group(cut), role, cut, slots) if slots >= 1 else None

    def _spilled(self, cut: Cut, role: Role, slots: int, spilled: Spilled) -> Candidate | None:
        """Return a replica with given spilled layers; None where they are not what it needs now."""
        context = self.costs.problem.workload.context_tokens
        if max_context(self.costs, cut, slots, spilled) < context:
            return None
        figures = self.figures.build(cut, slots, spilled)
        legal = np.flatnonzero(self.figures.is_legal(figures, role)) + 1
        if role is not Role.PREFILL and not len(legal):
            return None
        most = 1 if role is Role.PREFILL else int(legal[-1])
        return self._with_figures(self.costs.group(cut), role, cut, figures.shortened(most))

    def concrete(self, group: Group) -> tuple[int, ...]:
        """Return device rows for *group*: the first of each class."""
        seen: dict[int, int] = {}
        found = []
        for k in group:
            found.append(self.rows[k][seen.get(k, 0)])
            seen[k] = seen.get(k, 0) + 1
        return tuple(found)

    def units(self, group: Group) -> list[tuple[int, ...]]:
        """Return the ways to form units of the devices of *group*, as rows."""
        return self.costs.units.fusings(self.concrete(group))

    def _search(self, group: Group, role: Role, variant: Variant) -> Candidate | None:
        """Return the best over all ways to form units; of equal ones the smallest units."""
        searched = (self._of_units(group, units, role, variant) for units in self.units(group))
        found = [replica for replica in searched if replica is not None]
        return min(found, key=lambda one: self._worth(one, variant), default=None)

    def _worth(self, replica: Candidate, variant: Variant) -> tuple[float, float]:
        """Return what a variant minimises."""
        if variant is Variant.CONTEXT:
            return -replica.max_context_tokens, self._latency_alone(replica)
        if replica.role is Role.PREFILL:
            times = replica.occupancy_s, replica.prefill_latency_s
            return times if variant is Variant.RATE else times[::-1]
        if variant is Variant.LATENCY:
            return self._latency_alone(replica), 0.0
        return -self.rate(replica), 0.0

    def _of_units(
        self, group: Group, devices: tuple[int, ...], role: Role, variant: Variant
    ) -> Candidate | None:
        if variant is Variant.CONTEXT:
            return self._longest(group, devices, role)
        if role is Role.PREFILL:
            return self._prefill(group, devices, variant)
        if variant is Variant.LATENCY:
            return self._alone(group, devices, role)
        return self._fastest(group, devices, role)

    def _longest(self, group: Group, devices: tuple[int, ...], role: Role) -> Candidate | None:
        slots = slots_of(self.costs, role)

        def is_fast(cut: Cut, spilled: Spilled) -> bool:
            figures = self.figures.build(cut, slots, spilled)
            return role is Role.PREFILL or bool(self.figures.is_legal(figures, role)[-1])

        found = longest_cut(self.costs, devices, role, is_fast, self._effort.max_states)
        if found is None:
            return None
        figures = self.figures.build(found[0], slots, found[1])
        return self._with_figures(group, role, found[0], figures)

    def _prefill(
        self, group: Group, devices: tuple[int, ...], variant: Variant
    ) -> Candidate | None:
        demand = prefill_demand(self.costs)
        cuts: list[Cut] = []
        if self.costs.problem.runtime.is_pipelined and len(devices) > 1:
            cuts += self._cut(devices, demand, "bottleneck")
        if cuts and self._effort.has_sums:
            cuts += self._cut(devices, demand, "sum", self._chunk_bottleneck(cuts[0]))
        if not cuts or variant is Variant.LATENCY:
            cuts += self._cut(devices, demand, "sum")
        if not cuts:
            return None
        found = [self._candidate(group, Role.PREFILL, cut, 1) for cut in dict.fromkeys(cuts)]
        if variant is Variant.LATENCY:
            return min(found, key=lambda c: (c.prefill_latency_s, c.occupancy_s))
        return min(found, key=lambda c: (c.occupancy_s, c.prefill_latency_s))

    def _chunk_bottleneck(self, cut: Cut) -> float:
        figures = self.figures.at(cut, 1)
        return figures.occupancy_s / self.costs.num_chunks * (1 + 1e-12)

    def _alone(self, group: Group, devices: tuple[int, ...], role: Role) -> Candidate | None:
        """Least latency of one request, with as many slots as that cut holds."""
        found = []
        for cut in dict.fromkeys(self._alone_cuts(devices, role)):
            most = self._most_fast(cut, role)
            if most >= 1:
                found.append(self._candidate(group, role, cut, most))
        return min(found, key=self._latency_alone, default=None)

    def _alone_cuts(self, devices: tuple[int, ...], role: Role) -> Iterator[Cut]:
        """Yield the cuts with the least sum of stages for a request that is alone."""
        costs = self.costs
        slots = costs.problem.workload.slots or 1
        demands = [decode_demand(costs, slots, 1)]
        if role is Role.MIXED:
            weights = {costs.output_tokens, costs.output_tokens / costs.num_chunks}
            demands = [mixed_demand(costs, slots, 1, weight) for weight in sorted(weights)]
        for demand in demands:
            yield from self._cut(devices, demand, "sum")

    def _most_fast(self, cut: Cut, role: Role, at_most: int | None = None) -> int:
        """Return the most slots that *cut* holds within the speed limits; 0 for none."""
        if role is Role.PREFILL:
            return min(1, self.figures.at(cut, 1).slots)
        legal = np.flatnonzero(self.figures.rates(cut, role)[:at_most])
        return int(legal[-1]) + 1 if len(legal) else 0

    def _latency_alone(self, candidate: Candidate) -> float:
        decoding = self.costs.output_tokens * float(candidate.tpot_s[0])
        if candidate.role is Role.MIXED:
            return decoding + candidate.prefill_latency_s
        return decoding

    def _fastest(self, group: Group, devices: tuple[int, ...], role: Role) -> Candidate | None:
        """Most requests a second over slots, micro-batches and cuts, within the speed limits.

        Cuts are asked for at the most slots that memory holds, then at the number of slots where
        the best of them was best, until nothing changes; where memory binds, also at fewer.
        """
        best = _NOTHING
        if self._effort.has_sums and len(devices) > 1:
            alone = [self._best_slots(cut, role) for cut in self._alone_cuts(devices, role)]
            best = max(alone, key=lambda found: found[0], default=_NOTHING)
        asked: set[int] = set()
        waiting = slot_counts(self.costs, devices, self._effort.max_states)
        while waiting and len(asked) < self._effort.max_asked:
            slots = waiting.pop(0)
            if slots in asked:
                continue
            asked.add(slots)
            for cut in dict.fromkeys(self._cuts(devices, role, slots)):
                found = self._best_slots(cut, role)
                if found[0] > best[0] * (1 + 1e-12):
                    best = found
            if best[1] and best[1] not in asked:
                waiting.insert(0, best[1])
        return self._candidate(group, role, best[2], best[1]) if best[1] else None

    def _best_slots(self, cut: Cut, role: Role) -> tuple[float, int, Cut]:
        """Return the best rate of *cut* [1/s] and its slots; 0 slots where none is legal."""
        rates = self.figures.rates(cut, role)
        if not rates.any():
            return _NOTHING
        i = int(rates.argmax())
        return float(rates[i]), i + 1, cut

    def _cuts(self, devices: tuple[int, ...], role: Role, slots: int) -> Iterator[Cut]:
        """Yield the cuts worth trying: both criteria, at the batches of several micro-batches."""
        is_pipelined = self.costs.problem.runtime.is_pipelined
        most = min(len(devices), slots) if is_pipelined else 1
        is_overlapping = is_pipelined and len(devices) > 1
        counts = [m for m in self._effort.micro_batches if m <= most]
        for m in counts:
            has_sum = m in (1, counts[-1]) and (self._effort.has_sums or not is_overlapping)
            criteria: list[Criterion] = ["sum"] if has_sum else []
            criteria += ["bottleneck"] if is_overlapping else []
            batch = -(-slots // m)
            for criterion in criteria:
                yield from self._decode_cut(devices, slots, batch, criterion)
                if role is Role.MIXED:
                    weight = self.costs.output_tokens * m / (slots * self.costs.num_chunks)
                    demand = mixed_demand(self.costs, slots, batch, weight)
                    yield from self._cut(devices, demand, criterion)

    def _decode_cut(
        self, devices: tuple[int, ...], slots: int, batch: int, criterion: Criterion
    ) -> Iterator[Cut]:
        """Yield the cut for decoding; DECODE and MIXED replicas ask for the same ones."""
        key = (devices, slots, batch, criterion)
        if key not in self._decode_cuts:
            demand = decode_demand(self.costs, slots, batch)
            self._decode_cuts[key] = next(self._cut(devices, demand, criterion), None)
        cut = self._decode_cuts[key]
        if cut is not None:
            yield cut

    def _cut(
        self, devices: tuple[int, ...], demand: Demand, criterion: Criterion, limit: float = np.inf
    ) -> Iterator[Cut]:
        cut = best_cut(self.costs, devices, demand, criterion, limit, self._effort.max_states)
        if cut is not None:
            yield cut

    def like(self, other: Candidate) -> Candidate:
        """Return the replica of *other*, of the same devices in another problem, as it is here."""
        figures = self.figures.build(other.cut, other.slots, other.spilled)
        return self._with_figures(self.costs.group(other.cut), other.role, other.cut, figures)

    def _candidate(self, group: Group, role: Role, cut: Cut, slots: int) -> Candidate:
        figures = self.figures.at(cut, slots)
        return self._with_figures(group, role, cut, figures.shortened(slots))

    def _with_figures(self, group: Group, role: Role, cut: Cut, figures: Figures) -> Candidate:
        slots, is_asked = figures.slots, self.costs.problem.objective is Objective.MAX_CONTEXT
        return Candidate(
            group=group,
            role=role,
            cut=cut,
            degree=self.costs.units.degree(cut),
            slots=max(slots, 1),
            prefill_latency_s=figures.latency_s,
            occupancy_s=figures.occupancy_s,
            pause_s=self.figures.pause(figures, role),
            spread=self.figures.spread(cut, role, figures),
            tpot_s=figures.tpot_s,
            usable=usable_slots(self.costs, cut, figures, role),
            micro_batches=int(figures.micro_batches[-1]),
            spilled=figures.spilled,
            max_context_tokens=max_context(self.costs, cut, slots, figures.spilled)
            if is_asked
            else 0,
        )
