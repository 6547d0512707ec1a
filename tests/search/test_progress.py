"""What a search tells of itself is true, and telling changes nothing."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.plan.infeasible import Infeasible
from e2llm_opt.plan.plan import Plan
from e2llm_opt.problem import Objective, Problem
from e2llm_opt.search import search as module
from e2llm_opt.search.progress import Interruption, Progress
from e2llm_opt.search.roles import Scope
from e2llm_opt.search.search import Search
from e2llm_opt.search.stop import Stop
from e2llm_opt.search.trials import difference
from e2llm_opt.solve import plan

ROOT = Path(__file__).parents[2]


@pytest.fixture
def homelab() -> Problem:
    return Problem.load(ROOT / "examples" / "homelab.yaml")


def told(problem: Problem, method: str) -> tuple[Plan | Infeasible, list[Progress]]:
    states: list[Progress] = []
    stop = Stop(method=method, max_evaluations=60)  # type: ignore[arg-type]
    return plan(problem, stop=stop, progress=states.append), states


def at_rate(problem: Problem, rate_per_s: float, objective: Objective) -> Problem:
    workload = replace(problem.workload, rate_per_s=rate_per_s)
    return replace(problem, workload=workload, objective=objective)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("rate_per_s", [0.0, 0.2, 50.0])
@pytest.mark.needs_jit
def test_the_figures_told_last_are_those_of_the_best_that_was_found(
    homelab: Problem, objective: Objective, rate_per_s: float
) -> None:
    states: list[Progress] = []
    search = Search(costs_of(at_rate(homelab, rate_per_s, objective)), states.append)
    search.run(Stop(method="exhaustive"), 0)
    best = search.archive.best(Scope.ANY, search.evaluator)
    if objective is Objective.COST and rate_per_s > 1:
        assert best is None  # the service level is hard, and nothing is fast enough
        return
    assert best is not None
    last, unit_s = states[-1], search.evaluator.ranking.wait_unit_s
    assert last.num_replicas == len(best.replicas)
    assert (last.best_waiting_s is not None) == best.is_stable
    if last.best_waiting_s is not None:
        assert last.best_waiting_s == pytest.approx(best.waiting_time_s, abs=unit_s)
    if last.best_capacity_per_s is not None:
        assert last.best_capacity_per_s == pytest.approx(best.traffic.capacity_per_s)
    else:
        assert best.is_stable
        assert objective is not Objective.THROUGHPUT
    if last.best_latency_s is not None:
        assert last.best_latency_s in (
            pytest.approx(best.latency_s, rel=1e-3),  # what differs less is equal
            pytest.approx(best.unloaded_latency_s, rel=1e-3),
        )


@pytest.mark.parametrize("method", ["exhaustive", "ga"])
@pytest.mark.needs_jit
def test_telling_changes_nothing(homelab: Problem, method: str) -> None:
    stop = Stop(method=method, max_evaluations=60)  # type: ignore[arg-type]
    silent = plan(homelab, stop=stop)
    heard, _ = told(homelab, method)
    assert isinstance(silent, Plan)
    assert isinstance(heard, Plan)
    assert replace(heard, provenance=silent.provenance) == silent


@pytest.mark.needs_jit
def test_time_and_evaluations_only_grow(homelab: Problem) -> None:
    _, states = told(homelab, "ga")
    for first, second in pairwise(states):
        assert first.elapsed_s <= second.elapsed_s
        assert first.evaluations <= second.evaluations


def test_packings_are_counted_once_that_is_worth_it(
    homelab: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COUNT_AFTER_S", 0.0)
    _, states = told(at_rate(homelab, 0.0, Objective.LATENCY), "exhaustive")
    packed = [state for state in states if state.doing == "packing"]
    assert packed[-1].done == packed[-1].planned is not None


def test_a_packing_is_not_counted_for_nobody(
    homelab: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COUNT_AFTER_S", 0.0)
    search = Search(costs_of(homelab))
    search.run(Stop(method="exhaustive"), 0)
    assert search.teller.planned == 0


@pytest.mark.needs_jit
def test_a_plan_is_told_in_people_s_words(homelab: Problem) -> None:
    _, states = told(homelab, "exhaustive")
    assert states[0].best == "none yet"
    assert "MIXED, waiting " in states[-1].best
    _, states = told(at_rate(homelab, 50.0, Objective.WAITING_TIME), "exhaustive")
    assert "not stable, capacity " in states[-1].best


@pytest.fixture
def too_large(homelab: Problem) -> Problem:
    workload = replace(homelab.workload, context_tokens=200_000, slo_tpot_s=None)
    return replace(homelab, workload=workload, weights="f16")


def test_every_change_that_is_tried_is_told(too_large: Problem) -> None:
    answer, states = told(too_large, "auto")
    assert isinstance(answer, Infeasible)
    tried = {state.doing for state in states if state.done is None}
    assert {suggestion.change for suggestion in answer.suggestions} <= tried
    assert len(answer.suggestions) > 1


@pytest.mark.parametrize("num_found", [0, 1])
def test_what_was_found_before_an_interruption_is_kept(too_large: Problem, num_found: int) -> None:
    whole, _ = told(too_large, "auto")
    assert isinstance(whole, Infeasible)

    def interrupt(state: Progress) -> None:
        if state.best.endswith(f"so far: {num_found or 'none'}"):
            raise KeyboardInterrupt

    answer = plan(too_large, progress=interrupt)
    assert isinstance(answer, Infeasible)
    assert answer.reason == f"{whole.reason} (interrupted: not every change was tried)"
    assert answer.suggestions == whole.suggestions[:num_found]


def test_differences_are_told_in_the_words_of_the_file(homelab: Problem) -> None:
    constraints = replace(homelab.constraints, use_all_devices=True)
    workload = replace(homelab.workload, context_tokens=512, min_tokens_per_s=3.14159)
    changed = replace(homelab, weights="q3_k_m", workload=workload, constraints=constraints)
    words = "weights: q3_k_m, context_tokens: 512, min_tokens_per_s: 3.14, use_all_devices: True"
    assert difference(homelab, changed) == words
    assert difference(homelab, homelab) == "the problem as it is"


def test_only_an_interrupt_is_swallowed() -> None:
    with Interruption() as interruption:
        raise KeyboardInterrupt
    assert interruption.happened
    compiled = SystemError("returned a result with an exception set")
    with pytest.raises(SystemError), Interruption():
        raise compiled
    with Interruption() as interruption:
        raise compiled from KeyboardInterrupt()
    assert interruption.happened
    with Interruption() as interruption:
        pass
    assert not interruption.happened
