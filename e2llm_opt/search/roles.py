"""Which replica plays which role: exact by enumeration, by comparative advantage beyond."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.problem import Role
from e2llm_opt.search.adapted import OwnRates
from e2llm_opt.search.evaluate import ROLE_CODES, ROLE_OF
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.role_order import assignments, by_advantage, neighbours, splits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.evaluate import Evaluator, Roled
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.role_order import Kinds
    from e2llm_opt.search.variant import Variant

    Ints = NDArray[np.int64]

_MAX_ASSIGNMENTS = 3**8
"""Most role assignments that are judged one by one: all that eight unlike replicas can have."""
_NONE: MappingProxyType[Scope, Key] = MappingProxyType({})
MOST_CHOICES = 256
"""Most choices of a scope that are returned, or kept."""
_NUM_RUNNERS_UP = 4
"""Assignments kept of each grouping: a link may spoil the best."""


def engine_roles(problem: Problem) -> tuple[Role, ...]:
    """Return the roles that the engine can play."""
    return tuple(Role) if problem.runtime.has_disaggregation else (Role.MIXED,)


def wanted_roles(problem: Problem) -> tuple[Role, ...]:
    """Return the roles that engine and constraints leave."""
    wanted = problem.constraints.roles
    return tuple(
        role
        for role in engine_roles(problem)
        if wanted == "auto" or (role is Role.MIXED) == (wanted == "mixed")
    )


class Scope(StrEnum):
    """Which assignments are compared with each other."""

    ANY = "any"
    """Whatever the constraints allow: the plan itself."""
    MIXED = "mixed"
    """All replicas MIXED."""
    DISAGGREGATED = "disaggregated"
    """PREFILL and DECODE only."""
    ADAPTED = "adapted"
    """The same, by the rule of the adapted Splitwise: see :mod:`e2llm_opt.search.adapted`."""


ROLES_OF = {
    Scope.ANY: tuple(Role),
    Scope.MIXED: (Role.MIXED,),
    Scope.DISAGGREGATED: (Role.PREFILL, Role.DECODE),
    Scope.ADAPTED: (Role.PREFILL, Role.DECODE),
}
"""Roles that the assignments of a scope are made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Groups in roles, and their key with links left out."""

    key: Key
    groups: tuple[Group, ...]
    roles: tuple[Role, ...]
    variant: Variant

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Key first; groups and roles decide between equals, whatever was seen first."""
        return (self.key, len(self.groups), self.groups, self.roles, self.variant)


class RoleChooser:
    """Finds the best roles of a set of groups.

    Parameters
    ----------
    evaluator
        Judges them.
    roles
        Those that may be played.
    max_assignments
        Above so many assignments, roles go by comparative advantage and local moves.
    max_moves
        Of these, the most after one another.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        roles: tuple[Role, ...],
        max_assignments: int = _MAX_ASSIGNMENTS,
        max_moves: int = 20,
    ) -> None:
        self._evaluator = evaluator
        self._roles = roles
        self._wanted = evaluator.costs.problem.constraints.roles
        self._max_assignments, self._max_moves = max_assignments, max_moves
        self._own_rates = OwnRates(evaluator.candidates)
        self._known: dict[Kinds, Ints] = {}
        self._options: dict[tuple[Group, Variant], tuple[int, ...]] = {}

    def best(
        self, groups: Sequence[Group], variant: Variant, hopeless: Key | None = None
    ) -> dict[Scope, list[Choice]]:
        """Return the best assignments in which every group has a role, for each scope, best first.

        Parameters
        ----------
        groups
            Disjoint groups.
        variant
            Which cuts.
        hopeless
            Where not all assignments can be judged, and the first ones have a greater key, no
            more are tried.
        """
        rows = self.assignments(groups, variant)
        if rows is not None:
            return self._pick([(groups, rows)], variant)
        options = [self.options(group, variant) for group in groups]
        if not groups or not all(options):
            return {}
        return self._by_advantage(groups, variant, options, hopeless)

    def given(
        self, groups: Sequence[Group], roles: Sequence[Role], variant: Variant
    ) -> dict[Scope, list[Choice]]:
        """Return *groups* in *roles* as a choice: links may make it better than it looks."""
        codes = np.array([[ROLE_CODES[role] for role in roles]], dtype=np.int64)
        options = [self.options(group, variant) for group in groups]
        if not all(code in own for code, own in zip(codes[0].tolist(), options, strict=True)):
            return {}
        return self._pick([(groups, codes)], variant)

    def best_of(
        self, sets: Sequence[Roled], variant: Variant, worst: Mapping[Scope, Key]
    ) -> dict[Scope, list[Choice]]:
        """Return the best of many sets of groups in the roles of :meth:`assignments`, at once."""
        return self._pick(sets, variant, worst)

    def assignments(self, groups: Sequence[Group], variant: Variant) -> Ints | None:
        """Return all role codes of *groups* [A, R]; None where there are too many, or none."""
        options = [self.options(group, variant) for group in groups]
        if not groups or not all(options):
            return None
        places: dict[Group, list[int]] = {}
        for i, group in enumerate(groups):
            places.setdefault(group, []).append(i)
        kinds = tuple((tuple(own), options[own[0]]) for own in places.values())
        size = math.prod(math.comb(len(own) + len(ways) - 1, len(own)) for own, ways in kinds)
        if size > self._max_assignments:
            return None
        if kinds not in self._known:
            rows = np.array(list(assignments(kinds, len(groups))), dtype=np.int64)
            self._known[kinds] = rows.reshape(-1, len(groups))
        return self._known[kinds]

    def likely(self, groups: Sequence[Group], variant: Variant) -> Ints:
        """Return role codes of *groups* by comparative advantage [A, R]; each must have options."""
        options = [self.options(group, variant) for group in groups]
        pool = self._evaluator.pool(groups, variant)
        slots = np.maximum(pool.decode_slots, 1)
        full = pool.decode_tpot[np.arange(len(groups)), slots - 1]
        order = np.argsort(-(full / slots) / pool.occupancy, kind="stable")
        by_prompt = np.argsort(
            [self._own_rates.occupancy(group) for group in groups], kind="stable"
        )
        codes_of = [*by_advantage(order, options), *splits(by_prompt, options)]
        return np.array(codes_of, dtype=np.int64).reshape(-1, len(groups))

    def options(self, group: Group, variant: Variant) -> tuple[int, ...]:
        """Return the role codes that a group can play with layers on every device."""
        key = (group, variant)
        if key not in self._options:
            find = self._evaluator.candidates.find
            found = [(role, find(group, role, variant)) for role in self._roles]
            self._options[key] = tuple(
                ROLE_CODES[role]
                for role, candidate in found
                if candidate is not None and candidate.num_devices == len(group)
            )
        return self._options[key]

    def part(self, group: Group, variant: Variant) -> Group:
        """Return the classes of *group* that get layers in some role; empty where none can be."""
        for role in self._roles:
            found = self._evaluator.candidates.find(group, role, variant)
            if found is not None:
                return self._evaluator.costs.group(found.cut)
        return ()

    def _pick(
        self, sets: Sequence[Roled], variant: Variant, worst: Mapping[Scope, Key] = _NONE
    ) -> dict[Scope, list[Choice]]:
        """Return the best assignments of all *sets*, a few of each."""
        sets = [(groups, rows) for groups, rows in sets if len(rows)]
        if not sets:
            return {}
        _, keys = self._evaluator.screen(sets, variant)
        owner = np.repeat(np.arange(len(sets)), [len(rows) for _, rows in sets])
        first = np.searchsorted(owner, np.arange(len(sets)))
        is_mixed = np.concatenate([(rows == kernel.MIXED).all(axis=1) for _, rows in sets])
        is_split = np.concatenate([(rows != kernel.MIXED).all(axis=1) for _, rows in sets])
        order = np.lexsort(keys.T[::-1])
        order = order[keys[order, 0] < IMPOSSIBLE]
        is_any = {"mixed": is_mixed, "disaggregated": is_split}.get(self._wanted)
        obeys = self._own_rates.obeys
        is_adapted = is_split & np.concatenate([obeys(*roled, variant) for roled in sets])

        def choices(scope: Scope, chosen: Ints) -> Iterator[Choice]:
            taken = [0] * len(sets)
            for row in chosen.tolist():
                key, k = tuple(keys[row].tolist()), int(owner[row])
                if scope in worst and key > worst[scope]:
                    return
                taken[k] += 1
                if taken[k] <= _NUM_RUNNERS_UP:
                    groups, rows = sets[k]
                    roles = tuple(ROLE_OF[code] for code in rows[row - first[k]].tolist())
                    yield Choice(key=key, groups=tuple(groups), roles=roles, variant=variant)

        found = {
            scope: list(islice(choices(scope, chosen), MOST_CHOICES))
            for scope, chosen in (
                (Scope.ANY, order if is_any is None else order[is_any[order]]),
                (Scope.MIXED, order[is_mixed[order]]),
                (Scope.DISAGGREGATED, order[is_split[order]]),
                (Scope.ADAPTED, order[is_adapted[order]]),
            )
        }
        return {scope: kept for scope, kept in found.items() if kept}

    def _by_advantage(
        self,
        groups: Sequence[Group],
        variant: Variant,
        options: list[tuple[int, ...]],
        hopeless: Key | None,
    ) -> dict[Scope, list[Choice]]:
        """Sort by prefill rate / decode rate: PREFILL in front, DECODE behind, MIXED between.

        Optimal for the divisible problem; then any one role is changed while that helps, unless
        the start is hopeless.
        """
        start = self.likely(groups, variant)
        found = self._pick([(groups, start)], variant)
        for _ in range(self._max_moves):
            if Scope.ANY not in found:
                break
            if hopeless is not None and found[Scope.ANY][0].key > hopeless:
                break
            codes = [ROLE_CODES[role] for role in found[Scope.ANY][0].roles]
            rows = np.array(list(neighbours(codes, options)), dtype=np.int64)
            other = self._pick([(groups, rows.reshape(-1, len(groups)))], variant)
            is_better = Scope.ANY in other and other[Scope.ANY][0].key < found[Scope.ANY][0].key
            for scope, choices in other.items():
                merged = {choice.sort_key: choice for choice in [*found.get(scope, []), *choices]}
                found[scope] = [merged[key] for key in sorted(merged)[:_NUM_RUNNERS_UP]]
            if not is_better:
                break
        return found
