"""Which layers of a stage spill and how long it takes, against a list that is tried in order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from e2llm_opt.cost.spill import SpillRule
from e2llm_opt.cost.stages.kernel import Stages, first_spilled, stage_times

SEEDS = range(120)


def stages(seed: int) -> Stages:
    """Return whole numbers, so that needs are often met exactly."""
    rng = np.random.default_rng(seed)
    num, top = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    spillable = rng.choice([0.0, 1.0, 1.0, 2.0, 3.0], top)
    order = np.lexsort((-np.arange(top), -spillable))
    layers, copies = rng.choice([3.0, 4.0, 5.0], top), rng.choice([1.0, 1.0, 2.0], num)
    return Stages(
        time=np.concatenate((np.zeros((num, 1)), rng.choice([1.0, 2.0], (num, top))), 1).cumsum(1),
        extra=rng.choice([0.0, 10.0, 20.0, 40.0], (num, 4)),
        memory=np.tile(np.concatenate(([0.0], layers)).cumsum(), (num, 1)) * copies[:, None],
        room=rng.choice([3.0, 5.0, 8.0, 30.0], (num, 4)),
        host=rng.choice([0.0, 1.0, 3.0, 10.0], (num, 4)),
        spillable=spillable,
        order=order[spillable[order] > 0],
        penalty=rng.choice([100.0, 300.0, 700.0], (num, top)),
        num_layers=rng.choice([-1, -1, -1, 1, 2], num),
    )


def position(start: int, stop: int, top: int) -> int:
    """MIDDLE, FIRST, LAST, ONLY."""
    return {(False, False): 0, (True, False): 1, (False, True): 2, (True, True): 3}[
        start == 0, stop == top
    ]


def chosen(p: Stages, k: int, start: int, stop: int) -> list[int] | None:
    """Return the layers that spill; None where the stage does not fit."""
    at = position(start, stop, len(p.spillable))
    need = p.memory[k, stop] - p.memory[k, start] - p.room[k, at]
    layers = [layer for layer in p.order if start <= layer < stop]
    for num in range(len(layers) + 1):
        away = sum(p.spillable[layer] for layer in layers[:num])
        if away >= need:
            return layers[:num] if num == 0 or away <= p.host[k, at] else None
    return None


def test_a_stage_takes_its_layers_its_place_and_what_it_spills() -> None:
    for seed in SEEDS:
        p = stages(seed)
        found, top = stage_times(p), len(p.spillable)
        for k, start, stop in np.ndindex(len(p.time), top + 1, top + 1):
            layers = chosen(p, k, start, stop) if start < stop else None
            expected = math.inf
            if layers is not None and p.num_layers[k] in {-1, stop - start}:
                expected = float(p.time[k, stop] - p.time[k, start])
                expected += float(p.extra[k, position(start, stop, top)])
                expected += float(sum(p.penalty[k, layer] for layer in layers))
            assert found[k, start, stop] == expected


def test_no_more_of_the_order_is_looked_at_than_is_needed() -> None:
    for seed in SEEDS:
        p = stages(seed)
        top = len(p.spillable)
        for k, start, stop in np.ndindex(len(p.time), top, top + 1):
            if start < stop:
                layers, num = chosen(p, k, start, stop), first_spilled(p, k, start, stop)
                if layers is None:
                    assert num == -1
                else:
                    assert num == (p.order.tolist().index(layers[-1]) + 1 if layers else 0)


@pytest.mark.parametrize(
    ("host", "most"), [(0.0, 0.0), (2.9, 0.0), (3.0, 3.0), (4.9, 3.0), (5.0, 5.0), (99.0, 6.0)]
)
def test_host_ram_takes_whole_layers_in_their_order(host: float, most: float) -> None:
    """Layers 2, 1 and 3 of the stage spill 3, 2 and 1 bytes; layers 0 and 4 are elsewhere."""
    rule = SpillRule(
        spillable=np.array([9.0, 2.0, 3.0, 1.0, 1.0]),
        order=np.array([0, 2, 1, 4, 3]),
        host=np.array([[0.0, 0.0, 0.0, 0.0], [7.0, 7.0, host, 7.0]]),
        is_even=False,
    )
    assert rule.most((1, 1, 4), 2) == most


@pytest.mark.parametrize(
    ("need", "layers"),
    [(0.0, ()), (0.1, (2,)), (3.0, (2,)), (3.1, (1, 2)), (5.1, (1, 2, 3)), (99.0, (1, 2, 3))],
)
def test_no_more_layers_spill_than_are_needed(need: float, layers: tuple[int, ...]) -> None:
    rule = SpillRule(
        spillable=np.array([9.0, 2.0, 3.0, 1.0, 1.0]),
        order=np.array([0, 2, 1, 4, 3]),
        host=np.zeros((1, 4)),
        is_even=False,
    )
    assert rule.chosen((0, 1, 4), need) == layers
