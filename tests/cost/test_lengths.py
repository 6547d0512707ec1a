"""What lengths that vary do to waits: memory that is shared, prompts that catch up, batches."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt import Lengths, Problem, Role, Workload
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.memory import room_shares
from e2llm_opt.cost.pipeline import prefill_of_lengths
from e2llm_opt.search.candidates import Candidates

TESTBED = Path(__file__).parents[2] / "examples" / "e2llm-testbed.yaml"


def workload(prompt: float, output: float, cv: float) -> Workload:
    return Workload(prompt=Lengths(mean=prompt, cv=cv), output=Lengths(mean=output, cv=cv))


@given(st.floats(0.0, 2.0))
def test_the_shorter_of_two_lengths_is_what_draws_say(cv: float) -> None:
    """The mean of the shorter one is the integral of (1 - F)²."""
    lengths = Lengths(mean=100.0, cv=cv)
    if cv < 1e-3:
        assert lengths.mean_of_shorter == pytest.approx(100.0, rel=1e-3)
        return
    at = np.exp(np.linspace(-14, 14, 40_001) * max(lengths.sigma, 0.05)) * 100.0
    shifted = (np.log(at / 100.0) + lengths.sigma**2 / 2) / lengths.sigma / math.sqrt(2)
    survival = np.array([0.5 * math.erfc(x) for x in shifted])
    expected = at[0] + np.trapezoid(survival**2, at)
    assert lengths.mean_of_shorter == pytest.approx(expected, rel=1e-3)


def test_requests_that_are_all_alike_fit_or_do_not() -> None:
    """Four of 1000 tokens, room for 3500."""
    assert room_shares(workload(400, 600, 0.0), 4, 3500).tolist() == [1.0, 1.0, 1.0, 0.0]
    assert room_shares(workload(400, 600, 0.0), 4, 4000).tolist() == [1.0] * 4


def test_long_answers_stay_longer_and_so_fill_memory() -> None:
    """Answers in slots have mean g (1 + cv²): with room for exactly that, half of them fit."""
    asked = workload(400, 600, 0.5)
    seen = 400 + 600 * 1.25
    shares = room_shares(asked, 6, 6 * seen)
    assert shares[5] == pytest.approx(0.5)
    assert list(shares) == sorted(shares, reverse=True)


def test_what_draws_find_in_slots_is_the_share_that_fits() -> None:
    """Draw in proportion to the answers' lengths, add up twelve, count those below the room.

    Skewness 1.8 makes a normal sum of twelve wrong by up to 0.4 · 1.8 / (6 √12).
    """
    random, asked = np.random.default_rng(1), workload(500, 600, 0.5)
    drawn = [
        lengths.mean
        * np.exp(lengths.sigma * random.standard_normal(200_000) - lengths.sigma**2 / 2)
        for lengths in (asked.prompt, asked.output)
    ]
    chosen = random.choice(200_000, size=(20_000, 12), p=drawn[1] / drawn[1].sum())
    sums = (drawn[0] + drawn[1])[chosen].sum(axis=1)
    for room in (13_000, 15_000, 17_000):
        expected = float((sums <= room).mean())
        assert room_shares(asked, 12, room)[11] == pytest.approx(expected, abs=0.04)


def prefiller(
    cv: float, prompt: float = 576
) -> tuple[Candidates, tuple[tuple[int, int, int], ...]]:
    """Return the testbed with such prompts, and its two M1 as a pipeline."""
    asked = Problem.load(TESTBED)
    changed = replace(asked.workload, prompt=Lengths(mean=prompt, cv=cv), context_tokens=4096)
    problem = replace(asked, workload=changed)
    costs = costs_of(problem)
    rows = [d for d, device in enumerate(problem.devices) if device.name.startswith("m1")]
    return Candidates(costs, costs.classes.order), ((rows[0], 0, 12), (rows[1], 12, 24))


@pytest.mark.parametrize("cv", [0.3, 0.8])
def test_mean_occupancy_and_catching_up_are_what_draws_say(cv: float) -> None:
    candidates, cut = prefiller(cv)
    found = candidates.at_cut(cut, Role.PREFILL)
    assert found is not None
    lengths = candidates.costs.problem.workload.prompt
    random = np.random.default_rng(2)
    drawn = lengths.mean * np.exp(
        lengths.sigma * random.standard_normal(40_000) - lengths.sigma**2 / 2
    )
    times = prefill_of_lengths(candidates.costs, cut, drawn)
    rest = times.latency_s - times.occupancy_s
    behind = np.maximum(rest[::2] - rest[1::2], 0.0).mean()
    busy, scv, waits = found.spread
    assert busy == pytest.approx(times.occupancy_s.mean(), rel=0.03)
    assert scv == pytest.approx((times.occupancy_s.std() / busy) ** 2, rel=0.15)
    assert waits == pytest.approx(behind, rel=0.25, abs=0.01)


def test_prompts_that_are_all_alike_never_catch_up() -> None:
    candidates, cut = prefiller(0.0)
    found = candidates.at_cut(cut, Role.PREFILL)
    assert found is not None
    assert found.spread == (found.occupancy_s, 0.0, 0.0)


def test_slots_that_memory_limits_are_not_always_usable() -> None:
    """A slot as long as a mean request: of many, some are empty; where there is room, none is."""
    candidates, _ = prefiller(0.5)
    cards = tuple(
        (d, 0, 24)
        for d, device in enumerate(candidates.costs.problem.devices)
        if device.name == "m2max-a"
    )
    found = candidates.at_cut(cards, Role.DECODE)
    assert found is not None
    assert found.usable.tolist() == [1.0] * found.slots
    shares = room_shares(candidates.costs.problem.workload, 16, 16 * (576 + 588))
    assert 0.1 < shares[-1] < 0.9
