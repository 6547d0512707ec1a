"""A plan's replicas on what a loss leaves: as they are, in the best roles, or planned anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.transfer import kv_transfer
from e2llm_opt.failures.answer import Left, LeftReplica
from e2llm_opt.inventory.network import private_links
from e2llm_opt.plan.plan import OURS
from e2llm_opt.planners import planner_named
from e2llm_opt.problem import Role
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.evaluate import Evaluator
from e2llm_opt.search.spare import remaining
from e2llm_opt.search.standing import Standing, as_planned
from e2llm_opt.simulate.cast import actors_of, costs_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop

_FEW_DEVICES = 6
"""With more, a short search finds better plans by evolution than by trying all groupings."""
Replicas = tuple["Candidate | None", ...]
"""The replicas of a plan, in its order; None: one that cannot serve."""


class Rest:
    """The replicas of one plan on one network.

    Parameters
    ----------
    plan
        Its devices are all the problem's.
    problem
        With the links that are left; no loss need be survived in it.

    Attributes
    ----------
    replicas
        As they stand, with the slots of the plan, or as many as are fast enough.
    """

    def __init__(self, plan: Plan, problem: Problem) -> None:
        self._plan = plan
        self._costs = costs_for([plan], problem)
        actors = actors_of(plan, problem, self._costs)
        self._cuts: tuple[Cut, ...] = tuple(actor.cut for actor in actors)
        self._evaluator = Evaluator(Candidates(self._costs, self._costs.classes.order))
        self.replicas: Replicas = as_planned(self._evaluator.candidates, plan, self._cuts)

    def kind(self, number: int) -> object:
        """Return what replicas that are alike share."""
        own = self.replicas[number]
        cut = self._cuts[number]
        return own and (str(self._evaluator.kind(cut)), own.role, own.slots)

    def used_links(self) -> set[int]:
        """Return the numbers of all links that the replicas could use between them."""
        problem = self._costs.problem
        stages = [stage for replica in self._plan.replicas for stage in replica.stages]
        names = [name for stage in stages for name in stage.devices]
        home = {device.name: device.host for device in problem.devices}
        hosts = dict.fromkeys(home[name] for name in names)
        network, inside = self._costs.network, private_links(problem.inventory)
        ways = [path for pair in permutations(hosts, 2) for path in network.paths(*pair)]
        ways += [path for pair in permutations(names, 2) for path in inside.get(pair, ())]
        return {int(name) for way in ways for kind, name, _ in way.resources if kind == "link"}

    def classes(self, names: Sequence[str]) -> tuple[object, ...]:
        """Return what devices that can stand for each other share."""
        devices, class_of = self._costs.problem.devices, self._costs.classes.class_of
        hosts = Counter(device.host for device in devices)
        shared: dict[str, object] = {
            device.name: class_of[d] if hosts[device.host] == 1 else device.name
            for d, device in enumerate(devices)
        }
        return tuple(shared[name] for name in names)

    def swapped(self, left: Left, gone: Collection[int], others: Collection[int]) -> Left:
        """Return what *left* is, known without *others*, where those alike to them are *gone*."""
        free = [i for i in others if i not in gone]
        replicas, names = self._plan.replicas, {}
        for i in gone:
            if i not in others:
                j = next(j for j in free if str(self.kind(j)) == str(self.kind(i)))
                free.remove(j)
                names[replicas[i].id] = LeftReplica(
                    id=replicas[j].id,
                    role=replicas[j].role,
                    devices=tuple(n for own in replicas[j].stages for n in own.devices),
                )
        found = (
            replace(names[one.id], role=one.role) if one.id in names else one
            for one in left.replicas
        )
        return replace(left, replicas=tuple(found))

    def planned(
        self, problem: Problem, stop: Stop, seed: int, progress: ProgressCallback | None
    ) -> Left | None:
        """Return the best plan found for *problem*; replicas that are there already keep names."""
        run = planner_named(OURS)(costs_of(problem), progress)
        is_few = len(run.search.devices) <= _FEW_DEVICES
        run.run(stop if is_few or stop.method != "auto" else replace(stop, method="ga"), seed)
        best = next(iter(run.ranked(1)), None)
        return None if best is None else left_of(run.costs, best, self._ids)

    def as_is(self, gone: Collection[int]) -> Left:
        """Return what the replicas without those at the places *gone* are worth in their roles."""
        return self._left(self._as_is(gone))

    def re_roled(self, gone: Collection[int]) -> Left:
        """Return what they are worth in the best roles, no layer moved."""
        cuts = [() if i in gone else cut for i, cut in enumerate(self._cuts)]
        key = self._evaluator.key
        outcomes = [self._as_is(gone), Standing(self._evaluator, cuts).best()]
        return self._left(min((one for one in outcomes if one), key=key, default=None))

    def _as_is(self, gone: Collection[int]) -> Outcome | None:
        standing = [own for i, own in enumerate(self.replicas) if own and i not in gone]
        outcomes = [self._evaluator.outcome(rest) for rest in self._linked(standing)]
        served = [one for one in outcomes if one.traffic.capacity_per_s > 0]
        return min(served, key=self._evaluator.key, default=None)

    def _linked(self, standing: Sequence[Candidate]) -> Iterator[tuple[Candidate, ...]]:
        """Yield sets of replicas of which each PREFILL one reaches each DECODE one.

        All of them, where that is so; else for each PREFILL replica those that it reaches, and
        who else reaches all of these, and the same for each DECODE replica.
        """
        first = [own for own in standing if own.role is Role.PREFILL]
        second = [own for own in standing if own.role is Role.DECODE]
        sources, targets = range(len(first)), range(len(second))
        ways = {
            (i, j)
            for i, j in product(sources, targets)
            if kv_transfer(
                self._costs, first[i].cut, second[j].cut, first[i].prefill_latency_s
            ).exposed_s
            < np.inf
        }
        every = {(frozenset(sources), frozenset(targets))}
        if len(ways) < len(first) * len(second):
            every = {(frozenset[int](), frozenset[int]())}
            for i in sources:
                own = frozenset(j for j in targets if (i, j) in ways)
                every.add((frozenset(s for s in sources if _all(ways, [s], own)), own))
            for j in targets:
                own = frozenset(i for i in sources if (i, j) in ways)
                every.add((own, frozenset(t for t in targets if _all(ways, own, [t]))))
        for some, others in sorted(every, key=lambda pair: (sorted(pair[0]), sorted(pair[1]))):
            apart = {first[i].cut for i in some} | {second[j].cut for j in others}
            rest = remaining(
                [own for own in standing if own.role is Role.MIXED or own.cut in apart], ()
            )
            if rest:
                yield rest

    def _left(self, outcome: Outcome | None) -> Left:
        rate = self._costs.problem.workload.rate_per_s
        if outcome is None:
            return nothing(rate)
        return left_of(self._costs, outcome, self._ids)

    @property
    def _ids(self) -> dict[Cut, str]:
        names = [replica.id for replica in self._plan.replicas]
        return dict(zip(self._cuts, names, strict=True))


def nothing(rate_per_s: float) -> Left:
    """Return what is left where nothing serves."""
    return Left(
        capacity_per_s=0.0,
        stable=False,
        lacking_per_s=rate_per_s,
        waiting_time_s=None,
        ttft_s=None,
        latency_s=None,
        replicas=(),
    )


def left_of(costs: Costs, outcome: Outcome, ids: dict[Cut, str]) -> Left:
    """Return the figures of *outcome*; *ids* are the replicas that were there before."""
    problem, is_stable = costs.problem, outcome.is_stable
    capacity = outcome.traffic.capacity_per_s
    return Left(
        capacity_per_s=capacity,
        stable=is_stable,
        lacking_per_s=0.0 if is_stable else max(problem.workload.rate_per_s - capacity, 0.0),
        waiting_time_s=outcome.waiting_time_s if is_stable else None,
        ttft_s=outcome.ttft_s if is_stable else None,
        latency_s=outcome.latency_s if is_stable else None,
        replicas=tuple(
            LeftReplica(
                id=ids.get(replica.cut, ""),
                role=str(replica.role),
                devices=tuple(name for row, _, _ in replica.cut for name in costs.names(row)),
            )
            for replica in outcome.replicas
        ),
    )


def renamed(left: Left, names: Mapping[str, str]) -> Left:
    """Return *left* with devices that change places, keys with values; such replicas are new."""
    other = {**names, **{new: old for old, new in names.items()}}
    if all(old == new for old, new in names.items()):
        return left
    found = []
    for one in left.replicas:
        devices = tuple(other.get(name, name) for name in one.devices)
        found.append(replace(one, devices=devices, id=one.id if devices == one.devices else ""))
    return replace(left, replicas=tuple(found))


def after_loss(problem: Problem, devices: Collection[str]) -> Problem | None:
    """Return *problem* without *devices*; None where no device is left.

    Constraints about lost devices go with them. What is left need not survive another loss.
    """
    limits = problem.constraints
    exclude = tuple(dict.fromkeys((*limits.exclude, *devices)))
    if len(exclude) == len(problem.devices):
        return None
    pins = {
        name: tuple(one for one in own if one not in devices) for name, own in limits.pins.items()
    }
    fewer = replace(
        limits,
        exclude=exclude,
        pin={name: own for name, own in pins.items() if own},
        layers={name: n for name, n in limits.fixed_layers.items() if name not in devices},
        survive=0,
    )
    return replace(problem, constraints=fewer)


def _all(
    ways: Collection[tuple[int, int]], sources: Collection[int], targets: Collection[int]
) -> bool:
    return all(pair in ways for pair in product(sources, targets))
