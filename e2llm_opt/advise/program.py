"""The cheapest replicas of equal devices that serve a rate: a mixed-integer program.

    min Σ cost k x   with   Σ (p x + m x) >= R,   Σ (d x + m x) >= R,   Σ k x <= most devices,

over columns with x times a replica of k devices of one type in one role, which gives p prefills,
d answers, or m of both a second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.advise.network import on_one_switch
from e2llm_opt.constraints import Constraints
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.problem import Role
from e2llm_opt.search.candidates import Candidates
from e2llm_opt.search.packing import served, silence
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2llm_opt.advise.kinds import Kind
    from e2llm_opt.advise.network import Wire
    from e2llm_opt.problem import Problem
    from e2llm_opt.search.candidate import Candidate, Group

MOST_IN_A_REPLICA = 8
_MORE_SIZES = 3
"""Numbers of devices that are tried beyond the least that hold the model."""


class Column(NamedTuple):
    """A replica of equal devices."""

    kind: int
    """Place among the kinds."""
    num_devices: int
    role: Role
    rate_per_s: float


def columns_of(problem: Problem, place: int, kind: Kind, wire: Wire, most: int) -> list[Column]:
    """Return the replicas of devices of one kind: the least that hold the model, and a few more.

    Parameters
    ----------
    problem
        What is served; its devices are not used.
    place, kind
        Of the devices.
    wire
        How each is linked to the switch.
    most
        Devices at most.
    """
    roles = roles_of(problem)
    num = min(MOST_IN_A_REPLICA, most)
    costs = costs_of(with_devices(problem, [kind] * num, wire))
    candidates = Candidates(costs, range(num))
    own = costs.classes.class_of[0]
    found: list[Column] = []
    least = 0
    for size in range(1, num + 1):
        if least and size > least + _MORE_SIZES:
            break
        for role in roles:
            replica = _soon_enough(problem, candidates, (own,) * size, role)
            if replica is not None:
                least = least or size
                found.append(Column(place, size, role, candidates.rate(replica)))
    return found


def _soon_enough(
    problem: Problem, candidates: Candidates, group: Group, role: Role
) -> Candidate | None:
    """Return the replica with the best rate whose prefill alone keeps the TTFT; None: none does.

    The cut for rate, or where that is too slow at a prompt, the one for latency.
    """
    most_s = problem.workload.slo_ttft_s
    for variant in (Variant.RATE, Variant.LATENCY):
        replica = candidates.find(group, role, variant)
        if replica is None or most_s is None or role is Role.DECODE:
            return replica
        if replica.prefill_latency_s <= most_s:
            return replica
    return None


def roles_of(problem: Problem) -> tuple[Role, ...]:
    """Return the roles that the engine and the constraints allow."""
    roles = problem.constraints.roles
    if roles == "mixed" or not problem.runtime.has_disaggregation:
        return (Role.MIXED,)
    phases = (Role.PREFILL, Role.DECODE)
    return phases if roles == "disaggregated" else (*phases, Role.MIXED)


def with_devices(problem: Problem, kinds: Sequence[Kind], wire: Wire) -> Problem:
    """Return *problem* on devices of *kinds*, all on one switch, called by type and number."""
    devices = []
    for i, kind in enumerate(kinds):
        number = sum(other.name == kind.name for other in kinds[: i + 1])
        name = f"{kind.name}-{number}"
        devices.append(replace(kind.device, name=name, host=name))
    limits = problem.constraints
    free = Constraints(replicas=limits.replicas, roles=limits.roles)
    return replace(problem, inventory=on_one_switch(devices, wire), constraints=free)


def cheapest(
    columns: Sequence[Column],
    costs: Sequence[float],
    rate_per_s: float,
    limits: tuple[int, int | None],
) -> tuple[int, ...] | None:
    """Return how many devices of each kind the cheapest replicas have; None where none do.

    Parameters
    ----------
    columns
        Replicas.
    costs
        Of a device of each kind [K].
    rate_per_s
        Requests a second.
    limits
        Devices at most; replicas, exactly, or None.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import

    if not columns:
        return None
    rates = np.array([column.rate_per_s for column in columns])
    sizes = np.array([float(column.num_devices) for column in columns])
    gives = served(rates, [column.role for column in columns]) / rate_per_s
    rows = np.concatenate([gives.T, [sizes, np.ones(len(columns))]])
    most, replicas = limits
    low = [1.0, 1.0, 0.0, 0.0 if replicas is None else float(replicas)]
    high = [np.inf, np.inf, float(most), np.inf if replicas is None else float(replicas)]
    price = sizes * np.array([costs[column.kind] for column in columns])
    with silence():
        found = milp(
            price,
            constraints=LinearConstraint(rows, low, high),
            integrality=np.ones(len(columns), dtype=np.int64),
            bounds=Bounds(0.0, np.inf),
            options={"mip_rel_gap": 1e-6, "node_limit": 20_000},
        )
    if found.x is None:
        return None
    counts = [0] * len(costs)
    for column, times in zip(columns, np.rint(found.x).astype(int).tolist(), strict=True):
        counts[column.kind] += column.num_devices * times
    return tuple(counts)
