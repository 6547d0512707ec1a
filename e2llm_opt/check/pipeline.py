"""One replica recomputed: memory, hops, prefill, decode rounds, slots and service rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from e2llm_opt.check.formulas import (
    LOGIT_BYTES,
    Seat,
    chunks,
    head_stage,
    stage_decode_s,
    stage_host_bytes,
    stage_kv_bytes,
    stage_overhead_bytes,
    stage_prefill_s,
    stage_weight_bytes,
)
from e2llm_opt.check.spill import WHOLE_BYTE, spill_as_needed
from e2llm_opt.check.verdict import ReplicaFigures
from e2llm_opt.plan.plan import DecodeFigures, NextHop, PrefillFigures, Stage, StageMemory
from e2llm_opt.problem import Role
from e2llm_opt.runtime import MixedPause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.check.paths import Leg, Ways
    from e2llm_opt.inventory.device import Device
    from e2llm_opt.problem import Problem

_ENDLESS = 2**50
"""A context that no KV cache reaches [tokens]."""
_TIE = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The stages of one replica under one problem; every figure is computed when asked for.

    Figures are those of the spilled layers that the seats have: see :meth:`spilling`.

    Parameters
    ----------
    problem, ways
        What is asked, and the network.
    role
        Of the replica.
    seats
        Its stages in pipeline order.
    """

    problem: Problem
    ways: Ways
    role: Role
    seats: tuple[Seat, ...]

    @property
    def decodes(self) -> bool:
        """Whether the replica's role includes decoding."""
        return self.role is not Role.PREFILL

    @property
    def prefills(self) -> bool:
        """Whether the replica's role includes prefill."""
        return self.role is not Role.DECODE

    @property
    def num_chunks(self) -> int:
        """Chunks of a mean prompt, C."""
        return 1 + chunks(self._prompt, self.problem.runtime.prefill_chunk_tokens)[0]

    # ---- memory -----------------------------------------------------------------------------

    def spilling(self, slots: int) -> Pipeline:
        """Return the replica with what memory makes it spill for *slots* requests.

        What the plan states is left as it is.
        """
        return replace(self, seats=tuple(self._spilling(seat, slots) for seat in self.seats))

    def _spilling(self, seat: Seat, slots: int) -> Seat:
        if not seat.spills_as_needed:
            return seat
        bare = replace(seat, spilled=())
        excess = self.excess_bytes(bare, slots, self.problem.workload.context_tokens)
        return spill_as_needed(self.problem.model, bare, excess)

    def memory(self, seat: Seat, slots: int, context: float) -> StageMemory:
        """Return the bytes on each device of a stage, rounded to whole ones."""
        weights = stage_weight_bytes(self.problem, seat) / seat.num_devices
        kv_cache = self._kv_bytes(seat, slots, context) / seat.num_devices
        overhead = stage_overhead_bytes(self.problem, seat)
        return StageMemory(
            weights=round(weights),
            kv_cache=round(kv_cache),
            overhead=round(overhead),
            free=round(seat.device.usable_bytes - (weights + kv_cache + overhead)),
            capacity=round(seat.device.usable_bytes),
            host=round(stage_host_bytes(self.problem, seat) / seat.num_devices),
        )

    def excess_bytes(self, seat: Seat, slots: int, context: float) -> float:
        """Return how many bytes too many each device holds; negative where there is room."""
        shared = stage_weight_bytes(self.problem, seat) + self._kv_bytes(seat, slots, context)
        used = shared / seat.num_devices + stage_overhead_bytes(self.problem, seat)
        return used - seat.device.usable_bytes

    def host_excess_bytes(self, seat: Seat) -> float:
        """Return how many bytes too many lie in host RAM; counted where anything is spilled."""
        if not seat.spilled:
            return 0.0
        return stage_host_bytes(self.problem, seat) - seat.device.host_memory_bytes

    def fits(self, slots: int, context: float) -> bool:
        """Whether every stage holds *slots* requests of *context* tokens."""
        return all(self.excess_bytes(seat, slots, context) <= WHOLE_BYTE for seat in self.seats)

    def fits_host(self) -> bool:
        """Whether host RAM holds what every stage keeps there."""
        return all(self.host_excess_bytes(seat) <= WHOLE_BYTE for seat in self.seats)

    def max_context_tokens(self, slots: int) -> int | None:
        """Return the longest context that fits; None where it is not memory that ends it."""
        if self.fits(slots, _ENDLESS):
            return None
        fits, too_long = 0, _ENDLESS
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            fits, too_long = (middle, too_long) if self.fits(slots, middle) else (fits, middle)
        return fits

    def _kv_bytes(self, seat: Seat, slots: int, context: float) -> float:
        # A PREFILL replica holds the KV cache of the one request that it works on.
        return stage_kv_bytes(self.problem, seat, slots if self.decodes else 1, context)

    # ---- hops -------------------------------------------------------------------------------

    @property
    def chunk_bytes(self) -> float:
        """What one prefill hop carries for one chunk [bytes]."""
        return self._prompt / self.num_chunks * self._activation_bytes

    def decode_bytes(self, batch: int) -> float:
        """Return what one decode hop carries for *batch* streams [bytes]."""
        return batch * self._activation_bytes

    def return_bytes(self, batch: int) -> float:
        """Return what goes from the last stage to the first for *batch* streams [bytes]."""
        runtime = self.problem.runtime
        if not runtime.returns_tokens:
            return 0.0
        num_bytes = batch * (self._activation_bytes if runtime.head == "first" else LOGIT_BYTES)
        if runtime.sends_logits:
            num_bytes += batch * self.problem.model.vocab_size * LOGIT_BYTES
        return num_bytes

    def legs(self, index: int, num_bytes: float) -> tuple[Leg, ...] | None:
        """Return the way from stage *index* to the next, the last one's to the first."""
        source = self.seats[index].device
        target = self.seats[(index + 1) % len(self.seats)].device
        head = self.seats[head_stage(self.problem.runtime, len(self.seats))]
        return self.ways.hop(source, target, num_bytes, head.device.host)

    def unconnected(self) -> Iterator[tuple[Device, Device]]:
        """Yield the neighbours that have no way to each other."""
        for index in range(len(self.seats) - (not self.decodes)):
            if len(self.seats) > 1 and self.legs(index, 1.0) is None:
                following = self.seats[(index + 1) % len(self.seats)]
                yield self.seats[index].device, following.device

    def chunk_hops_s(self) -> list[float]:
        """Return the time of each stage's outgoing hop for one chunk, 0 for the last [s]."""
        hops = [self._hop_s(index, self.chunk_bytes) for index in range(len(self.seats) - 1)]
        return [*hops, 0.0]

    def decode_hops_s(self, batch: int) -> list[float]:
        """Return the time of each stage's outgoing hop, the last one's back to the first [s]."""
        if len(self.seats) == 1:
            return [0.0]
        last = len(self.seats) - 1
        hops = [self._hop_s(index, self.decode_bytes(batch)) for index in range(last)]
        return [*hops, self._hop_s(last, self.return_bytes(batch))]

    def _hop_s(self, index: int, num_bytes: float) -> float:
        legs = self.legs(index, num_bytes) if num_bytes > 0 else ()
        return math.inf if legs is None else sum(leg.time(num_bytes) for leg in legs)

    # ---- prefill ----------------------------------------------------------------------------

    def prefill(self) -> PrefillFigures:
        """Return one mean prompt: latency, and occupancy until the next may enter."""
        num_chunks = self.num_chunks
        steps = [
            stage_prefill_s(self.problem, seat) / num_chunks + hop
            for seat, hop in zip(self.seats, self.chunk_hops_s(), strict=True)
        ]
        latency = occupancy = num_chunks * sum(steps)
        if self.problem.runtime.is_pipelined:
            latency = sum(steps) + (num_chunks - 1) * max(steps)
            occupancy = num_chunks * max(steps)
        return PrefillFigures(
            tokens_per_s=self._prompt / occupancy, latency_s=latency, bottleneck_s=occupancy
        )

    def pause_s(self) -> float:
        """Return how long decode stops for one prefill in a MIXED replica [s]."""
        figures = self.prefill()
        if self.problem.runtime.mixed_pause is MixedPause.OCCUPANCY:
            return figures.bottleneck_s
        return figures.latency_s

    # ---- decode -----------------------------------------------------------------------------

    def steps_s(self, slots: int, micro_batches: int) -> tuple[list[float], list[float]]:
        """Return stage and hop times of one micro-batch [s]."""
        batch = math.ceil(slots / micro_batches)
        stages = [stage_decode_s(self.problem, seat, batch) for seat in self.seats]
        return stages, self.decode_hops_s(batch)

    def bottleneck_s(self, slots: int, micro_batches: int) -> float:
        """Return the slowest stage with its outgoing hop; the way back is no one's [s]."""
        stages, hops = self.steps_s(slots, micro_batches)
        return max(stage + hop for stage, hop in zip(stages, [*hops[:-1], 0.0], strict=True))

    def round_s(self, slots: int, micro_batches: int) -> float:
        """Return the time in which every one of *slots* streams gets one token [s]."""
        stages, hops = self.steps_s(slots, micro_batches)
        once = sum(stages) + sum(hops)
        return max(once, micro_batches * self.bottleneck_s(slots, micro_batches))

    def best_micro_batches(self, slots: int) -> int:
        """Return the smallest number of micro-batches that gives the shortest round."""
        most = min(len(self.seats), slots) if self.problem.runtime.is_pipelined else 1
        rounds = {m: self.round_s(slots, m) for m in range(1, most + 1)}
        best = min(rounds.values())
        return next(m for m, seconds in rounds.items() if seconds <= best * (1 + _TIE))

    def tpot_s(self, slots: int, micro_batches: int) -> float:
        """Return the time per output token at full slots, pauses for prefill counted [s]."""
        seconds = self.round_s(slots, micro_batches)
        if self.role is Role.MIXED:
            seconds += slots * self.pause_s() / self._output
        return seconds

    def choose_slots(self) -> int:
        """Return the slots of the best service rate that memory and the speed limits allow.

        Of equal rates the most slots; one where nothing is allowed. More slots may make more layers
        spill, which may serve fewer requests.
        """
        workload = self.problem.workload
        if not self.decodes:
            return 1
        if workload.slots is not None:
            return workload.slots
        chosen, shortest = 1, math.inf
        for slots in range(self.problem.runtime.max_slots, 0, -1):
            trial = self.spilling(slots)
            if not trial.fits(slots, workload.context_tokens) or not trial.fits_host():
                continue
            micro_batches = trial.best_micro_batches(slots)
            if trial.tpot_s(slots, micro_batches) <= workload.slowest_tpot_s:
                busy = trial.busy_s(slots, micro_batches)
                if busy < shortest * (1 - _TIE):
                    chosen, shortest = slots, busy
        return chosen

    def busy_s(self, slots: int, micro_batches: int) -> float:
        """Return what one request costs the replica in its role, all slots busy [s]."""
        if not self.decodes:
            return self.prefill().bottleneck_s
        decoding = self._output * self.round_s(slots, micro_batches) / slots
        return decoding + (self.pause_s() if self.role is Role.MIXED else 0.0)

    # ---- all together -----------------------------------------------------------------------

    def figures(self, name: str, slots: int, micro_batches: int) -> ReplicaFigures:
        """Return everything about a replica whose stages are all connected.

        Parameters
        ----------
        name
            Its id.
        slots, micro_batches
            Requests decoded at once, and in how many parts.
        """
        prefill = self.prefill()
        round_s = self.round_s(slots, micro_batches)
        decode = None
        if math.isfinite(round_s):
            decode = DecodeFigures(
                tokens_per_s=slots / round_s,
                tpot_s=round_s,
                bottleneck_s=self.bottleneck_s(slots, micro_batches),
                tokens_per_s_per_stream=1 / round_s,
                micro_batches=micro_batches,
            )
        first = prefill.latency_s if self.prefills else 0.0
        return ReplicaFigures(
            id=name,
            role=self.role.value,
            slots=slots,
            stages=tuple(self._stages(slots, micro_batches)),
            prefill=prefill,
            decode=decode,
            tpot_s=self.tpot_s(slots, micro_batches) if self.decodes else None,
            latency_s=first + (self._output * round_s if self.decodes else 0.0),
            service_rate_per_s=1 / self.busy_s(slots, micro_batches),
            max_context_tokens=self.max_context_tokens(slots),
        )

    def _stages(self, slots: int, micro_batches: int) -> Iterator[Stage]:
        decode_times, decode_hops = self.steps_s(slots, micro_batches)
        context = self.problem.workload.context_tokens
        for index, (seat, hop) in enumerate(zip(self.seats, self.chunk_hops_s(), strict=True)):
            yield Stage(
                device=seat.device.name,
                tensor_parallel=seat.names if seat.num_devices > 1 else (),
                layers=(seat.start, seat.stop),
                embedding=seat.has_embedding,
                head=seat.has_head,
                spilled_layers=seat.spilled,
                memory_bytes=self.memory(seat, slots, context),
                prefill_time_s=stage_prefill_s(self.problem, seat),
                decode_time_s=decode_times[index],
                next_hop=self._next_hop(index, self.num_chunks * hop, decode_hops[index]),
            )

    def _next_hop(self, index: int, prefill_s: float, decode_s: float) -> NextHop | None:
        legs = self.legs(index, self.chunk_bytes)
        if len(self.seats) == 1 or legs is None:
            return None
        return NextHop(
            device=self.seats[(index + 1) % len(self.seats)].device.name,
            link=" > ".join(leg.name for leg in legs),
            prefill_time_s=prefill_s,
            decode_time_s=decode_s,
        )

    @property
    def _prompt(self) -> float:
        return self.problem.workload.prompt.mean

    @property
    def _output(self) -> float:
        return self.problem.workload.output.mean

    @property
    def _activation_bytes(self) -> float:
        return self.problem.model.hidden_size * self.problem.runtime.activation_bytes
