"""The best choices seen so far, in each scope, until their links are looked at."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from e2llm_opt.search.ranking import IMPOSSIBLE
from e2llm_opt.search.roles import MOST_CHOICES, Scope

if TYPE_CHECKING:
    from collections.abc import Iterable

    from e2llm_opt.search.evaluate import Evaluator, Outcome
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.roles import Choice

_NUM_KEPT = {
    Scope.ANY: MOST_CHOICES,
    Scope.MIXED: 32,
    Scope.DISAGGREGATED: 32,
    Scope.ADAPTED: 32,
}


class Archive:
    """A short sorted list of choices a scope."""

    def __init__(self) -> None:
        self._kept: dict[Scope, list[Choice]] = {scope: [] for scope in Scope}
        self._known: dict[Scope, set[tuple[object, ...]]] = {scope: set() for scope in Scope}

    def offer(self, found: dict[Scope, list[Choice]]) -> None:
        """Take choices in, if they are among the best."""
        for scope, choices in found.items():
            kept, known = self._kept[scope], self._known[scope]
            for choice in choices:
                name = choice.sort_key
                if name in known or (len(kept) >= _NUM_KEPT[scope] and name >= kept[-1].sort_key):
                    continue
                insort(kept, choice, key=lambda c: c.sort_key)
                known.add(name)
                for dropped in kept[_NUM_KEPT[scope] :]:
                    known.remove(dropped.sort_key)
                del kept[_NUM_KEPT[scope] :]

    def worst(self) -> dict[Scope, Key]:
        """Return the key that a choice must not exceed to be taken in; none where all are."""
        return {
            scope: kept[-1].key
            for scope, kept in self._kept.items()
            if len(kept) >= _NUM_KEPT[scope]
        }

    def choices(self, scope: Scope) -> tuple[Choice, ...]:
        """Return the choices of *scope*, best first."""
        return tuple(self._kept[scope])

    def best(self, scope: Scope, evaluator: Evaluator) -> Outcome | None:
        """Return the best outcome of *scope*, links included.

        Keys in the archive leave links out, so they are never worse than the truth: the walk
        ends where no later choice can win.
        """
        return _first_true(self._kept[scope], evaluator)


def _first_true(choices: Iterable[Choice], evaluator: Evaluator) -> Outcome | None:
    best: tuple[tuple[float, ...], Outcome] | None = None
    for choice in choices:
        if best is not None and best[0] <= choice.key:
            break
        placed = evaluator.place(choice.groups, choice.roles, choice.variant)
        if placed is None:
            continue
        outcome = evaluator.outcome(placed)
        key = evaluator.key(outcome)
        if key[0] < IMPOSSIBLE and (best is None or key < best[0]):
            best = key, outcome
    return None if best is None else best[1]
