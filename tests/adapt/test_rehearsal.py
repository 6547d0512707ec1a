"""What is tried before a move: the past as it was, the rest of it drawn, and what comes next."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

from e2llm_opt import Caution, Changes, Regime, Trace, simulate
from e2llm_opt.adapt.belief import belief_of
from e2llm_opt.adapt.estimator import Estimator, Request
from e2llm_opt.adapt.rehearsal import BEFORE, Past, Rehearsal, _kept
from tests.simulate import small

if TYPE_CHECKING:
    from e2llm_opt import Plan

LOADS = range(4)
CAUTION = Caution(loads=4, horizon_s=600.0, load_bytes_per_s=1e9)


@cache
def weak() -> Plan:
    return small.plan(("MIXED", small.ON_MAC))


@cache
def strong() -> Plan:
    return small.plan(("MIXED", small.ON_DESKTOP), ("MIXED", small.ON_MAC))


def watched(num: int = 300, gap_s: float = 1.0, done: int | None = None) -> Estimator:
    """Return an estimator that has seen requests, of which the first *done* are finished."""
    estimator = Estimator(Regime.of(small.problem()))
    for k in range(num):
        number = estimator.arrive(100.0 + gap_s * k, 500.0)
        if k < (num if done is None else done):
            estimator.finish(number, 100.0)
        else:
            estimator.progress(number, 40.0)
    return estimator


def rehearsal(
    estimator: Estimator, caution: Caution = CAUTION, *, ran: list[tuple[float, Plan]] | None = None
) -> Rehearsal:
    past = Past(estimator.last_s, estimator.requests, ran or [(-math.inf, weak())])
    belief = belief_of(estimator)
    return Rehearsal(small.problem(), past, belief, [weak(), strong()], caution)


def test_waits_are_those_of_the_simulator() -> None:
    """Half of the past is simulated by hand, and all of the future, on the rehearsal's requests."""
    estimator = watched()
    tried = rehearsal(estimator)
    for k in LOADS:
        arrivals = tried._arrivals[k]
        now_s = float(arrivals.arrival_s[BEFORE - 1])
        assert now_s == estimator.last_s - estimator.requests[-BEFORE].arrival_s
        for plan, changes in (
            (None, None),
            (strong(), Changes(plans=[(now_s, strong())], load_bytes_per_s=1e9)),
        ):
            run = simulate(weak(), small.problem(), arrivals, changes=changes)
            waits = run.waiting_time_s
            is_open = arrivals.arrival_s + waits > now_s
            rate = tried._regimes[k].rate_per_s
            assert len(waits) - BEFORE == int(600.0 * rate)  # nothing has to be made up
            missing = 600.0 * rate - (len(waits) - BEFORE)
            last = waits[-((len(waits) - BEFORE) // 4) :].mean()
            expected = (waits[is_open].sum() + missing * last) / (600.0 * rate)
            assert tried.waits(plan, [k]) == pytest.approx([expected])


def test_the_past_is_as_it_was_and_unfinished_answers_go_on() -> None:
    estimator = watched(done=280)
    tried = rehearsal(estimator)
    for arrivals in tried._arrivals:
        assert np.all(np.diff(arrivals.arrival_s) >= 0)
        assert set(arrivals.prompt_tokens[:BEFORE]) == {500}
        assert set(arrivals.output_tokens[: BEFORE - 20]) == {100}
        assert arrivals.output_tokens[BEFORE - 20 : BEFORE].min() > 40


def test_requests_to_come_are_those_of_the_loads() -> None:
    tried = rehearsal(watched(), replace(CAUTION, loads=2, horizon_s=3600.0))
    for regime, arrivals in zip(tried._regimes, tried._arrivals, strict=True):
        ahead = Trace(
            arrival_s=arrivals.arrival_s[BEFORE:],
            prompt_tokens=arrivals.prompt_tokens[BEFORE:],
            output_tokens=arrivals.output_tokens[BEFORE:],
        )
        assert ahead.num_requests == 1000
        assert ahead.rate_per_s == pytest.approx(regime.rate_per_s, rel=0.1)
        prompt, output = ahead.workload_lengths()
        assert prompt.mean == pytest.approx(regime.prompt.mean, rel=0.1)
        assert output.mean == pytest.approx(regime.output.mean, rel=0.1)


def test_to_take_what_runs_is_to_stay() -> None:
    tried = rehearsal(watched())
    assert tried.waits(weak(), LOADS) == pytest.approx(tried.waits(None, LOADS))


def test_an_overload_waits_longer_than_a_move_and_slow_loading_costs() -> None:
    estimator = watched(gap_s=0.5)
    tried = rehearsal(estimator)
    moved = tried.waits(strong(), LOADS)
    assert np.all(moved < tried.waits(None, LOADS))
    slow = rehearsal(estimator, replace(CAUTION, load_bytes_per_s=2e7))
    assert slow.waits(strong(), LOADS).sum() > moved.sum()


def test_a_plan_that_has_just_been_taken_still_loads() -> None:
    """A move a minute ago, of which much is to be loaded, is not over yet."""
    estimator = watched(gap_s=0.5)
    slow = replace(CAUTION, load_bytes_per_s=2e7)
    ran = [(-math.inf, weak()), (estimator.last_s - 60.0, strong())]
    just = rehearsal(estimator, slow, ran=ran).waits(None, LOADS)
    long_ago = rehearsal(estimator, slow, ran=[(-math.inf, strong())]).waits(None, LOADS)
    assert np.all(just > long_ago)


@pytest.mark.parametrize(
    ("num", "unfinished", "moved", "kept"),
    [
        (50, 50, None, 50),
        (900, 900, None, BEFORE),
        (900, 500, None, 400),
        (900, 900, 600, 900 - 600 + BEFORE),
        (900, 300, 600, 600),
        (900, 900, 100, 900),
        (900, 900, -5, BEFORE),
        (0, 0, None, 0),
    ],
)
def test_what_is_unfinished_and_what_a_move_waited_for_is_kept(
    num: int, unfinished: int, moved: int | None, kept: int
) -> None:
    requests = [Request(float(k), 10.0, 5.0, k != unfinished) for k in range(num)]
    plans = [(-math.inf, weak())]
    if moved is not None:
        plans.append((float(moved), strong()))
    assert len(_kept(Past(float(num), requests, plans))) == kept
