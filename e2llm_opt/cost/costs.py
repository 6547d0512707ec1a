"""All times and sizes of one problem, computed once and kept: what partition and search ask."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import POSITIONS, position_of
from e2llm_opt.cost.memory import StageFixed, fixed_bytes
from e2llm_opt.cost.roofline import (
    decode_penalty,
    decode_time,
    head_time,
    kv_bytes,
    prefill_penalty,
    prefill_time,
)
from e2llm_opt.cost.spill import spill_rule
from e2llm_opt.cost.tables import build_tables
from e2llm_opt.cost.units import Units
from e2llm_opt.cost.ways import Ways
from e2llm_opt.degrees import degrees_of
from e2llm_opt.inventory.classes import classify
from e2llm_opt.inventory.network import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from numpy.typing import NDArray

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled, SpillRule
    from e2llm_opt.inventory.network import Path
    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

TOKEN_ID_BYTES = 4
"""What returns to the first stage for each stream and step (DESIGN section 5) [bytes]."""


class PrefillCurve(NamedTuple):
    """Prompts of several lengths on every device."""

    times: Floats
    """Prefix sums of the layers' time, head apart [N, R, L+1] [s]."""
    penalty: Floats
    """What a spilled layer takes longer [N, R, L] [s]."""
    chunks: Floats
    """Chunks of each prompt [N]."""
    chunk_bytes: Floats
    """Activations of one chunk [N] [bytes]."""


class Costs:
    """Cost tables of a problem with what follows from them, computed on demand.

    Rows are units: the devices, then several as one.

    Parameters
    ----------
    problem
        The question.
    units
        Device rows of units that a plan names.

    Attributes
    ----------
    problem, tables, network, ways, classes, units
        The problem, its arrays, its paths, what they cost, its interchangeable devices, and who
        may serve a stage.
    prompt_tokens, output_tokens, mean_context
        Means of the workload [tokens].
    num_chunks
        Chunks of a mean prompt.
    has_alike_layers
        Every layer costs the same time and memory, and a stage may start anywhere.
    shapes
        Device sets collapsed so far; the partitioner's.
    """

    def __init__(self, problem: Problem, units: Iterable[tuple[int, ...]] = ()) -> None:
        self.problem = problem
        self.network = Network(problem.inventory)
        self.classes = classify(problem.inventory, _marks(problem))
        engine = problem.runtime
        self.units = Units(
            problem.devices,
            self.classes,
            degrees_of(problem.facts, engine, problem.constraints),
            units,
            is_whole=engine.tensor_parallel == "replica",
        )
        self.tables = build_tables(problem, self.units.members)
        self.ways = Ways(problem, self.network, self.units.first)
        self.prompt_tokens = problem.workload.prompt.mean
        self.output_tokens = problem.workload.output.mean
        self.mean_context = problem.workload.mean_context_tokens
        self.num_chunks = num_chunks(self.prompt_tokens, problem.runtime.prefill_chunk_tokens)
        self._has_head = np.array([self.holds_head(i) for i in range(len(POSITIONS))], float)
        self.has_alike_layers = _has_alike_layers(problem)
        self.shapes: dict[Hashable, Any] = {}
        self._kept: dict[tuple[str, float, int], Floats] = {}
        self._prefill_curves: dict[tuple[float, ...], PrefillCurve] = {}
        self._curves: tuple[Floats, Floats] | None = None

    @cached_property
    def fixed_layers(self) -> NDArray[np.int64]:
        """Layers that each unit must hold; -1 where free [R]."""
        fixed = self.problem.constraints.fixed_layers
        return np.array([fixed.get(self.problem.devices[d].name, -1) for d in self.units.first])

    @cached_property
    def must_hold_layers(self) -> NDArray[np.bool_]:
        """Units that must get layers in whatever replica they are [R]."""
        constraints = self.problem.constraints
        named = constraints.pinned.keys() | constraints.fixed_layers.keys()
        names = [self.problem.devices[d].name for d in self.units.first]
        return np.array([constraints.use_all_devices or name in named for name in names])

    def prefill_prefix(self, tokens: float) -> Floats:
        """Return prefix sums of the layers' time for a prompt, head apart [R, L+1] [s]."""
        chunk = self.problem.runtime.prefill_chunk_tokens
        return self._keep(
            ("prefill", tokens, 0), lambda: _prefix(prefill_time(self.tables, tokens, chunk))
        )

    def decode_prefix(self, batch: int) -> Floats:
        """Return prefix sums of the layers' time for one decode step [R, L+1] [s]."""
        return self._keep(
            ("decode", batch, 0),
            lambda: _prefix(decode_time(self.tables, batch, self.mean_context)),
        )

    def head(self, batch: int) -> Floats:
        """Return the head's time for *batch* tokens [R] [s]."""
        model = self.problem.model
        return self._keep(
            ("head", batch, 0),
            lambda: head_time(self.tables, batch, model.head_bytes, model.head_flops_per_token),
        )

    def prefill_curve(self, lengths: tuple[float, ...]) -> PrefillCurve:
        """Return what prompts of few *lengths* take in each layer; kept."""
        if lengths not in self._prefill_curves:
            self._prefill_curves[lengths] = self.new_prefill_curve(np.array(lengths))
        return self._prefill_curves[lengths]

    def new_prefill_curve(self, lengths: Floats) -> PrefillCurve:
        """Return what prompts of *lengths* tokens [N] take in each layer."""
        size = self.problem.runtime.prefill_chunk_tokens
        chunks = np.maximum(np.ceil(lengths / size), 1.0)
        return PrefillCurve(
            times=_prefix(prefill_time(self.tables, lengths, size)),
            penalty=prefill_penalty(self.tables, lengths, size),
            chunks=chunks,
            chunk_bytes=self.forward_bytes(1) * (lengths / chunks),
        )

    def prefill_penalty(self, tokens: float) -> Floats:
        """Return what a prompt takes longer in each layer that is spilled [R, L] [s]."""
        chunk = self.problem.runtime.prefill_chunk_tokens
        return self._keep(
            ("prefill penalty", tokens, 0), lambda: prefill_penalty(self.tables, tokens, chunk)
        )

    def decode_penalty(self, batch: int) -> Floats:
        """Return what a decode step takes longer in each layer that is spilled [R, L] [s]."""
        return self._keep(
            ("decode penalty", batch, 0),
            lambda: decode_penalty(self.tables, batch, self.mean_context),
        )

    def decode_curves(self) -> tuple[Floats, Floats]:
        """Return layer prefix sums [N, R, L+1] and head times [N, R] of batches 1 … N [s]."""
        if self._curves is None:
            batches = range(1, self.problem.runtime.max_slots + 1)
            times = np.stack([self.decode_prefix(batch) for batch in batches])
            self._curves = times, np.stack([self.head(batch) for batch in batches])
        return self._curves

    def memory_prefix(self, slots: int, context: int | None = None) -> Floats:
        """Return prefix sums of weights and the KV cache of *slots* requests [L+1] [bytes].

        Requests of *context* tokens, else of the workload's ``context_tokens``.
        """

        def build() -> Floats:
            kv = kv_bytes(self.tables, context or self.problem.workload.context_tokens)
            return _prefix(self.tables.dense + self.tables.routed + slots * kv)

        return build() if context else self._keep(("memory", slots, 0), build)

    def held_prefix(self, slots: int, context: int | None = None) -> Floats:
        """Return the same on every unit, each copy of the KV cache counted [R, L+1] [bytes]."""

        def build() -> Floats:
            kv = kv_bytes(self.tables, context or self.problem.workload.context_tokens)
            caches = slots * kv * self.tables.kv_copies[:, None]
            return _prefix(self.tables.dense + self.tables.routed + caches)

        return build() if context else self._keep(("held", slots, 0), build)

    @cached_property
    def spill_rule(self) -> SpillRule:
        """What may spill to host RAM, and in which order."""
        held = [
            [self.stage_fixed(d, i).host_bytes for i in range(len(POSITIONS))]
            for d in range(len(self.tables.usable))
        ]
        return spill_rule(self.tables, np.array(held))

    def spilled(self, cut: Cut, slots: int, context: int | None = None) -> Spilled:
        """Return the layers of each stage that spill when *slots* requests must fit."""
        found = []
        memory, room = self.held_prefix(slots, context), self.room()
        for j, (d, start, stop) in enumerate(cut):
            need = float(memory[d, stop] - memory[d, start] - room[d, position_of(cut, j)])
            can_spill = need > 0 and self.tables.host_memory[d] > 0
            found.append(self.spill_rule.chosen((d, start, stop), need) if can_spill else ())
        return tuple(found)

    def most_spilled(self, devices: Iterable[int]) -> float:
        """Return how many bytes of one model *devices* can hold in host RAM at most."""
        host = sum(float(self.spill_rule.host[d].max()) for d in devices)
        return min(host, float(self.spill_rule.spillable.sum()))

    def kv_prefix(self, tokens: float) -> Floats:
        """Return prefix sums of the KV cache of one request of *tokens* tokens [L+1] [bytes]."""
        return _prefix(kv_bytes(self.tables, tokens))

    def room(self) -> Floats:
        """Return bytes for layers by position MIDDLE, FIRST, LAST, ONLY [R, 4] [bytes]."""
        return self._keep(("room", 0, 0), self._build_room)

    def stage_fixed(self, device: int, position: int) -> StageFixed:
        """Return what a stage on *device* at *position* holds beside its layers."""
        is_first, is_last = POSITIONS[position]
        return fixed_bytes(
            self.problem,
            is_first=is_first,
            is_last=is_last,
            is_discrete=bool(self.tables.is_discrete[device]),
        )

    def holds_head(self, position: int) -> bool:
        """Whether the stage at *position* holds the head."""
        is_first, is_last = POSITIONS[position]
        return is_first if self.problem.runtime.head == "first" else is_last

    def head_extra(self, time: Floats) -> Floats:
        """Return *time* where a position holds the head, else 0 [R, 4]."""
        extra: Floats = time[:, None] * self._has_head
        return extra

    def forward_bytes(self, tokens: float) -> float:
        """Return the activations of *tokens* tokens [bytes]."""
        return tokens * self.problem.model.hidden_size * self.problem.runtime.activation_bytes

    def return_bytes(self, batch: float) -> float:
        """Return what goes from the last to the first stage in one decode step [bytes].

        A token id a stream; the activations where the first stage holds the head; and the
        logits where the engine sends them. Nothing where the model leaves this hop out.
        """
        runtime = self.problem.runtime
        if not runtime.returns_tokens:
            return 0.0
        back = self.forward_bytes(batch) if runtime.head == "first" else batch * TOKEN_ID_BYTES
        if runtime.sends_logits:
            back += batch * self.problem.model.vocab_size * TOKEN_ID_BYTES
        return back

    def hop(self, num_bytes: float, source: Ints, target: Ints, anchor: int = -1) -> Floats:
        """Return the time of a hop between devices of *source* and *target* [...] [s].

        Latency + bytes / bandwidth over the path that is best for these bytes + the engine's
        fixed cost; infinite where there is no path; 0 from a device to itself, and for nothing to
        send where there is a path. In a star, every hop between two devices away from the head's
        host (that of device *anchor*) goes through it.
        """
        ring = self.ways.hop(num_bytes, source, target)
        if anchor < 0 or self.problem.runtime.topology == "ring":
            return ring
        host, centre = self.ways.host, np.array(anchor)
        at_centre = (host[source] == host[anchor]) | (host[target] == host[anchor])
        through = self.ways.hop(num_bytes, source, centre)
        through = through + self.ways.hop(num_bytes, centre, target)
        return np.where(at_centre, ring, through)

    def hop_curve(self, source: int, target: int, num_bytes: Floats, anchor: int) -> Floats:
        """Return the time of one hop for each of *num_bytes* [N] [s]; see :meth:`hop`."""
        if not self._is_direct(source, target, anchor):
            first = self.hop_curve(source, anchor, num_bytes, anchor)
            return first + self.hop_curve(anchor, target, num_bytes, anchor)
        latency, inverse, fixed = self.ways.of(np.array(source), np.array(target))
        best: Floats = (latency[:, None] + inverse[:, None] * num_bytes).min(axis=0) + fixed
        return np.where(np.equal(num_bytes, 0.0), 0.0, best)

    def path(self, source: int, target: int, num_bytes: float) -> Path | None:
        """Return the path that is best for *num_bytes* between two devices; None: no path."""
        ways = self.ways.paths(source, target)
        return min(ways, key=lambda path: path.time(num_bytes), default=None)

    def legs(self, source: int, target: int, num_bytes: float, anchor: int) -> list[Path]:
        """Return the paths that a hop takes: one, or two through a star's centre."""
        is_direct = self._is_direct(source, target, anchor)
        pairs = [(source, target)] if is_direct else [(source, anchor), (anchor, target)]
        found = [self.path(d, e, num_bytes) for d, e in pairs]
        return [path for path in found if path is not None]

    def _is_direct(self, source: int, target: int, anchor: int) -> bool:
        """Whether a hop does not go through a star's centre."""
        host = self.ways.host
        is_ring = self.problem.runtime.topology == "ring"
        return is_ring or bool(host[anchor] in {host[source], host[target]})

    def group(self, cut: Cut) -> tuple[int, ...]:
        """Return the classes of the devices that hold layers, sorted."""
        return tuple(sorted(self.classes.class_of[d] for d in self.units.devices(cut)))

    def names(self, row: int) -> tuple[str, ...]:
        """Return the names of the devices of a unit."""
        return tuple(self.problem.devices[d].name for d in self.units.members[row])

    def anchor(self, first: int, last: int) -> int:
        """Return the device whose host is the centre of a star: the one with the head."""
        return first if self.problem.runtime.head == "first" else last

    def _keep(self, key: tuple[str, float, int], build: Callable[[], Floats]) -> Floats:
        value = self._kept.get(key)
        if value is None:
            value = np.ascontiguousarray(build())
            value.flags.writeable = False
            self._kept[key] = value
        return value

    def _build_room(self) -> Floats:
        room = np.empty((len(self.tables.usable), len(POSITIONS)))
        for d in range(len(room)):
            for position in range(len(POSITIONS)):
                fixed = self.stage_fixed(d, position)
                overhead = self.tables.num_devices[d] * fixed.overhead_bytes
                room[d, position] = self.tables.usable[d] - fixed.tables_bytes - overhead
        return room


@lru_cache(maxsize=8)
def costs_of(problem: Problem, units: tuple[tuple[int, ...], ...] = ()) -> Costs:
    """Return the costs of *problem*: the same object for an equal problem asked again.

    *units* are devices (rows) that a plan takes together.
    """
    return Costs(problem, units)


def _marks(problem: Problem) -> list[tuple[str, int]]:
    """Return what constraints say of each device; empty where they name none."""
    pinned, fixed = problem.constraints.pinned, problem.constraints.fixed_layers
    if not pinned and not fixed:
        return []
    return [(pinned.get(d.name, ""), fixed.get(d.name, 0)) for d in problem.devices]


def _has_alike_layers(problem: Problem) -> bool:
    model = problem.model
    layers = zip(
        model.layer_dense_bytes,
        model.layer_routed_bytes,
        model.layer_routed_fraction,
        model.layer_flops_per_token,
        model.layer_attention_flops,
        model.layer_kv_bytes_per_token,
        model.layer_window_tokens,
        strict=True,
    )
    return model.allowed_stage_starts is None and len(set(layers)) == 1


def num_chunks(tokens: float, chunk: int) -> int:
    """Return into how many chunks a prompt is cut."""
    return max(1, math.ceil(tokens / chunk))


def _prefix(times: Floats) -> Floats:
    zero = np.zeros((*times.shape[:-1], 1))
    return np.concatenate([zero, np.cumsum(times, axis=-1)], axis=-1)
