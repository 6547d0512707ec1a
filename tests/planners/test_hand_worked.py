"""Every planner on a world worked through by hand; see :mod:`tests.planners.worlds`."""

from __future__ import annotations

import numpy as np
import pytest

import e2llm_opt
from e2llm_opt.inventory.link import Link
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import Plan
from e2llm_opt.planners.hexgen import clusters
from e2llm_opt.planners.parallax import best_pipelines, fewest_stages, filled
from e2llm_opt.planners.splitwise import pools
from e2llm_opt.problem import Objective, Problem
from tests.planners.worlds import device, links, shape, world

# Reads fast for its speed of answering; the others the other way round. Over 4 layers:
#   reader: a prompt 4 · max(40 · .0025, .1) = .4 s; a token 4 · max(.1, n · .0025) = .4 s,
#           so 16 slots give 16 / (20 · .4) = 2 answers/s
#   writer: a prompt 4 · max(40 · .01, .025) = 1.6 s; a token 4 · max(.025, n · .01) = .04 n s,
#           so from 3 slots on 1 / (20 · .04) = 1.25 answers/s
READER = device("reader", 4, read=0.1, compute=0.0025)
WRITER_1 = device("writer-1", 4, read=0.025, compute=0.01)
WRITER_2 = device("writer-2", 4, read=0.025, compute=0.01)


def planned(problem: Problem, planner: str) -> Plan:
    found = e2llm_opt.plan(problem, planner=planner)
    assert isinstance(found, Plan), found.reason
    assert e2llm_opt.check(found, problem).violations == ()
    assert found.problem.options["planner"] == planner
    return found


def refused(problem: Problem, planner: str) -> Infeasible:
    found = e2llm_opt.plan(problem, planner=planner)
    assert isinstance(found, Infeasible)
    assert found.reason.startswith(f"planner {planner} finds no plan: ")
    assert [suggestion.change for suggestion in found.suggestions] == ["planner: e2llm-opt"]
    return found


# ---------------------------------------------------------------- one pipeline by a rule


def test_memory_proportional_gives_layers_by_memory() -> None:
    """8 layers on 8, 4 and 4 kB: a half and two quarters."""
    machines = [device("a", 8, 0.1, 0.01), device("b", 4, 0.1, 0.02), device("c", 4, 0.1, 0.03)]
    ((role, layers),) = shape(planned(world(machines, 8), "memory-proportional"))
    assert (role, layers) == ("MIXED", {"a": 4, "b": 2, "c": 2})


def test_memory_proportional_gives_a_layer_even_where_there_is_no_room() -> None:
    """8 layers on 12, .5 and 4 kB: ideally 5.8, .24 and 1.9, so 5, 1 and 2; b has room for none."""
    machines = [device("a", 12, 0.1, 0.01), device("b", 0.5, 0.1, 0.01), device("c", 4, 0.1, 0.01)]
    found = refused(world(machines, 8), "memory-proportional")
    assert "it gives b 1 layers" in found.reason
    needs = {need.device: (need.need_bytes, need.have_bytes) for need in found.devices}
    assert needs["b"] == (1000, 500)
    assert found.shortfall_bytes == 500


def test_equal_layers_gives_the_rest_to_the_first() -> None:
    """7 layers on three devices: 3, 2, 2, whoever they are."""
    machines = [device("a", 9, 0.1, 0.01), device("b", 9, 0.2, 0.02), device("c", 9, 0.3, 0.03)]
    plan = planned(world(machines, 7), "equal-layers")
    assert [s.layers[1] - s.layers[0] for s in plan.replicas[0].stages] == [3, 2, 2]
    assert refused(world(machines, 2), "equal-layers").reason.endswith(
        "3 devices and only 2 layers"
    )


def test_best_single_device_is_the_one_with_the_highest_rate() -> None:
    """MIXED with 16 slots, s a request.

    reader: 20 · .4 s / 16 + .4 s = .9 s. writer: 20 · .04 s + 1.6 s = 2.4 s.
    """
    plan = planned(world([WRITER_1, READER], 4), "best-single-device")
    assert shape(plan) == [("MIXED", {"reader": 4})]
    assert plan.predicted.capacity_per_s == pytest.approx(1 / 0.9)


def test_no_single_device_is_large_enough() -> None:
    machines = [device("a", 3, 0.1, 0.01), device("b", 3, 0.1, 0.01)]
    assert "no device alone holds" in refused(world(machines, 4), "best-single-device").reason


# ---------------------------------------------------------------- EdgeShard


def test_edgeshard_sends_while_it_computes_where_throughput_is_wanted() -> None:
    """A request is 40 · .01 = .4 s and 20 · .1 = 2 s a layer on a: 2.4 s; twice that on b.

    6 layers: all on a: 14.4 s. 4 on a, 2 on b: 9.6 s and 9.6 s, and one hop of a prompt and 20
    tokens, 21 · .5 s = 10.5 s: the slowest step is 10.5 s < 14.4 s, though stage and hop in turn
    are 20.1 s. 5 on a take 12 s. For latency it adds up: 14.4 s < 9.6 + 9.6 + 10.5 s.
    """
    machines = [device("a", 9, 0.1, 0.01), device("b", 9, 0.2, 0.02)]
    slow = links(["a", "b"], latency_s=0.5)
    ((_, layers),) = shape(planned(world(machines, 6, slow), "edgeshard"))
    assert layers == {"a": 4, "b": 2}
    wanted = world(machines, 6, slow, objective=Objective.LATENCY)
    assert shape(planned(wanted, "edgeshard")) == [("MIXED", {"a": 6})]


def test_edgeshard_leaves_devices_out() -> None:
    """With a hop of .7 s, 21 · .7 = 14.7 s, sending is slower than a alone."""
    machines = [device("a", 9, 0.1, 0.01), device("b", 9, 0.2, 0.02)]
    slow = links(["a", "b"], latency_s=0.7)
    assert shape(planned(world(machines, 6, slow), "edgeshard")) == [("MIXED", {"a": 6})]


# ---------------------------------------------------------------- Parallax


def test_parallax_chooses_the_number_of_pipelines_by_its_square_over_the_stages() -> None:
    """6 layers. k = 3 of 6, 6, 3, 3: 9 / 4 > 4 / 2. Of 6, 6, 2, 2, 2: 9 / 5 < 4 / 2."""
    assert best_pipelines([6, 6, 3, 3], 6) == [[0], [1], [2, 3]]
    assert best_pipelines([6, 6, 2, 2, 2], 6) == [[0], [1]]
    assert best_pipelines([2, 3], 6) == []
    # 4 + 3 and 4 + 1 + 1, not 4 + 4, which leaves 3 + 1 + 1
    assert [len(group) for group in fewest_stages([4, 4, 3, 1, 1], 6, 2)] == [2, 3]


def test_parallax_fills_layers_like_water() -> None:
    """24 layers, speeds 3 : 1 : 2. Free: 12, 4, 8. With room for 6 on the first, 18 go 6 : 12."""
    assert filled([3.0, 1.0, 2.0], [24, 24, 24], 24) == [12, 4, 8]
    assert filled([3.0, 1.0, 2.0], [6, 24, 24], 24) == [6, 6, 12]
    assert filled([3.0, 1.0, 2.0], [6, 24, 10], 24) == [6, 8, 10]


def test_parallax_counts_half_of_the_memory() -> None:
    """4 layers; rooms of 9, 5 and 5 kB hold 4, 2 and 2: k = 2 in 3 stages, 4/3 > 1/1."""
    machines = [device("a", 9, 0.1, 0.01), device("b", 5, 0.1, 0.01), device("c", 5, 0.3, 0.01)]
    assert sorted(shape(planned(world(machines, 4), "parallax")), key=str) == [
        ("MIXED", {"a": 4}),
        ("MIXED", {"c": 2, "b": 2}),
    ]
    small = [device("a", 5, 0.1, 0.01), device("b", 3, 0.1, 0.01)]
    assert "holds 3 of 4 layers" in refused(world(small, 4), "parallax").reason


# ---------------------------------------------------------------- HexGen, all MIXED


def test_hexgen_groups_by_site() -> None:
    """Each device holds half the model; two sites, 1 s apart: not for a pipeline."""
    machines = [device(name, 2, 0.1, 0.01) for name in ("a1", "b1", "a2", "b2")]
    near = [*links(["a1", "a2"]), *links(["b1", "b2"])]
    far = [
        Link(ends=pair, forward_bytes_per_s=1e12, backward_bytes_per_s=1e12, latency_s=1.0)
        for pair in (("a1", "b1"), ("a1", "b2"), ("a2", "b1"), ("a2", "b2"))
    ]
    plan = planned(world(machines, 4, [*near, *far], rate_per_s=0.01), "hexgen")
    assert {frozenset(layers) for _, layers in shape(plan)} == {
        frozenset({"a1", "a2"}),
        frozenset({"b1", "b2"}),
    }
    assert {role for role, _ in shape(plan)} == {"MIXED"}


def test_kmeans_finds_sites() -> None:
    hop = np.array([[0, 9, 1, 9], [9, 0, 9, 1], [1, 9, 0, 9], [9, 1, 9, 0]], dtype=np.float64)
    assert clusters(hop, 1) == [0, 0, 0, 0]
    assert clusters(hop, 2) == [0, 1, 0, 1]
    assert len(set(clusters(hop, 4))) == 4


def test_all_mixed_uses_every_device_that_helps() -> None:
    """1 / .9 on the reader and 1 / 2.4 on each writer, requests/s; too far apart for a pipeline."""
    machines = [READER, WRITER_1, WRITER_2]
    far = links([one.name for one in machines], latency_s=9.0)
    plan = planned(world(machines, 4, far), "all-mixed")
    assert sorted(shape(plan), key=str) == [
        ("MIXED", {"reader": 4}),
        ("MIXED", {"writer-1": 4}),
        ("MIXED", {"writer-2": 4}),
    ]
    assert plan.predicted.capacity_per_s == pytest.approx(1 / 0.9 + 2 / 2.4)


# ---------------------------------------------------------------- Splitwise


def test_pools_are_all_splits_in_order() -> None:
    assert ["".join(role[0] for role in roles) for roles in pools(4)] == [
        *("PMMD", "PMDD", "PDDD", "PPMD", "PPDD", "PPPD")
    ]


def test_splitwise_lets_the_reader_read() -> None:
    """The reader reads 2.5 prompts/s and answers 2/s, a writer .625 and 1.25.

    P D D: min(2.5, 2 · 1.25) = 2.5. P M D: min(2.5, 1.25) + 1/2.4 = 1.67. P P D: min(3.1, 1.25).
    """
    plan = planned(world([WRITER_1, READER, WRITER_2], 4), "splitwise")
    assert shape(plan) == [
        ("PREFILL", {"reader": 4}),
        ("DECODE", {"writer-1": 4}),
        ("DECODE", {"writer-2": 4}),
    ]
    assert plan.predicted.capacity_per_s == pytest.approx(2.5)


def test_splitwise_puts_machines_together_from_devices_that_are_too_small() -> None:
    halves = [device(name, 2, 0.1, 0.01) for name in ("left", "right")]
    plan = planned(world([READER, *halves], 4), "splitwise")
    assert {frozenset(layers) for _, layers in shape(plan)} == {
        frozenset({"reader"}),
        frozenset({"left", "right"}),
    }


def test_splitwise_needs_two_machines() -> None:
    assert "there is one machine" in refused(world([READER], 4), "splitwise").reason


# ---------------------------------------------------------------- adapted Splitwise

# Over 4 layers, quick: a prompt 4 · 40 · .01 = 1.6 s, answers 1 / (20 · 4 · .01) = 1.25/s;
# steady: 2 · 1.6 = 3.2 s and .625/s.
QUICK = device("quick", 4, read=0.025, compute=0.01)
STEADY = device("steady", 4, read=0.05, compute=0.02)


def test_adapted_splitwise_must_read_on_the_quicker_device() -> None:
    """steady reads .3125 and quick answers 1.25: .3125. quick reads and steady answers .625."""
    plan = planned(world([QUICK, STEADY], 4), "splitwise-adapted")
    assert shape(plan) == [("PREFILL", {"quick": 4}), ("DECODE", {"steady": 4})]
    assert plan.predicted.capacity_per_s == pytest.approx(0.625)


def test_the_rule_costs_capacity_where_the_quicker_device_answers_better() -> None:
    """scribe: a prompt 4 · 40 · .01 = 1.6 s; answers 1.25/s. dull: a prompt 2 s, but of 16 slots
    16 / (20 · 4 · .5) = .4 answers/s.

    dull reads .5/s and scribe answers 1.25/s: .5. By the rule scribe reads and dull answers: .4.
    """
    scribe = device("scribe", 4, read=0.025, compute=0.01)
    dull = device("dull", 4, read=0.5, compute=0.0125)
    problem = world([scribe, dull], 4, rate_per_s=0.1)
    plan = planned(problem, "splitwise-adapted")
    assert shape(plan) == [("PREFILL", {"scribe": 4}), ("DECODE", {"dull": 4})]
    assert plan.predicted.capacity_per_s == pytest.approx(0.4)
    ours = planned(problem, "e2llm-opt")
    capacity = {rival.name: rival.capacity_per_s for rival in ours.alternatives}
    assert capacity["best disaggregated"] == pytest.approx(0.5)
    assert capacity["adapted Splitwise"] == pytest.approx(0.4)
    (lost,) = (rival for rival in ours.alternatives if rival.name == "adapted Splitwise")
    share = 1 - 0.4 / ours.predicted.capacity_per_s
    assert lost.why_not == f"{share * 100:.2g} % less capacity"


def test_devices_of_one_kind_may_play_both_roles_under_the_rule() -> None:
    twin = device("twin", 4, read=0.025, compute=0.01)
    plan = planned(world([QUICK, twin], 4), "splitwise-adapted")
    assert {role for role, _ in shape(plan)} == {"PREFILL", "DECODE"}
    assert plan.predicted.capacity_per_s == pytest.approx(0.625)
