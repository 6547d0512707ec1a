"""Exact columns: the best replica of a group over cuts, slots and micro-batches, with a proof."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.cost.pipeline import bottleneck, decode_stages
from e2llm_opt.partition.collapse import MAX_STATES
from e2llm_opt.partition.partition import Prepared, decode_demand, prefill_demand
from e2llm_opt.problem import Role
from e2llm_opt.search.columns import EXACT
from e2llm_opt.search.mixed_cuts import MixedCuts, Pause
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.partition.partition import Criterion, StageTimes
    from e2llm_opt.partition.relax.relax import Entry
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.candidates import Candidates
    from e2llm_opt.search.unit_relaxation import UnitRelaxation

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

_MAX_CUTS = 600
"""Cuts asked for in one group and role before the proof is given up."""
_CLOSE = 1e-8
"""Relative width at which a bisection ends."""


class _Best(NamedTuple):
    rate: float
    slots: int
    cut: Cut


class Refiner:
    """Makes columns exact, one group and role at a time.

    The relaxation leaves a few pairs of slots and micro-batches that might be better than the best
    replica known. For each of them the programs of the partition are asked whether any cut is:
    the least sum of stages, none of which may take longer than the round allows. MIXED replicas
    add a limit on the stages of a prompt: that limit is bisected until the rest is refuted.

    Parameters
    ----------
    candidates
        The store of replicas; better ones are kept there.
    relaxation
        What no cut can beat.
    """

    def __init__(self, candidates: Candidates, relaxation: UnitRelaxation) -> None:
        self._candidates = candidates
        self._costs = candidates.costs
        self._columns = candidates.columns
        self._relaxation = relaxation
        self._num_cuts = 0

    def refine(self, group: Group, role: Role) -> None:
        """Find the best replica of *group* in *role*, and note what none can exceed."""
        self._num_cuts = 0
        if role is Role.PREFILL:
            self._prefill(group)
            return
        best = self._start(group, role)
        if best is None:
            return
        upper = 0.0
        for units in self._candidates.units(group):
            best, possible = self._improved(units, role, best)
            upper = max(upper, possible)
        known = self._columns.rate(group, role)
        if best.rate > known:
            self._candidates.improve(group, role, best.cut, best.slots)
        self._columns.limit(group, role, max(upper, self._columns.rate(group, role)) * (1 + EXACT))

    def _prefill(self, group: Group) -> None:
        """Occupancy is the least bottleneck, or the least sum where nothing overlaps."""
        criterion: Criterion = "bottleneck" if self._costs.problem.runtime.is_pipelined else "sum"
        demand = prefill_demand(self._costs)
        least, is_exact = np.inf, True
        for units in self._candidates.units(group):
            prepared = Prepared(self._costs, units, demand, criterion, MAX_STATES)
            if criterion == "bottleneck":
                share = 1.0 / self._costs.num_chunks
                prepared = prepared.allowing(self._kv_times(Role.PREFILL), share, np.inf)
            time, cut = prepared.solved(criterion)
            least, is_exact = min(least, time), is_exact and prepared.is_exact
            if cut is not None:
                self._candidates.improve(group, Role.PREFILL, cut, 1)
        if is_exact:
            possible = 1.0 / self._costs.num_chunks / least
            upper = max(self._columns.rate(group, Role.PREFILL), possible)
            self._columns.limit(group, Role.PREFILL, upper * (1 + EXACT))

    def _kv_times(self, role: Role) -> StageTimes:
        return partial(self._candidates.kv_limits.times, role)

    def _start(self, group: Group, role: Role) -> _Best | None:
        """Return the best replica known, or the first one found."""
        known = self._columns.best(group, role)
        if known is not None:
            return _Best(self._columns.rate(group, role), known.slots, known.cut)
        found = self._candidates.first(group, role)
        if found is None:
            found_slowly = self._candidates.find(group, role, Variant.RATE)
            if found_slowly is None:
                return None
            return _Best(self._columns.rate(group, role), found_slowly.slots, found_slowly.cut)
        rate, slots, cut = found
        return _Best(min(rate, self._candidates.kv_limits.of_cut(role, cut)), slots, cut)

    def _improved(self, units: tuple[int, ...], role: Role, best: _Best) -> tuple[_Best, float]:
        """Return the best replica, and what is left as possible on these *units* [1/s]."""
        count, output = self._relaxation.count(units), self._costs.output_tokens
        times = self._relaxation.of_units.times(role, count, best.rate * (1 + EXACT))
        entries = self._relaxation.of_units.entries
        rates = np.array([e.most for e in entries]) / (output * times)
        if role is Role.MIXED:
            rates = 1.0 / times
        upper = best.rate
        for i in np.argsort(-rates, kind="stable").tolist():
            if rates[i] <= best.rate * (1 + EXACT):
                break
            ask = self._mixed if role is Role.MIXED else self._decode
            before, possible = 0.0, float(rates[i])
            while possible > best.rate * (1 + EXACT) and best.rate > before:
                before = best.rate  # better by its round, but cards may hold it back: again
                best, possible = ask(units, entries[i], float(times[i]), best)
            upper = max(upper, min(possible, float(rates[i])))
        return best, max(upper, best.rate)

    def _ask(self, prepared: Prepared, limit: float) -> Cut | None:
        self._num_cuts += 1
        return prepared.cut("sum", limit)

    def _decode(
        self, units: tuple[int, ...], entry: Entry, low: float, best: _Best
    ) -> tuple[_Best, float]:
        """Return the best DECODE replica, and the rate that *entry*'s slots may still have."""
        costs, output = self._costs, self._costs.output_tokens
        demand = decode_demand(costs, entry.least, entry.batch)
        prepared = Prepared(costs, units, demand, "sum", MAX_STATES)
        busy = 1.0 / best.rate * (1 - EXACT / 2)
        prepared = prepared.allowing(self._kv_times(Role.DECODE), 0.0, busy)
        slots = entry.most
        high = slots / (output * best.rate) * (1 - EXACT / 2)
        high = min(high, costs.problem.workload.slowest_tpot_s)
        middle, is_possible = high, False
        while high - low > _CLOSE * high:
            cut = self._ask(prepared, middle / entry.micro * (1 + 1e-12))
            total = np.inf
            if cut is not None:
                total, slowest = self._round(cut, entry)
                is_possible |= total <= middle
                best = self._better(cut, Role.DECODE, best)
                high = min(high, slots / (output * best.rate), max(total, entry.micro * slowest))
                low = max(low, min(total, high))
            if total > middle:
                low = max(low, middle)
            middle = 0.5 * (low + high)
            if self._num_cuts > _MAX_CUTS:
                break
        if not prepared.is_exact:
            return best, np.inf
        return best, slots / (output * min(low, high)) if is_possible else best.rate

    def _round(self, cut: Cut, entry: Entry) -> tuple[float, float]:
        """Sum of stages and hops, and the slowest stage, of one micro-batch [s]."""
        spilled = self._costs.spilled(cut, entry.least)
        stage, hop = decode_stages(self._costs, cut, entry.batch, spilled)
        return float((stage + hop).sum()), bottleneck(stage, hop)

    def _better(self, cut: Cut, role: Role, best: _Best) -> _Best:
        limit = self._candidates.kv_limits.of_cut(role, cut)
        rates = np.minimum(self._candidates.figures.rates(cut, role), limit)
        i = int(rates.argmax()) if len(rates) else 0
        return _Best(float(rates[i]), i + 1, cut) if len(rates) and rates[i] > best.rate else best

    def _mixed(
        self, units: tuple[int, ...], entry: Entry, low: float, best: _Best
    ) -> tuple[_Best, float]:
        """Return the best MIXED replica, and the rate that *entry*'s slots may still have.

        A cut whose slowest prompt stage takes between a and b has a pause of at least that of a;
        what is left of the time must do for its round, with no stage above b.
        """
        costs = self._costs
        pause = self._pause(units, entry.least)
        if pause.slowest == np.inf:
            return best, 0.0
        asked = MixedCuts(costs, units, entry, pause)
        floor = costs.problem.workload.slowest_tpot_s * costs.output_tokens / entry.most
        possible, waiting = np.inf, [asked.whole(min(1.0 / best.rate, floor))]
        while waiting:
            box = waiting.pop()
            target = min(1.0 / best.rate * (1 - EXACT / 2), floor)
            self._num_cuts += 1
            cut = asked.cut(box, target)
            if cut is None:
                continue
            time = asked.time(box, self._chunk(cut, entry.least)[0], self._round(cut, entry)[0])
            if time > target:
                continue
            before, best = best.rate, self._better(cut, Role.MIXED, best)
            parts = asked.split(box, _CLOSE * target) if self._num_cuts <= _MAX_CUTS else []
            if best.rate > before:
                waiting.append(box)
            elif parts:
                waiting += parts
            else:
                possible = min(possible, time)
        if not asked.is_exact:
            return best, np.inf
        return best, max(best.rate, 1.0 / max(low, possible))

    def _pause(self, devices: tuple[int, ...], slots: int) -> Pause:
        costs, runtime = self._costs, self._costs.problem.runtime
        demand = prefill_demand(costs, slots)
        total, slowest = 0.0, 0.0
        is_long = runtime.is_pipelined and not self._relaxation.of_units.rules.is_short
        if runtime.is_pipelined:
            cut = Prepared(costs, devices, demand, "bottleneck", MAX_STATES).cut("bottleneck")
            slowest = np.inf if cut is None else self._chunk(cut, slots)[1]
        if is_long or not runtime.is_pipelined:
            cut = Prepared(costs, devices, demand, "sum", MAX_STATES).cut("sum")
            total = np.inf if cut is None else self._chunk(cut, slots)[0]
        if not runtime.is_pipelined:
            slowest = 0.0 if total < np.inf else np.inf
            return Pause(costs.num_chunks * total, 0.0, slowest, is_short=False)
        if is_long:
            return Pause(total, costs.num_chunks - 1.0, slowest, is_short=False)
        return Pause(0.0, float(costs.num_chunks), slowest, is_short=True)

    def _chunk(self, cut: Cut, slots: int) -> tuple[float, float]:
        """Sum, and slowest stage with its hop, of one chunk of a prompt [s]."""
        figures = self._candidates.figures.build(cut, 0, self._costs.spilled(cut, slots))
        slowest = figures.occupancy_s / self._costs.num_chunks
        return figures.latency_s - (self._costs.num_chunks - 1) * slowest, slowest
