"""The third step: layers and groups, by local search around what stands and what a search found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.replan.differences import changed_devices
from e2llm_opt.replan.mover import Mover, best_of
from e2llm_opt.replan.naming import named
from e2llm_opt.replan.neighbours import Neighbours
from e2llm_opt.replan.option import Option, option_of
from e2llm_opt.replan.weights import NOTHING
from e2llm_opt.search.polish import is_whole
from e2llm_opt.search.progress import Interruption
from e2llm_opt.search.standing import Standing
from e2llm_opt.search.stop import Stop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.replan.answer import Difference
    from e2llm_opt.replan.mover import Effort, Near
    from e2llm_opt.replan.terms import ReplanTerms
    from e2llm_opt.replan.today import Today
    from e2llm_opt.search.candidate import Candidate
    from e2llm_opt.search.evaluate import Outcome

_SMALL = 6
"""Up to so many devices an ordinary search, too, says where to go."""
_NUM_FINALISTS = 10
"""Plans whose way is worked out."""
_NUM_THRIFTY = 3
"""Of these, plans that are about as good as the best, and move least."""
_NUM_STARTS = 6
"""Plans of an ordinary search from which changes are tried."""
_AS_GOOD = 0.02
"""Of plans whose gain is that close, relatively, the one that moves least is taken."""


_ROLE_ROUNDS = 6
"""Changes of one role or of slots after one another."""
_UNIT = 0.25
"""In which plans are compared, in what is worth counting at all."""


class Layers:
    """Looks for the plan whose gain exceeds its price most.

    Parameters
    ----------
    today
        The plan as it stands.
    terms
        Limits.
    found
        What changed.

    Attributes
    ----------
    mover
        Has every plan that was looked at.
    hot
        Devices that changed, or whose pipeline does not serve.
    is_interrupted
        Whether Ctrl-C ended the search: then the best until then was chosen.
    """

    is_interrupted = False

    def __init__(
        self,
        today: Today,
        terms: ReplanTerms,
        found: tuple[Difference, ...],
    ) -> None:
        self._today, self._terms = today, terms
        self._known: Sequence[Option] = ()
        self._reached = today.loss
        search = today.search
        self._neighbours = Neighbours(
            today.evaluator, today.weights, today.old, search.devices, today.broken
        )
        self.mover = Mover(
            search,
            weights=today.weights,
            losses=today.losses,
            neighbours=self._neighbours,
            before=today.routed,
            old=today.old,
            terms=terms,
        )
        names = changed_devices(found, terms.noise)
        changed = {d for d in search.devices if today.problem.devices[d].name in names}
        self.hot = frozenset(changed.union(*today.broken))

    def roles(self, effort: Effort) -> Outcome | None:
        """Return the best roles and slots of what stands; None where nothing is possible."""
        today = self._today
        best = Standing(today.evaluator, today.cuts).best()
        starts = [today.standing, *([] if best is None else [best.replicas])]
        few = replace(effort, rounds=_ROLE_ROUNDS, judged=effort.judged // 2, is_for_roles=True)
        with Interruption() as interruption:
            for start in starts:
                if is_whole(start):
                    self._climb(start, few)
        self.is_interrupted = interruption.happened
        found = [one for one in self.mover.found if one.num_bytes == 0]
        near = min(found, key=lambda one: one.total, default=None)
        return None if near is None else near.outcome

    def best(
        self, known: Sequence[Option], seed: int, stop: Stop | None, effort: Effort
    ) -> Option | None:
        """Return the best plan that moves layers, or what is *known* where none is better."""
        self._known = known
        best = max(known, key=lambda one: one.net, default=None)
        self._reached = self._today.loss - (best.gain if best is not None else 0.0)
        if best is not None and (self._is_hopeless() or self.is_interrupted):
            return replace(best, step="layers")
        with Interruption() as interruption:
            self._look(seed, stop, effort)
        self.is_interrupted = interruption.happened
        return self._chosen()

    def _look(self, seed: int, stop: Stop | None, effort: Effort) -> None:
        """Look for plans near those that are known, and near those of an ordinary search."""
        today = self._today
        best = max(self._known, key=lambda one: one.net, default=None)
        standing = today.standing if is_whole(today.standing) else ()
        self._climb(best.outcome.replicas if best is not None else standing, effort)
        is_small = len(today.search.devices) <= _SMALL
        if stop is not None or is_small or not self.mover.found:
            today.planner.run(stop or Stop(), seed)
            for outcome in today.planner.ranked(_NUM_STARTS):
                self._climb(self.named(outcome), effort)
        for near in best_of(self._found(), 1):
            self._save(near, effort)

    def _is_hopeless(self) -> bool:
        """Whether nothing that is worth counting can be gained any more."""
        is_fine = self._reached <= self._today.losses.least
        return is_fine or (self._today.is_quiet and not self._today.may_use_idle)

    def _climb(self, start: tuple[Candidate, ...], effort: Effort) -> None:
        unit = self._today.losses.least * _UNIT
        self.mover.climb(
            start, self.hot, effort, lambda near: (round(near.total / unit), near.num_bytes)
        )

    def named(self, outcome: Outcome) -> tuple[Candidate, ...]:
        """Return the replicas of *outcome* on those of equal devices that need the fewest bytes."""
        candidates, today = self._today.evaluator.candidates, self._today
        cuts = [c.cut for c in outcome.replicas]
        others = named(candidates.costs, today.weights, today.old, cuts, candidates.rows)
        found = [
            candidates.at_cut(cut, c.role, c.slots, c.spilled)
            for cut, c in zip(others, outcome.replicas, strict=True)
        ]
        whole = tuple(one for one in found if one is not None)
        return whole if len(whole) == len(found) else outcome.replicas

    def _chosen(self) -> Option | None:
        """Return the option with the most gain less price.

        Of those as good, one on whose way a stable plan serves throughout, then the fewest bytes.
        """
        finalists = self._finalists(self._found())
        options = [one for near in finalists if (one := self._within(near)) is not None]
        options += [replace(one, step="layers") for one in self._known]
        best = max((one.net for one in options), default=0.0)
        least = best - self._slack(best - (self._today.loss - self._reached))
        good = [one for one in options if one.net >= least]
        return min(
            good,
            key=lambda one: (not one.way.is_stable, one.way.num_bytes, -one.net),
            default=None,
        )

    def _found(self) -> list[Near]:
        """Return what may be recommended: noise is a reason only for devices that were idle."""
        if not self._today.is_quiet:
            return self.mover.found
        known = set(self._today.old)
        return [
            near
            for near in self.mover.found
            if not {d for c in near.outcome.replicas for d, _, _ in c.cut} <= known
        ]

    def _limit(self, loss: float) -> float:
        """Return what a plan may lose that is about as good as one with this *loss*."""
        return loss + self._slack(self._reached - loss)

    def _slack(self, gain: float) -> float:
        """Return by how much a plan may be worse than one with this *gain* and be as good."""
        return max(_AS_GOOD * gain, min(self._today.losses.least, gain / 2), 0.0)

    def _save(self, near: Near, effort: Effort) -> None:
        """Look for plans that move less than a good one, and lose about as little."""
        today, replicas = self._today, near.outcome.replicas
        roles = Standing(today.evaluator, [c.cut for c in replicas]).best()
        if roles is not None:
            self.mover.judge(roles.replicas)
        new = today.weights.held(c.cut for c in replicas)
        moving = {d for d in new if today.weights.gained(today.old.get(d, NOTHING), new[d]) > 0}
        limit = self._limit(near.loss)
        self.mover.climb(
            replicas,
            frozenset(moving),
            replace(effort, rounds=2, ideas=effort.ideas // 3),
            lambda one: (max(one.loss - limit, 0.0), one.num_bytes),
        )

    def _finalists(self, found: list[Near]) -> list[Near]:
        """Return the plans whose way is worked out: good ones, and such as move little for it."""
        some = best_of(found, _NUM_FINALISTS)
        limit = self._limit(min((one.loss for one in found), default=0.0))
        close = sorted((one for one in found if one.loss <= limit), key=lambda one: one.num_bytes)
        return list({id(one): one for one in (*some, *close[:_NUM_THRIFTY])}.values())

    def _within(self, near: Near) -> Option | None:
        """Return the option of a plan; None where its way breaks a limit."""
        option, terms = option_of(self._today, self._terms, "layers", near.outcome), self._terms
        is_long = terms.max_downtime_s is not None and option.way.downtime_s > terms.max_downtime_s
        has_many = terms.max_moves is not None and option.way.num_moves > terms.max_moves
        return None if is_long or has_many else option
