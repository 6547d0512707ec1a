"""No plan is better than what the pooled devices could do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings

from e2llm_opt.advise.judge import Judge
from e2llm_opt.advise.pooled import Pool
from e2llm_opt.cost.costs import costs_of
from tests.advise.lab import lab
from tests.strategies import problems

if TYPE_CHECKING:
    from e2llm_opt.problem import Problem


@settings(max_examples=12, deadline=None)
@given(problems(max_devices=3, max_layers=5, has_host_ram=True))
def test_no_plan_has_more_capacity_or_is_quicker(problem: Problem) -> None:
    pool = Pool(problem)
    found = Judge(None, 0, None, None).capacity(problem)
    assert found.capacity_per_s <= pool.most([1.0] * len(problem.devices)) * (1 + 1e-9)
    if found.plan is not None:
        prompt_s, step_s = pool.quickest_s
        for replica in found.plan.replicas:
            if replica.prefill is not None:
                assert replica.prefill.latency_s >= prompt_s * (1 - 1e-9)
            if replica.decode is not None:
                assert replica.decode.tpot_s >= step_s * (1 - 1e-9)


def test_devices_of_one_class_are_pooled_in_closed_form() -> None:
    """Layers and head over all devices: rate = devices / (prompt + answer)."""
    problem = lab("apple-m4", "apple-m4", "apple-m4")
    costs = costs_of(problem)
    prompt = costs.prefill_prefix(400.0)[0, -1] + costs.head(1)[0]
    batches = range(1, problem.runtime.max_slots + 1)
    layers = min(costs.decode_prefix(n)[0, -1] / n for n in batches)
    head = min(costs.head(n)[0] / n for n in batches)
    rate = 3.0 / (prompt + 100.0 * (layers + head))
    assert Pool(problem).most([1.0, 1.0, 1.0]) == pytest.approx(rate, rel=1e-6)


def test_more_devices_never_serve_less() -> None:
    pool = Pool(lab("apple-m4", "rtx-3060-12gb"))
    rates = [pool.most(counts) for counts in ([1, 0], [0, 1], [1, 1], [2, 1], [4, 2])]
    assert rates[2] >= max(rates[:2]) > 0
    assert rates[4] == pytest.approx(2 * rates[3], rel=1e-6)
    assert rates[2] <= rates[3] <= rates[4]


def test_too_little_memory_serves_nothing() -> None:
    problem = lab("raspberry-pi-5-8gb", model="llama-3.1-70b", weights="f16")
    assert Pool(problem).most([1.0]) == 0.0
    assert Pool(problem).most([100.0]) > 0.0


@pytest.mark.parametrize("rate", [20.0, 200.0])
def test_the_least_price_is_that_of_the_cheapest_whole_devices(rate: float) -> None:
    """Against every number of devices of two classes."""
    pool, prices = Pool(lab("apple-m4", "rtx-3060-12gb")), (599.0, 329.0)
    counts = [(i, j) for i in range(11) for j in range(11) if i + j <= 10]
    able = [c for c in counts if pool.most(c) >= rate]
    bound = pool.cheapest(prices, rate, 10)
    if not able:
        assert bound is None
    else:
        assert bound == pytest.approx(min(float(np.dot(c, prices)) for c in able), rel=1e-5)


def test_a_rate_that_so_many_devices_cannot_serve_has_no_price() -> None:
    pool = Pool(lab("apple-m4"))
    most = pool.most([4.0])
    assert pool.cheapest((599.0,), 1.01 * most, 4) is None
    assert pool.cheapest((599.0,), 0.99 * most, 4) == pytest.approx(4 * 599.0, rel=1e-5)


def test_a_speed_limit_leaves_out_batches_that_nobody_keeps() -> None:
    problem = lab("apple-m4")
    _, step_s = Pool(problem).quickest_s
    slow = Pool(problem).most([1.0])
    limited = replace(problem, workload=replace(problem.workload, slo_tpot_s=1.05 * step_s))
    assert Pool(limited).most([1.0]) < slow
