"""What must hold of the partitioner whatever the best cut is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import e2llm_opt
from tests.strategies import problems, relabelled, rescaled

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from e2llm_opt.partition.partition import Partition
    from e2llm_opt.problem import Problem

Goal = Literal["bottleneck", "sum"]
goals = st.sampled_from(("bottleneck", "sum"))
roles = st.sampled_from(("PREFILL", "DECODE", "MIXED"))
tight = problems(min_devices=1, max_devices=7, is_tight=True)


def cut(
    problem: Problem, role: str, criterion: Goal, rows: Iterable[int] | None = None
) -> Partition | None:
    chosen = range(len(problem.devices)) if rows is None else rows
    return e2llm_opt.partition(problem, tuple(chosen), role, slots=2, criterion=criterion)


def value(found: Partition | None, criterion: Goal) -> float:
    if found is None:
        return math.inf
    return found.latency_s if criterion == "sum" else found.bottleneck_s


def is_no_worse(new: Partition | None, old: Partition | None, criterion: Goal) -> bool:
    return value(new, criterion) <= value(old, criterion) * (1 + 1e-9)


@given(tight, roles, goals, st.integers(0, 6), st.sampled_from((1.1, 2.0, 10.0)))
def test_more_memory_never_worsens_the_criterion(
    problem: Problem, role: str, criterion: Goal, chosen: int, factor: float
) -> None:
    old = list(problem.devices)
    device = old[chosen % len(old)]
    old[chosen % len(old)] = replace(device, memory_bytes=device.memory_bytes * factor)
    larger = replace(problem, inventory=replace(problem.inventory, devices=tuple(old)))
    assert is_no_worse(cut(larger, role, criterion), cut(problem, role, criterion), criterion)


@given(tight, roles, goals, st.integers(0, 20), st.booleans())
def test_a_faster_link_never_worsens_the_criterion(
    problem: Problem, role: str, criterion: Goal, chosen: int, is_forward: bool
) -> None:
    links = list(problem.inventory.links)
    if not links:
        return
    link = links[chosen % len(links)]
    links[chosen % len(links)] = replace(
        link,
        forward_bytes_per_s=link.forward_bytes_per_s * (3 if is_forward else 1),
        backward_bytes_per_s=link.backward_bytes_per_s * (1 if is_forward else 3),
        latency_s=link.latency_s / 2,
        is_half_duplex=False,
    )
    quicker = replace(problem, inventory=replace(problem.inventory, links=tuple(links)))
    assert is_no_worse(cut(quicker, role, criterion), cut(problem, role, criterion), criterion)


@given(tight, roles, goals, st.integers(0, 6))
def test_one_device_more_never_worsens_the_criterion(
    problem: Problem, role: str, criterion: Goal, chosen: int
) -> None:
    rows = list(range(len(problem.devices)))
    if len(rows) == 1:
        return
    rows.pop(chosen % len(rows))
    fewer = cut(problem, role, criterion, rows)
    assert is_no_worse(cut(problem, role, criterion), fewer, criterion)


@given(tight, roles, goals, st.randoms(use_true_random=False))
def test_names_and_order_of_the_devices_change_nothing(
    problem: Problem, role: str, criterion: Goal, random: Random
) -> None:
    other = relabelled(problem, random)
    old, new = cut(problem, role, criterion), cut(other, role, criterion)
    assert value(new, criterion) == pytest.approx(value(old, criterion), rel=1e-9)
    assert shape(other, new) == shape(problem, old)


def shape(problem: Problem, found: Partition | None) -> list[tuple[object, ...]]:
    """Return the numbers of each stage's device, and its layers."""
    stages = () if found is None else found.stages
    devices = problem.devices
    return sorted(
        (
            start,
            stop,
            devices[d].memory_bytes,
            devices[d].memory_bandwidth_bytes_per_s,
            devices[d].fp16_flop_per_s,
            devices[d].layer_overhead_s,
        )
        for d, start, stop in stages
    )


@given(
    problems(max_devices=6, is_tight=True, is_apart=True),
    roles,
    goals,
    st.sampled_from((2.0, 4.0, 0.5)),
)
def test_times_a_power_of_two_longer_multiply_the_answer(
    problem: Problem, role: str, criterion: Goal, factor: float
) -> None:
    old, new = cut(problem, role, criterion), cut(rescaled(problem, factor), role, criterion)
    assert value(new, criterion) == factor * value(old, criterion)
    assert (new and new.stages) == (old and old.stages)


@given(tight, roles, goals)
def test_the_order_in_which_devices_are_listed_changes_nothing(
    problem: Problem, role: str, criterion: Goal
) -> None:
    rows = range(len(problem.devices))
    assert cut(problem, role, criterion, reversed(rows)) == cut(problem, role, criterion, rows)
