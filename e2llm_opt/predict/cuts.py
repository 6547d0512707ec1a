"""Which device of a pipeline holds which layers: as given, or so that it decodes fastest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.pipeline import decode, most_micro_batches, prefill
from e2llm_opt.errors import InputError
from e2llm_opt.partition.partition import partition
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.problem import Problem

_GROWTH: Final = 1.02
"""Memory is imagined larger by this factor until a cut fits into it."""


def given_cut(problem: Problem, rows: tuple[int, ...], layers: Sequence[int]) -> Cut:
    """Return the cut that gives *layers* to the devices in their order."""
    num = problem.model.num_layers
    if len(layers) != len(rows) or min(layers) < 1 or sum(layers) != num:
        names = ", ".join(problem.devices[d].name for d in rows)
        raise InputError(
            f"layers must give each device ({names}) at least one of the {num} layers and sum to "
            f"{num}, got {', '.join(map(str, layers))} (sum {sum(layers)})."
        )
    bounds = np.cumsum([0, *layers]).tolist()
    allowed = problem.model.allowed_stage_starts
    for start in bounds[1:-1]:
        if allowed is not None and start not in allowed:
            raise InputError(
                f"layers: a stage cannot start at layer {start}; the model allows "
                f"{', '.join(map(str, allowed))}."
            )
    return tuple((d, bounds[j], bounds[j + 1]) for j, d in enumerate(rows))


def best_cut(problem: Problem, rows: tuple[int, ...], batch: int, prompt: float) -> Cut:
    """Return the cut that decodes fastest, as if memory were larger where nothing fits."""
    whole = (0, problem.model.num_layers)
    if len(rows) == 1:
        return ((rows[0], *whole),)
    factor = 1.0
    while True:
        larger = problem if factor == 1.0 else _with_memory(problem, factor)
        found = _fastest(larger, rows, batch, prompt)
        if found is not None:
            return found
        factor *= _GROWTH


def _fastest(problem: Problem, rows: tuple[int, ...], batch: int, prompt: float) -> Cut | None:
    """Return the cut that decodes fastest, and of those the one with the fastest prefill."""
    costs = costs_of(problem)
    best: tuple[tuple[float, float], Cut] | None = None
    most = most_micro_batches(costs, tuple((d, 0, 0) for d in rows), batch)
    criteria: tuple[Literal["sum", "bottleneck"], ...] = ("sum", "bottleneck")
    for micro_batches in range(1, most + 1):
        for criterion in criteria[: 1 if micro_batches == 1 else 2]:
            found = partition(
                problem,
                rows,
                Role.DECODE,
                slots=batch,
                micro_batches=micro_batches,
                criterion=criterion,
            )
            if found is None:
                return None
            cut, spilled = found.stages, found.spilled
            tpot_s = float(decode(costs, cut, batch, spilled).tpot_s[-1])
            value = tpot_s, prefill(costs, cut, prompt, spilled).latency_s
            if best is None or value < best[0]:
                best = value, cut
    return None if best is None else best[1]


def _with_memory(problem: Problem, factor: float) -> Problem:
    return problem.with_devices(
        replace(device, memory_bytes=device.reserved_bytes + factor * device.usable_bytes)
        for device in problem.inventory.devices
    )
