"""Columns: every replica ever evaluated, by its multiset of device classes, with its role rates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.search.candidate import Candidate, Group

EXACT = 1e-6
"""A rate this close to what no replica can exceed, relatively, is the best there is."""
CLOSE = 4 * EXACT
"""A capacity this close to its bound meets it: columns are exact to half of that."""


@dataclass(slots=True)
class Column:
    """What one multiset of device classes can do as a replica.

    Parameters
    ----------
    replicas
        The replica with the highest rate seen in each role.
    rates
        Their requests a second: everything busy, and KV caches through network cards [1/s].
    uppers
        What no replica of these devices can exceed [1/s]; roles that are left out: not known.
    """

    replicas: dict[Role, Candidate] = field(default_factory=dict)
    rates: dict[Role, float] = field(default_factory=dict)
    uppers: dict[Role, float] = field(default_factory=dict)


class Columns:
    """The store of columns: plain data, so that stores can be pickled, sent, and merged."""

    def __init__(self) -> None:
        self._columns: dict[Group, Column] = {}

    def __len__(self) -> int:
        """Return how many multisets of classes are known."""
        return len(self._columns)

    def __iter__(self) -> Iterator[Group]:
        """Iterate over the groups, in the order in which they were first seen."""
        return iter(self._columns)

    def take(self, replica: Candidate, rate: float) -> bool:
        """Keep *replica* where its *rate* is the highest of its group in its role so far."""
        column = self._columns.setdefault(replica.group, Column())
        is_best = rate > column.rates.get(replica.role, 0.0)
        if is_best:
            column.replicas[replica.role] = replica
            column.rates[replica.role] = rate
        return is_best

    def limit(self, group: Group, role: Role, upper: float) -> None:
        """Note that no replica of *group* in *role* has a higher rate than *upper* [1/s]."""
        column = self._columns.setdefault(group, Column())
        column.uppers[role] = min(upper, column.uppers.get(role, upper))

    def best(self, group: Group, role: Role) -> Candidate | None:
        """Return the replica of *group* in *role* with the highest rate so far."""
        column = self._columns.get(group)
        return None if column is None else column.replicas.get(role)

    def rate(self, group: Group, role: Role) -> float:
        """Return its requests a second; 0 where there is none [1/s]."""
        column = self._columns.get(group)
        return 0.0 if column is None else column.rates.get(role, 0.0)

    def upper(self, group: Group, role: Role) -> float:
        """Return what no replica of *group* in *role* can exceed; inf where not known [1/s]."""
        column = self._columns.get(group)
        return float("inf") if column is None else column.uppers.get(role, float("inf"))

    def is_exact(self, group: Group, role: Role) -> bool:
        """Whether the best replica so far is known to be the best there is."""
        return self.upper(group, role) <= self.rate(group, role) * (1 + 2 * EXACT)

    def densest(self, num: int) -> Columns:
        """Return the *num* replicas, of whatever group and role, with most requests a device."""
        found = [
            (-column.rates[role] / len(group), group, role)
            for group, column in self._columns.items()
            for role in column.replicas
        ]
        answer = Columns()
        for _, group, role in sorted(found)[:num]:
            column = self._columns[group]
            answer.take(column.replicas[role], column.rates[role])
            answer.limit(group, role, self.upper(group, role))
        return answer

    def news(self, known: Columns) -> Columns:
        """Return the replicas that are better than those *known*, of the same problem."""
        found = Columns()
        for group, column in self._columns.items():
            for role, replica in column.replicas.items():
                if column.rates[role] > known.rate(group, role):
                    found.take(replica, column.rates[role])
        return found

    def merge(self, other: Columns) -> None:
        """Take in what *other* knows of the same problem."""
        for group, column in other._columns.items():
            for role in Role:
                if role in column.replicas:
                    self.take(column.replicas[role], column.rates[role])
                if role in column.uppers:
                    self.limit(group, role, column.uppers[role])
