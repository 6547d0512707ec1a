"""Several pipelines as Parallax makes them: as many as pay by k²/stages, then water-filled layers.

Source: Parallax (github.com/GradientHQ/parallax, ``src/scheduling/README.md``, 2026). A device can
hold so many layers as half of its memory takes in weights. For each number of pipelines k the
least total number of stages s*(k) is found; k with the highest k²/s*(k) wins. Within a pipeline,
layers are then divided in proportion to speed, as far as each device's capacity goes
(water-filling).

What is filled in: speed is memory bandwidth times decode efficiency, since Parallax names compute
and bandwidth and answers are mostly bound by the latter. Devices are taken in the order of their
capacity, which is the order of the pipeline. s*(k) is exact as long as at most 300 states of open
pipelines turn up; else the most promising are kept. Devices left over stay idle, since a plan has
whole replicas; Parallax lets them hold some layers a second time and routes around. All are MIXED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.baselines.memory_proportional import cut_by_counts, has_legal_starts, shares
from e2llm_opt.planners.planner import Planner
from e2llm_opt.planners.refusal import fault_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.stop import Stop

WEIGHT_SHARE = 0.5
"""Of a device's memory; Parallax keeps 30 % for the KV cache and the rest free."""
_MAX_STATES = 300


class Parallax(Planner):
    """MIXED replicas, as many as Parallax would make."""

    NAME = "parallax"

    def run(self, stop: Stop, seed: int) -> None:  # noqa: ARG002 - nothing to stop, nothing random
        """Choose the pipelines, cut each, and leave out those that cannot be."""
        num_layers = self.problem.model.num_layers
        capacity = [self._capacity(d) for d in self.search.devices]
        groups = best_pipelines(capacity, num_layers)
        if not groups:
            self.reason = (
                f"half of the memory of all devices holds {sum(capacity)} of {num_layers} layers"
            )
        replicas: list[Candidate] = []
        for group in groups:
            cut = self._cut([self.search.devices[i] for i in group], [capacity[i] for i in group])
            replica = self.candidates.at_cut(cut) if has_legal_starts(self.costs, cut) else None
            if replica is not None:
                replicas.append(replica)
            elif has_legal_starts(self.costs, cut):
                self.reason, self.refused = fault_of(self.costs, cut), cut
            else:
                self.reason = "the model may not be cut where it would cut"
        if replicas and self.keep(replicas):
            self.refused = None

    def _capacity(self, d: int) -> int:
        model = self.problem.model
        layer_bytes = sum(model.layer_weight_bytes) / model.num_layers
        held = WEIGHT_SHARE * self.problem.devices[d].memory_bytes
        return min(int(held // layer_bytes), model.num_layers) if layer_bytes else model.num_layers

    def _cut(self, devices: Sequence[int], capacity: Sequence[int]) -> Cut:
        tables = self.costs.tables
        speed = [float(tables.bandwidth[d]) for d in devices]
        return cut_by_counts(devices, filled(speed, capacity, self.problem.model.num_layers))


def best_pipelines(capacity: Sequence[int], num_layers: int) -> list[list[int]]:
    """Return the devices (indices) of each pipeline, for the k with the highest k²/s*(k).

    Of equal k, the fewest pipelines. Empty where the devices cannot hold *num_layers* layers.

    >>> best_pipelines([6, 6, 3, 3], 6)  # 9 / 4 stages; two pipelines: 4 / 2
    [[0], [1], [2, 3]]
    >>> best_pipelines([6, 6, 2, 2, 2], 6)  # 9 / 5 stages; two pipelines: 4 / 2
    [[0], [1]]
    """
    found: list[tuple[float, list[list[int]]]] = []
    for k in range(1, sum(capacity) // num_layers + 1):
        pipelines = fewest_stages(capacity, num_layers, k)
        if pipelines:
            found.append((k * k / sum(map(len, pipelines)), pipelines))
    return max(found, key=lambda scored: scored[0], default=(0.0, []))[1]


def fewest_stages(capacity: Sequence[int], num_layers: int, k: int) -> list[list[int]]:
    """Return *k* disjoint pipelines that hold *num_layers* each with the fewest devices in all.

    Devices come one after the other, the largest first; each is left out or joins an open
    pipeline. A state is what the pipelines still lack; of equal states the one with fewer
    devices is kept. Empty where there are no k pipelines.
    """
    start = (num_layers,) * k
    states: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {start: ((),) * k}
    for i in sorted(range(len(capacity)), key=lambda i: (-capacity[i], i)):
        following = dict(states)
        for lacks, members in states.items():
            for j in range(k):
                is_twin = j > 0 and lacks[j] == lacks[j - 1]
                if lacks[j] == 0 or capacity[i] == 0 or is_twin:
                    continue
                joined = [*zip(lacks, members, strict=True)]
                joined[j] = (max(0, lacks[j] - capacity[i]), (*members[j], i))
                joined.sort(key=lambda open_: (-open_[0], open_[1]))
                key, value = (tuple(part) for part in zip(*joined, strict=True))
                if key not in following or _size(value) < _size(following[key]):
                    following[key] = value
        states = _most_promising(following)
    done = states.get((0,) * k, ())
    return sorted((list(members) for members in done), key=lambda members: members[0])


def _size(members: tuple[tuple[int, ...], ...]) -> int:
    return sum(map(len, members))


def _most_promising(
    states: dict[tuple[int, ...], tuple[tuple[int, ...], ...]],
) -> dict[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """Return the states that lack least, and of these with the fewest devices."""
    if len(states) <= _MAX_STATES:
        return states
    kept = sorted(states.items(), key=lambda state: (sum(state[0]), _size(state[1]), state[0]))
    return dict(kept[:_MAX_STATES])


def filled(speed: Sequence[float], capacity: Sequence[int], num_layers: int) -> list[int]:
    """Return layers in proportion to *speed*, at most *capacity* and at least one each.

    Whoever is full leaves the rest to the others, in proportion to their speed again.

    >>> filled([3.0, 1.0], [24, 24], 24)
    [18, 6]
    >>> filled([3.0, 1.0], [10, 24], 24)
    [10, 14]
    """
    counts = [0] * len(speed)
    waiting = list(range(len(speed)))
    while waiting:
        left = num_layers - sum(counts)
        given = shares([speed[i] for i in waiting], left)
        full = [i for i, share in zip(waiting, given, strict=True) if share > capacity[i]]
        if not full:
            for i, share in zip(waiting, given, strict=True):
                counts[i] = share
            break
        for i in full:
            counts[i] = capacity[i]
        waiting = [i for i in waiting if i not in full]
    return counts


PLANNER = Parallax
