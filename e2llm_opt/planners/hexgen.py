"""HexGen: groups evolved by merge, split and swap, a pipeline of least latency in each; no phases.

Source: HexGen (arXiv 2311.11514, ICML 2024). A genetic algorithm searches how devices are grouped
into replicas, from k-means groupings on; its mutations merge two groups, split one, or swap
devices between two. Within each group a dynamic program finds stages and layers of the pipeline
with the least latency. Groupings are judged by the share of requests that a simulator sees meet
the deadline. Prefill and decode are not split, so that every replica is MIXED.

What is filled in: tensor parallelism is left out, since a stage is one device here. The program is
our partitioner's, for one request alone, link times included. Groupings are judged by the
problem's objective, through :mod:`e2llm_opt.planners.judge`. k-means works on hop times between
devices. 30 groupings live; each generation every one of them is mutated once and the best 30 of
all survive. Groups that cannot be a replica idle.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.planners.judge import ranks
from e2llm_opt.planners.planner import Planner
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.roles import Choice
from e2llm_opt.search.seeds import distances
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.stop import Stop

    Floats = NDArray[np.float64]

Grouping = tuple["Group", ...]
"""Sorted groups of device classes; all devices are in some group."""
POPULATION = 30
_KMEANS_ROUNDS = 20
_FAR_S = 1e3
"""Hop between devices without a path, for k-means [s]."""
_NOTHING: Key = (IMPOSSIBLE,)


class HexGen(Planner):
    """MIXED replicas from a genetic search of its own."""

    NAME = "hexgen"

    def __init__(self, costs: Costs, progress: ProgressCallback | None = None) -> None:
        super().__init__(costs, progress)
        is_asked = self.problem.objective is Objective.MAX_CONTEXT
        self._variant = Variant.CONTEXT if is_asked else Variant.LATENCY
        self._known: dict[Grouping, tuple[Key, Grouping]] = {}

    def run(self, stop: Stop, seed: int) -> None:
        """Evolve groupings until *stop*, and keep the best that are possible."""
        self.reason = "no grouping has a replica that holds the model and is fast enough"
        if self.problem.constraints.roles == "disaggregated":
            self.reason = "it does not split prefill and decode; constraints.roles asks for that"
            return
        self.search.teller.planned = stop.max_evaluations
        try:
            self._evolve(stop, np.random.default_rng(seed))
        finally:  # an interrupted search has plans too
            self._keep_best()

    def _evolve(self, stop: Stop, rng: Generator) -> None:
        alive = sorted(dict.fromkeys(self._first_groupings()), key=self._rank)[:POPULATION]
        best, since = self._rank(alive[0])[0], 0
        number = count(1)
        while since < stop.stagnation and len(self._known) < stop.max_evaluations:
            children = [mutate(alive[i % len(alive)], rng) for i in range(POPULATION)]
            for child in children:
                self._rank(child)
                self.tell("grouping", next(number), self._leader(alive))
            alive = sorted({*alive, *children}, key=self._rank)[:POPULATION]
            reached = self._rank(alive[0])[0]
            best, since = (reached, 0) if reached < best else (best, since + 1)
            if self.search.is_late(stop):
                return

    def _first_groupings(self) -> Iterator[Grouping]:
        """Yield the k-means groupings for every number of groups."""
        devices = self.search.devices
        hop = np.minimum(distances(self.costs, devices), _FAR_S)
        for k in range(1, len(devices) + 1):
            labels = clusters(hop, k)
            members: dict[int, list[int]] = {}
            for d, label in zip(devices, labels, strict=True):
                members.setdefault(label, []).append(self.costs.classes.class_of[d])
            yield canonical(list(members.values()))

    def _rank(self, grouping: Grouping) -> tuple[Key, Grouping]:
        """Return the worth of *grouping* and itself, which decides between equals."""
        if grouping not in self._known:
            replicas = self._replicas(grouping)
            key = _NOTHING
            if replicas:
                roles = [Role.MIXED] * len(replicas)
                (key,) = ranks(self.evaluator, replicas, [roles], self._variant)
            is_allowed = self.search.rules.allows(replicas)
            self._known[grouping] = (key if is_allowed else _NOTHING), replicas
        return self._known[grouping][0], grouping

    def _replicas(self, grouping: Grouping) -> Grouping:
        """Return the groups that can be replicas, each without the devices that get no layers."""
        found = []
        for group in grouping:
            replica = self.candidates.find(group, Role.MIXED, self._variant)
            if replica is None:
                continue
            part = self.costs.group(replica.cut)
            again = self.candidates.find(part, Role.MIXED, self._variant)
            if again is not None and again.num_devices == len(part):
                found.append(part)
        return tuple(sorted(found))

    def _leader(self, alive: Sequence[Grouping]) -> tuple[Choice, ...]:
        if not self.search.teller.is_heard:
            return ()
        key, replicas = self._known[alive[0]]
        if not replicas or key[0] >= IMPOSSIBLE:
            return ()
        roles = (Role.MIXED,) * len(replicas)
        return (Choice(key=key, groups=replicas, roles=roles, variant=self._variant),)

    def _keep_best(self) -> None:
        """Keep the best groupings, links counted."""
        ranked = sorted({known for known in self._known.values() if known[0][0] < IMPOSSIBLE})
        for _, replicas in ranked[:POPULATION]:
            self.keep_packing(replicas, (Role.MIXED,) * len(replicas), self._variant)


def canonical(groups: Sequence[Sequence[int]]) -> Grouping:
    """Return non-empty *groups* sorted, each of them sorted."""
    return tuple(sorted(tuple(sorted(group)) for group in groups if group))


def mutate(grouping: Grouping, rng: Generator) -> Grouping:
    """Merge two groups, split one, or swap two devices, each as likely, where it can be."""
    groups = [list(group) for group in grouping]
    large = [group for group in groups if len(group) > 1]
    ways = ["split"] * bool(large) + ["merge", "swap"] * (len(groups) > 1)
    if not ways:
        return grouping
    way = ways[int(rng.integers(len(ways)))]
    if way == "split":
        chosen = large[int(rng.integers(len(large)))]
        order = rng.permutation(len(chosen))
        point = int(rng.integers(1, len(chosen)))
        groups.append([chosen[i] for i in order[:point]])
        chosen[:] = [chosen[i] for i in order[point:]]
        return canonical(groups)
    i, j = rng.choice(len(groups), 2, replace=False).tolist()
    if way == "merge":
        groups[i] += groups[j]
        groups[j] = []
    else:
        a, b = int(rng.integers(len(groups[i]))), int(rng.integers(len(groups[j])))
        groups[i][a], groups[j][b] = groups[j][b], groups[i][a]
    return canonical(groups)


def clusters(points: Floats, num_clusters: int) -> list[int]:
    """Return a label for each of *points* [N, F] by k-means, started from points far apart."""
    chosen = [0]
    while len(chosen) < num_clusters:
        nearest = _squares(points, points[chosen]).min(axis=1)
        nearest[chosen] = -1.0
        chosen.append(int(nearest.argmax()))
    centres = points[chosen].astype(np.float64)
    labels = np.zeros(len(points), dtype=np.int64)
    for _ in range(_KMEANS_ROUNDS):
        labels = _squares(points, centres).argmin(axis=1)
        for k in set(labels.tolist()):
            centres[k] = points[labels == k].mean(axis=0)
    found: list[int] = labels.tolist()
    return found


def _squares(points: Floats, centres: Floats) -> Floats:
    """Squared distances [N, K]."""
    found: Floats = ((points[:, None, :] - centres) ** 2).sum(axis=2)
    return found


PLANNER = HexGen
