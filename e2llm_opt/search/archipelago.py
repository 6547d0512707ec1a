"""Genetic algorithms on islands, one a task: the best groupings move on, columns are shared."""

from __future__ import annotations

import pickle
import time
import zlib
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.search.columns import Columns
from e2llm_opt.search.effort import FULL, QUICK
from e2llm_opt.search.evolve import POPULATION, evolve
from e2llm_opt.search.exhaustive import MAX_DEVICES
from e2llm_opt.search.quick import QuickJudge, RememberedCandidates
from e2llm_opt.search.search import Search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.quick import Memo
    from e2llm_opt.search.roles import Scope
    from e2llm_opt.search.stop import Stop
    from e2llm_opt.search.variant import Variant
    from e2llm_opt.workers.workers import Workers

    Labels = NDArray[np.int64]

GENERATIONS: Final = 10
"""Between two migrations."""
NUM_MIGRANTS: Final = 3
"""Groupings that move on to the next island."""
NUM_FINALISTS: Final = 8
"""Groupings of each island that the search judges itself after each epoch."""
MOST_COLUMNS: Final = 6000
"""Columns that are sent around, so that an epoch stays some megabytes."""
_SHARE_OF_TIME: Final = 0.8
"""Of a time limit: the rest is for the search that looks closely at the best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Some generations on one island: all that decides what comes of them.

    Parameters
    ----------
    problem, aim, variant, stop
        What is searched. Its limits are those of the epoch.
    seed
        Of the random numbers.
    start
        Groupings, one label a device; random ones fill the population.
    known
        What the worth of packings of *start* was.
    columns
        Those of all islands, packed.
    """

    problem: Problem
    aim: Scope
    variant: Variant
    stop: Stop
    seed: int
    start: tuple[Labels, ...]
    known: dict[tuple[Group, ...], float]
    columns: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolved:
    """What came of an epoch.

    Parameters
    ----------
    population
        Groupings, the best first.
    known
        Worth of their packings.
    columns
        New or better ones, packed.
    memo
        What the groups of the finalists are best at, so that it need not be found again.
    num_tried, num_evaluations
        Packings judged, and sets of replicas in roles.
    """

    population: tuple[Labels, ...]
    known: dict[tuple[Group, ...], float]
    columns: bytes
    memo: Memo
    num_tried: int
    num_evaluations: int

    @property
    def best(self) -> float:
        """Worth of the best grouping; less is better."""
        return min(self.known.values())


class Archipelago:
    """Evolves groupings on several islands; an evolver of a search.

    Each island is a genetic algorithm of its own with the limits of the search. After every
    :data:`GENERATIONS` generations the best groupings of each move to the next one in a ring, and
    the columns of all are merged. Islands wait for each other there, so that the plan depends on
    their number, the seed and the limits, but not on how many workers there are or who was first.

    Parameters
    ----------
    num
        How many.
    workers
        Where they are.
    """

    def __init__(self, num: int, workers: Workers) -> None:
        self._num, self._workers = num, workers

    def __call__(self, judge: QuickJudge, stop: Stop, seed: int) -> None:
        """Evolve until *stop*, and show *judge* the best groupings of each epoch."""
        for labels in judge.seeds:
            judge.worth(labels)
        judge.search.teller.planned = self._num * stop.max_evaluations
        sea = _Sea(judge, stop, self._num)
        while not sea.is_still:
            epochs = sea.epochs(seed)
            try:
                for done in self._workers.map_unordered(run_epoch, epochs, sea.tell):
                    if done.is_lost:
                        raise InputError(f"an island was lost: {done.error}")
                    if done.answer is None:
                        raise RuntimeError(done.error)
                    sea.land(done.index, done.answer)
            finally:  # an interrupted epoch has results, too
                sea.settle()


class _Sea:
    """The state of all islands between two epochs."""

    def __init__(self, judge: QuickJudge, stop: Stop, num: int) -> None:
        self._judge, self._stop, self._num = judge, stop, num
        self._populations: list[tuple[Labels, ...]] = [tuple(judge.seeds)] * num
        self._known: list[dict[tuple[Group, ...], float]] = [{}] * num
        self._landed: dict[int, Evolved] = {}
        self._epoch, self._spent, self._since = 0, 0, 0
        self._best = float("inf")
        self._num_tried = 0

    @property
    def is_still(self) -> bool:
        """Whether the limits say that it is enough."""
        is_stagnant = self._since * GENERATIONS >= self._stop.stagnation
        is_spent = self._spent >= self._stop.max_evaluations
        return is_stagnant or is_spent or self._left_s == 0

    @property
    def _left_s(self) -> float | None:
        """What is left of the time limit for islands; None without one [s]."""
        if self._stop.time_limit_s is None:
            return None
        elapsed = self._judge.search.teller.elapsed_s
        return max(_SHARE_OF_TIME * self._stop.time_limit_s - elapsed, 0.0)

    def epochs(self, seed: int) -> list[Epoch]:
        """Return the next epoch of every island, the migrants of its neighbour on board."""
        search = self._judge.search
        first = 0 if self._epoch else POPULATION
        generations = min(GENERATIONS, self._stop.stagnation)
        most = min(first + GENERATIONS * POPULATION, self._stop.max_evaluations - self._spent)
        self._spent += most
        left_s = self._left_s
        stop = replace(
            self._stop,
            max_evaluations=most + POPULATION - first,  # those of a later start are known
            stagnation=generations,
            time_limit_s=None if left_s is None else max(left_s, 1e-3),
        )
        columns = packed(search.candidates.columns.densest(MOST_COLUMNS))
        return [
            Epoch(
                problem=search.evaluator.costs.problem,
                aim=search.aim,
                variant=self._judge.variant,
                stop=stop,
                seed=_seed(seed, self._epoch, i),
                start=self._boarded(i),
                known=self._known[i] | self._known[i - 1],
                columns=columns,
            )
            for i in range(self._num)
        ]

    def _boarded(self, i: int) -> tuple[Labels, ...]:
        own = self._populations[i]
        if not self._epoch:
            return own
        return (*self._populations[i - 1][:NUM_MIGRANTS], *own)[:POPULATION]

    def tell(self) -> None:
        """Tell how far all islands are."""
        doing = f"{self._num} islands, epoch {self._epoch + 1}, grouping"
        self._judge.tell(doing, self._num_tried)

    def land(self, i: int, evolved: Evolved) -> None:
        """Take the result of island *i*; it counts when the epoch is over."""
        self._landed[i] = evolved
        self._num_tried += evolved.num_tried
        self._judge.search.evaluator.num_evaluations += evolved.num_evaluations
        self.tell()

    def settle(self) -> None:
        """End the epoch: merge, judge the finalists, and see whether anything got better."""
        judge, landed = self._judge, sorted(self._landed.items())
        self._landed = {}
        for i, evolved in landed:
            self._populations[i], self._known[i] = evolved.population, evolved.known
            judge.search.candidates.columns.merge(unpacked(evolved.columns))
            if isinstance(judge.store, RememberedCandidates):
                judge.store.memo.update(evolved.memo)
        for _, evolved in landed:
            for labels in evolved.population[:NUM_FINALISTS]:
                judge.worth(labels)
        judge.polish()
        reached = min((evolved.best for _, evolved in landed), default=float("inf"))
        self._since = 0 if reached < self._best else self._since + 1
        self._best = min(self._best, reached)
        self._epoch += 1


def run_epoch(epoch: Epoch) -> Evolved:
    """Run some generations of one island, wherever this is."""
    began = time.monotonic()
    home, given = _home(epoch.problem, epoch.aim), unpacked(epoch.columns)
    search, limit = home.search, epoch.stop.time_limit_s
    columns = unpacked(epoch.columns)
    store = RememberedCandidates(
        search.evaluator.costs,
        search.devices,
        FULL if len(search.devices) <= MAX_DEVICES else QUICK,
        columns,
    )
    store.memo = home.memo

    def is_late() -> bool:
        return limit is not None and time.monotonic() - began > limit

    judge = QuickJudge(search, epoch.variant, epoch.stop, store, is_late)
    before = search.evaluator.num_evaluations
    judge.known.update(epoch.known)
    population = evolve(
        epoch.start,
        judge.worth,
        judge.identity,
        stop=epoch.stop,
        seed=epoch.seed,
        is_late=is_late,
        between=judge.between,
    )
    packings = [judge.packing(labels) for labels in population]
    finalists = {group for packing in packings[:NUM_FINALISTS] for group in packing}
    return Evolved(
        population=tuple(population),
        known={packing: judge.known[packing] for packing in packings},
        columns=packed(columns.news(given)),
        memo={key: found for key, found in home.memo.items() if key[0] in finalists},
        num_tried=judge.num_tried,
        num_evaluations=search.evaluator.num_evaluations - before,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """What a worker keeps of a problem; nothing of a run, so that it does not matter who ran."""

    search: Search
    memo: Memo


@lru_cache(maxsize=2)
def _home(problem: Problem, aim: Scope) -> _Home:
    return _Home(search=Search(costs_of(problem), aim=aim), memo={})


def _seed(seed: int, epoch: int, island: int) -> int:
    return int(np.random.SeedSequence([seed, epoch, island]).generate_state(1)[0])


def packed(columns: Columns) -> bytes:
    """Return *columns* as few bytes, for the way to a worker and back."""
    return zlib.compress(pickle.dumps(columns), 1)


def unpacked(data: bytes) -> Columns:
    """Return the columns that were :func:`packed`."""
    columns = pickle.loads(zlib.decompress(data))  # noqa: S301 - from our own workers
    if not isinstance(columns, Columns):
        message = "these are no columns"
        raise TypeError(message)
    return columns
