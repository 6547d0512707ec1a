"""The intervals that a plan states, held against the same replicas on faster and slower devices."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from e2llm_opt.check.stated import OTHER_PHASE, TOLERANCE, is_close, value_of
from e2llm_opt.check.verdict import Violation
from e2llm_opt.speed import LIKELY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2llm_opt.check.given import GivenPlan, GivenReplica
    from e2llm_opt.check.verdict import ReplicaFigures
    from e2llm_opt.problem import Problem


def shifted(problem: Problem) -> tuple[Problem, ...]:
    """Return *problem* with all devices as fast, and as slow, as one in ten of their kind."""
    return tuple(replace(problem, pessimistic=quantile) for quantile in LIKELY)


def states_intervals(given: GivenReplica) -> bool:
    """Whether the replica or a stage of it states any."""
    return bool(given.intervals) or any(stage.intervals for stage in given.stages)


def interval_violations(
    given: GivenReplica, versions: Sequence[ReplicaFigures]
) -> Iterator[Violation]:
    """Yield each stated interval that does not reach from the least of *versions* to the most."""
    whole = [asdict(figures) for figures in versions]
    yield from _differing(given.id, given, given.intervals, whole)
    for index, stage in enumerate(given.stages):
        own = [asdict(figures.stages[index]) for figures in versions]
        where = f"{given.id}: stages[{index}]"
        yield from _differing(where, given, stage.intervals, own)


def _differing(
    where: str,
    given: GivenReplica,
    intervals: Mapping[str, tuple[float, float]],
    versions: Sequence[Mapping[str, object]],
) -> Iterator[Violation]:
    for key, have in intervals.items():
        if key.startswith(OTHER_PHASE[given.role]):
            continue
        found = [value_of(version, key.replace("_interval_s", "_s")) for version in versions]
        values = [value for value in found if value is not None]
        if len(values) < len(versions):
            continue
        need = min(values), max(values)
        if not all(map(is_close, have, need)):
            yield Violation(
                what=f"{where}.{key} is not as recomputed", need=_shown(need), have=_shown(have)
            )


def plan_violations(given: GivenPlan) -> Iterator[Violation]:
    """Yield each interval of the whole plan that its figure is not in."""
    for key, (low, high) in given.intervals.items():
        value = given.predicted.get(key)
        if value is not None and not low * (1 - TOLERANCE) <= value <= high * (1 + TOLERANCE):
            what = f"predicted.intervals.{key} does not hold predicted.{key}"
            yield Violation(what=what, need=value, have=_shown((low, high)))


def _shown(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.9g} to {interval[1]:.9g}"
