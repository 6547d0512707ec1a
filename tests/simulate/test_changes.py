"""Failures and plans that take over, worked out by hand; and what is refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from e2llm_opt import Changes, Failure, InputError, simulate
from tests.oracles import World
from tests.simulate.live_cases import LiveCase, live_cases
from tests.simulate.small import ON_BOTH, ON_DESKTOP, ON_MAC, plan, problem, trace
from tests.simulate.times import Replica, Times

if TYPE_CHECKING:
    from e2llm_opt import Plan, Simulation

AT_ONCE = math.inf
ROWS = {device.name: d for d, device in enumerate(problem().devices)}
TIMES = Times(World(problem()), mean_context=False)
SOME = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def alone(device: str, role: str = "MIXED") -> Replica:
    """Return the model on one device, with the slots of the small plans."""
    return Replica(role=role, cut=((ROWS[device], 0, 28),), slots=2, max_context=4096)


def decoding(replica: Replica, prompt: int, tokens: int) -> float:
    """Seconds that one request alone takes for its first *tokens* tokens."""
    return sum(TIMES.round(replica, [prompt + step]) for step in range(tokens))


def failing(*failures: Failure, load: float = AT_ONCE) -> Changes:
    return Changes(failures=failures, load_bytes_per_s=load)


def mixed() -> Plan:
    return plan(("MIXED", ON_DESKTOP))


def both() -> Plan:
    return plan(("MIXED", ON_DESKTOP), ("MIXED", ON_MAC))


def times(run: Simulation) -> list[float]:
    return [*run.waiting_time_s, *run.ttft_s, *run.tpot_s, *run.latency_s]


# ---------------------------------------------------------------- by hand


def test_a_request_is_begun_anew_after_the_recovery() -> None:
    """It fails in the fifth round: 900 tokens of the prompt and four of the answer are lost."""
    own, prompt, output = alone("desktop"), 900, 20
    prefill = TIMES.latency(own, prompt)
    at_s = prefill + decoding(own, prompt, 4) + 1e-6
    recover_s = at_s + 7.0
    run = simulate(
        mixed(),
        problem(),
        trace((0.0, prompt, output)),
        changes=failing(Failure(device="desktop", at_s=at_s, recover_s=recover_s)),
    )
    course = run.course
    assert course is not None
    assert (course.retries[0], course.tokens_twice[0]) == (1, prompt + 4)
    assert run.ttft_s[0] == pytest.approx(prefill)
    finish = recover_s + prefill + decoding(own, prompt, output)
    assert run.latency_s[0] == pytest.approx(finish)
    assert run.waiting_time_s[0] == pytest.approx(recover_s)
    assert run.tpot_s[0] == pytest.approx((finish - prefill) / output)


def test_an_unfinished_prompt_counts_by_its_share_and_gave_no_token() -> None:
    own, prompt = alone("desktop"), 1000
    prefill = TIMES.latency(own, prompt)
    run = simulate(
        mixed(),
        problem(),
        trace((1.0, prompt, 5)),
        changes=failing(Failure(device="desktop", at_s=1.0 + 0.2505 * prefill, recover_s=9.0)),
    )
    assert run.course is not None
    assert run.course.tokens_twice[0] == 250
    assert run.ttft_s[0] == pytest.approx(8.0 + prefill)


def test_the_replica_loads_the_weights_of_its_largest_stage() -> None:
    """The whole model: all layers, the head and the embedding, each once."""
    model = problem().model
    weights = sum(model.layer_dense_bytes) + model.head_bytes
    weights += 0.0 if model.is_tied else model.embedding_bytes
    run = simulate(
        mixed(),
        problem(),
        trace((0.0, 100, 5), (5.0, 100, 5)),
        changes=failing(Failure(device="desktop", at_s=4.0, recover_s=6.0), load=weights / 30),
    )
    assert run.wait_prefill_s[1] == pytest.approx(6.0 + 30.0 - 5.0)
    assert run.course is not None
    states = [span.state for span in run.course.devices(([*ROWS], run.names), 0.0, 99.0)]
    assert states == ["open", "down", "loading", "open"] + ["idle"] * (len(states) - 4)


def test_a_kv_cache_on_its_way_to_a_decoder_that_fails_is_prefilled_again() -> None:
    source = alone("desktop", "PREFILL")
    found = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
    undisturbed = simulate(found, problem(), trace((0.0, 900, 9)))
    prefill = TIMES.latency(source, 900)
    at_s = prefill + 0.5 * undisturbed.wait_kv_s[0]
    run = simulate(
        found,
        problem(),
        trace((0.0, 900, 9)),
        changes=failing(Failure(device="mac-mini", at_s=at_s, recover_s=at_s + 5.0)),
    )
    assert run.course is not None
    assert (run.course.retries[0], run.course.tokens_twice[0]) == (1, 900)
    # nobody takes it before a decoder is there: its second prefill begins with the recovery
    assert run.wait_prefill_s[0] == pytest.approx(at_s + 5.0)
    assert run.wait_kv_s[0] == pytest.approx(undisturbed.wait_kv_s[0])
    assert run.ttft_s[0] == pytest.approx(prefill)


def test_a_prompt_that_is_done_waits_in_its_replica_for_a_decoder() -> None:
    source = alone("desktop", "PREFILL")
    found = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
    prefill = TIMES.latency(source, 900)
    failure = Failure(device="mac-mini", at_s=0.5 * prefill, recover_s=prefill + 5.0)
    undisturbed = simulate(found, problem(), trace((0.0, 900, 9)))
    run = simulate(found, problem(), trace((0.0, 900, 9)), changes=failing(failure))
    assert run.course is not None
    assert run.course.retries[0] == 0
    assert run.wait_prefill_s[0] == pytest.approx(0.0, abs=1e-9)
    assert run.wait_kv_s[0] >= 5.0 + undisturbed.wait_kv_s[0] - 1e-9
    assert run.finish_s[0] - run.wait_kv_s[0] == pytest.approx(
        undisturbed.finish_s[0] - undisturbed.wait_kv_s[0]
    )


def test_what_is_lost_goes_to_the_other_replica_at_once() -> None:
    own = alone("mac-mini")
    run = simulate(
        both(),
        problem(),
        trace((0.0, 200, 50)),
        changes=failing(Failure(device="desktop", at_s=0.01)),
    )
    assert run.names[run.entry[0]] == "r1"
    expected = 0.01 + TIMES.latency(own, 200) + decoding(own, 200, 50)
    assert run.latency_s[0] == pytest.approx(expected)


def test_without_any_replica_requests_are_unserved_and_none_is_forgotten() -> None:
    requests = trace((0.0, 200, 50), (1.0, 200, 50), (2.0, 10**6, 50))
    run = simulate(
        mixed(), problem(), requests, changes=failing(Failure(device="desktop", at_s=0.5))
    )
    assert (run.num_unserved, run.num_rejected) == (2, 1)
    assert np.isnan(times(run)).all()
    assert run.summary(mixed(), problem()).changes is not None


# ---------------------------------------------------------------- plans that take over


def test_a_replica_of_both_plans_runs_on_and_others_are_drained() -> None:
    three = trace((0.0, 200, 50), (0.0, 200, 50), (0.2, 200, 50))
    run = simulate(both(), problem(), three, changes=Changes(plans=[(0.1, mixed())]))
    assert run.names == ("r0", "r1")
    assert run.entry.tolist() == [0, 1, 0]
    assert run.course is not None
    assert run.course.retries.sum() == 0
    spans = [(run.names[s.row], str(s.state), s.from_s, s.until_s) for s in run.course.spans]
    assert [own for own in spans if own[0] == "r0"] == [("r0", "open", -math.inf, run.end_s)]
    assert ("r1", "draining", 0.1, run.finish_s[1]) in spans


def test_another_role_opens_when_the_last_answer_is_there_and_loads_nothing() -> None:
    own = alone("desktop")
    busy = TIMES.latency(own, 900) + decoding(own, 900, 40)
    second = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
    run = simulate(
        mixed(),
        problem(),
        trace((0.0, 900, 40), (0.5, 300, 10)),
        changes=Changes(plans=[(0.4, second)], load_bytes_per_s=AT_ONCE),
    )
    assert run.latency_s[0] == pytest.approx(busy)
    assert run.wait_prefill_s[1] == pytest.approx(busy - 0.5)
    slow = simulate(
        mixed(),
        problem(),
        trace((0.0, 900, 40), (0.5, 300, 10)),
        changes=Changes(plans=[(0.4, mixed()), (0.45, second)], load_bytes_per_s=1e9, start_s=3.0),
    )
    # the desktop holds all layers already; the mac mini has to load them
    assert slow.course is not None
    opened = {slow.names[s.row]: s.from_s for s in slow.course.spans if s.state == "open"}
    assert opened["r0@0.45"] == pytest.approx(busy + 3.0)
    assert opened["r1@0.45"] > 0.45 + 3.0


def test_pools_that_swap_their_roles_finish_what_they_have() -> None:
    """Prompts that are being drained go to decoders that are being drained: nothing is stuck."""
    one = plan(("PREFILL", ON_DESKTOP), ("DECODE", ON_MAC))
    other = plan(("DECODE", ON_DESKTOP), ("PREFILL", ON_MAC))
    requests = trace(*((0.01 * k, 900, 20) for k in range(8)), (30.0, 900, 20))
    run = simulate(one, problem(), requests, changes=Changes(plans=[(0.1, other)], start_s=0.5))
    assert run.course is not None
    assert run.course.retries.sum() == 0
    assert (run.entry >= 0).all()
    assert [run.names[r] for r in run.decoder[[0, 8]]] == ["r1", "r0@0.1"]


def test_a_plan_at_once_loses_what_is_inside() -> None:
    second = plan(("MIXED", ON_BOTH))
    run = simulate(
        mixed(),
        problem(),
        trace((0.0, 900, 400)),
        changes=Changes(plans=[(1.0, second)], drain=False, load_bytes_per_s=AT_ONCE),
    )
    assert run.course is not None
    assert run.course.retries.tolist() == [1]
    assert run.wait_prefill_s[0] == pytest.approx(1.0)
    assert run.names[run.entry[0]] == "r0@1"


# ---------------------------------------------------------------- laws


@SOME
@given(live_cases())
def test_no_request_is_lost_from_the_count(case: LiveCase) -> None:
    run = case.fast()
    assert run.course is not None
    num = case.case.arrivals.num_requests
    assert int((run.entry >= 0).sum()) + run.num_rejected + run.num_unserved == num
    served = run.entry >= 0
    assert np.isfinite(run.latency_s[served]).all()
    assert (run.waiting_time_s[served] >= -1e-9).all()
    assert (run.course.tokens_twice[run.course.retries == 0] == 0).all()


@given(st.floats(0.001, 1e4), st.booleans())
@settings(max_examples=20, deadline=None)
def test_a_failure_after_the_last_answer_changes_nothing(later_s: float, recovers: bool) -> None:
    requests = trace((0.0, 200, 50), (0.4, 900, 30), (3.0, 200, 50))
    base = simulate(both(), problem(), requests)
    at_s = base.end_s + later_s
    failure = Failure(device="desktop", at_s=at_s, recover_s=at_s if recovers else None)
    run = simulate(both(), problem(), requests, changes=failing(failure))
    assert times(run) == times(base)


def test_a_failure_between_requests_that_is_over_at_once_changes_nothing() -> None:
    requests = trace((0.0, 200, 50), (60.0, 900, 30))
    base = simulate(both(), problem(), requests)
    changes = failing(Failure(device="desktop", at_s=50.0, recover_s=50.0))
    assert times(simulate(both(), problem(), requests, changes=changes)) == times(base)


def test_all_but_one_replica_gone_is_that_one_alone() -> None:
    requests = trace((0.0, 200, 50), (0.4, 900, 30), (0.5, 200, 50))
    run = simulate(
        both(), problem(), requests, changes=failing(Failure(device="mac-mini", at_s=0.0))
    )
    assert times(run) == pytest.approx(times(simulate(mixed(), problem(), requests)))


def test_no_change_is_no_change() -> None:
    requests = trace((0.0, 200, 50), (0.4, 900, 30), (0.5, 200, 50))
    base = simulate(both(), problem(), requests)
    assert times(simulate(both(), problem(), requests, changes=Changes())) == times(base)


# ---------------------------------------------------------------- what is refused


def refused(changes: Changes) -> list[str]:
    with pytest.raises(InputError) as caught:
        simulate(both(), problem(), trace((0.0, 200, 50)), changes=changes)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Failure(device="deskto", at_s=1.0), "did you mean desktop?"),
        (Failure(device="pi", at_s=1.0), "no layers"),
        (Failure(device="desktop", at_s=-1.0), "from 0 on, got -1"),
        (Failure(device="desktop", at_s=math.nan), "from 0 on, got nan"),
        (Failure(device="desktop", at_s=9.0, recover_s=8.0), "before it fails"),
    ],
)
def test_failures_that_make_no_sense(failure: Failure, words: str) -> None:
    (fault,) = refused(failing(failure))
    assert words in fault


def test_all_faults_at_once() -> None:
    twice = Failure(device="desktop", at_s=1.0), Failure(device="desktop", at_s=2.0)
    faults = refused(
        Changes(failures=twice, plans=[(3.0, mixed()), (2.0, mixed())], load_bytes_per_s=0.0)
    )
    assert len(faults) == 3
    assert any("gone since 1 s" in fault for fault in faults)


def test_a_device_may_fail_again_when_it_has_recovered() -> None:
    twice = [Failure(device="desktop", at_s=at, recover_s=at + 1.0) for at in (5.0, 1.0)]
    run = simulate(both(), problem(), trace((0.0, 200, 50)), changes=failing(*twice))
    assert run.course is not None
    assert [span.from_s for span in run.course.down] == [1.0, 5.0]
