"""Local improvement of a finished outcome: other cuts, other roles, fewer replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2llm_opt.problem import Role
from e2llm_opt.search.adapted import OwnRates
from e2llm_opt.search.atlas import moved
from e2llm_opt.search.roles import ROLES_OF, Scope, engine_roles
from e2llm_opt.search.variant import all_variants

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2llm_opt.search.candidates import Candidate
    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.rules import Rules

_MAX_ROUNDS = 20
_NO_TRAFFIC = (1e-12, 1e-6)
"""Shares of the requests below which a replica counts as idle."""


def polish(
    evaluator: Evaluator,
    outcome: Outcome,
    scope: Scope,
    rules: Rules,
    is_late: Callable[[], bool] = bool,
) -> Outcome:
    """Return *outcome* after changes of single replicas, as long as its key improves.

    Replicas without traffic are dropped where that leaves the key as good (fewer devices). Once
    *is_late*, it is returned as it is by then.
    """
    best = outcome
    own_rates = OwnRates(evaluator.candidates)
    for _ in range(_MAX_ROUNDS):
        found = best
        for replicas in _changes(evaluator, best, scope, rules):
            if is_late():
                return found
            if scope is Scope.ADAPTED and not own_rates.is_obeyed(replicas):
                continue
            found = evaluator.better(replicas, found) or found
        if found is best:
            break
        best = found
    return best


def without_idle(evaluator: Evaluator, outcome: Outcome, rules: Rules) -> Outcome:
    """Return *outcome* without replicas that get no traffic, where that leaves the key as good."""
    for replicas in _without_idle(outcome, rules):
        outcome = evaluator.better(replicas, outcome) or outcome
    return outcome


def _changes(
    evaluator: Evaluator, outcome: Outcome, scope: Scope, rules: Rules
) -> Iterator[tuple[Candidate, ...]]:
    """Yield the outcome's replicas without idle ones, then with one changed or left out."""
    yield from _without_idle(outcome, rules)
    replicas = outcome.replicas
    for i, replica in enumerate(replicas):
        rest = (*replicas[:i], *replicas[i + 1 :])
        if rest and rules.may_drop(replica) and is_whole(rest):
            yield rest
        for other in _others(evaluator, replica, scope):
            changed = (*replicas[:i], other, *replicas[i + 1 :])
            if is_whole(changed):
                yield changed


def _without_idle(outcome: Outcome, rules: Rules) -> Iterator[tuple[Candidate, ...]]:
    """Yield the replicas without those that get no traffic, and without those that get little."""
    carried = sum(outcome.traffic.rates_per_s)
    for share in _NO_TRAFFIC:
        busy = tuple(
            replica
            for replica, rate in zip(outcome.replicas, outcome.traffic.rates_per_s, strict=True)
            if rate > share * carried or not rules.may_drop(replica)
        )
        if 0 < len(busy) < len(outcome.replicas) and is_whole(busy):
            yield busy


def is_whole(replicas: tuple[Candidate, ...]) -> bool:
    """Whether PREFILL and DECODE replicas are both there, or neither is."""
    roles = {replica.role for replica in replicas}
    return (Role.PREFILL in roles) == (Role.DECODE in roles)


def _others(evaluator: Evaluator, replica: Candidate, scope: Scope) -> Iterator[Candidate]:
    """Yield the same devices in every other role and cut that *scope* allows."""
    problem = evaluator.costs.problem
    wanted = problem.constraints.roles
    for role in engine_roles(problem):
        is_mixed = role is Role.MIXED
        is_unwanted = wanted != "auto" and is_mixed != (wanted == "mixed")
        if is_unwanted or role not in ROLES_OF[scope]:
            continue
        own = [evaluator.candidates.find(replica.group, role, v) for v in all_variants(problem)]
        for other in (*own, *evaluator.others(replica.group, role)):
            if other is None or other.num_devices != len(replica.group):
                continue
            old = evaluator.candidates.concrete(replica.group)
            placed = moved(other, old, replica.devices(evaluator.costs.classes.class_of, old))
            if (placed.role, placed.cut, placed.slots) != (
                replica.role,
                replica.cut,
                replica.slots,
            ):
                yield placed
