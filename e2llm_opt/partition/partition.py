"""The inner problem: order one device set and cut the layers over it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.pipeline import bottleneck, decode_stages, prefill
from e2llm_opt.errors import InputError
from e2llm_opt.partition.collapse import (
    MAX_STATES,
    WayBack,
    allowing,
    inner_problem,
    shapes,
    within,
)
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.partition.collapse import Shape
    from e2llm_opt.partition.kernel import Inner
    from e2llm_opt.problem import Problem

    Floats = NDArray[np.float64]

StageTimes: TypeAlias = "Callable[[NDArray[np.int64]], Floats]"
"""Device rows of K classes -> a time for each of their stages [K, L+1, L+1] [s]."""
Criterion = Literal["bottleneck", "sum", "any"]
"""What a cut is best at: its slowest stage, its total, or nothing but being feasible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One device set, ordered and cut.

    Parameters
    ----------
    stages
        (device, start, stop) in pipeline order; devices without layers are left out.
    spilled
        Layers of each stage whose feed-forward or expert weights lie in host RAM.
    bottleneck_s
        Slowest stage with its outgoing hop: a chunk of a prompt, or a micro-batch of decode [s].
    latency_s
        All stages and hops, for decode the one back to the first included: one chunk, or one
        micro-batch once around [s].
    """

    stages: tuple[tuple[int, int, int], ...]
    spilled: tuple[tuple[int, ...], ...]
    bottleneck_s: float
    latency_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a stage does: the times and bytes that the cut must balance.

    Parameters
    ----------
    time
        Prefix sums of layer times [R, L+1] [s].
    extra
        Fixed time by position [R, 4] [s].
    hops
        (bytes, weight) of each transfer to the next stage.
    back
        (bytes, weight) of the transfer from the last to the first stage; weight 0: none.
    memory
        Prefix sums of layer bytes: weights, and the KV cache that must fit [R, L+1] [bytes].
    penalty
        What a layer takes longer where it is spilled to host RAM [R, L] [s].
    """

    time: Floats
    extra: Floats
    hops: tuple[tuple[float, float], ...]
    back: tuple[float, float]
    memory: Floats
    penalty: Floats


def partition(
    problem: Problem,
    devices: Sequence[int],
    role: Role | str,
    *,
    slots: int,
    micro_batches: int = 1,
    criterion: Literal["bottleneck", "sum"] = "bottleneck",
) -> Partition | None:
    """Cut the layers over *devices* so that the slowest stage, or the sum, is as small as possible.

    Order of the devices and cut are chosen together. A device may end up with no layers. Memory
    is a hard limit on every stage.

    Parameters
    ----------
    problem
        Gives the cost tables; nothing of it is changed.
    devices
        Rows of ``problem.devices``, each once. Order is irrelevant.
    role
        ``PREFILL`` times one chunk of a mean prompt, ``DECODE`` one micro-batch of one step;
        ``MIXED`` weighs both phases, as one cut serves both: a chunk's prefill plus
        output · m / (slots · chunks) decode steps.
    slots
        Requests whose KV cache must fit [requests].
    micro_batches
        Micro-batches in flight; each stage decodes ceil(slots / micro_batches) at once.
    criterion
        ``"bottleneck"`` (slowest stage with its hop) or ``"sum"`` (all stages and hops).

    Returns
    -------
    Partition or None
        None when no cut fits into memory.

    Raises
    ------
    InputError
        When a device is unknown or listed twice, or slots or micro-batches are impossible.

    Notes
    -----
    See :mod:`e2llm_opt.partition.kernel`; O(2^k k² log) for k distinct devices, less where
    devices are interchangeable. Exact up to ``MAX_STATES`` subsets; above it the order is
    heuristic and the cut exact for it.
    """
    rows = tuple(devices)
    if not rows or len(set(rows)) != len(rows) or not set(rows) <= set(range(len(problem.devices))):
        raise InputError(
            f"devices must be different rows of problem.devices (0 … {len(problem.devices) - 1}), "
            f"got {list(rows)}."
        )
    if slots < 1 or micro_batches < 1 or micro_batches > slots:
        raise InputError(
            f"slots and micro_batches must be positive, micro_batches at most slots; got "
            f"slots {slots}, micro_batches {micro_batches}."
        )
    if criterion not in {"bottleneck", "sum"}:
        raise InputError(f"criterion must be 'bottleneck' or 'sum', got '{criterion}'.")
    costs = costs_of(problem)
    asked = Role(role)
    demand = demand_of(costs, asked, slots, micro_batches)
    cut = best_cut(costs, rows, demand, criterion)
    return None if cut is None else _figures(costs, cut, asked, (slots, micro_batches), demand)


def demand_of(costs: Costs, role: Role, slots: int, micro_batches: int) -> Demand:
    """Return the demand of *role*: a chunk of a prompt, a decode micro-batch, or both."""
    if role is Role.PREFILL:
        return prefill_demand(costs, slots)
    if role is Role.DECODE:
        return decode_demand(costs, slots, -(-slots // micro_batches))
    weight = costs.output_tokens * micro_batches / (slots * costs.num_chunks)
    return mixed_demand(costs, slots, -(-slots // micro_batches), weight)


def prefill_demand(costs: Costs, slots: int = 1) -> Demand:
    """Return the demand of one chunk of a mean prompt; the head's once a request is spread."""
    tokens, chunks = costs.prompt_tokens, costs.num_chunks
    return Demand(
        time=costs.prefill_prefix(tokens) / chunks,
        extra=costs.head_extra(costs.head(1)) / chunks,
        hops=((costs.forward_bytes(tokens / chunks), 1.0),),
        back=(0.0, 0.0),
        memory=costs.held_prefix(slots),
        penalty=costs.prefill_penalty(tokens) / chunks,
    )


def decode_demand(costs: Costs, slots: int, batch: int) -> Demand:
    """Return the demand of one micro-batch of *batch* requests."""
    return Demand(
        time=costs.decode_prefix(batch),
        extra=costs.head_extra(costs.head(batch)),
        hops=((costs.forward_bytes(batch), 1.0),),
        back=(costs.return_bytes(batch), 1.0),
        memory=costs.held_prefix(slots),
        penalty=costs.decode_penalty(batch),
    )


def mixed_demand(costs: Costs, slots: int, batch: int, weight: float) -> Demand:
    """Return a chunk of prefill plus *weight* decode steps of *batch* requests."""
    pre, dec = prefill_demand(costs, slots), decode_demand(costs, slots, batch)
    return Demand(
        time=pre.time + weight * dec.time,
        extra=pre.extra + weight * dec.extra,
        hops=(*pre.hops, (dec.hops[0][0], weight)),
        back=(dec.back[0], weight),
        memory=dec.memory,
        penalty=pre.penalty + weight * dec.penalty,
    )


def best_cut(
    costs: Costs,
    devices: tuple[int, ...],
    demand: Demand,
    criterion: Criterion,
    limit: float = np.inf,
    max_states: int = MAX_STATES,
) -> Cut | None:
    """Return the best cut of the layers over *devices*, or None when none fits.

    *limit* bounds every stage with its hop under the criterion ``sum`` [s]; sets with more than
    *max_states* subsets are ordered heuristically.
    """
    prepared = Prepared(costs, devices, demand, criterion, max_states)
    return prepared.cut(criterion, limit)


class Prepared:
    """One demand on one device set, ready to be cut with one limit after another.

    Parameters
    ----------
    costs, devices, demand
        What is cut over whom.
    criterion
        Of the cuts asked for.
    max_states
        Sets with more subsets are ordered heuristically.

    Attributes
    ----------
    is_exact
        Whether every order of the devices is tried.
    """

    def __init__(
        self,
        costs: Costs,
        devices: tuple[int, ...],
        demand: Demand,
        criterion: Criterion,
        max_states: int = MAX_STATES,
    ) -> None:
        way_back: WayBack = "none"
        if demand.back[1] > 0:
            way_back = "counts" if criterion == "sum" else "exists"
        self._costs = costs
        self._shapes = shapes(costs, devices, way_back, max_states)
        self._inners = [inner_problem(costs, shape, demand) for shape in self._shapes]
        self.is_exact = not any(shape.is_ordered for shape in self._shapes)

    def within(self, demand: Demand, limit: float) -> Prepared:
        """Return the same for sums, without stages that take longer than *limit* for *demand*."""
        other = copy(self)
        other._inners = [  # noqa: SLF001 - its own class
            (within(self._costs, shape, inner, demand, limit), keeps)
            for shape, (inner, keeps) in zip(self._shapes, self._inners, strict=True)
        ]
        return other

    def allowing(self, busy: StageTimes, least: float, limit_s: float) -> Prepared:
        """Return the same with stages that are busy with something else meanwhile.

        Parameters
        ----------
        busy
            Device rows of the classes [K] -> how long each stage is busy [K, L+1, L+1] [s].
        least
            No stage takes less than so many times that, its hop counted; 0: however little.
        limit_s
            Stages that are busy for longer are left out [s].
        """
        other = copy(self)
        other._inners = [  # noqa: SLF001 - its own class
            (allowing(shape, inner, busy(shape.heads), (least, limit_s)), keeps)
            for shape, (inner, keeps) in zip(self._shapes, self._inners, strict=True)
        ]
        return other

    def cut(self, criterion: Criterion, limit: float = np.inf) -> Cut | None:
        """Return the best cut, or None when none fits."""
        return self.solved(criterion, limit)[1]

    def solved(self, criterion: Criterion, limit: float = np.inf) -> tuple[float, Cut | None]:
        """Return the least slowest stage or sum, and a cut that has it; inf when none fits [s]."""
        best: tuple[float, Cut | None] = np.inf, None
        for shape, (inner, keeps) in zip(self._shapes, self._inners, strict=True):
            value, stages = _solve(inner, criterion, limit, keeps=keeps)
            if value < best[0]:
                best = value, expand(shape, stages.tolist())
                if criterion == "any":
                    break
        return best


def _solve(
    inner: Inner, criterion: Criterion, limit: float, *, keeps: int
) -> tuple[float, NDArray[np.int64]]:
    from e2llm_opt.partition import kernel  # noqa: PLC0415 - numba costs 0.3 s

    if criterion == "sum":
        return kernel.least_sum(inner, limit)
    return kernel.least_bottleneck(inner, keeps, kernel.NO_LIMIT if criterion == "any" else 0.0)


def expand(shape: Shape, stages: Iterable[tuple[int, int, int]]) -> Cut:
    """Return the stages (class, start, stop) on devices, the first of each class first."""
    waiting = [list(rows) for rows in shape.rows]
    return tuple((waiting[k].pop(0), start, stop) for k, start, stop in stages)


def _figures(
    costs: Costs, cut: Cut, role: Role, load: tuple[int, int], demand: Demand
) -> Partition:
    slots, micro_batches = load
    batch = -(-slots // micro_batches)
    spilled = costs.spilled(cut, slots)
    if role is Role.DECODE:
        stage, hop = decode_stages(costs, cut, batch, spilled)
    else:
        figures = prefill(costs, cut, costs.prompt_tokens, spilled)
        stage, hop = figures.stage_s / costs.num_chunks, figures.hop_s / costs.num_chunks
    if role is Role.MIXED:
        weight = demand.back[1]
        stage_s, hop_s = decode_stages(costs, cut, batch, spilled)
        stage, hop = stage + weight * stage_s, hop + weight * hop_s
    return Partition(
        stages=cut,
        spilled=spilled,
        bottleneck_s=bottleneck(stage, hop),
        latency_s=float((stage + hop).sum()),
    )
