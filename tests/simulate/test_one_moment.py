"""What coincides, worked out by hand: the event loop and the plain SimPy model."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import permutations, product
from typing import TYPE_CHECKING

import pytest

from e2llm_opt import Changes, Failure, Problem, simulate
from e2llm_opt.simulate import live
from tests.oracles import World
from tests.simulate import small
from tests.simulate.cases import Case
from tests.simulate.live_cases import LiveCase, assert_same
from tests.simulate.simpy_live import Moment
from tests.simulate.small import ON_BOTH, ON_DESKTOP, ON_MAC, plan, trace
from tests.simulate.times import Replica, Times

if TYPE_CHECKING:
    from e2llm_opt import Simulation
    from e2llm_opt.simulate.simulate import Routing

ROWS = {device.name: d for d, device in enumerate(small.problem().devices)}


@cache
def twins() -> Problem:
    """Return the home lab with a second desktop in the place of the mac mini."""
    found = small.problem()
    (desktop,) = (device for device in found.devices if device.name == "desktop")
    devices = tuple(
        replace(desktop, name=own.name, host=own.host) if own.name == "mac-mini" else own
        for own in found.devices
    )
    return replace(found, inventory=replace(found.inventory, devices=devices))


def on(device: str, role: str, slots: int = 2) -> Replica:
    return Replica(role=role, cut=((ROWS[device], 0, 28),), slots=slots, max_context=4096)


def ran(
    plans: tuple[tuple[Replica, ...], ...],
    moments: tuple[Moment, ...],
    *requests: tuple[float, int, int],
    problem: Problem | None = None,
    routing: Routing = "shortest-wait",
) -> Simulation:
    """Run the first of *plans*, both ways; rows of replicas are those of all plans together."""
    case = LiveCase(
        case=Case(
            problem=problem or small.problem(),
            replicas=tuple(own for replicas in plans for own in replicas),
            arrivals=trace(*requests),
            routing=routing,
            mean_context=False,
            route_rates=dict.fromkeys(product(range(3), range(3)), 1.0),
        ),
        begin=tuple(range(len(plans[0]))),
        moments=moments,
        drains=True,
        start_s=0.0,
    )
    found = case.fast()
    assert_same(found, case.plain())
    return found


def times(problem: Problem) -> Times:
    return Times(World(problem), mean_context=False)


# ---------------------------------------------------------------- a plan and a failure

POOLS = on("desktop", "PREFILL", slots=1), on("mac-mini", "DECODE")
ALONE = on("desktop", "MIXED"), on("mac-mini", "MIXED")
POOLS_AGAIN = on("desktop", "PREFILL", slots=1), on("mac-mini", "DECODE", slots=1)


@pytest.mark.parametrize("later", [(), (Moment(60.0, "switch", (4, 5)),)])
@pytest.mark.parametrize("order", list(permutations(range(2))))
def test_a_prompt_that_no_decoder_takes_makes_room_for_what_was_lost(
    order: tuple[int, ...], later: tuple[Moment, ...]
) -> None:
    """The decoder fails as another plan takes over, and both requests begin anew at one moment.

    The first is lost with the decoder, and no replica is open that could take it. The second is
    prefilled in a replica that is being drained; as soon as it is done, this replica has nothing
    inside that a decoder could take, and the one that the new plan has in its place takes both.
    """
    prefill = times(small.problem()).latency(POOLS[0], 900)
    at_s = 1.2 * prefill
    coincide = Moment(at_s, "switch", (2, 3)), Moment(at_s, "fail", (ROWS["mac-mini"],))
    run = ran(
        (POOLS, ALONE, POOLS_AGAIN),
        (*(coincide[k] for k in order), *later),
        (0.0, 900, 400),
        (0.0, 900, 20),
    )
    assert run.course is not None
    assert run.course.retries.tolist() == [1, 1]
    assert run.entry.tolist() == [2, 2]
    pause = times(small.problem()).pause(ALONE[0], 900)
    assert run.wait_prefill_s.tolist() == pytest.approx([2 * prefill, 2 * prefill + pause])
    assert run.ttft_s.tolist() == pytest.approx([prefill, 2 * prefill])


def test_a_failure_comes_before_the_plan_that_takes_over_at_that_moment() -> None:
    """The replica of both devices is lost: the mac mini loads all layers, its own included."""
    model = small.problem().model
    weights = sum(model.layer_dense_bytes) + model.head_bytes
    weights += 0.0 if model.is_tied else model.embedding_bytes
    run = simulate(
        plan(("MIXED", ON_BOTH)),
        small.problem(),
        trace((5.0, 300, 10)),
        changes=Changes(
            failures=[Failure(device="desktop", at_s=4.0)],
            plans=[(4.0, plan(("MIXED", ON_MAC)))],
            drain=False,
            load_bytes_per_s=weights / 30,
        ),
    )
    assert run.wait_prefill_s[0] == pytest.approx(4.0 + 30.0 - 5.0)


# ---------------------------------------------------------------- two that are drained at once


def test_replicas_that_are_drained_at_one_moment_make_room_at_that_moment() -> None:
    """Twins finish the same work together: each of two requests that wait has its own replica."""
    first, second = ((on(d, "MIXED", slots=n) for d in ("desktop", "mac-mini")) for n in (1, 2))
    run = ran(
        (tuple(first), tuple(second)),
        (Moment(0.4, "switch", (2, 3)),),
        *[(0.0, 900, 40)] * 2,
        *[(0.5, 300, 10)] * 2,
        problem=twins(),
    )
    assert run.entry.tolist() == [0, 1, 2, 3]
    assert run.latency_s[0] == run.latency_s[1]
    assert run.wait_prefill_s[2:].tolist() == pytest.approx([run.latency_s[0] - 0.5] * 2)


@pytest.mark.parametrize("step", [1, 2, 100])
def test_what_arrives_as_a_replica_is_drained_finds_the_next_one(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """It comes behind what waited; also where the run can be interrupted at this very moment."""
    monkeypatch.setattr(live, "_STEP", step)
    old, new = plan(("MIXED", ON_DESKTOP)), plan(("MIXED", ON_DESKTOP), longest=2048)
    drained_s = float(simulate(old, small.problem(), trace((0.0, 900, 40))).finish_s[0])
    run = simulate(
        old,
        small.problem(),
        trace((0.0, 900, 40), (drained_s - 0.1, 300, 10), (drained_s, 200, 10)),
        changes=Changes(plans=[(0.4, new)], load_bytes_per_s=math.inf),
        breathe=lambda _: None,
    )
    assert [run.names[r] for r in run.entry] == ["r0", "r0@0.4", "r0@0.4"]
    pause = times(small.problem()).pause(on("desktop", "MIXED"), 300)
    assert run.wait_prefill_s.tolist() == pytest.approx([0.0, 0.1, pause])


# ---------------------------------------------------------------- a decoder that opens


def test_prompts_that_are_done_as_a_decoder_opens_go_there() -> None:
    """The last prompt of a replica that is being drained is done as the only decoder opens."""
    old = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
    prefill, decode = old.replicas
    new = replace(old, replicas=(replace(prefill, max_context_tokens=2048), decode))
    requests = (0.0, 900, 20), (0.0, 900, 20)
    done_s = float(simulate(old, small.problem(), trace(*requests)).ttft_s[1])
    half_s = 0.5 * done_s
    run = simulate(
        old,
        small.problem(),
        trace(*requests, (10.0, 300, 10)),
        changes=Changes(
            failures=[Failure(device="mac-mini", at_s=0.01, recover_s=half_s)],
            plans=[(0.02, new)],
            load_bytes_per_s=math.inf,
            start_s=half_s,
        ),
    )
    assert run.course is not None
    assert run.course.retries.tolist() == [0, 0, 0]
    assert [run.names[r] for r in run.entry] == ["r0", "r0", "r0@0.02"]
    moved_s = float(max(run.ttft_s[:2] + run.wait_kv_s[:2]))
    spans = {
        (run.names[span.row], str(span.state)): (span.from_s, span.until_s)
        for span in run.course.spans
    }
    assert spans["r0", "draining"] == pytest.approx((0.02, moved_s))
    assert spans["r0@0.02", "loading"] == pytest.approx((moved_s, moved_s + half_s))


# ---------------------------------------------------------------- prefills that end together


def test_of_prefills_that_end_together_the_first_replica_sends_first() -> None:
    """The first request goes to the second twin, which has the larger share of them."""
    pools = (
        on("desktop", "PREFILL", slots=1),
        replace(on("mac-mini", "PREFILL", slots=1), rate=2.0),
        on("laptop", "DECODE"),
    )
    run = ran((pools,), (), *[(0.0, 900, 20)] * 2, problem=twins(), routing="plan")
    assert run.entry.tolist() == [1, 0]
    assert run.ttft_s[0] == run.ttft_s[1]
    assert run.wait_kv_s[0] > 1.5 * run.wait_kv_s[1]
