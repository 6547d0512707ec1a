"""Random replicas that come and go, run by the event loop and by the plain model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import strategies as st

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.simulate.simulate import Simulation, Simulator
from e2llm_opt.simulate.timeline import Moment, Timeline
from tests.oracles import World
from tests.simulate import simpy_live
from tests.simulate.cases import Case, actor_of, cases, replicas_of, requests_of

if TYPE_CHECKING:
    from tests.simulate.simpy_live import Fate, LiveModel
    from tests.simulate.times import Replica


@dataclass(frozen=True)
class LiveCase:
    """A case whose replicas are those of several plans, and what changes."""

    case: Case
    begin: tuple[int, ...]
    moments: tuple[simpy_live.Moment, ...]
    drains: bool
    start_s: float

    def fast(self) -> Simulation:
        world = World(self.case.problem)
        timeline = Timeline(
            begin=self.begin,
            moments=tuple(Moment(m.at, m.what, m.rows) for m in self.moments),  # type: ignore[arg-type] # text
            drains=self.drains,
            load_bytes_per_s=float("inf"),
            start_s=self.start_s,
        )
        return Simulator(costs_of(self.case.problem), self.case.arrivals).run(
            [actor_of(world, own) for own in self.case.replicas],
            route_rates=self.case.route_rates,
            how=(self.case.routing, self.case.mean_context, 0),
            timeline=timeline,
        )

    def plain(self) -> list[Fate]:
        model: LiveModel = simpy_live.LiveModel(
            World(self.case.problem),
            self.case.replicas,
            begin=self.begin,
            moments=self.moments,
            drains=self.drains,
            start_s=self.start_s,
            routing=self.case.routing,
            mean_context=self.case.mean_context,
            route_rates=self.case.route_rates,
        )
        return model.live(requests_of(self.case.arrivals))


def assert_same(fast: Simulation, fates: list[Fate]) -> None:
    """Every request has the same replicas, retries and times but for rounding."""
    course = fast.course
    assert course is not None
    last = [fate.attempts[-1] if fate.attempts else None for fate in fates]
    served = np.array([own is not None and not own.is_lost and own.finish > 0 for own in last])
    assert (fast.entry >= 0).tolist() == served.tolist()
    assert course.retries.tolist() == [fate.retries for fate in fates]
    # what is computed of a prompt is rounded down, and may be so to either side
    assert np.abs(course.tokens_twice - [fate.twice for fate in fates]).max(initial=0) <= 1
    rows = np.flatnonzero(served).tolist()
    own: list[Any] = [last[k] for k in rows]
    assert fast.entry[served].tolist() == [a.entry for a in own]
    assert fast.decoder[served].tolist() == [a.decoder for a in own]
    end = max([1.0, *(a.finish for a in own)])
    arrival = np.array([a.arrival for a in own])
    first = np.array([fates[k].first_token for k in rows])
    first = np.where(np.isnan(first), [a.first_token for a in own], first)
    join = np.array([fates[k].first_join for k in rows])
    join = np.where(np.isnan(join), [a.join for a in own], join)
    finish = np.array([a.finish for a in own])
    expected = (
        (fast.wait_prefill_s[served], [a.wait_prefill for a in own]),
        (fast.wait_kv_s[served], [a.wait_kv for a in own]),
        (fast.wait_decode_s[served], [a.wait_decode for a in own]),
        (fast.ttft_s[served], first - arrival),
        (fast.latency_s[served], finish - arrival),
        (fast.tpot_s[served] * fast.arrivals.output_tokens[served], finish - join),
    )
    for have, need in expected:
        np.testing.assert_allclose(have, need, rtol=1e-9, atol=1e-11 * end)


@st.composite
def live_cases(draw: st.DrawFn) -> LiveCase:
    """Draw up to three plans for the same devices that follow each other, and failures."""
    case = draw(cases())
    rows = range(len(case.problem.devices))
    first = list(case.replicas)
    every = list(first)
    plans = [tuple(range(len(first)))]
    for _ in range(draw(st.integers(0, 2))):
        if draw(st.booleans()):
            most = case.problem.runtime.max_slots
            other = tuple(_with_role(own, draw(st.sampled_from(ROLES)), most) for own in first)
        else:
            other = draw(replicas_of(case.problem, draw(st.permutations(rows)), "any"))
        for own in other:
            if own not in every:
                every.append(own)
        plans.append(tuple(every.index(own) for own in other))
    end = 1.3 * float(np.nanmax(case.fast().finish_s, initial=case.arrivals.arrival_s[-1])) + 0.01
    times = st.one_of(
        st.floats(0.0, 1.0).map(lambda share: share * end),
        st.sampled_from(case.arrivals.arrival_s.tolist()),
    )
    moments = [
        simpy_live.Moment(at, "switch", rows)
        for at, rows in zip(
            sorted(draw(st.lists(times, min_size=2, max_size=2, unique=True))),
            plans[1:],
            strict=False,
        )
    ]
    for d in draw(st.lists(st.sampled_from(rows), max_size=3, unique=True)):
        others = [moment.at for moment in moments] or [0.0]
        at = draw(st.one_of(times, st.sampled_from(others)))
        moments.append(simpy_live.Moment(at, "fail", (d,)))
        if draw(st.booleans()):
            later = [other for other in (*others, at) if other >= at]
            back = draw(st.one_of(times, st.sampled_from(later)))
            back = back if back >= at else at + back
            moments.append(simpy_live.Moment(back, "recover", (d,)))
    rates = st.sampled_from((1.0, 0.3, 2.5))
    case = replace(
        case,
        replicas=tuple(every),
        route_rates={
            (p, d): draw(rates)
            for p, source in enumerate(every)
            for d, target in enumerate(every)
            if source.role == "PREFILL" and target.role == "DECODE"
        },
    )
    return LiveCase(
        case=case,
        begin=plans[0],
        moments=tuple(sorted(moments, key=lambda moment: moment.at)),
        drains=draw(st.booleans()),
        start_s=draw(st.sampled_from((0.0, 0.37 * end))),
    )


ROLES = ("MIXED", "PREFILL", "DECODE")


def _with_role(own: Replica, role: str, most: int) -> Replica:
    return replace(own, role=role, slots=1 if role == "PREFILL" else min(2, most))
