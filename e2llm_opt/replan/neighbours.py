"""Plans near a plan: one replica or two cut anew, with a device more, less, or another one.

Each neighbour keeps all other replicas as they are. New cuts are those that move little from what
devices hold now (:mod:`e2llm_opt.replan.recut`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING

from e2llm_opt.problem import Role
from e2llm_opt.replan.recut import recuts
from e2llm_opt.replan.weights import NOTHING
from e2llm_opt.search.roles import wanted_roles
from e2llm_opt.search.standing import fastest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.replan.weights import Holdings, Weights
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Evaluator

    Replicas = tuple[Candidate, ...]
    Order = tuple[int, ...]

_MOST_WAYS = 4
"""Of each of two replicas that change together."""
_MOST_PLACES = 4
"""In a pipeline where a device is put, the last one apart."""
_MOST_IDLE = 6
"""Devices that may form a replica of their own in any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Idea:
    """Replicas that change, and the pipelines that their devices become.

    Parameters
    ----------
    gone
        Places in the plan of the replicas that change.
    orders
        Devices of each new pipeline, in its order.
    roles
        That each of them may play; None: any.
    cut
        The cut that stays, where only the role and the slots may change.
    """

    gone: tuple[int, ...]
    orders: tuple[Order, ...]
    roles: tuple[Role | None, ...]
    cut: Cut | None = None


class Neighbours:
    """Makes the neighbours of plans.

    Parameters
    ----------
    evaluator, weights
        Figures and bytes.
    old
        Who holds what now.
    devices
        Rows that may be used.
    broken
        Pipelines of the old plan that lost a device: what is left of them, in order.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        weights: Weights,
        old: Holdings,
        devices: Sequence[int],
        broken: Sequence[Order],
    ) -> None:
        self._evaluator, self._weights, self._old = evaluator, weights, old
        self._devices, self._broken = tuple(devices), tuple(broken)
        self._wanted = wanted_roles(evaluator.costs.problem)
        self._bytes: dict[Cut, float] = {}
        self._roles: dict[Cut, list[Candidate]] = {}
        self._known: dict[tuple[Order, Role, int, int], list[Candidate]] = {}

    def idle(self, replicas: Replicas) -> list[int]:
        """Return the devices without layers."""
        used = {d for c in replicas for d, _, _ in c.cut}
        return [d for d in self._devices if d not in used]

    def role_ideas(self, replicas: Replicas) -> Iterator[Idea]:
        """Yield each replica in every role, with the slots that serve most; no layer moves."""
        for i, replica in enumerate(replicas):
            yield Idea(gone=(i,), orders=(_order(replica),), roles=(None,), cut=replica.cut)

    def ideas(self, replicas: Replicas, hot: frozenset[int]) -> Iterator[Idea]:
        """Yield what may change, what concerns the *hot* devices first.

        Those are devices that changed, or have no layers. Of ideas that are alike, because their
        devices are and hold the same, the first one.
        """
        seen: set[object] = set()
        for idea in self._all(replicas, hot):
            kind = (
                tuple(self._kinds(_order(replicas[i])) for i in idea.gone),
                tuple((replicas[i].role, replicas[i].slots) for i in idea.gone),
                tuple(map(self._kinds, idea.orders)),
                idea.roles,
            )
            if kind not in seen:
                seen.add(kind)
                yield idea

    def _all(self, replicas: Replicas, hot: frozenset[int]) -> Iterator[Idea]:
        idle = self._alike(self.idle(replicas))
        first = [i for i, c in enumerate(replicas) if hot & {d for d, _, _ in c.cut}]
        rest = [i for i in range(len(replicas)) if i not in first]
        yield from self._from_idle(replicas, idle)
        for i in first:
            yield from self._of_one(replicas, i, idle)
        for i, j in combinations((*first, *rest), 2):
            both = self._by_layers([*_order(replicas[i]), *_order(replicas[j])])
            yield Idea(gone=(i, j), orders=(both,), roles=(None,))
        for i in rest:
            yield from self._of_one(replicas, i, idle)
        for i in first:
            for j in (*first, *rest):
                if i != j:
                    yield from self._of_two(replicas, i, j)
        for i, j in combinations(rest, 2):
            yield from self._of_two(replicas, i, j)

    def _alike(self, idle: list[int]) -> list[int]:
        """Return one of those *idle* devices that are alike and hold the same."""
        return sorted({self._kinds((d,)): d for d in reversed(idle)}.values())

    def _kinds(self, order: Order) -> tuple[object, ...]:
        """Return what pipelines share that are alike: devices of one kind that hold the same."""
        kind = self._evaluator.kind(tuple((d, 0, 0) for d in order))
        return kind, tuple(self._old.get(d, NOTHING) for d in order)

    def _from_idle(self, replicas: Replicas, idle: list[int]) -> Iterator[Idea]:
        """Yield new replicas of idle devices: broken pipelines first, with and without others."""
        free = set(self.idle(replicas))
        orders = dict.fromkeys(
            rest for own in self._broken if (rest := tuple(d for d in own if d in free))
        )
        for order in orders:
            yield Idea(gone=(), orders=(order,), roles=(None,))
            for d in idle:
                for longer in _with(order, d) if d not in order else ():
                    yield Idea(gone=(), orders=(longer,), roles=(None,))
        for d in idle:
            yield Idea(gone=(), orders=((d,),), roles=(None,))
        some = sorted(free, key=lambda d: (self._old.get(d, NOTHING).start, d))[:_MOST_IDLE]
        kinds: set[tuple[object, ...]] = set()
        for num in range(2, len(some) + 1):
            for part in combinations(some, num):
                kind = self._kinds(part)
                if kind not in kinds:
                    kinds.add(kind)
                    yield Idea(gone=(), orders=(part,), roles=(None,))
        for order in orders:
            for i, replica in enumerate(replicas):
                merged = self._by_layers([*_order(replica), *order])
                yield Idea(gone=(i,), orders=(merged,), roles=(replica.role,))

    def _of_one(self, replicas: Replicas, i: int, idle: list[int]) -> Iterator[Idea]:
        """Yield one replica cut anew: as it is, with a device more, less, or another one."""
        order, role = _order(replicas[i]), replicas[i].role
        orders = [order, *(_without(order, d) for d in order if len(order) > 1)]
        for d in idle:
            orders += _with(order, d)
            orders += [tuple(d if own == e else own for own in order) for e in order]
        yield from (Idea(gone=(i,), orders=(one,), roles=(role,)) for one in orders)
        if len(order) > 1:
            for k in range(1, len(order)):
                parts = (order[:k], order[k:])
                yield Idea(gone=(i,), orders=parts, roles=(None, None))

    def _of_two(self, replicas: Replicas, i: int, j: int) -> Iterator[Idea]:
        """Yield two replicas with a device handed over or exchanged."""
        one, other = _order(replicas[i]), _order(replicas[j])
        roles = (replicas[i].role, replicas[j].role)
        for source, target, own in ((one, other, roles), (other, one, roles[::-1])):
            for d in source if len(source) > 1 else ():
                for longer in _with(target, d):
                    orders = (_without(source, d), longer)
                    yield Idea(gone=(i, j), orders=orders, roles=own)
        for d, e in product(one, other):
            swapped = (
                tuple(e if own == d else own for own in one),
                tuple(d if own == e else own for own in other),
            )
            yield Idea(gone=(i, j), orders=swapped, roles=roles)

    def _by_layers(self, devices: list[int]) -> Order:
        """Return *devices* in the order of the layers that they hold."""
        place = {d: i for i, d in enumerate(devices)}
        held = {d: self._old.get(d, NOTHING) for d in devices}
        return tuple(sorted(devices, key=lambda d: (held[d].start, held[d].stop, place[d])))

    def plans(self, replicas: Replicas, idea: Idea) -> Iterator[Replicas]:
        """Yield the plans that an idea leads to."""
        kept = tuple(c for i, c in enumerate(replicas) if i not in idea.gone)
        if idea.cut is not None:
            yield from ((*kept, one) for one in self._as_cut(idea.cut))
            return
        slots = max((replicas[i].slots for i in idea.gone), default=0)
        ways = [
            self._ways(order, role, slots)
            for order, role in zip(idea.orders, idea.roles, strict=True)
        ]
        if len(ways) > 1:
            ways = [self._few(own) for own in ways]
        for added in product(*ways):
            yield (*kept, *added)

    def _as_cut(self, cut: Cut) -> list[Candidate]:
        """Return the replicas with a *cut*, one a role."""
        if cut not in self._roles:
            found = [fastest(self._evaluator, cut, role) for role in self._wanted]
            self._roles[cut] = [one for one in found if one is not None]
        return self._roles[cut]

    def _few(self, ways: list[Candidate]) -> list[Candidate]:
        """Return the fastest of *ways* in each role, and those that move least."""
        output = self._evaluator.costs.output_tokens
        fast = sorted(ways, key=lambda c: -c.service_rate(output))
        near = sorted(ways, key=lambda c: self.moved_bytes((c,)))
        found = [one for pair in zip(fast, near, strict=True) for one in pair]
        return list({(c.cut, c.role): c for c in found}.values())[:_MOST_WAYS]

    def _ways(self, order: Order, role: Role | None, slots: int) -> list[Candidate]:
        """Return the replicas that devices in this *order* may be."""
        roles = self._wanted if role is None else (role,)
        return [one for own in roles for one in self._in_role(order, own, slots)]

    def _in_role(self, order: Order, role: Role, slots: int) -> list[Candidate]:
        costs = self._evaluator.costs
        most = min(slots or costs.problem.runtime.max_slots, costs.problem.runtime.max_slots)
        most = costs.problem.workload.slots or most
        micro = min(len(order), most) if costs.problem.runtime.is_pipelined else 1
        key = (order, role, most, micro)
        if key not in self._known:
            cuts: dict[Cut, None] = {}
            for num in dict.fromkeys((1,) if role is Role.PREFILL else (most, max(most // 4, 1))):
                work = (role, num, min(micro, num))
                found = recuts(costs, self._weights, self._old, order, work)
                cuts.update(dict.fromkeys(found))
            front = self._front(list(cuts), role)
            some = (fastest(self._evaluator, cut, role) for cut in front)
            self._known[key] = [one for one in some if one is not None]
        return self._known[key]

    def _front(self, cuts: Sequence[Cut], role: Role) -> list[Cut]:
        """Return the cuts of which no other serves as much and moves less."""
        figures = self._evaluator.candidates.figures
        rates = []
        for cut in cuts:
            if role is Role.PREFILL:
                rates.append(1.0 / figures.at(cut, 1).occupancy_s)
            else:
                rates.append(float(figures.rates(cut, role).max(initial=0.0)))
        order = sorted(range(len(cuts)), key=lambda i: (-rates[i], self.cut_bytes(cuts[i])))
        front: list[Cut] = []
        least = float("inf")
        for i in order:
            if rates[i] > 0 and self.cut_bytes(cuts[i]) < least:
                least = self.cut_bytes(cuts[i])
                front.append(cuts[i])
        return front

    def cut_bytes(self, cut: Cut) -> float:
        """Return what the devices of one cut must fetch [bytes]."""
        if cut not in self._bytes:
            self._bytes[cut] = self._weights.moved_bytes(self._old, self._weights.held([cut]))
        return self._bytes[cut]

    def moved_bytes(self, replicas: Replicas) -> float:
        """Return what the devices of *replicas* must fetch [bytes]."""
        return sum(self.cut_bytes(replica.cut) for replica in replicas)


def _order(replica: Candidate) -> Order:
    return tuple(d for d, _, _ in replica.cut)


def _without(order: Order, device: int) -> Order:
    return tuple(d for d in order if d != device)


def _with(order: Order, device: int) -> list[Order]:
    """Return *order* with one device more, at each of a few places."""
    places = dict.fromkeys(
        round(i * len(order) / min(len(order), _MOST_PLACES))
        for i in range(min(len(order), _MOST_PLACES) + 1)
    )
    return [(*order[:place], device, *order[place:]) for place in places]
