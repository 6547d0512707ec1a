"""The two chromosomes stay valid whatever is done to them, and each operator does what it says."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.search.paper.operators import (
    MUTATION_PROBABILITY,
    Genome,
    crossover,
    mutate,
    random_genome,
    random_sizes,
    repaired,
    swap,
    with_new_sizes,
    with_new_tail,
)

counts = st.integers(1, 12)
seeds = st.integers(0, 2**32 - 1)


def drawn(num_devices: int, seed: int) -> Genome:
    return random_genome(num_devices, np.random.default_rng(seed))


def is_valid(genome: Genome, num_devices: int) -> bool:
    has_each = sorted(genome.order) == list(range(num_devices))
    return has_each and sum(genome.sizes) == num_devices and min(genome.sizes) > 0


def test_the_papers_example_is_read_as_the_paper_reads_it() -> None:
    genome = Genome([0, 1, 2, 3, 4, 5], [3, 1, 2])
    assert genome.groups() == [[0, 1, 2], [3], [4, 5]]


@given(counts, seeds)
def test_random_genomes_are_valid_and_their_groups_hold_every_device_once(
    num: int, seed: int
) -> None:
    genome = drawn(num, seed)
    assert is_valid(genome, num)
    assert sorted(d for group in genome.groups() for d in group) == list(range(num))
    assert [len(group) for group in genome.groups()] == genome.sizes


@given(counts, seeds, seeds, seeds)
def test_a_child_is_valid_starts_like_its_mother_and_has_the_sizes_of_one_parent(
    num: int, one: int, other: int, chance: int
) -> None:
    mother, father = drawn(num, one), drawn(num, other)
    child = crossover(mother, father, np.random.default_rng(chance))
    assert is_valid(child, num)
    assert child.sizes in (mother.sizes, father.sizes)
    point = int(np.random.default_rng(chance).integers(0, num + 1))
    assert child.order[:point] == mother.order[:point]
    # What the father may give at its own place, he gives.
    for place in range(point, num):
        if father.order[place] not in mother.order[:point]:
            assert child.order[place] == father.order[place]


def test_repair_puts_missing_devices_where_devices_came_twice() -> None:
    assert repaired([2, 0, 0, 2], [2, 0, 3, 1]) == [2, 0, 3, 1]
    assert repaired([3, 1, 1, 1], [0, 1, 2, 3]) == [3, 1, 0, 2]


@given(counts, seeds, seeds)
def test_two_equal_parents_have_a_child_like_them(num: int, one: int, chance: int) -> None:
    parent = drawn(num, one)
    assert crossover(parent, parent, np.random.default_rng(chance)) == parent


@given(counts, seeds, seeds)
def test_mutations_do_what_their_names_say(num: int, one: int, chance: int) -> None:
    genome, rng = drawn(num, one), np.random.default_rng(chance)
    before = Genome(list(genome.order), list(genome.sizes))
    swapped = swap(genome, rng)
    differing = [i for i in range(num) if swapped.order[i] != genome.order[i]]
    assert len(differing) in {0, 2}
    assert swapped.sizes == genome.sizes
    tail, sizes = with_new_tail(genome, rng), with_new_sizes(genome, rng)
    assert tail.order == sizes.order == genome.order
    mutated = mutate(genome, rng)
    assert all(is_valid(found, num) for found in (swapped, tail, sizes, mutated))
    assert genome == before


def test_the_four_mutations_come_at_the_papers_odds() -> None:
    """20 % change the order only, 50 % a tail of the sizes, 15 % all sizes, 15 % both chromosomes.

    Twelve groups of one: new sizes from a random group on keep the first ones, all new sizes
    rarely do.
    """
    assert MUTATION_PROBABILITY == 0.3
    rng, seen = np.random.default_rng(1), Counter[tuple[bool, bool]]()
    genome = Genome(list(range(12)), [1] * 12)
    for _ in range(4000):
        found = mutate(genome, rng)
        order_changed = found.order != genome.order
        moved = sum(a != b for a, b in zip(found.order, genome.order, strict=True))
        seen[order_changed, moved > 2] += 1
    share = {kind: num / 4000 for kind, num in seen.items()}
    assert abs(share[True, True] - 0.15) < 0.02  # a new order: both chromosomes
    assert abs(share[True, False] - 0.2 * 11 / 12) < 0.02  # two devices: a swap
    kept = [mutate(genome, rng) for _ in range(4000)]
    tails = [g for g in kept if g.order == genome.order and g.sizes != genome.sizes]
    starts = sum(g.sizes[0] == 1 for g in tails) / len(tails)
    # A new tail (50 %) changes something with odds 1 - (1/1! + 1/2! + …)/12 and starts at another
    # group than the first with odds 11/12; of what is drawn all anew (15 %), 1/12 starts with 1.
    changed = 1 - 1.718 / 12
    kept_first = 0.5 * (11 / 12 + 1 / 144 - 1.718 / 12) + 0.15 / 12
    assert abs(starts - kept_first / (0.5 * changed + 0.15)) < 0.04


def test_random_sizes_reach_every_way_to_divide_the_devices() -> None:
    rng = np.random.default_rng(0)
    assert len({tuple(random_sizes(4, rng)) for _ in range(400)}) == 8
