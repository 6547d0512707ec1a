"""What a change of the machines, or of what they run, would do: each is planned again.

Capacity is that of the plan with most requests, waiting time that of the plan with the least wait:
two searches a change, the same for the inventory as it is. A device more may stay idle, so that it
never makes either worse.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from e2llm_opt.advise.advice import PRICES_ASSUMED, Advice, AdviceRow, AdviceTerms, Untried
from e2llm_opt.advise.changes import (
    Change,
    addition,
    contexts,
    formats,
    retirements,
    upgrades,
)
from e2llm_opt.advise.judge import Judge
from e2llm_opt.advise.kinds import kinds_of, undominated
from e2llm_opt.advise.network import Wire
from e2llm_opt.advise.pooled import Pool
from e2llm_opt.advise.rank import (
    LEAST_SHARE,
    LEAST_WAIT_S,
    is_difference,
    ordered,
    retired_first,
    score,
)
from e2llm_opt.search.phrases import percent
from e2llm_opt.search.progress import Interruption

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from e2llm_opt.advise.judge import Figures
    from e2llm_opt.advise.kinds import Kind
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import ProgressCallback

_SHARE = 1 / 20
"""Of the time for all searches that one of a change may take."""
_INTERRUPTED = "interrupted: not every change was tried"
_LATE = "the time was over before every change was tried"


def advise(
    problem: Problem,
    *,
    terms: AdviceTerms | None = None,
    progress: ProgressCallback | None = None,
) -> Advice:
    """Try changes of *problem* and say what each gains, the best first.

    Parameters
    ----------
    problem
        What is served on what. Its objective is not looked at: capacity and waiting time count.
    terms
        What is tried, and how it is ranked.
    progress
        Told of each search; where it raises KeyboardInterrupt, what is done until then is returned.

    Returns
    -------
    Advice
        Changes that make no difference are not in it.

    Raises
    ------
    InputError
        When a type is unknown, or a price impossible.
    KeyboardInterrupt
        When interrupted before the inventory as it is was planned.
    """
    run = _Run(problem, terms or AdviceTerms(), progress)
    with Interruption() as interruption:
        run.try_changes()
    return run.answer(interrupted=interruption.happened)


class _Run:
    """One advice in the making."""

    def __init__(
        self, problem: Problem, terms: AdviceTerms, progress: ProgressCallback | None
    ) -> None:
        self._problem, self._terms = problem, terms
        self._by_power = terms.by == "power"
        self._kinds = kinds_of(problem, terms.prices or {}, terms.types)
        self._judge = Judge(terms.stop, terms.seed, terms.time_limit_s, progress)
        most = self._judge.capacity(problem)
        self._gap = 0.0 if most.plan is None else most.plan.bound.gap
        self._now = self._judge.waiting(problem, most)
        self._reason = "" if self._now.plan is not None else self._why(progress)
        self._rows: list[AdviceRow] = []
        self._no_wait: dict[str, tuple[Change, Figures]] = {}
        """By their text, changes whose least wait has not been looked for."""
        self._kept: dict[str, str] = {}
        self._dominated = self._bounded = self._late = 0

    def _why(self, progress: ProgressCallback | None) -> str:
        from e2llm_opt.solve import plan  # noqa: PLC0415 - only where there is no plan

        answer = plan(self._problem, seed=self._terms.seed, progress=progress)
        return getattr(answer, "reason", "no plan was found")

    def try_changes(self) -> None:
        """Plan every change that may be worth it."""
        few = list(self._few())
        kinds = self._worth_trying() if "add" in self._terms.kinds else []
        self._judge.planned, self._judge.share = len(few) + len(kinds), _SHARE
        for change in few:
            self._try(change, looks_for_wait=True)
        self._add(kinds)
        self._look_for_waits()

    def _few(self) -> Iterator[Change]:
        """Yield all changes but additions."""
        wanted, problem = self._terms.kinds, self._problem
        if "link" in wanted:
            yield from upgrades(problem, self._now.carrying)
        if "format" in wanted:
            yield from formats(problem)
        if "context" in wanted:
            yield from contexts(problem)
        if "retire" in wanted and self._now.plan is not None:
            kinds = kinds_of(problem, self._terms.prices or {})
            for one in retirements(problem, {kind.name: kind.price for kind in kinds}):
                if isinstance(one, Change):
                    yield one
                else:
                    self._kept[one[0]] = one[1]

    def _worth_trying(self) -> list[tuple[float, Kind]]:
        """Return kinds with the most that each can gain [1/s], the most promising first."""
        kinds = undominated(self._kinds, by_power=self._by_power)
        self._dominated = len(self._kinds) - len(kinds)
        problem = self._problem
        named = [replace(k.device, name=f"new/{k.name}", host="") for k in kinds]
        pool = Pool(problem.with_devices((*problem.inventory.devices, *named)))
        excluded = problem.constraints.exclude
        counts = [float(d.name not in excluded) for d in problem.inventory.devices]
        found = []
        for place, kind in enumerate(kinds):
            added = [float(place == other) for other in range(len(kinds))]
            gain = pool.most([*counts, *added]) - self._now.capacity_per_s
            found.append((max(0.0, gain), kind))
        return sorted(found, key=lambda one: (-(self._hope(*one) or 0.0), one[1].name))

    def _hope(self, gain: float, kind: Kind) -> float | None:
        """Return a score that an addition cannot exceed; None where nothing is known of it."""
        if self._terms.by == "waiting_time":
            return None
        if self._terms.by == "capacity":
            return gain
        cost = kind.cost(by_power=self._by_power)
        return None if cost is None else gain / cost

    def _add(self, kinds: Iterable[tuple[float, Kind]]) -> None:
        wire = self._terms.wire or Wire()
        by, top = self._terms.by, self._terms.top
        for gain, kind in kinds:
            scores = (score(by, row) for row in self._rows if row.kind != "retire")
            best = sorted((points[0] for points in scores if points is not None), reverse=True)
            hope = self._hope(gain, kind)
            is_hopeless = gain == 0.0 and by != "waiting_time"
            if hope is not None and len(best) >= top:
                is_hopeless |= hope < best[top - 1]
            if is_hopeless:
                self._bounded += 1
                self._judge.done += 1
                continue
            self._try(addition(self._problem, kind, wire), looks_for_wait=by == "waiting_time")

    def _try(self, change: Change, *, looks_for_wait: bool) -> None:
        judge = self._judge
        judge.done, judge.doing = judge.done + 1, change.text
        if judge.is_late:
            self._late += 1
            return
        figures = judge.capacity(change.problem)
        if looks_for_wait and self._may_wait_less(change):
            figures = judge.waiting(change.problem, figures)
        row = self._row(change, figures)
        if change.kind == "retire" or is_difference(row, self._now.capacity_per_s):
            self._rows.append(row)
            if not looks_for_wait:
                self._no_wait[change.text] = change, figures

    def _may_wait_less(self, change: Change) -> bool:
        """Whether the wait with *change* can differ from that of now."""
        now = self._now.waiting_time_s
        return change.kind == "retire" or now is None or now >= LEAST_WAIT_S

    def _look_for_waits(self) -> None:
        """Plan for the wait, too, where an addition is among the best."""
        by, top = self._terms.by, self._terms.top
        first, apart = ordered(by, (row for row in self._rows if row.kind != "retire"))
        for row in (*first[:top], *apart):
            if row.change not in self._no_wait or self._judge.is_late:
                continue
            change, capacity = self._no_wait[row.change]
            if self._may_wait_less(change):
                self._judge.doing = f"{change.text}, waiting time"
                figures = self._judge.waiting(change.problem, capacity)
                self._rows[self._rows.index(row)] = self._row(change, figures)

    def _row(self, change: Change, figures: Figures) -> AdviceRow:
        capacity, wait = self._fair(change, figures)
        now = self._now
        is_known = wait is not None and now.waiting_time_s is not None
        return AdviceRow(
            kind=change.kind,
            change=change.text,
            capacity_per_s=capacity,
            waiting_time_s=wait,
            capacity_gain_per_s=capacity - now.capacity_per_s,
            waiting_time_gain_s=(now.waiting_time_s or 0.0) - (wait or 0.0) if is_known else None,
            price=change.price,
            power_w=change.power_w,
            gives_up=change.gives_up,
            plan=figures.plan,
        )

    def _fair(self, change: Change, figures: Figures) -> tuple[float, float | None]:
        """Return capacity and wait: what can stay idle does no harm, what is gone did none good.

        The plan without a device is one with it, too, unless every device must be used.
        """
        now, capacity, wait = self._now, figures.capacity_per_s, figures.waiting_time_s
        if self._problem.constraints.use_all_devices or change.kind not in {"add", "retire"}:
            return capacity, wait
        if change.kind == "add":
            waits = [w for w in (wait, now.waiting_time_s) if w is not None]
            return max(capacity, now.capacity_per_s), min(waits, default=None)
        if wait is not None and now.waiting_time_s is not None:
            wait = max(wait, now.waiting_time_s)
        return min(capacity, now.capacity_per_s), wait

    def _luck(self) -> list[str]:
        """Return a warning where the capacity of now may be better than was found."""
        if self._now.plan is None or (self._gap is not None and self._gap < LEAST_SHARE):
            return []
        how = "not known to be the best"
        if self._gap is not None:
            how = f"up to {percent(self._gap)} below a bound"
        return [f"the capacity of now is {how}: smaller gains may be the luck of a search"]

    def answer(self, *, interrupted: bool) -> Advice:
        """Return what is known."""
        terms = self._terms
        ranked, apart = ordered(terms.by, (row for row in self._rows if row.kind != "retire"))
        warnings = [_INTERRUPTED] if interrupted else []
        warnings += [_LATE] if self._late else []
        warnings += [PRICES_ASSUMED] if {"add", "link", "retire"} & set(terms.kinds) else []
        warnings += self._luck()
        ranked = ranked[: terms.top]
        retired = retired_first(row for row in self._rows if row.kind == "retire")
        return Advice(
            by=terms.by,
            capacity_per_s=self._now.capacity_per_s,
            waiting_time_s=self._now.waiting_time_s,
            plan=self._now.plan,
            reason=self._reason,
            rows=(*ranked, *apart, *retired),
            num_ranked=len(ranked),
            untried=Untried(
                dominated=self._dominated,
                bounded=self._bounded,
                late=self._late,
                kept=self._kept,
            ),
            warnings=tuple(warnings),
        )
