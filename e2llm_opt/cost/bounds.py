"""What sets the time of a phase: computing, reading memory, fixed costs, or hops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from e2llm_opt.cost.cut import position_of
from e2llm_opt.cost.pipeline import bottleneck, decode_stages, prefill
from e2llm_opt.cost.roofline import decode_time, head_time, prefill_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.spill import Spilled
    from e2llm_opt.cost.tables import Tables

    Floats = NDArray[np.float64]

BoundBy = Literal["compute", "bandwidth", "overhead", "hop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Shares of the time that each cause takes; their sum is 1.

    Parameters
    ----------
    compute
        Layers and head whose arithmetic takes longer than reading them.
    bandwidth
        Layers and head whose weights and KV cache take longer to read; what spilled layers take
        from host RAM or over its bus counts here, too.
    overhead
        The fixed cost of each layer.
    hop
        Between devices.
    """

    compute: float
    bandwidth: float
    overhead: float
    hop: float

    @property
    def largest(self) -> BoundBy:
        """The cause that takes most of the time."""
        causes: tuple[BoundBy, ...] = ("compute", "bandwidth", "overhead", "hop")
        return max(causes, key=lambda cause: float(getattr(self, cause)))


class _Causes(NamedTuple):
    """What each cause takes, on every stage [S] or in every layer on every device [D, L] [s]."""

    compute: Floats
    bandwidth: Floats
    overhead: Floats


def prefill_shares(costs: Costs, cut: Cut, tokens: float, spilled: Spilled) -> Shares:
    """Return what sets the latency of one prompt of *tokens* tokens.

    Engines that overlap wait C - 1 times more for the slowest stage of C chunks.
    """
    chunk = costs.problem.runtime.prefill_chunk_tokens
    causes = _on_stages(
        costs,
        cut,
        _layers(costs.tables, lambda tables: prefill_time(tables, tokens, chunk)),
        batch=1,
    )
    longer = _spilled(costs.prefill_penalty(tokens), cut, spilled)
    figures = prefill(costs, cut, tokens, spilled)
    weight = np.ones(len(cut))
    if costs.problem.runtime.is_pipelined:
        num_chunks = max(1, int(np.ceil(tokens / chunk)))
        weight[int(np.argmax(figures.stage_s + figures.hop_s))] += num_chunks - 1
    return _shares(causes, longer, figures.hop_s, weight)


def decode_shares(costs: Costs, cut: Cut, load: tuple[int, int], spilled: Spilled) -> Shares:
    """Return what sets the round of *load*: so many requests in so many micro-batches.

    The whole way round, or the slowest stage with its hop where the round waits for that.
    """
    slots, micro_batches = load
    batch = -(-slots // micro_batches)
    causes = _on_stages(
        costs,
        cut,
        _layers(costs.tables, lambda tables: decode_time(tables, batch, costs.mean_context)),
        batch=batch,
    )
    longer = _spilled(costs.decode_penalty(batch), cut, spilled)
    stage, hop = decode_stages(costs, cut, batch, spilled)
    weight = np.ones(len(cut))
    if micro_batches * bottleneck(stage, hop) > float((stage + hop).sum()):
        hop[-1] = 0.0  # the way back occupies no stage
        weight[:] = 0.0
        weight[int(np.argmax(stage + hop))] = 1.0
    return _shares(causes, longer, hop, weight)


def _layers(tables: Tables, time_of: Callable[[Tables], Floats]) -> _Causes:
    """Return what each cause takes in each layer [D, L]: the roofline with one side taken away."""
    bare = tables._replace(layer_overhead=np.zeros_like(tables.layer_overhead))
    roof = time_of(bare)
    reading = time_of(bare._replace(compute=np.full_like(tables.compute, np.inf)))
    is_read = reading >= roof
    return _Causes(
        compute=np.where(is_read, 0.0, roof),
        bandwidth=np.where(is_read, roof, 0.0),
        overhead=time_of(tables) - roof,
    )


def _on_stages(costs: Costs, cut: Cut, layers: _Causes, *, batch: int) -> _Causes:
    """Sum the layers of each stage, and the head where it lies [S]."""
    model = costs.problem.model
    head = _layers(
        costs.tables,
        lambda tables: head_time(tables, batch, model.head_bytes, model.head_flops_per_token),
    )
    return _Causes(
        *(
            np.array(
                [
                    of_layers[d, start:stop].sum()
                    + (of_head[d] if costs.holds_head(position_of(cut, j)) else 0.0)
                    for j, (d, start, stop) in enumerate(cut)
                ]
            )
            for of_layers, of_head in zip(layers, head, strict=True)
        )
    )


def _spilled(penalty: Floats, cut: Cut, spilled: Spilled) -> Floats:
    """Return what spilled layers take longer on each stage [S] [s]."""
    found = np.zeros(len(cut))
    if any(spilled):
        for j, ((d, _, _), layers) in enumerate(zip(cut, spilled, strict=True)):
            found[j] = penalty[d, list(layers)].sum()
    return found


def _shares(causes: _Causes, longer: Floats, hop: Floats, weight: Floats) -> Shares:
    parts = (causes.compute, causes.bandwidth + longer, causes.overhead, hop)
    taken = [float((weight * part).sum()) for part in parts]
    total = sum(taken)
    compute, bandwidth, overhead, hops = (part / total for part in taken)
    return Shares(compute=compute, bandwidth=bandwidth, overhead=overhead, hop=hops)
