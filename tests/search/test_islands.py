"""Islands: the plan depends on their number and the seed, not on what happens to workers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from e2llm_opt import InputError, Islands, Plan, Problem, Progress, Stop, plan
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.loading.load import problem_from_mapping
from e2llm_opt.problem import Objective
from e2llm_opt.search import archipelago, islands
from e2llm_opt.search.archipelago import NUM_MIGRANTS, Archipelago, Epoch, run_epoch, unpacked
from e2llm_opt.search.columns import Columns
from e2llm_opt.search.quick import QuickJudge, evolve_alone
from e2llm_opt.search.search import Search
from e2llm_opt.search.seeds import seed_groupings
from e2llm_opt.workers.workers import Done
from tests.workers.clusters import kill_a_worker, local_cluster, pids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from e2llm_opt.search.quick import Evolver

STOP = Stop(method="ga", max_evaluations=280, max_refinements=0)
"""Three epochs of two generations."""


@pytest.fixture(autouse=True, scope="module")
def _short_epochs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archipelago, "GENERATIONS", 2)
        yield


@pytest.fixture(scope="module")
def problem() -> Problem:
    """Ten distinct devices, one role, and more requests than they serve: capacity decides."""
    devices = [
        {
            "name": f"d{i}",
            "memory_gib": 1.2 + 0.45 * i,
            "memory_bandwidth_gb_s": 30 * (i + 1) ** 1.5,
            "fp16_tflops": 2 + 5 * i,
        }
        for i in range(10)
    ]
    return problem_from_mapping(
        {
            "devices": devices,
            "links": [{"between": "all", "bandwidth_mbit_s": 940, "latency_ms": 0.3}],
            "model": "llama-3.2-3b",
            "weights": "q4_k_m",
            "runtime": "llama.cpp",
            "workload": {"rate_per_s": 100, "prompt_tokens": 200, "output_tokens": 50},
        }
    )


class Inline:
    """Workers that are no processes; *order* is that in which results come back."""

    num = 1

    def __init__(self, order: int = 1) -> None:
        self.order = order
        self.epochs: list[list[Epoch]] = []

    def map_unordered(
        self, function: Callable[[Any], Any], items: Iterable[Any], breathe: Callable[[], None]
    ) -> Iterator[Done[Any]]:
        tasks = list(enumerate(items))
        self.epochs.append([task for _, task in tasks])
        for index, item in tasks[:: self.order]:
            yield Done(index=index, answer=function(item))
            breathe()


def text(answer: object) -> str:
    assert isinstance(answer, Plan)
    found = answer.to_json()
    return found[: found.index('"provenance"')]


def searched(problem: Problem, workers: Inline, stop: Stop = STOP, seed: int = 1) -> Search:
    search = Search(costs_of(problem))
    search.evolver = Archipelago(3, workers)
    search.run(stop, seed)
    return search


@pytest.fixture(scope="module")
def run(problem: Problem) -> tuple[Search, list[list[Epoch]]]:
    """Return a finished search, and what its islands were sent in each epoch."""
    workers = Inline()
    return searched(problem, workers), workers.epochs


def test_who_is_first_and_what_a_worker_remembers_do_not_matter(
    problem: Problem, run: tuple[Search, list[list[Epoch]]]
) -> None:
    archipelago._home.cache_clear()
    forth, back = run[0], searched(problem, Inline(-1))
    assert forth.archive.choices(forth.aim) == back.archive.choices(back.aim)
    assert list(forth.candidates.columns) == list(back.candidates.columns)


def test_islands_differ_and_so_do_seeds(
    problem: Problem, run: tuple[Search, list[list[Epoch]]]
) -> None:
    seeds = [epoch.seed for epochs in run[1] for epoch in epochs]
    assert len(set(seeds)) == len(seeds)
    workers = Inline()
    searched(problem, workers, stop=replace(STOP, max_evaluations=40), seed=2)
    assert not {epoch.seed for epochs in workers.epochs for epoch in epochs} & set(seeds)


def test_the_best_move_to_the_next_island_and_columns_to_all(
    run: tuple[Search, list[list[Epoch]]],
) -> None:
    first, second = run[1][:2]
    evolved = [run_epoch(epoch) for epoch in first]
    for i in range(3):
        best = evolved[i - 1].population[:NUM_MIGRANTS]
        assert np.array_equal(second[i].start[:NUM_MIGRANTS], best)
        own = evolved[i].population[: 40 - NUM_MIGRANTS]
        assert np.array_equal(second[i].start[NUM_MIGRANTS:], own)
    news = [set(unpacked(one.columns)) for one in evolved]
    assert {epoch.columns for epoch in second} == {second[0].columns}
    assert set().union(*news) <= set(unpacked(second[0].columns))
    assert news[0] - news[1], "each found some that the other did not"


def test_every_island_has_the_limits_of_the_search(problem: Problem) -> None:
    workers = Inline()
    searched(problem, workers, stop=replace(STOP, max_evaluations=250, stagnation=1000))
    # Forty to begin with, then two generations of forty; what a later epoch begins with is known.
    assert [epochs[0].stop.max_evaluations for epochs in workers.epochs] == [120, 80 + 40, 50 + 40]


@pytest.mark.needs_jit
def test_islands_end_where_none_gets_better(problem: Problem) -> None:
    workers = Inline()
    searched(problem, workers, stop=replace(STOP, max_evaluations=100_000, stagnation=2))
    best = [min(run_epoch(epoch).best for epoch in epochs) for epochs in workers.epochs]
    assert 2 <= len(best) < 20
    assert best[-1] >= min(best[:-1]), "the last epoch brought nothing"
    assert all(later < min(best[:i]) for i, later in enumerate(best[:-1]) if i)


def test_the_plan_is_never_worse_than_its_seeds(problem: Problem) -> None:
    """Even where the islands bring nothing at all."""

    class Barren(Inline):
        def map_unordered(self, *_: Any) -> Iterator[Done[Any]]:
            yield from ()

    search = searched(problem, Barren(), stop=replace(STOP, stagnation=2))
    alone = Search(costs_of(problem))
    seeds = seed_groupings(alone.evaluator.costs, alone.devices)
    evolve_only = replace(STOP, max_evaluations=len(seeds))

    def only_seeds(judge: QuickJudge, _: Stop, __: int) -> None:
        for labels in seeds:
            judge.worth(labels)

    alone.evolver = only_seeds
    alone.run(evolve_only, 1)
    found, least = search.best_key(), alone.best_key()
    assert found is not None
    assert least is not None
    assert found <= least


@pytest.mark.needs_jit
def test_islands_find_what_one_algorithm_finds(
    problem: Problem, run: tuple[Search, list[list[Epoch]]]
) -> None:
    search = Search(costs_of(problem))
    assert search.evolver is evolve_alone
    search.run(STOP, 1)
    alone, together = search.best_key(), run[0].best_key()
    assert alone is not None
    assert together is not None
    assert together[1] <= alone[1] * (1 + 1e-6), "the drain rate decides here"


@pytest.mark.needs_jit
def test_an_interrupt_keeps_what_came_of_the_islands(problem: Problem) -> None:
    class Interrupted(Inline):
        def map_unordered(
            self, function: Any, items: Any, breathe: Callable[[], None]
        ) -> Iterator[Done[Any]]:
            yield next(super().map_unordered(function, items, breathe))
            raise KeyboardInterrupt

    workers, search = Interrupted(), Search(costs_of(problem))
    search.evolver = Archipelago(3, workers)
    with pytest.raises(KeyboardInterrupt):
        search.run(STOP, 1)
    best = run_epoch(workers.epochs[0][0]).population[0]
    judged = [choice.groups for choice in search.archive.choices(search.aim)]
    classes = search.evaluator.costs.classes.class_of
    members = [
        tuple(sorted(classes[d] for d, one in zip(search.devices, best, strict=True) if one == k))
        for k in sorted({int(k) for k in best if k >= 0})
    ]
    assert any(set(groups) <= set(members) for groups in judged)


@pytest.mark.needs_jit
def test_a_time_limit_holds_for_all_islands_together(problem: Problem) -> None:
    began = time.monotonic()
    stop = replace(STOP, max_evaluations=10**6, stagnation=10**6, time_limit_s=2.0)
    found = searched(problem, Inline(), stop=stop)
    assert found.best_key() is not None
    assert time.monotonic() - began < 3.5


class InlineIslands(Islands):
    """Islands in this very process."""

    @contextmanager
    def evolver(self) -> Iterator[Evolver]:
        yield Archipelago(self.num, Inline())


@pytest.fixture(scope="module")
def here(problem: Problem) -> str:
    """Return the plan of three islands in this process."""
    return text(plan(problem, seed=1, stop=STOP, islands=InlineIslands(num=3)))


@pytest.fixture(scope="module")
def dask() -> Iterator[str]:
    with local_cluster() as address:
        yield address


def killing(kill: Callable[[], None]) -> Callable[[Progress], None]:
    """Return a callback that kills a worker once, in the second epoch."""
    killed: list[Progress] = []

    def progress(state: Progress) -> None:
        if "epoch 2" in state.doing and not killed:
            killed.append(state)
            kill()

    return progress


@pytest.mark.needs_jit
def test_a_cluster_gives_the_plan_of_this_process_though_a_worker_is_killed(
    problem: Problem, here: str, dask: str
) -> None:
    before = pids(dask)
    progress = killing(lambda: kill_a_worker(dask))
    there = plan(problem, seed=1, stop=STOP, islands=Islands(num=3, dask=dask), progress=progress)
    assert set(pids(dask)) != set(before)
    assert text(there) == here
    assert isinstance(there, Plan)
    assert there.problem.options["islands"] == 3


@pytest.mark.slow
def test_a_cluster_gives_the_plan_of_this_process(problem: Problem, here: str, dask: str) -> None:
    assert text(plan(problem, seed=1, stop=STOP, islands=Islands(num=3, dask=dask))) == here


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [1, 2])
def test_processes_give_the_plan_of_this_one_though_one_is_killed(
    problem: Problem, here: str, num_workers: int
) -> None:
    def kill() -> None:
        pid = multiprocessing.active_children()[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    found = plan(
        problem,
        seed=1,
        stop=STOP,
        islands=Islands(num=3, workers=num_workers),
        progress=killing(kill),
    )
    assert text(found) == here


def test_an_island_that_is_lost_is_an_error(problem: Problem) -> None:
    class Sinking(Inline):
        def map_unordered(self, *_: Any) -> Iterator[Done[Any]]:
            yield Done(index=0, error="its worker process died 3 times", is_lost=True)

    with pytest.raises(InputError, match="an island was lost: its worker process died 3 times"):
        searched(problem, Sinking())


def test_a_bug_on_an_island_is_a_bug(problem: Problem) -> None:
    class Buggy(Inline):
        def map_unordered(self, *_: Any) -> Iterator[Done[Any]]:
            yield Done(index=0, error="KeyError: 7")

    with pytest.raises(RuntimeError, match="KeyError: 7"):
        searched(problem, Buggy())


def test_a_dead_address_is_an_error_even_where_nothing_is_evolved(problem: Problem) -> None:
    small = replace(problem, objective=Objective.THROUGHPUT)
    with pytest.raises(InputError, match="'nonsense' is no address of a Dask scheduler"):
        plan(small, stop=Stop(method="exact"), islands=Islands(dask="nonsense"))


def test_islands_are_for_our_planner(problem: Problem) -> None:
    with pytest.raises(InputError, match="islands are for planner e2llm-opt, not for hexgen"):
        plan(problem, planner="hexgen", islands=Islands())


@pytest.mark.parametrize("wrong", [{"num": 0}, {"workers": 0}])
def test_numbers_below_one_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match="must be at least 1, got 0"):
        Islands(**wrong)  # type: ignore[arg-type]


def test_there_are_no_more_processes_than_islands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(islands, "num_cores", lambda: 64)
    with Islands(num=3).evolver() as evolver:
        assert isinstance(evolver, Archipelago)
        assert evolver._workers.num == 3


@pytest.mark.needs_jit
def test_a_plan_without_islands_says_nothing_of_them(problem: Problem) -> None:
    found = plan(problem, stop=replace(STOP, max_evaluations=50))
    assert isinstance(found, Plan)
    assert "islands" not in found.problem.options


def test_news_and_densest_are_parts_of_the_columns(
    run: tuple[Search, list[list[Epoch]]],
) -> None:
    search = run[0]
    columns = search.candidates.columns
    assert set(columns.news(Columns())) == {g for g in columns if _is_replica(columns, g)}
    assert len(columns.news(columns)) == 0
    few = columns.densest(5)
    pairs = [(g, r) for g in columns for r in search.roles if columns.rate(g, r) > 0]
    best = sorted(pairs, key=lambda pair: -columns.rate(*pair) / len(pair[0]))[:5]
    assert {(g, r) for g in few for r in search.roles if few.rate(g, r) > 0} == set(best)
    assert [few.best(g, r) is columns.best(g, r) for g, r in best] == [True] * 5


def _is_replica(columns: Columns, group: tuple[int, ...]) -> bool:
    from e2llm_opt.problem import Role

    return any(columns.rate(group, role) > 0 for role in Role)
