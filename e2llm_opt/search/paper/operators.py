"""The paper's two chromosomes and what happens to them: plain functions (genome, rng) -> genome.

``Genome([2, 0, 1, 3], [3, 1])`` is the groups {2, 0, 1} and {3}. Every function returns a valid
genome: each device once in the order, positive sizes that add up to the number of devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy.random import Generator

MUTATION_PROBABILITY = 0.3
"""Share of the genomes that are mutated [E2LLM, section 4]."""
_SWAP, _TAIL, _SIZES = 0.2, 0.7, 0.85
"""20 % swap two devices, 50 % new sizes from a random group on, 15 % all sizes, 15 % everything."""


class Genome(NamedTuple):
    """The two chromosomes: devices in an order, and how many of them each group takes."""

    order: list[int]
    sizes: list[int]

    def groups(self) -> list[list[int]]:
        """Return the devices of each group."""
        found, start = [], 0
        for size in self.sizes:
            found.append(self.order[start : start + size])
            start += size
        return found


def random_genome(num_devices: int, rng: Generator) -> Genome:
    """Return a random order with random sizes."""
    return Genome(rng.permutation(num_devices).tolist(), random_sizes(num_devices, rng))


def random_sizes(num_devices: int, rng: Generator) -> list[int]:
    """Return group sizes, each drawn evenly from 1 … what is left."""
    sizes = []
    while num_devices > 0:
        sizes.append(int(rng.integers(1, num_devices + 1)))
        num_devices -= sizes[-1]
    return sizes


def crossover(mother: Genome, father: Genome, rng: Generator) -> Genome:
    """Cross the orders at one random point, repair, and copy the sizes of a random parent."""
    point = int(rng.integers(0, len(mother.order) + 1))
    order = repaired(mother.order[:point] + father.order[point:], mother.order)
    sizes = (mother, father)[int(rng.integers(2))].sizes
    return Genome(order, list(sizes))


def repaired(order: list[int], source: list[int]) -> list[int]:
    """Replace each device that comes again by the next missing one, in the order of *source*."""
    present = set(order)
    missing = iter([device for device in source if device not in present])
    seen: set[int] = set()
    found = []
    for device in order:
        found.append(next(missing) if device in seen else device)
        seen.add(device)
    return found


def mutate(genome: Genome, rng: Generator) -> Genome:
    """Apply one of the paper's four mutations, chosen at its odds."""
    chance = rng.random()
    if chance < _SWAP:
        return swap(genome, rng)
    if chance < _TAIL:
        return with_new_tail(genome, rng)
    if chance < _SIZES:
        return with_new_sizes(genome, rng)
    return random_genome(len(genome.order), rng)


def swap(genome: Genome, rng: Generator) -> Genome:
    """Let two devices change places in the order; the same one twice changes nothing."""
    i, j = rng.integers(0, len(genome.order), 2).tolist()
    order = list(genome.order)
    order[i], order[j] = order[j], order[i]
    return Genome(order, list(genome.sizes))


def with_new_tail(genome: Genome, rng: Generator) -> Genome:
    """Draw the sizes anew from a random group on."""
    kept = genome.sizes[: int(rng.integers(len(genome.sizes)))]
    left = len(genome.order) - sum(kept)
    return Genome(list(genome.order), kept + random_sizes(left, rng))


def with_new_sizes(genome: Genome, rng: Generator) -> Genome:
    """Draw all sizes anew."""
    return Genome(list(genome.order), random_sizes(len(genome.order), rng))
