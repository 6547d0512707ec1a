"""Replicas that stay where they are: the same devices and layers, in the best roles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.evaluate import ROLE_CODES, ROLE_OF
from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.role_order import assignments, by_advantage, is_paired, neighbours
from e2llm_opt.search.roles import wanted_roles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.candidates import Candidates
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.role_order import Kinds

    Ranked = tuple[Key, tuple[int, ...]]
    Ways = Mapping[Role, Candidate]

_MAX_ASSIGNMENTS = 3**8
"""Most role assignments that are judged one by one."""
_MAX_MOVES = 20
"""Above that, the most changes of one role after one another."""
_MAX_FINALISTS = 100
"""Most assignments that are judged with their links, until none can be better."""


class Standing:
    """The replicas of a plan in a problem that may be another one than it was made for.

    No layer moves to another device: what changes is who prefills and who decodes, how many slots
    there are, and where requests go.

    Parameters
    ----------
    evaluator
        Of the problem.
    cuts
        Stages of each replica, on disjoint devices.
    """

    def __init__(self, evaluator: Evaluator, cuts: Sequence[Cut]) -> None:
        self._evaluator = evaluator
        self._ways: list[dict[Role, Candidate]] = [
            {role: one for role in Role if (one := fastest(evaluator, cut, role)) is not None}
            if cut
            else {}
            for cut in cuts
        ]

    def outcome(self, roles: Sequence[Role | None]) -> Outcome | None:
        """Return what the replicas are worth in *roles*; None: not used.

        None where a replica cannot play its role (memory, speed limits, no path between two
        stages), or PREFILL and DECODE are not both there.
        """
        used = [(ways, role) for ways, role in zip(self._ways, roles, strict=True) if role]
        if not used or not all(role in ways for ways, role in used):
            return None
        if not is_paired([ROLE_CODES[role] for _, role in used]):
            return None
        return self._evaluator.outcome([ways[role] for ways, role in used])

    def best(self, wanted: Sequence[Role] | None = None) -> Outcome | None:
        """Return the best outcome over all roles of all replicas; None where there is none.

        Replicas that cannot play any role are left out. Exact up to eight replicas or so: ranked
        with links left out, which is never worse than the truth, and judged until no other can be
        better. Beyond, by comparative advantage and changes of one role (DESIGN section 6).

        Parameters
        ----------
        wanted
            Roles that may be played; default: those that engine and constraints leave.
        """
        roles = wanted_roles(self._evaluator.costs.problem) if wanted is None else tuple(wanted)
        rows = [i for i, ways in enumerate(self._ways) if any(role in ways for role in roles)]
        if not rows:
            return None
        ways = [self._ways[i] for i in rows]
        options = [tuple(ROLE_CODES[r] for r in roles if r in own) for own in ways]
        best: Outcome | None = None
        least: Key = (IMPOSSIBLE,)
        for bound, codes in self._ranked(ways, options)[:_MAX_FINALISTS]:
            if bound >= least:
                break
            given: list[Role | None] = [None] * len(self._ways)
            for i, code in zip(rows, codes, strict=True):
                given[i] = ROLE_OF[code]
            outcome = self.outcome(given)
            if outcome is not None and self._evaluator.key(outcome) < least:
                best, least = outcome, self._evaluator.key(outcome)
        return best

    def _ranked(self, ways: Sequence[Ways], options: Sequence[tuple[int, ...]]) -> list[Ranked]:
        """Return assignments of role codes with their keys, the best first."""
        kinds = self._kinds(ways, options)
        size = math.prod(math.comb(len(own) + len(may) - 1, len(own)) for own, may in kinds)
        if size <= _MAX_ASSIGNMENTS:
            return self._best_of(ways, list(assignments(kinds, len(ways))))
        order = np.argsort([self._advantage(own) for own in ways], kind="stable")
        best = self._best_of(ways, list(by_advantage(order, options)))
        for _ in range(_MAX_MOVES if best else 0):
            start = best[0]
            best = self._best_of(ways, [start[1], *neighbours(start[1], options)])
            if best[0] == start:
                break
        return best

    def _kinds(self, ways: Sequence[Ways], options: Sequence[tuple[int, ...]]) -> Kinds:
        """Return which replicas are alike: the same layers on devices of the same classes."""
        alike: dict[object, list[int]] = {}
        for i, (own, may) in enumerate(zip(ways, options, strict=True)):
            kind = self._evaluator.kind(next(iter(own.values())).cut)
            alike.setdefault((kind, may), []).append(i)
        return tuple((tuple(rows), options[rows[0]]) for rows in alike.values())

    def _advantage(self, ways: Ways) -> float:
        """Return decode rate over prefill rate: small where prefill is the better use."""
        first, second = ways.get(Role.PREFILL), ways.get(Role.DECODE)
        if first is None or second is None:
            return math.inf if first is None else 0.0
        return second.service_rate(self._evaluator.costs.output_tokens) * first.occupancy_s

    def _best_of(self, ways: Sequence[Ways], rows: Sequence[Sequence[int]]) -> list[Ranked]:
        """Return the role codes *rows* with their keys, links left out, the best first."""
        if not rows:
            return []
        codes = np.array(rows, dtype=np.int64)
        keys = self._evaluator.screen_given(ways, codes)
        order = np.lexsort(keys.T[::-1])
        return [
            (tuple(keys[i].tolist()), tuple(codes[i].tolist()))
            for i in order
            if keys[i, 0] < IMPOSSIBLE
        ]


def fastest(evaluator: Evaluator, cut: Cut, role: Role) -> Candidate | None:
    """Return the replica of *cut* in *role*, with the slots that serve most requests.

    None where it breaks memory or a speed limit, or has no path between two stages.
    """
    candidates, problem = evaluator.candidates, evaluator.costs.problem
    if role is Role.PREFILL or problem.objective is Objective.MAX_CONTEXT:
        return candidates.at_cut(cut, role)
    rates = candidates.figures.rates(cut, role)
    return candidates.at_cut(cut, role, int(rates.argmax()) + 1) if rates.any() else None


def as_planned(
    candidates: Candidates, plan: Plan, cuts: Sequence[Cut]
) -> tuple[Candidate | None, ...]:
    """Return the replicas of *plan* on their *cuts*: its roles, slots and spilled layers.

    As many slots as are fast enough; None for one that has no stages or breaks a limit.
    """
    return tuple(
        candidates.at_cut(cut, Role(replica.role), replica.slots, replica.spilled) if cut else None
        for cut, replica in zip(cuts, plan.replicas, strict=True)
    )


def cuts_of(costs: Costs, plan: Plan) -> tuple[Cut, ...]:
    """Return the stages of each replica of *plan* as rows of the problem's cost tables.

    A replica with a device that the problem lacks, or excludes, or on devices that cannot serve a
    stage together, has no stages: ().
    """
    excluded = set(costs.problem.constraints.exclude)
    rows = {
        device.name: d
        for d, device in enumerate(costs.problem.devices)
        if device.name not in excluded
    }
    found = []
    for replica in plan.replicas:
        units = [
            costs.units.row([rows[name] for name in stage.devices])
            if all(name in rows for name in stage.devices)
            else None
            for stage in replica.stages
        ]
        cut = tuple(
            (unit, *stage.layers)
            for unit, stage in zip(units, replica.stages, strict=True)
            if unit is not None
        )
        found.append(cut if len(cut) == len(units) else ())
    return tuple(found)
