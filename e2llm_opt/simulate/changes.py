"""What changes during a run: devices that fail and recover, plans that take over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from e2llm_opt.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.problem import Problem

LOAD_BYTES_PER_S: Final = 1e9
"""How fast a device loads weights unless told otherwise: from an NVMe disk [bytes/s]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A device that is gone from *at_s* on, and with it what is inside its replica.

    Parameters
    ----------
    device
        Its name.
    at_s
        When, on the clock of the arrivals [s].
    recover_s
        When it is there again, with nothing loaded; None: never [s].
    """

    device: str
    at_s: float
    recover_s: float | None = None

    def __str__(self) -> str:
        """Return ``failure of 'pi-3' at 120 s``."""
        return f"failure of '{self.device}' at {self.at_s:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What happens to the replicas of a run.

    Parameters
    ----------
    failures
        Devices that fail, in any order.
    plans
        (from when on [s], plan) that replace the first plan, and each other.
    drain
        Whether a replica that a plan has no more finishes what is inside; else that is lost.
    load_bytes_per_s
        How fast each device loads weights that it does not hold; inf: at once [bytes/s].
    start_s
        What the start of a replica takes on top of loading [s].
    """

    failures: Sequence[Failure] = ()
    plans: Sequence[tuple[float, Plan]] = ()
    drain: bool = True
    load_bytes_per_s: float = LOAD_BYTES_PER_S
    start_s: float = 0.0

    def check(self, first: Plan, problem: Problem) -> None:
        """Refuse changes that make no sense for a run that begins with plan *first*.

        Raises
        ------
        InputError
            With everything that is wrong: an unknown device, or one without layers; times below 0
            or out of order; a device that fails while it is gone.
        """
        faults = [*self._faults(), *self._strangers(first, problem)]
        if faults:
            raise InputError(faults)

    def _faults(self) -> Iterator[Fault]:
        if not self.load_bytes_per_s > 0:
            yield Fault(path="load_bytes_per_s", wrong=_positive(self.load_bytes_per_s))
        if not 0 <= self.start_s < float("inf"):
            yield Fault(path="start_s", wrong=f"must be a time from 0 on, got {self.start_s:g}")
        times = [at_s for at_s, _ in self.plans]
        if any(not 0 <= at_s < float("inf") for at_s in times) or times != sorted(set(times)):
            listed = ", ".join(f"{at_s:g}" for at_s in times)
            yield Fault(path="plans", wrong=f"times must rise from 0 on, got {listed}")
        gone: dict[str, Failure] = {}
        for failure in sorted(self.failures, key=lambda own: (own.at_s, own.device)):
            if not 0 <= failure.at_s < float("inf"):
                wrong = f"must be at a time from 0 on, got {failure.at_s:g}"
                yield Fault(path=str(failure), wrong=wrong)
            if failure.recover_s is not None and not failure.recover_s >= failure.at_s:
                wrong = f"recovers at {failure.recover_s:g} s, before it fails"
                yield Fault(path=str(failure), wrong=wrong, right="give a later time")
            last = gone.get(failure.device)
            if last is not None and (last.recover_s is None or last.recover_s > failure.at_s):
                since = f"it has been gone since {last.at_s:g} s"
                yield Fault(path=str(failure), wrong=since, right="let it recover in between")
            gone[failure.device] = failure

    def _strangers(self, first: Plan, problem: Problem) -> Iterator[Fault]:
        known = [device.name for device in problem.devices]
        plans = [first, *(plan for _, plan in self.plans)]
        stages = [s for plan in plans for r in plan.replicas for s in r.stages]
        used = {name for stage in stages for name in stage.devices}
        for failure in self.failures:
            if failure.device not in known:
                from e2llm_opt.loading.validate import nearest  # noqa: PLC0415 - pydantic is slow

                right = nearest(failure.device, known) or f"devices: {', '.join(known)}"
                yield Fault(
                    path=str(failure), wrong="the inventory has no such device", right=right
                )
            elif failure.device not in used:
                wrong = "the plan gives this device no layers, so that nothing would change"
                right = f"devices with layers: {', '.join(sorted(used))}"
                yield Fault(path=str(failure), wrong=wrong, right=right)


def _positive(value: float) -> str:
    return f"must be positive, got {value:g}"
