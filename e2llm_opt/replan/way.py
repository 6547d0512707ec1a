"""The way from one plan to the next: in steps, so that a stable plan serves wherever possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.replan.losses import stretch_of
from e2llm_opt.search.polish import is_whole
from e2llm_opt.search.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.problem import Role
    from e2llm_opt.replan.losses import Losses
    from e2llm_opt.replan.weights import Fetch, Holdings, Weights
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Evaluator, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One step of the way: some replicas stop, weights move, others start.

    Parameters
    ----------
    stopped, started
        Replicas of the old and of the new plan.
    fetches, seconds
        What devices get, and when each is there after the step began [s].
    serving
        What serves meanwhile; None: nothing.
    """

    stopped: tuple[Candidate, ...]
    started: tuple[Candidate, ...]
    fetches: tuple[Fetch, ...]
    seconds: tuple[float, ...]
    serving: Outcome | None

    @property
    def duration_s(self) -> float:
        """Until all weights are there and loaded [s]."""
        return max(self.seconds, default=0.0)

    @property
    def downtime_s(self) -> float:
        """How long the replicas that it stops are down [s]."""
        return self.duration_s if self.stopped else 0.0

    @property
    def is_stable(self) -> bool:
        """Whether what serves meanwhile keeps up with the requests."""
        return self.serving is not None and self.serving.is_stable


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """All steps from the plan as it stands to another one.

    Parameters
    ----------
    legs
        In order.
    lost
        What requests lose on the way [request-seconds].
    disturbed
        Requests that are in replicas that stop, or change their role.
    """

    legs: tuple[Leg, ...]
    lost: float
    disturbed: float

    @property
    def is_stable(self) -> bool:
        """Whether what serves keeps up with the requests in every step that takes time."""
        return all(leg.is_stable for leg in self.legs if leg.duration_s > 0)

    @property
    def num_moves(self) -> int:
        """How many ranges of layers are sent or loaded."""
        return sum(len(leg.fetches) for leg in self.legs)

    @property
    def num_bytes(self) -> float:
        """Weights that are sent or loaded [bytes]."""
        return sum(one.num_bytes for leg in self.legs for one in leg.fetches)

    @property
    def downtime_s(self) -> float:
        """The longest time that a replica which served is down [s]."""
        return max((leg.downtime_s for leg in self.legs), default=0.0)


class Ways:
    """Finds the way from the plan as it stands.

    Parameters
    ----------
    evaluator, weights, losses
        What plans are worth, what moving takes, and what requests lose by it.
    before
        The plan as it stands; None: nothing serves.
    old
        Who holds what now.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        weights: Weights,
        losses: Losses,
        before: Outcome | None,
        old: Holdings,
    ) -> None:
        self._evaluator, self._weights, self._losses = evaluator, weights, losses
        self._before, self._old = before, old
        self._known: dict[tuple[tuple[Cut, Role], ...], Outcome | None] = {}

    def to(self, after: Outcome, longest_s: float = float("inf")) -> Way:
        """Return the way to *after* on which requests lose least.

        Replicas that share devices with the same old ones change together; one such set after
        the other, the one that stops least service first. Where what is left would not keep up, or
        replicas would be down for more than *longest_s*, the replicas of a set change one by one.
        """
        sets = self._sets(after)
        together = self._walked(sets, after)
        if all(leg.is_stable and leg.downtime_s <= longest_s for leg in together.legs):
            return together
        single = [part for one in sets for part in self._one_by_one(one)]
        if len(single) == len(sets):
            return together
        apart = self._walked(single, after)
        return min(together, apart, key=lambda way: (way.downtime_s > longest_s, way.lost))

    def _sets(self, after: Outcome) -> list[_Set]:
        """Return which old replicas stop for which new ones, least service stopped first."""
        kept = {replica.cut for replica in after.replicas}
        stopping = [c for c in (self._before.replicas if self._before else ()) if c.cut not in kept]
        serving = {c.cut for c in (self._before.replicas if self._before else ())}
        starting = [c for c in after.replicas if c.cut not in serving]
        found: list[_Set] = [_Set([], [one]) for one in starting]
        for old in stopping:
            touching = [one for one in found if _devices(one.starting) & _devices([old])]
            rest = [one for one in found if one not in touching]
            stopped = [old, *(c for one in touching for c in one.stopping)]
            started = [c for one in touching for c in one.starting]
            found = [*rest, _Set(stopped, started)]
        return sorted(found, key=lambda one: (not one.starting, self._service(one.stopping)))

    def _service(self, replicas: Iterable[Candidate]) -> float:
        return sum(c.service_rate(self._evaluator.costs.output_tokens) for c in replicas)

    def _one_by_one(self, one: _Set) -> list[_Set]:
        """Return the new replicas of a set in turn, each with the old ones that it stops."""
        left, waiting, found = list(one.stopping), list(one.starting), []
        while waiting:
            need = [[c for c in left if _devices([c]) & _devices([new])] for new in waiting]
            i = min(range(len(waiting)), key=lambda i: (self._service(need[i]), i))
            found.append(_Set(need[i], [waiting.pop(i)]))
            left = [c for c in left if c not in need[i]]
        return [*found, *([_Set(left, [])] if left else [])]

    def _walked(self, sets: Sequence[_Set], after: Outcome) -> Way:
        """Return the way that changes one set after the other."""
        before = self._before.replicas if self._before else ()
        role_after = {c.cut: c for c in after.replicas}
        serving, held = list(before), dict(self._old)
        legs: list[Leg] = []
        for one in sets:
            serving = [c for c in serving if c not in one.stopping]
            new = self._weights.held(c.cut for c in one.starting)
            fetches = self._weights.fetches(held, new)
            legs.append(
                Leg(
                    stopped=tuple(one.stopping),
                    started=tuple(one.starting),
                    fetches=tuple(fetches),
                    seconds=tuple(self._weights.seconds(fetches)),
                    serving=self._serving(serving) if fetches else self._before,
                )
            )
            held.update(new)
            serving += one.starting
        changed = [
            c
            for c in before
            if (other := role_after.get(c.cut)) is None
            or (other.role, other.slots) != (c.role, c.slots)
        ]
        disturbed = self._losses.in_flight(self._before, changed) if self._before else 0.0
        way = [stretch_of(leg.serving, leg.duration_s) for leg in legs if leg.duration_s > 0]
        lost = self._losses.of_moving(way, stretch_of(after, 0.0))
        return Way(
            legs=tuple(legs),
            lost=lost + disturbed * after.unloaded_latency_s,
            disturbed=disturbed,
        )

    def _serving(self, replicas: Sequence[Candidate]) -> Outcome | None:
        """Return what *replicas* serve in their roles, or where that is too little, in others."""
        key = tuple(sorted((c.cut, c.role) for c in replicas))
        if key not in self._known:
            self._known[key] = self._found(tuple(replicas))
        return self._known[key]

    def _found(self, replicas: tuple[Candidate, ...]) -> Outcome | None:
        if not replicas:
            return None
        same = self._evaluator.outcome(replicas) if is_whole(replicas) else None
        if same is not None and same.is_stable:
            return same
        other = Standing(self._evaluator, [c.cut for c in replicas]).best()
        found = [one for one in (same, other) if one is not None]
        return min(found, key=self._evaluator.key, default=None)


@dataclass(frozen=True, slots=True)
class _Set:
    """Old replicas that stop, and the new ones that their devices, and idle ones, become."""

    stopping: list[Candidate]
    starting: list[Candidate]


def _devices(replicas: Iterable[Candidate]) -> set[int]:
    return {d for replica in replicas for d, _, _ in replica.cut}
