"""Utilisation and queues: sums over requests, and laws that no queue escapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.cost.pipeline import decode, prefill_of_lengths
from e2llm_opt.cost.transfer import kv_routes
from e2llm_opt.simulate.cast import actors_of
from e2llm_opt.simulate.simulate import default_warmup, simulate
from e2llm_opt.simulate.usage import batch_seconds
from e2llm_opt.workload.arrivals import draw_arrivals
from tests.simulate.small import ON_BOTH, ON_DESKTOP, ON_MAC, plan, problem, trace

if TYPE_CHECKING:
    from e2llm_opt.plan.plan import Plan
    from e2llm_opt.simulate.simulate import Simulation
    from e2llm_opt.simulate.summary import Summary
    from e2llm_opt.simulate.usage import LinkUse

ALONE = plan(("MIXED", ON_DESKTOP))
SPLIT = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
LONG = plan(("MIXED", ON_BOTH))


def summary_of(found: Plan, rate_per_s: float, num: int = 400) -> Summary:
    arrivals = draw_arrivals(problem().workload, num, rate_per_s=rate_per_s)
    return simulate(found, problem(), arrivals, mean_context=True).summary(found, problem())


def test_requests_one_by_one_keep_a_device_busy_as_long_as_they_take() -> None:
    arrivals = trace(*((100.0 * i, 200 + i, 50) for i in range(6)))
    run = simulate(ALONE, problem(), arrivals, mean_context=True)
    costs = costs_of(problem())
    actor = actors_of(ALONE, problem(), costs)[0]
    prompts = prefill_of_lengths(costs, actor.cut, arrivals.prompt_tokens.astype(float))
    step = float(decode(costs, actor.cut, 2).tpot_s[0])
    busy = prompts.stage_s.sum() + 6 * 50 * step
    found = run.summary(ALONE, problem())
    assert found.devices[0].utilisation == pytest.approx(busy / run.span_s)
    assert found.devices[0].mean_queue == 0
    assert run.span_s == pytest.approx(500 + run.latency_s[-1])


@pytest.mark.parametrize("found", [ALONE, SPLIT, LONG], ids=["alone", "split", "long"])
def test_no_device_or_link_is_busy_for_longer_than_the_run(found: Plan) -> None:
    summary = summary_of(found, 5.0)
    shares = [use.utilisation for use in summary.replicas]
    shares += [use.utilisation for use in summary.devices]
    shares += [use.utilisation for use in summary.links]
    assert all(0 <= share <= 1 + 1e-9 for share in shares)
    assert {use.device for use in summary.devices} == {
        stage.device for replica in found.replicas for stage in replica.stages
    }


def test_an_overloaded_device_is_busy_nearly_all_the_time() -> None:
    assert summary_of(ALONE, 50.0).devices[0].utilisation == pytest.approx(1, abs=0.05)


def test_time_by_batch_size_is_swept_up_and_pauses_left_out() -> None:
    join, finish = np.array([0.0, 1.0, 5.0]), np.array([3.0, 2.0, 6.0])
    assert batch_seconds(join, finish, slots=2).tolist() == [3.0, 1.0]
    pauses = np.array([0.5, 1.5]), np.array([0.75, 2.5])
    assert batch_seconds(join, finish, slots=2, pauses=pauses).tolist() == [2.25, 0.5]


def test_queues_obey_littles_law() -> None:
    summary = summary_of(SPLIT, 0.24)
    arrivals = draw_arrivals(problem().workload, 400, rate_per_s=0.24)
    run = simulate(SPLIT, problem(), arrivals, mean_context=True)
    waited = run.wait_prefill_s.sum(), run.wait_decode_s.sum()
    queues = [replica.mean_queue for replica in summary.replicas]
    assert queues == pytest.approx([wait / run.span_s for wait in waited])
    assert queues[1] > 0


def test_kv_caches_and_activations_are_on_the_links() -> None:
    arrivals = trace((0.0, 600, 300), (100.0, 600, 300))
    costs = costs_of(problem())
    run = simulate(SPLIT, problem(), arrivals)
    actors = actors_of(SPLIT, problem(), costs)
    route = kv_routes(costs, actors[0].cut, actors[1].cut)
    assert route is not None
    per_token = problem().model.layer_kv_bytes_per_token
    links = {(use.kind, use.name, use.direction): use for use in _links(run, SPLIT)}
    for _, resource, speed in route.parts:
        name = resource[1]
        if resource[0] == "link":
            link = problem().inventory.links[int(name)]
            name = f"{' - '.join(link.ends)} (ethernet)"
        moving = 2 * 600 * sum(per_token) / speed
        use = links[resource[0], name, resource[2]]
        assert use.utilisation == pytest.approx(moving / run.span_s)
        assert use.mean_queue == pytest.approx(float(run.wait_kv_s.sum()) / run.span_s)
    activations = _links(simulate(LONG, problem(), arrivals), LONG)
    assert activations
    assert all(use.utilisation > 0 and use.mean_queue == 0 for use in activations)


def _links(run: Simulation, found: Plan) -> tuple[LinkUse, ...]:
    return run.summary(found, problem()).links


def test_a_replica_without_requests_is_idle() -> None:
    found = plan(("MIXED", ON_DESKTOP), ("MIXED", ON_MAC))
    run = simulate(found, problem(), trace((0.0, 100, 10)))
    summary = run.summary(found, problem())
    idle = [replica for replica in summary.replicas if replica.requests == 0]
    assert [(use.utilisation, use.mean_queue) for use in idle] == [(0, 0)]
    assert sum(use.utilisation == 0 for use in summary.devices) == 1


def test_requests_longer_than_any_slot_are_rejected_and_counted() -> None:
    short = plan(("MIXED", ON_DESKTOP), longest=300)  # 2 slots: 600 tokens
    run = simulate(short, problem(), trace((0, 100, 10), (1, 600, 10), (2, 550, 50)))
    summary = run.summary(short, problem())
    assert (summary.requests.rejected, summary.requests.counted) == (1, 2)
    assert np.isnan(run.latency_s[1])
    assert summary.throughput.requests_per_s == pytest.approx(2 / run.span_s)
    nothing = simulate(short, problem(), trace((0, 900, 10)))
    assert nothing.summary(short, problem()).waiting_time_s.mean is None


@pytest.mark.parametrize(("num", "warmup"), [(1, 0), (999, 0), (1000, 50), (20_000, 1000)])
def test_the_warmup_is_a_twentieth_of_many_requests(num: int, warmup: int) -> None:
    assert default_warmup(num) == warmup
