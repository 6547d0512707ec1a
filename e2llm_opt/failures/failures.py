"""Each loss in turn: which replicas go, what is left, and what is best then."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from e2llm_opt.errors import InputError
from e2llm_opt.inventory.loss import LossKind, parts, without

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from e2llm_opt.failures.answer import Failures, Left, LossReport
    from e2llm_opt.failures.rest import Rest
    from e2llm_opt.inventory.loss import Part
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.progress import ProgressCallback
    from e2llm_opt.search.stop import Stop

    Tell = Callable[[str], None]

MAX_K = 2
"""Most things that are lost at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTerms:
    """Which losses are looked at, and how closely.

    Parameters
    ----------
    k
        Things lost at once: 1 or 2.
    kinds
        What is lost; None: everything, of pairs devices only.
    stop
        Limits of each full re-plan; None: nothing is planned anew.
    top
        Only so many losses, the worst first, are planned anew; None: all.
    seed
        Of each re-plan.
    """

    k: int = 1
    kinds: Collection[LossKind] | None = None
    stop: Stop | None = None
    top: int | None = None
    seed: int = 0


def failures(
    plan: Plan,
    problem: Problem,
    *,
    terms: FailureTerms | None = None,
    tell: Tell | None = None,
    progress: ProgressCallback | None = None,
) -> Failures:
    """Say what each loss of a device, host, switch or link does to *plan*, the worst first.

    Parameters
    ----------
    plan
        Its devices are found in the inventory by name.
    problem
        What it is an answer to, or one alike.
    terms
        Which losses, and whether the rest is planned anew; default: each single one, and not.
    tell
        Told in words what is done; may raise KeyboardInterrupt.
    progress
        Told by each re-plan how far it is; may raise KeyboardInterrupt.

    Returns
    -------
    Failures
        Where it was interrupted, with the losses that were done by then.

    Raises
    ------
    InputError
        When the plan has devices that the inventory lacks, or a replica cannot run on it; when k
        is not supported.
    KeyboardInterrupt
        When interrupted before any loss was done.

    Notes
    -----
    Users are taken to reach every device that is left: where they enter the network is unknown.
    """
    from e2llm_opt.failures.answer import Failures  # noqa: PLC0415 - numba comes with the rest
    from e2llm_opt.failures.words import explained  # noqa: PLC0415
    from e2llm_opt.search.progress import Interruption  # noqa: PLC0415

    terms = terms or FailureTerms()
    if not 1 <= terms.k <= MAX_K:
        raise InputError(f"k must be 1 to {MAX_K}, the things lost at once, got {terms.k}.")
    warnings = tuple(_differences(plan, problem))
    analysis = _Analysis(plan, problem, terms, tell or _silent, progress)
    with Interruption() as interruption:
        analysis.run()
    if interruption.happened and not analysis.reports:
        raise KeyboardInterrupt
    losses = tuple(sorted(analysis.reports, key=lambda loss: loss.order))
    rate = problem.workload.rate_per_s
    return Failures(
        rate_per_s=rate,
        k=terms.k,
        intact=analysis.intact,
        losses=losses,
        explain=explained(problem, analysis.intact, losses),
        warnings=warnings,
        is_complete=not interruption.happened,
    )


def _silent(_doing: str) -> None:
    """Tell nobody."""


def _differences(plan: Plan, problem: Problem) -> Iterator[str]:
    """Refuse a plan with devices that the inventory lacks; yield how inventories differ else."""
    from e2llm_opt.inventory.digest import inventory_sha256  # noqa: PLC0415 - cheap, but rare

    known = [device.name for device in problem.devices]
    stages = [stage for replica in plan.replicas for stage in replica.stages]
    used = [name for stage in stages for name in stage.devices]
    idle = [unused.device for unused in plan.unused_devices]
    lacking = [name for name in used if name not in known]
    if lacking:
        raise InputError(
            f"the plan uses devices that the inventory lacks: {', '.join(lacking)}; give the "
            "inventory that the plan was made for."
        )
    if plan.problem.inventory_sha256 in {"", inventory_sha256(problem.inventory)}:
        return
    new = [name for name in known if name not in {*used, *idle}]
    gone = [name for name in idle if name not in known]
    parts_of = [
        *([f"new are {', '.join(new)}"] if new else []),
        *([f"gone are {', '.join(gone)}"] if gone else []),
    ]
    what = "; ".join(parts_of) or "the devices have the same names, but other figures or links"
    yield f"the plan was made for another inventory, and is matched by name: {what}"


class _Analysis:
    """All losses of one plan; what was done stays done."""

    def __init__(
        self,
        plan: Plan,
        problem: Problem,
        terms: FailureTerms,
        tell: Tell,
        progress: ProgressCallback | None,
    ) -> None:
        from e2llm_opt.failures.rest import Rest  # noqa: PLC0415 - numba takes long to load

        self._plan, self._terms, self._tell = plan, terms, tell
        self._how = (terms.seed, progress)
        self._problem = replace(problem, constraints=replace(problem.constraints, survive=0))
        self._whole = Rest(plan, self._problem)
        broken = [
            replica.id
            for replica, own in zip(plan.replicas, self._whole.replicas, strict=True)
            if own is None
        ]
        if broken:
            raise InputError(
                f"{', '.join(broken)} of the plan cannot run on this inventory: memory, a speed "
                "limit or a missing link; e2llm-opt check says which."
            )
        self.intact = self._whole.as_is(())
        self.reports: list[LossReport] = []
        self._used_links = self._whole.used_links()
        self._known: dict[object, tuple[Left, Left, tuple[int, ...]]] = {}
        self._planned: dict[object, tuple[Left | None, tuple[str, ...]]] = {}

    def run(self) -> None:
        """Look at every loss as it is; then plan anew, the worst ones first."""
        lost = list(self._losses())
        for number, own in enumerate(lost, start=1):
            self._tell(f"loss {number} of {len(lost)}: {' and '.join(p.name for p in own)}")
            self.reports.append(self._report(own))
        stop, top = self._terms.stop, self._terms.top
        if stop is None:
            return
        worst = sorted(range(len(lost)), key=lambda i: self.reports[i].order)
        changed = [i for i in worst if self.reports[i].re_roled is not None][:top]
        for number, i in enumerate(changed, start=1):
            report = self.reports[i]
            self._tell(f"re-plan {number} of {len(changed)}: without {report.name}")
            planned = self._re_planned(report.lost, stop)
            standing = report.re_roled
            if planned is None or (standing is not None and standing.order < planned.order):
                planned = standing if standing is not None and standing.replicas else None
            self.reports[i] = replace(report, re_planned=planned, was_replanned=True)

    def _losses(self) -> Iterator[tuple[Part, ...]]:
        kinds = self._terms.kinds
        if kinds is None:
            kinds = tuple(LossKind) if self._terms.k == 1 else (LossKind.DEVICE,)
        for lost in combinations(parts(self._problem.inventory, kinds), self._terms.k):
            inside = [
                one.devices and other is not one and set(one.devices) <= set(other.devices)
                for one in lost
                for other in lost
            ]
            if not any(inside):  # else the larger one is all there is to lose
                yield lost

    def _report(self, lost: tuple[Part, ...]) -> LossReport:
        from e2llm_opt.failures.answer import LossReport  # noqa: PLC0415 - as above

        fallen = {name for part in lost for name in part.devices}
        gone = {
            i
            for i, replica in enumerate(self._plan.replicas)
            if any(name in fallen for stage in replica.stages for name in stage.devices)
        }
        rest = self._rest(lost)
        gone |= {i for i, own in enumerate(rest.replicas) if own is None}
        if not gone and rest is self._whole:
            return LossReport(lost=lost, replicas_lost=(), damage=0.0, as_is=self.intact)
        as_is, re_roled = self._figures(rest, gone)
        if not gone and as_is == self.intact:
            return LossReport(lost=lost, replicas_lost=(), damage=0.0, as_is=self.intact)
        whole = self.intact.capacity_per_s
        return LossReport(
            lost=lost,
            replicas_lost=tuple(self._plan.replicas[i].id for i in sorted(gone)),
            damage=1.0 - as_is.capacity_per_s / whole if whole > 0 else 0.0,
            as_is=as_is,
            re_roled=re_roled,
        )

    def _figures(self, rest: Rest, gone: Collection[int]) -> tuple[Left, Left]:
        """Return both figures, of alike replicas computed once."""
        if rest is not self._whole:
            return rest.as_is(gone), rest.re_roled(gone)
        kinds = tuple(sorted(str(rest.kind(i)) for i in gone))
        if kinds not in self._known:
            self._known[kinds] = (rest.as_is(gone), rest.re_roled(gone), tuple(sorted(gone)))
        as_is, re_roled, others = self._known[kinds]
        return rest.swapped(as_is, gone, others), rest.swapped(re_roled, gone, others)

    def _rest(self, lost: Sequence[Part]) -> Rest:
        """Return the plan on the network that is left: the whole one where no way is touched."""
        from e2llm_opt.failures.rest import Rest  # noqa: PLC0415 - as above

        # A host's links lead to it alone.
        cut = {n for part in lost if part.kind is not LossKind.HOST for n in part.links}
        if not cut & self._used_links:
            return self._whole
        inventory = without(self._problem.inventory, lost)
        return Rest(self._plan, replace(self._problem, inventory=inventory))

    def _re_planned(self, lost: Sequence[Part], stop: Stop) -> Left | None:
        """Return the best plan found without *lost*; of alike devices it is looked for once."""
        from e2llm_opt.failures.rest import after_loss, renamed  # noqa: PLC0415 - as above

        fallen = tuple(dict.fromkeys(name for part in lost for name in part.devices))
        links = tuple(n for part in lost for n in part.links)
        name = (self._whole.classes(fallen), links)
        if name not in self._planned:
            inventory = without(self._problem.inventory, lost)
            left = after_loss(replace(self._problem, inventory=inventory), fallen)
            found = None if left is None else self._whole.planned(left, stop, *self._how)
            self._planned[name] = (found, fallen)
        known, others = self._planned[name]
        return known and renamed(known, dict(zip(fallen, others, strict=True)))
