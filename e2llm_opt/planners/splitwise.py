"""Splitwise: a prompt pool, a token pool and a mixed pool between them, sized by trying all sizes.

Source: Splitwise (arXiv 2311.18677, ISCA 2024). Machines that each hold the whole model are
divided into pools: some read prompts, some write answers, and a mixed pool does both and takes
what the others cannot. How many machines each pool gets is decided by simulating every split on
the expected load. Where machines differ, the type that is better at prompts reads (the variant
HA). A request goes to the machine with the fewest pending tokens, its prompt and its token machine
chosen together.

What is filled in: Splitwise is given its machines. Here a device that can be a replica is one;
from the others, machines are put together, the fastest first and its nearest next until the model
fits. Machines are sorted by prefill rate over decode rate; the prompt pool is cut from the front,
the token pool from the back, both not empty. Every split is simulated on requests drawn from the
workload, and the objective decides. They go where the wait is shortest, in Splitwise's favour:
by pending tokens, as it routes, they wait longer, and the sizes would be chosen for that. A plan is
static, so that machines of the mixed pool do not go home.
"""

from __future__ import annotations

from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np

from e2llm_opt.planners import refusal
from e2llm_opt.planners.judge import best_by_simulation
from e2llm_opt.planners.planner import Planner
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.seeds import distances
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from e2llm_opt.search.candidate import Group
    from e2llm_opt.search.stop import Stop

Roles = tuple[Role, ...]


class Splitwise(Planner):
    """Three pools."""

    NAME = "splitwise"

    def run(self, stop: Stop, seed: int) -> None:  # noqa: ARG002 - few splits, nothing random
        """Form machines, simulate every split into pools, keep the best that is possible."""
        self.reason = refusal.no_split(self.problem)
        if self.reason:
            return
        machines = sorted(self._machines(), key=self._advantage)
        if len(machines) < 2:  # noqa: PLR2004 - one to read and one to write
            count = "one machine" if machines else "no machine"
            self.reason = f"it needs two machines with the whole model each, and there is {count}"
            return
        self.reason = "no split of the machines into pools can be"
        splits = [roles for roles in pools(len(machines)) if self._can_play(machines, roles)]
        for roles in splits:
            self.keep_packing(machines, roles, self._variant)
        if self.found:
            self.found = [best_by_simulation(self.evaluator, self.found)]

    @property
    def _variant(self) -> Variant:
        is_asked = self.problem.objective is Objective.MAX_CONTEXT
        return Variant.CONTEXT if is_asked else Variant.RATE

    def _can_be(self, group: Group, role: Role) -> bool:
        found = self.candidates.find(group, role, self._variant)
        return found is not None and found.num_devices == len(group)

    def _can_play(self, machines: list[Group], roles: Roles) -> bool:
        return all(map(self._can_be, machines, roles))

    def _machines(self) -> list[Group]:
        """Return devices that hold the model alone, and groups of the others that do together."""
        devices, class_of = self.search.devices, self.costs.classes.class_of
        found: list[Group] = []
        waiting = []
        for i, d in enumerate(devices):
            alone = (class_of[d],)
            if self._is_machine(alone):
                found.append(alone)
            else:
                waiting.append(i)
        hop = distances(self.costs, devices) if devices else np.empty((0, 0))
        speed = self.costs.tables.bandwidth[devices]
        while waiting:
            first = max(waiting, key=lambda i: (speed[i], -i))
            near = sorted(waiting, key=lambda j: (j != first, hop[first, j], -speed[j], j))
            for size in range(2, len(near) + 1):
                group = tuple(sorted(class_of[devices[i]] for i in near[:size]))
                if self._is_machine(group):
                    found.append(group)
                    waiting = [i for i in waiting if i not in near[:size]]
                    break
            else:
                waiting.remove(first)
        return found

    def _is_machine(self, group: Group) -> bool:
        return self.search.rules.allows_group(group) and any(
            self._can_be(group, role) for role in Role
        )

    def _advantage(self, group: Group) -> tuple[float, Group]:
        """Sort machines that are better at prompts to the front; the group decides between equals.

        Decode rate over prefill rate [1].
        """
        first = self.candidates.find(group, Role.PREFILL, self._variant)
        second = self.candidates.find(group, Role.DECODE, self._variant)
        if first is None or second is None:
            return (np.inf if first is None else 0.0), group
        return second.service_rate(self.costs.output_tokens) * first.occupancy_s, group


def pools(num_machines: int) -> list[Roles]:
    """Return every split of machines in their order: prompt pool, mixed pool, token pool.

    >>> [" ".join(role[0] for role in roles) for roles in pools(3)]
    ['P M D', 'P D D', 'P P D']
    """
    found = []
    for front, back in combinations_with_replacement(range(1, num_machines), 2):
        counts = (front, back - front, num_machines - back)
        order = (Role.PREFILL, Role.MIXED, Role.DECODE)
        found.append(
            tuple(role for role, count in zip(order, counts, strict=True) for _ in range(count))
        )
    return sorted(found, key=lambda roles: (roles.count(Role.PREFILL), roles.count(Role.DECODE)))


PLANNER = Splitwise
