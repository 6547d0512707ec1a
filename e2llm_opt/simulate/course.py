"""What became of replicas that come and go, and of requests that were begun more than once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.simulate.system import Actor


class State(StrEnum):
    """What a replica, or a device, is doing; a device without any replica is idle or down."""

    OPEN = "open"
    DRAINING = "draining"
    LOADING = "loading"
    CLOSED = "closed"
    IDLE = "idle"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A replica or a device, by its row, in one state from *from_s* until *until_s*."""

    row: int
    state: State
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpan:
    """One device, what it did, and for which replica; times of the run [s]."""

    device: str
    state: str
    replica: str | None
    from_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Course:
    """What a run with changes adds to what became of each request [n].

    Parameters
    ----------
    costs
        Whose rows their stages are.
    actors
        All replicas that there ever were; rows are those of the simulation's names.
    retries
        How often the replica that it was in was gone [n].
    tokens_twice
        Tokens computed for it that were lost, prompts and answers [n].
    unserved
        Whether some replica could have taken it, and none was there any more [n].
    came_s
        When it came to the replica that prefilled it in the end [n] [s].
    join_s
        When it began to decode for the last time [n] [s].
    spans
        What each replica did; a replica that is in none is closed.
    down
        When each device was gone.
    changed_s
        The first change and the last, a replica's opening included [s].
    """

    costs: Costs
    actors: tuple[Actor, ...]
    retries: NDArray[np.int64]
    tokens_twice: NDArray[np.int64]
    unserved: NDArray[np.bool_]
    came_s: NDArray[np.float64]
    join_s: NDArray[np.float64]
    spans: tuple[Span, ...]
    down: tuple[Span, ...]
    changed_s: tuple[float, float]

    def devices(
        self, names: tuple[list[str], tuple[str, ...]], begin_s: float, end_s: float
    ) -> tuple[DeviceSpan, ...]:
        """Return what each device did between *begin_s* and *end_s*, one after the other.

        *names* are those of devices and of replicas; devices that no replica ever had are left out.
        """
        of_actor = [set(self.costs.units.devices(actor.cut)) for actor in self.actors]
        used = sorted(set().union(*of_actor))
        found = []
        for d in used:
            own = [span for span in self.spans if d in of_actor[span.row]]
            own = sorted([*own, *(span for span in self.down if span.row == d)], key=_begin)
            found += list(_filled(own, (names[0][d], names[1]), begin_s, end_s))
        return tuple(found)


def _begin(span: Span) -> float:
    return span.from_s


def _filled(
    spans: Iterable[Span], names: tuple[str, tuple[str, ...]], begin_s: float, end_s: float
) -> Iterable[DeviceSpan]:
    """Yield the spans of one device within a time, and idle ones between them."""
    at_s = begin_s
    for span in spans:
        first, last = max(span.from_s, at_s), min(span.until_s, end_s)
        if last <= first:
            continue
        if first > at_s:
            yield _device_span(names[0], State.IDLE, None, (at_s, first))
        replica = None if span.state is State.DOWN else names[1][span.row]
        yield _device_span(names[0], span.state, replica, (first, last))
        at_s = last
    if end_s > at_s:
        yield _device_span(names[0], State.IDLE, None, (at_s, end_s))


def _device_span(
    device: str, state: State, replica: str | None, times: tuple[float, float]
) -> DeviceSpan:
    return DeviceSpan(
        device=device, state=str(state), replica=replica, from_s=times[0], until_s=times[1]
    )
