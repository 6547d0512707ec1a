"""The generational loop: valid genomes, equal for equal seeds, parents by rank, elites kept."""

from __future__ import annotations

from collections import Counter

import numpy as np
from pymoo.core.population import Population

from e2llm_opt.search.paper.evolve import (
    NUM_ELITES,
    POPULATION,
    _ByRank,
    _Elites,
    _genome,
    _row,
    evolve,
)
from e2llm_opt.search.paper.operators import Genome, random_genome
from e2llm_opt.search.stop import Stop

SIX = 6


def identity(genome: Genome) -> object:
    return tuple(sorted(tuple(sorted(group)) for group in genome.groups()))


def distance(genome: Genome) -> float:
    """How far the groups are from {0, 1, 2}, {3}, {4, 5}: devices that stand wrong."""
    wanted = ({0, 1, 2}, {3}, {4, 5})
    return SIX - sum(max(len(set(group) & goal) for group in genome.groups()) for goal in wanted)


def judged(stop: Stop, seed: int) -> list[Genome]:
    seen: list[Genome] = []

    def judge(genome: Genome) -> float:
        seen.append(genome)
        return distance(genome) + 0.1 * abs(len(genome.sizes) - 3)

    evolve(SIX, judge, identity, stop=stop, seed=seed, is_late=lambda: False)
    return seen


def test_every_genome_is_valid_and_the_goal_is_reached() -> None:
    seen = judged(Stop(max_evaluations=1600), 0)
    assert all(sorted(genome.order) == list(range(SIX)) for genome in seen)
    assert all(sum(genome.sizes) == SIX and min(genome.sizes) > 0 for genome in seen)
    assert ((0, 1, 2), (3,), (4, 5)) in map(identity, seen)


def test_equal_seeds_see_equal_genomes_and_other_seeds_do_not() -> None:
    stop = Stop(max_evaluations=300)
    assert judged(stop, 5) == judged(stop, 5)
    assert judged(stop, 5) != judged(stop, 6)


def test_evaluations_and_stagnation_end_the_search_after_a_whole_generation() -> None:
    assert len(judged(Stop(max_evaluations=POPULATION + 1), 0)) == 2 * POPULATION
    flat: list[Genome] = []

    def judge(genome: Genome) -> float:
        flat.append(genome)
        return 1.0

    evolve(3, judge, identity, stop=Stop(stagnation=4), seed=0, is_late=lambda: False)
    assert len(flat) == 5 * POPULATION
    evolve(3, judge, identity, stop=Stop(), seed=0, is_late=lambda: True)
    assert len(flat) == 6 * POPULATION


def test_a_row_of_numbers_is_a_genome_and_back() -> None:
    rng = np.random.default_rng(0)
    for num in (1, 2, 5, 9):
        genome = random_genome(num, rng)
        assert _genome(_row(genome).astype(float)) == genome


def population(*citizens: tuple[Genome, float]) -> Population:
    rows = np.array([_row(genome) for genome, _ in citizens])
    found = Population.new("X", rows)
    found.set("F", np.array([[worth] for _, worth in citizens]))
    return found


def test_the_best_groupings_ever_stay_beside_the_newest_generation_once_each() -> None:
    best, twin = Genome([0, 1, 2], [1, 2]), Genome([0, 2, 1], [1, 2])  # {0}, {1, 2} both
    good, bad = Genome([0, 1, 2], [2, 1]), Genome([0, 1, 2], [3])
    old = [(best, 1.0), (twin, 1.0), (good, 2.0)]
    new = [(bad, 9.0), (bad, 9.0), (good, 2.0)]
    kept = _Elites(identity).do(None, population(*old, *new), n_survive=len(new))
    rows = [_genome(one.X) for one in kept]
    assert rows[-len(new) :] == [bad, bad, good]
    assert rows[: -len(new)] == [best, good]


def test_no_more_elites_stay_than_the_limit() -> None:
    singles = [Genome(list(range(12)), [n, 12 - n]) for n in range(1, 12)]
    old = [(genome, float(i)) for i, genome in enumerate(singles)]
    kept = _Elites(identity).do(None, population(*old, (singles[-1], 99.0)), n_survive=1)
    assert len(kept) == NUM_ELITES + 1
    assert kept.get("F")[:-1, 0].tolist() == list(range(NUM_ELITES))


def test_parents_come_by_rank_however_far_their_worths_are_apart() -> None:
    """Of three, the best is drawn three times as often as the worst, the second twice."""
    genome = Genome([0, 1], [2])
    pop = population((genome, 1e18), (genome, -5.0), (genome, 2.0))
    drawn = _ByRank()._do(None, pop, 3000, 2, random_state=np.random.default_rng(0))
    share = Counter(drawn.ravel().tolist())
    assert drawn.shape == (3000, 2)
    for place, expected in ((0, 1 / 6), (1, 3 / 6), (2, 2 / 6)):
        assert abs(share[place] / 6000 - expected) < 0.03
