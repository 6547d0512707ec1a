"""The best capacity that any plan could have, and the packings that come closest to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from e2llm_opt.problem import Role
from e2llm_opt.search.columns import CLOSE, EXACT
from e2llm_opt.search.multisets import enumerated
from e2llm_opt.search.packing import Packing, Side, repeated
from e2llm_opt.search.refine import Refiner
from e2llm_opt.search.unit_relaxation import UnitRelaxation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.partition.relax.large import Large
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.candidates import Candidates
    from e2llm_opt.search.packing import Solved
    from e2llm_opt.search.rules import Rules

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Roles: TypeAlias = "tuple[tuple[Group, Role], ...]"
"""Groups in their roles."""
MAX_GROUPS = 12_000
"""Most groups that are enumerated, the smallest first, unless more are asked for."""
_MAX_AT_ONCE = 400
"""Columns that enter the program together."""
_ALL_AT_ONCE = 1500
_NUM_NEXT = 16
"""Columns made exact beside those of an optimum with whole replicas."""
_MANY_COLUMNS = 500
"""With more, HiGHS takes so long that twice as many are made exact each time."""
_SHARE_OF_GAP, _LEAST_SHARE = 0.2, 0.02
"""Of the gap that is left: HiGHS need not be more precise while columns are not exact."""
_MAX_NODES, _FEW_NODES = 20_000, 200
_SOME = 1e-7
"""More than the rounding of nothing."""


class CapacityBound:
    """Lazy columns: over-estimated at first, made exact one by one where they decide.

    Every group up to some size is enumerated with a rate that it cannot exceed; larger ones are
    over-estimated together. The linear program over these is a bound. As long as its optimum takes
    columns that are not exact, they are refined, and it is solved again; then the same with whole
    replicas. When all columns of that optimum are exact, it is the best capacity there is.

    Parameters
    ----------
    candidates
        The store of replicas, and of columns.
    rules
        Which groups the constraints allow.
    roles
        That replicas may play.
    replicas
        Exactly so many; None: any number.
    max_groups
        Most groups that are enumerated.

    Attributes
    ----------
    roles
        That replicas may play.
    value
        No plan has more [1/s].
    packings
        Groups and roles of the packings found, the latest last.
    relaxation, refiner
        What over-estimates columns, and what makes them exact.
    """

    def __init__(
        self,
        candidates: Candidates,
        rules: Rules,
        roles: Sequence[Role],
        replicas: int | None,
        max_groups: int,
    ) -> None:
        self._candidates, self._columns = candidates, candidates.columns
        self.roles = tuple(roles)
        self._classes = sorted(candidates.rows)
        available = np.array([float(len(candidates.rows[k])) for k in self._classes])
        must = np.array([float(rules.must.get(k, 0)) for k in self._classes])
        self._side = Side(available=available, must=must, replicas=replicas)
        groups, self._largest = enumerated(available.astype(np.int64), max_groups)
        self._groups = [
            group
            for group in (tuple(self._classes[i] for i in one) for one in groups)
            if rules.allows_group(group)
        ]
        self.relaxation = UnitRelaxation(candidates, self._largest)
        places = {k: i for i, k in enumerate(self._classes)}
        self.refiner = Refiner(candidates, self.relaxation)
        self._counts = np.zeros((len(self._groups), len(places)), dtype=np.int64)
        members = [(g, places[k]) for g, group in enumerate(self._groups) for k in group]
        np.add.at(self._counts, tuple(np.array(members, dtype=np.int64).reshape(-1, 2).T), 1)
        self._is_precise: set[int] = set()
        self._is_refined: set[int] = set()
        self._deadline, self._left = np.inf, 0
        self._known, self._gap, self._ceiling, self._has_large = 0.0, 0.0, np.inf, True
        self.value = np.inf
        self.packings: list[Roles] = []
        self._build()

    def _build(self) -> None:
        """Over-estimate every column; MIXED ones crudely, by the best of each phase."""
        relaxation, counts = self.relaxation, self._counts
        phases = (Role.PREFILL, Role.DECODE)
        rates: dict[Role, Floats] = {
            role: relaxation.rates_of_phase(role, counts) for role in phases
        }
        with np.errstate(divide="ignore"):
            rates[Role.MIXED] = 1.0 / (1.0 / rates[Role.PREFILL] + 1.0 / rates[Role.DECODE])
        for role in set(self.roles) - {Role.MIXED}:
            cards = np.minimum(relaxation.rates_of_cards(role, counts), self._let_through(role))
            rates[role] = np.minimum(rates[role], cards)
        self._keys: list[tuple[int, Role]] = [
            (g, role) for role in self.roles for g in range(len(self._groups)) if rates[role][g] > 0
        ]
        self._upper = np.array([rates[role][g] for g, role in self._keys])
        self._rows = np.array([g for g, _ in self._keys], dtype=np.int64)
        self._is_first = np.array([role is not Role.DECODE for _, role in self._keys], dtype=float)
        self._is_second = np.array([role is not Role.PREFILL for _, role in self._keys], float)
        for v in range(len(self._keys)):
            self._note(v)
        size = self._largest + 1
        self._large: tuple[Large, ...] = ()
        if size <= self._side.available.sum():
            self._large = tuple(one for role in self.roles for one in relaxation.large(role, size))

    def _let_through(self, role: Role) -> Floats:
        """Return the requests a second whose KV caches the devices of each group let through."""
        heads = [self._candidates.rows[k][0] for k in self._classes]
        single = self._candidates.kv_limits.of_classes(role, heads)
        limited = np.where(np.isfinite(single), single, 0.0)
        total: Floats = self._counts.astype(np.float64) @ limited
        return np.where(self._counts[:, ~np.isfinite(single)].any(axis=1), np.inf, total)

    def packing_of(self, roles: Sequence[Role]) -> list[Roles]:
        """Return a good packing of replicas in *roles* alone, over columns as they are known."""
        own = np.array([self._keys[v][1] in roles for v in range(len(self._keys))], dtype=bool)
        places = np.flatnonzero(own)
        if len(places) > _ALL_AT_ONCE:
            size = self._counts[self._rows[places]].sum(axis=1)
            order = np.argsort(-self._upper[places] / size, kind="stable")
            places = places[order[:_MAX_AT_ONCE]]
        self._has_large = False
        found = self._program(places).whole(np.inf, _FEW_NODES) if len(places) else None
        if found is None or found.value <= 0:
            return []
        taken = [self._keys[v] for v in repeated(places.tolist(), found.x)]
        return [tuple(sorted((self._groups[g], role) for g, role in taken))]

    def _note(self, v: int) -> None:
        """Take what the store knows of column *v*."""
        g, role = self._keys[v]
        self._upper[v] = min(self._upper[v], self._columns.upper(self._groups[g], role))

    def run(
        self,
        known: float,
        *,
        refinements: int,
        is_whole: bool = True,
        deadline: float = np.inf,
        gap: float = 0.0,
        is_last: bool = True,
    ) -> Iterator[None]:
        """Lower the bound until it meets the best packing, or limits are reached, step by step.

        Parameters
        ----------
        known
            Capacity of the best plan so far [1/s].
        refinements
            Columns made exact at most.
        is_whole
            Whether replicas must be whole; else the linear program is all.
        deadline
            By the monotonic clock [s].
        gap
            Ends where the bound exceeds the best by no more than this share of itself.
        is_last
            Whether nobody looks at more groups after this; else what is over-estimated together
            is only bounded once.
        """
        self._deadline, self._left = deadline, refinements
        self._known, self._gap = known, gap
        for has_large in (False, True) if self._large and is_whole else (True,):
            self._has_large, self._ceiling = has_large, np.inf
            solved = self._relaxed()
            if has_large and not is_last:
                return
            whole = refinements // 2 if is_whole else 0  # kept for whole replicas
            while not self._is_close() and self._left > whole and self._refine_basis(solved):
                yield
                solved = self._relaxed()
            if is_whole:
                yield from self._whole(solved)

    @property
    def num_classes(self) -> int:
        """Classes of devices."""
        return len(self._classes)

    @property
    def known(self) -> float:
        """Capacity of the best packing so far [1/s]."""
        return self._known

    @property
    def has_large(self) -> bool:
        """Whether some groups are over-estimated together."""
        return bool(self._large)

    @property
    def gap(self) -> float:
        """How far the best packing is below the bound, as a share of that."""
        return 1.0 - self._known / self.value if 0 < self.value < np.inf else 1.0

    @property
    def is_closed(self) -> bool:
        """Whether the best packing found, links left out, has as much as the bound says."""
        return self._known >= self.value * (1 - CLOSE)

    def _is_close(self) -> bool:
        """Whether the best packing meets the bound, that of the enumerated groups at first."""
        return self._known >= self._ceiling * (1 - max(self._gap, 2 * EXACT))

    def _lower(self, value: float) -> None:
        """Take a bound on the packings of the groups that are looked at."""
        self._ceiling = min(self._ceiling, max(value, self._known, 0.0) * (1 + 1e-9))
        if self._has_large or not self._large:
            self.value = min(self.value, self._ceiling)

    def _is_over(self) -> bool:
        return self._left <= 0 or time.monotonic() > self._deadline

    def _relaxed(self) -> Solved:
        """Solve the linear program over all columns, those that matter added step by step."""
        chosen = self._start()
        while True:
            solved = self._program(chosen).relaxed()
            worth = self._reduced(solved)
            worth[chosen] = -np.inf
            entering = np.flatnonzero(worth > 1e-9 * max(solved.value, 1e-12))
            if solved.value == -np.inf or len(entering) == 0:
                break
            best = entering[np.argsort(-worth[entering], kind="stable")[:_MAX_AT_ONCE]]
            chosen = np.concatenate([chosen, best])
        x = np.zeros(len(self._keys))
        x[chosen] = solved.x
        self._lower(solved.value)
        return solved._replace(x=x)

    def _start(self) -> Ints:
        """Return the columns that the program starts with."""
        num = len(self._keys)
        if num <= _ALL_AT_ONCE:
            return np.arange(num)
        size = self._counts[self._rows].sum(axis=1)
        order = np.argsort(-self._upper / size, kind="stable")
        return np.unique(np.concatenate([np.flatnonzero(size == 1), order[:_MAX_AT_ONCE]]))

    def _program(self, chosen: Ints) -> Packing:
        upper = self._upper[chosen]
        gives = np.stack([upper * self._is_first[chosen], upper * self._is_second[chosen]], axis=1)
        counts = self._counts[self._rows[chosen]].astype(float)
        return Packing(counts, gives, self._side, self._large if self._has_large else ())

    def _reduced(self, solved: Solved) -> Floats:
        """Return what a replica of each column adds to the program, its devices paid for [V]."""
        prices, num = solved.prices, len(self._classes)
        worth = prices[0] * self._is_first + prices[1] * self._is_second
        paid = self._counts @ prices[2 : 2 + num] + prices[2 + num]
        found: Floats = self._upper * worth - paid[self._rows]
        return found

    def _refine_basis(self, solved: Solved) -> bool:
        """Make more precise what an optimum takes; whether anything was done."""
        taken = np.flatnonzero(solved.x > _SOME)
        return self._sharpen(taken[np.argsort(-solved.x[taken], kind="stable")])

    def _sharpen(self, taken: Ints) -> bool:
        """Make these columns more precise, those that were not yet; whether anything was done."""
        crude = [v for v in taken.tolist() if self._keys[v][1] is Role.MIXED]
        crude = [v for v in crude if v not in self._is_precise]
        if crude:
            rates = self.relaxation.rates(Role.MIXED, self._counts[self._rows[crude]])
            self._upper[crude] = np.minimum(self._upper[crude], rates)
            self._is_precise.update(crude)
            return True
        is_done = False
        for v in taken.tolist():
            if v in self._is_refined or self._is_over():
                continue
            g, role = self._keys[v]
            self.refiner.refine(self._groups[g], role)
            self._is_refined.add(v)
            self._left -= 1
            self._note(v)
            is_done = True
        return is_done

    def _whole(self, solved: Solved) -> Iterator[None]:
        """Solve with whole replicas over the columns that may take part, until all are exact."""
        ceiling, is_whole, share = solved.value, False, _SHARE_OF_GAP
        more = _NUM_NEXT
        while not self._is_close() and ceiling > 0:
            worth = self._reduced(solved)
            chosen = np.flatnonzero(worth + ceiling >= self._known)
            is_part = len(chosen) > _ALL_AT_ONCE
            if is_part and is_whole:  # the best there is of those that are looked at
                if share <= _LEAST_SHARE:
                    return
                share = _LEAST_SHARE
            if is_part:
                best = np.argsort(-worth[chosen], kind="stable")[:_MAX_AT_ONCE]
                chosen = np.sort(chosen[best])
            limit = self._deadline - time.monotonic()
            gap = share * max(0.0, 1.0 - self._known / self._ceiling)
            found = self._program(chosen).whole(limit, _MAX_NODES, gap)
            if not is_part:
                self._lower(found.bound)
            if found.value <= 0:
                return
            is_new = self._sharpen(chosen[found.x > _SOME])
            if is_new:
                self._sharpen(self._next(worth, more))
                more *= 2 if len(chosen) > _MANY_COLUMNS else 1
            self._take(chosen, found.x)
            yield
            is_whole = not is_new
            if is_whole and not is_part:
                if gap == 0.0:
                    return
                share = 0.0  # all of it is exact: what is left is the solver's own gap

    def _next(self, worth: Floats, num: int) -> Ints:
        """Return the most promising columns that are not exact: they would be taken next."""
        order = np.argsort(-worth, kind="stable")
        return np.array([v for v in order.tolist() if v not in self._is_refined][:num], int)

    def _take(self, chosen: Ints, x: Floats) -> None:
        """Keep a packing, its groups without the devices that idle, and its true capacity."""
        taken: list[tuple[Group, Role]] = []
        given = np.zeros(2)
        for v, times in zip(chosen.tolist(), x.tolist(), strict=True):
            g, role = self._keys[v]
            replica = self._columns.best(self._groups[g], role) if times > _SOME else None
            if replica is None:
                continue
            rate = self._columns.rate(self._groups[g], role)
            given += rate * times * np.array([self._is_first[v], self._is_second[v]])
            taken += [(self._candidates.without_idle(replica), role)] * round(times)
        if taken:
            self.packings.append(tuple(sorted(taken)))
            self._known = max(self._known, float(given.min()))
