"""What a running search tells about itself, and how it is interrupted; nothing is printed here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from e2llm_opt.problem import Role
from e2llm_opt.search.phrases import time_text
from e2llm_opt.search.ranking import FRAGILE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.ranking import Key
    from e2llm_opt.search.roles import Choice

NONE_YET = "none yet"
"""The best plan while there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """State of a search; figures are of the best plan so far, with link limits left out.

    Parameters
    ----------
    evaluations
        Sets of replicas judged so far.
    elapsed_s
        Since the start [s].
    best
        The best plan so far, in a few words.
    doing
        What is being tried: ``packing``, ``grouping``, or a change that may make a plan possible.
    done, planned
        How many of these were tried, and of how many at most; None where not known.
    num_replicas
        Of the best plan; None while there is none.
    best_waiting_s, best_latency_s, best_capacity_per_s
        Where the objective compares them; None elsewhere, and above capacity [s, s, 1/s].
    gap
        How far the capacity of the best plan is below what no plan can exceed, as a share of that;
        None where the objective does not compare capacity, or no bound is known.
    front_size, hypervolume
        Of a search for a front: plans on it, and the share they dominate of the box between 0 and
        1.1 times the worst values in its first front; None elsewhere.
    """

    evaluations: int
    elapsed_s: float
    best: str
    doing: str = ""
    done: int | None = None
    planned: int | None = None
    num_replicas: int | None = None
    best_waiting_s: float | None = None
    best_latency_s: float | None = None
    best_capacity_per_s: float | None = None
    gap: float | None = None
    front_size: int | None = None
    hypervolume: float | None = None


ProgressCallback = Callable[[Progress], None]

_STABLE = {
    "waiting_time": ("wait", "latency"),
    "latency": ("alone", "wait", "latency"),
    "throughput": ("drain", "wait", "latency"),
    "cost": ("price", "wait", "latency"),
    "max_context": ("context", "wait", "latency"),
}
"""What a key holds behind its status, by objective (:meth:`Ranking.keys`)."""
_UNSTABLE = {"max_context": ("context", "drain", "alone")}
_NO_STEADY_STATE = 1e299


class Teller:
    """Turns what a search knows into :class:`Progress`.

    Parameters
    ----------
    problem
        What is planned.
    callback
        Is told; None: nobody is.

    Attributes
    ----------
    doing, done, planned
        Of the next :class:`Progress`; the search sets them.
    """

    def __init__(self, problem: Problem, callback: ProgressCallback | None) -> None:
        self._objective = str(problem.objective)
        self._callback = callback
        self._began = time.monotonic()
        self._choice: Choice | None = None
        self._about: dict[str, float] = {}
        self.doing, self.done, self.planned = "", 0, 0

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return self._callback is not None

    @property
    def elapsed_s(self) -> float:
        """Time since the start [s]."""
        return time.monotonic() - self._began

    def tell(
        self,
        kept: Sequence[Choice],
        evaluations: int,
        wait_unit_s: float,
        limit_per_s: float | None = None,
    ) -> None:
        """Tell the state; *kept* are the best choices so far, the best one first.

        No plan has more capacity than *limit_per_s*; None: not known.
        """
        if self._callback is None:
            return
        choice = kept[0] if kept else None
        if choice is not None and choice is not self._choice:
            self._about = figures_of(self._objective, choice.key, wait_unit_s)
        self._choice = choice
        about = self._about if choice is not None else {}
        gap = None
        if limit_per_s and "capacity" in about:
            gap = max(0.0, 1 - about["capacity"] / limit_per_s)
        self._callback(
            Progress(
                evaluations=evaluations,
                elapsed_s=self.elapsed_s,
                best=NONE_YET if choice is None else described(choice.roles, about, gap),
                doing=self.doing,
                done=self.done or None,
                planned=self.planned or None,
                num_replicas=None if choice is None else len(choice.groups),
                best_waiting_s=about.get("wait"),
                best_latency_s=about.get("latency", about.get("alone")),
                best_capacity_per_s=about.get("capacity"),
                gap=gap,
            )
        )

    def trial(self, change: str, found: int) -> ProgressCallback | None:
        """Return the callback of a search that only finds out whether *change* helps.

        *found* changes are known to help.
        """
        callback = self._callback
        if callback is None:
            return None

        def pass_on(inner: Progress) -> None:
            callback(
                Progress(
                    evaluations=inner.evaluations,
                    elapsed_s=self.elapsed_s,
                    best=f"no plan; changes that help so far: {found or 'none'}",
                    doing=change,
                )
            )

        pass_on(Progress(evaluations=0, elapsed_s=0.0, best=NONE_YET))
        return pass_on


class Interruption:
    """A block that Ctrl-C ends, and nothing more than the block.

    An interrupt inside compiled code surfaces as a SystemError that it caused.

    Attributes
    ----------
    happened
        Whether it was interrupted.
    """

    happened = False

    def __enter__(self) -> Self:
        """Return itself, to be asked afterwards."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Swallow an interrupt."""
        cause = error.__cause__ if isinstance(error, SystemError) else error
        self.happened = isinstance(cause, KeyboardInterrupt)
        return self.happened


def figures_of(objective: str, key: Key, wait_unit_s: float) -> dict[str, float]:
    """Return what a *key* says: wait, latency, latency alone [s] and capacity [1/s]."""
    status, *values = key
    names = _STABLE[objective] if status == 0 else _UNSTABLE.get(objective, ("drain", "alone"))
    if status >= FRAGILE:
        names = ("lack", "mean_lack", "drain")
    found = {
        name: value for name, value in zip(names, values, strict=False) if value < _NO_STEADY_STATE
    }
    if "wait" in found:
        found["wait"] *= wait_unit_s
    if found.get("drain"):
        found["capacity"] = 1.0 / found["drain"]
    return found


def described(roles: Sequence[Role], about: dict[str, float], gap: float | None = None) -> str:
    """Return a plan in a few words: how many replicas in which role, and its main figures."""
    counts = [(roles.count(role), role) for role in Role]
    words = [" + ".join(f"{count} {role}" for count, role in counts if count)]
    if "lack" in about:
        words.append("does not survive a loss")
    elif "wait" in about:
        words.append(f"waiting {time_text(about['wait'])}")
    elif "capacity" in about:
        words.append("not stable")
    if "capacity" in about:
        words.append(f"capacity {about['capacity']:.3g}/s")
    if gap is not None:
        words.append(f"gap {100 * gap:.1f} %")
    latency = about.get("alone", about.get("latency"))
    if latency is not None:
        words.append(f"latency {time_text(latency)}")
    return ", ".join(words)
