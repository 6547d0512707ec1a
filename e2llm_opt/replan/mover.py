"""Local search from a plan that stands: the best of many small changes, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from e2llm_opt.problem import Role
from e2llm_opt.replan.losses import Stretch, stretch_of
from e2llm_opt.replan.weights import NOTHING
from e2llm_opt.search.polish import is_whole
from e2llm_opt.search.ranking import IMPOSSIBLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.replan.losses import Losses
    from e2llm_opt.replan.neighbours import Neighbours
    from e2llm_opt.replan.terms import ReplanTerms
    from e2llm_opt.replan.weights import Holdings, Weights
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Outcome
    from e2llm_opt.search.search import Search

    Replicas = tuple[Candidate, ...]
    Name = frozenset[tuple[object, Role, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is tried.

    Parameters
    ----------
    rounds
        Changes after one another.
    ideas
        Changes that are looked at in one round.
    judged
        Of these, those whose whole plan is judged: the ones that look best, and move least.
    is_for_roles
        Whether only roles and slots may change.
    """

    rounds: int = 3
    ideas: int = 100
    judged: int = 12
    is_for_roles: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Near:
    """A plan that was looked at.

    Parameters
    ----------
    outcome
        What it is worth.
    loss
        What requests lose in it within the horizon [request-seconds].
    price
        About what moving there costs [request-seconds].
    num_bytes
        Weights that move [bytes].
    """

    outcome: Outcome
    loss: float
    price: float
    num_bytes: float

    @property
    def total(self) -> float:
        """Loss and price [request-seconds]."""
        return self.loss + self.price


class Mover:
    """Looks for plans that lose little, near a plan that stands.

    Parameters
    ----------
    search
        Candidates, rules and the evaluator.
    weights, losses, neighbours
        What moving takes, what requests lose, and what may change.
    before
        The plan as it stands; None: nothing serves.
    old
        Who holds what now.
    terms
        Limits on moves and bytes.

    Attributes
    ----------
    seen
        Every plan that was judged, is possible and within the limits.
    """

    def __init__(
        self,
        search: Search,
        *,
        weights: Weights,
        losses: Losses,
        neighbours: Neighbours,
        before: Outcome | None,
        old: Holdings,
        terms: ReplanTerms,
    ) -> None:
        self._search, self._evaluator = search, search.evaluator
        self._weights, self._losses, self._neighbours = weights, losses, neighbours
        self._before, self._old, self._terms = before, old, terms
        self._slowness: dict[int, float] = {}
        self._times: dict[Cut, float] = {}
        self.seen: dict[Name, Near | None] = {}

    @property
    def found(self) -> list[Near]:
        """All plans that are possible and within the limits, in the order they were seen."""
        return [one for one in self.seen.values() if one is not None]

    def climb(
        self,
        start: Replicas,
        hot: frozenset[int],
        effort: Effort,
        worth: Callable[[Near], tuple[float, ...]],
    ) -> Near | None:
        """Take the best of many changes by *worth*, the smaller the better, until none is better.

        Returns the best plan, which may be the *start* itself; None where nothing is possible.
        """
        best = self.judge(start) if start else None
        at = start
        for _ in range(effort.rounds):
            some = [near for one in self._promising(at, hot, effort) if (near := self._told(one))]
            top = min(some, key=worth, default=None)
            if top is None or (best is not None and worth(top) >= worth(best)):
                break
            best, at = top, top.outcome.replicas
        return best

    def _told(self, replicas: Replicas) -> Near | None:
        """Judge a plan and tell how many were; there Ctrl-C is heard."""
        self._search.tell("change", len(self.seen), ())
        return self.judge(replicas)

    def judge(self, replicas: Replicas) -> Near | None:
        """Return what a plan is worth; None where it is impossible, forbidden or beyond a limit."""
        name = name_of(replicas)
        if name not in self.seen:
            self.seen[name] = self._judged(replicas)
        return self.seen[name]

    def _judged(self, replicas: Replicas) -> Near | None:
        if not replicas or not is_whole(replicas) or not self._is_within(replicas):
            return None
        outcome = self._evaluator.outcome(replicas)
        if self._evaluator.key(outcome)[0] >= IMPOSSIBLE or not self._search.rules.is_obeyed(
            outcome
        ):
            return None
        return Near(
            outcome=outcome,
            loss=self._losses.of(outcome),
            price=self._price(replicas, stretch_of(outcome, 0.0), outcome.unloaded_latency_s),
            num_bytes=self._neighbours.moved_bytes(replicas),
        )

    def _is_within(self, replicas: Replicas) -> bool:
        """Whether moves and bytes are within the limits."""
        most, most_bytes = self._terms.max_moves, self._terms.max_move_bytes
        if most is None and most_bytes is None:
            return True
        new = self._weights.held(c.cut for c in replicas)
        if most_bytes is not None and self._weights.moved_bytes(self._old, new) > most_bytes:
            return False
        return most is None or len(self._weights.fetches(self._old, new)) <= most

    def _promising(self, at: Replicas, hot: frozenset[int], effort: Effort) -> list[Replicas]:
        """Return the neighbours of a plan that look best, and those that move least for a gain."""
        if effort.is_for_roles:
            ideas = self._neighbours.role_ideas(at)
        else:
            idle = frozenset(self._neighbours.idle(at))
            ideas = islice(self._neighbours.ideas(at, hot | idle), effort.ideas)
        plans = [one for idea in ideas for one in self._neighbours.plans(at, idea) if one]
        if not plans:
            return []
        rated = [(self._guess(one), i) for i, one in enumerate(plans)]
        order = [i for _, i in sorted(rated)]
        chosen = order[: effort.judged]
        by_bytes = sorted(order[: 6 * effort.judged], key=lambda i: rated[i][0][1])
        chosen += by_bytes[: effort.judged // 2]
        return [plans[i] for i in dict.fromkeys(chosen)]

    def _guess(self, replicas: Replicas) -> tuple[float, float]:
        """Return about what a plan loses with its price, by its capacity alone; and its bytes."""
        capacity, rate = self._capacity(replicas), self._losses.rate_per_s
        latency = self._before.unloaded_latency_s if self._before is not None else 1.0
        after = Stretch(0.0, capacity, latency * rate / max(capacity - rate, 1e-9))
        horizon = self._losses.horizon_s
        if capacity <= rate:
            loss = (2 * rate - capacity) * horizon * horizon / 2
        else:
            loss = rate * horizon * min(after.wait_s, horizon / 2)
        num_bytes = self._neighbours.moved_bytes(replicas)
        return loss + self._price(replicas, after, latency), num_bytes

    def _capacity(self, replicas: Iterable[Candidate]) -> float:
        rates = dict.fromkeys(Role, 0.0)
        for replica in replicas:
            rates[replica.role] += replica.service_rate(self._evaluator.costs.output_tokens)
        return rates[Role.MIXED] + min(rates[Role.PREFILL], rates[Role.DECODE])

    def _price(self, replicas: Replicas, after: Stretch, latency_s: float) -> float:
        """Return about what moving costs: as if all that must stop did so one after the other."""
        seconds = max((self._seconds(c.cut) for c in replicas), default=0.0)
        if self._before is None:
            return self._losses.of_moving([Stretch(seconds, 0.0, 0.0)], after)
        kept = {c.cut: (c.role, c.slots) for c in replicas}
        stopped = [c for c in self._before.replicas if c.cut not in kept]
        changed = [c for c in self._before.replicas if kept.get(c.cut) != (c.role, c.slots)]
        disturbed = self._losses.in_flight(self._before, changed)
        if seconds == 0.0:
            return disturbed * latency_s
        capacity = self._before.traffic.capacity_per_s
        output = self._evaluator.costs.output_tokens
        left = capacity - max((c.service_rate(output) for c in stopped), default=0.0)
        rate = self._losses.rate_per_s
        wait = stretch_of(self._before, 0.0).wait_s
        slower = max(capacity - rate, 0.0) / max(left - rate, 1e-9)
        way = [Stretch(seconds, max(left, 0.0), wait * max(slower, 1.0))]
        return self._losses.of_moving(way, after) + disturbed * latency_s

    def _seconds(self, cut: Cut) -> float:
        """Return about how long the devices of one cut fetch and load what they need [s]."""
        if cut not in self._times:
            self._times[cut] = max(
                self._weights.gained(self._old.get(d, NOTHING), held) * self._second_a_byte(d)
                for d, held in self._weights.held([cut]).items()
            )
        return self._times[cut]

    def _second_a_byte(self, device: int) -> float:
        """Return what fetching and loading a byte takes on a device [s/byte]."""
        if device not in self._slowness:
            way = self._weights.slowest_way(device)
            self._slowness[device] = way + 1.0 / self._terms.load_bytes_per_s
        return self._slowness[device]


def name_of(replicas: Replicas) -> Name:
    """Return what two plans share that are the same."""
    return frozenset((c.cut, c.role, c.slots) for c in replicas)


def best_of(found: Sequence[Near], num: int) -> list[Near]:
    """Return those of *found* that lose least with their price, and those that lose least."""
    by_total = sorted(found, key=lambda one: (one.total, one.num_bytes))[:num]
    by_loss = sorted(found, key=lambda one: (one.loss, one.num_bytes))[: num // 2]
    return list({id(one): one for one in (*by_total, *by_loss)}.values())
