"""Genetic operators on group labels: plain functions (labels, rng) -> labels.

A genome has one label a device, in the canonical device order; equal labels are one group, label
-1 is no group. Labels themselves mean nothing: :func:`canonical` renumbers them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray

    Labels = NDArray[np.int64]
    Operator = Callable[[Labels, Generator], Labels]

UNUSED = -1


def canonical(labels: Labels) -> Labels:
    """Return labels that number the groups by their first device."""
    seen: dict[int, int] = {UNUSED: UNUSED}
    out = np.empty_like(labels)
    for i, label in enumerate(labels.tolist()):
        out[i] = seen.setdefault(label, len(seen) - 1)
    return out


def random_labels(num_devices: int, rng: Generator) -> Labels:
    """Put every device into one of a random number of groups."""
    num_groups = int(rng.integers(1, num_devices + 1))
    return canonical(rng.integers(0, num_groups, num_devices))


def crossover(mother: Labels, father: Labels, rng: Generator) -> Labels:
    """Inherit whole groups: some of the mother's, then the father's as far as devices are free.

    Devices that neither leaves in a group keep the mother's label if that group survives, or
    form the rest of the father's groups.
    """
    groups = [label for label in np.unique(mother).tolist() if label != UNUSED]
    kept = [label for label in groups if rng.random() < 0.5]  # noqa: PLR2004 - a fair coin
    child = np.where(np.isin(mother, kept), mother, UNUSED)
    free = child == UNUSED
    offset = int(mother.max()) + 1
    child[free] = np.where(father[free] == UNUSED, UNUSED, father[free] + offset)
    return canonical(child)


def mutate(labels: Labels, rng: Generator, operators: Sequence[Operator] | None = None) -> Labels:
    """Apply one of *operators*, chosen at random; by default merge, split, swap or move."""
    operators = OPERATORS if operators is None else operators
    changed: Labels = operators[int(rng.integers(len(operators)))](labels, rng)
    return canonical(changed)


def merge(labels: Labels, rng: Generator) -> Labels:
    """Make one group of two."""
    groups = _groups(labels)
    if len(groups) < 2:  # noqa: PLR2004 - two groups are needed
        return labels.copy()
    one, other = rng.choice(groups, 2, replace=False)
    return np.where(labels == other, one, labels)


def split(labels: Labels, rng: Generator) -> Labels:
    """Make two groups of one."""
    large = [label for label in _groups(labels) if (labels == label).sum() > 1]
    if not large:
        return labels.copy()
    chosen = np.flatnonzero(labels == rng.choice(large))
    leaving = rng.permutation(chosen)[: int(rng.integers(1, len(chosen)))]
    out = labels.copy()
    out[leaving] = labels.max() + 1
    return out


def swap(labels: Labels, rng: Generator) -> Labels:
    """Let two devices of different groups change places."""
    i, j = rng.integers(0, len(labels), 2)
    out = labels.copy()
    out[i], out[j] = labels[j], labels[i]
    return out


def move(labels: Labels, rng: Generator) -> Labels:
    """Put one device into another group, into a group of its own, or out of use."""
    targets = [*_groups(labels), int(labels.max()) + 1, UNUSED]
    out = labels.copy()
    out[int(rng.integers(len(labels)))] = rng.choice(targets)
    return out


def leave_out(labels: Labels, rng: Generator) -> Labels:
    """Put a whole group out of use: fewer replicas on fewer devices."""
    groups = _groups(labels)
    if len(groups) < 2:  # noqa: PLR2004 - one must stay
        return labels.copy()
    return np.where(labels == rng.choice(groups), UNUSED, labels)


def call_up(labels: Labels, rng: Generator) -> Labels:
    """Make one group of some of the devices that are out of use."""
    idle = np.flatnonzero(labels == UNUSED)
    if not len(idle):
        return labels.copy()
    out = labels.copy()
    out[rng.permutation(idle)[: int(rng.integers(1, len(idle) + 1))]] = labels.max() + 1
    return out


OPERATORS = (merge, split, swap, move, move)
"""Of mutation: a move is twice as likely as each other change."""


def _groups(labels: Labels) -> Sequence[int]:
    return [label for label in np.unique(labels).tolist() if label != UNUSED]
