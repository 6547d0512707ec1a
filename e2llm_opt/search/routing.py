"""Which requests go where: the pool's shares, mended by a linear program where links saturate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from e2llm_opt.cost.transfer import decode_loads, prefill_loads
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.transfer import KvTransfer, Loads
    from e2llm_opt.inventory.network import Resource
    from e2llm_opt.search.candidate import Candidate

    Floats = NDArray[np.float64]


Moves: TypeAlias = "dict[tuple[int, int], KvTransfer]"
"""KV transfer of each (PREFILL, DECODE) pair of replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests a second of each replica and route, below what links can carry.

    Parameters
    ----------
    capacity_per_s
        Of the whole plan, link limits included [1/s].
    rates_per_s
        Requests that each replica takes part in [R] [1/s].
    routes
        (PREFILL replica, DECODE replica) -> (rate [1/s], transfer).
    saturated
        Links and cards that limit the capacity.
    """

    capacity_per_s: float
    rates_per_s: tuple[float, ...]
    routes: dict[tuple[int, int], tuple[float, KvTransfer]]
    saturated: tuple[Resource, ...]


def route(
    costs: Costs,
    replicas: tuple[Candidate, ...],
    moves: Moves,
    rates: Floats,
    capacity: float,
) -> Traffic:
    """Return the traffic of a plan.

    Parameters
    ----------
    costs, replicas
        The problem's costs, and the replicas on their devices.
    moves
        KV transfer of each (PREFILL, DECODE) pair.
    rates
        Long-run rates of the pools [R] [1/s].
    capacity
        Of the replicas, links left out [1/s].
    """
    flows = _pool_flows(replicas, moves, rates)
    loads = _flow_loads(costs, replicas, moves, flows)
    # Of all that replicas could serve, another share may cross a link than of what arrives.
    full = _pool_flows(replicas, moves, _full_rates(replicas, costs.output_tokens))
    busiest = max(_busiest(costs, flows, loads), _busiest(costs, full, loads))
    if busiest <= 1.0:
        return _traffic(replicas, moves, flows, capacity, ())
    limit, flows = _relieve(costs, replicas, flows, loads, capacity)
    saturated = _saturated(costs, flows, loads, limit)
    return _traffic(replicas, moves, flows, limit, saturated)


def links_suffice(costs: Costs, replicas: Sequence[Candidate], moves: Moves | None) -> bool:
    """Whether no link or card can be full, whichever of *replicas* serve, and whomever.

    With every replica busy, and every KV cache on the way that loads most. *moves* are those of
    all pairs of PREFILL and DECODE replicas; None: not known, and nothing is sure.
    """
    if moves is None:
        return False
    used: Loads = {}
    for i, replica in enumerate(replicas):
        rate = replica.service_rate(costs.output_tokens)
        own: Loads = {}
        if replica.role is not Role.DECODE:
            _raise(own, prefill_loads(costs, replica.cut))
        if replica.role is not Role.PREFILL:
            batch = -(-replica.slots // replica.micro_batches)
            for resource, num_bytes in decode_loads(costs, replica.cut, batch).items():
                own[resource] = own.get(resource, 0.0) + num_bytes
        sent: Loads = {}
        for (source, _), move in moves.items():
            if source == i:
                _raise(sent, move.loads)
        for part in (own, sent):
            for resource, num_bytes in part.items():
                used[resource] = used.get(resource, 0.0) + rate * num_bytes
    return all(
        load <= costs.network.capacity[resource]
        for resource, load in used.items()
        if resource[0] != "bus"
    )


def _raise(most: Loads, other: Loads) -> None:
    for resource, num_bytes in other.items():
        most[resource] = max(most.get(resource, 0.0), num_bytes)


Flow = tuple[int, int]
"""(PREFILL, DECODE) replicas of a route, or (MIXED, MIXED) for one that stays."""


def shared_out(pairs: Iterable[Flow], rates: Floats) -> dict[Flow, float]:
    """Return requests a second of PREFILL and DECODE pairs: of each as many as both have left."""
    left = rates.tolist()
    found: dict[Flow, float] = {}
    for i, j in pairs:
        part = min(left[i], left[j])
        if part > 0:
            found[i, j] = part
            left[i], left[j] = left[i] - part, left[j] - part
    return found


def _pool_flows(replicas: tuple[Candidate, ...], moves: Moves, rates: Floats) -> dict[Flow, float]:
    """Return the requests of each flow: each PREFILL replica serves all DECODE ones alike.

    Where only some pairs may be used, they are in order: the first takes as much as both have.
    """
    num = [sum(own.role is role for own in replicas) for role in (Role.PREFILL, Role.DECODE)]
    if 0 < len(moves) < num[0] * num[1]:
        mixed = [i for i, own in enumerate(replicas) if own.role is Role.MIXED]
        near = shared_out(moves, rates)
        return {(i, i): float(rates[i]) for i in mixed} | dict.fromkeys(moves, 0.0) | near
    taken = sum(float(rates[i]) for i, c in enumerate(replicas) if c.role is Role.PREFILL)
    flows: dict[Flow, float] = {}
    for i, candidate in enumerate(replicas):
        if candidate.role is Role.MIXED:
            flows[i, i] = float(rates[i])
    for i, j in moves:
        flows[i, j] = float(rates[i] * rates[j]) / taken if taken > 0 else 0.0
    return flows


def _full_rates(replicas: tuple[Candidate, ...], output_tokens: float) -> Floats:
    """Return the rates with everything busy that can be, PREFILL and DECODE in step [R] [1/s]."""
    rates = np.array([replica.service_rate(output_tokens) for replica in replicas])
    first = np.array([replica.role is Role.PREFILL for replica in replicas])
    second = np.array([replica.role is Role.DECODE for replica in replicas])
    pairs = min(rates[first].sum(), rates[second].sum())
    for own in (first, second):
        if own.any():
            rates[own] *= pairs / rates[own].sum()
    return rates


def _flow_loads(
    costs: Costs, replicas: tuple[Candidate, ...], moves: Moves, flows: dict[Flow, float]
) -> dict[Flow, Loads]:
    """Bytes that one request of each flow puts on links and cards."""
    first = [prefill_loads(costs, c.cut) for c in replicas]
    second = [decode_loads(costs, c.cut, -(-c.slots // c.micro_batches)) for c in replicas]
    found: dict[Flow, Loads] = {}
    for i, j in flows:
        parts = [first[i], second[j], moves[i, j].loads if i != j else {}]
        total: Loads = {}
        for part in parts:
            for resource, num_bytes in part.items():
                if resource[0] != "bus":
                    total[resource] = total.get(resource, 0.0) + num_bytes
        found[i, j] = total
    return found


def _busiest(costs: Costs, flows: dict[Flow, float], loads: dict[Flow, Loads]) -> float:
    """Highest utilisation of a link or card."""
    used = _used(flows, loads)
    return max((used[r] / costs.network.capacity[r] for r in used), default=0.0)


def _used(flows: dict[Flow, float], loads: dict[Flow, Loads]) -> Loads:
    used: Loads = {}
    for flow, rate in flows.items():
        for resource, num_bytes in loads[flow].items():
            used[resource] = used.get(resource, 0.0) + rate * num_bytes
    return used


def _relieve(
    costs: Costs,
    replicas: tuple[Candidate, ...],
    flows: dict[Flow, float],
    loads: dict[Flow, Loads],
    capacity: float,
) -> tuple[float, dict[Flow, float]]:
    """Return the capacity that links allow, and flows near the pool's that they can carry."""
    from scipy.optimize import linprog  # noqa: PLC0415 - costs 0.3 s, and few plans need it

    order = list(flows)
    matrix, bound = _limits(costs, replicas, order, loads)
    most = linprog(-np.ones(len(order)), A_ub=matrix, b_ub=bound, method="highs")
    limit = min(capacity, -float(most.fun or 0.0))
    wanted = min(costs.problem.workload.rate_per_s, limit * (1 - 1e-9))
    pool = np.array([flows[flow] for flow in order])
    if pool.sum() > 0:
        pool *= wanted / pool.sum()
    if (matrix @ pool <= bound * (1 + 1e-9)).all():
        return limit, {flow: float(rate) for flow, rate in zip(order, pool, strict=True)}
    # Least total deviation: x = pool + more - less.
    num = len(order)
    found = linprog(
        np.ones(2 * num),
        A_ub=np.hstack([matrix, -matrix]),
        b_ub=bound - matrix @ pool,
        A_eq=np.concatenate([np.ones(num), -np.ones(num)])[None, :],
        b_eq=[wanted - pool.sum()],
        bounds=[*[(0.0, None)] * num, *((0.0, float(most)) for most in pool)],
        method="highs",
    )
    x = pool if found.x is None else np.maximum(pool + found.x[:num] - found.x[num:], 0.0)
    return limit, {flow: float(rate) for flow, rate in zip(order, x, strict=True)}


def _limits(
    costs: Costs, replicas: tuple[Candidate, ...], order: list[Flow], loads: dict[Flow, Loads]
) -> tuple[Floats, Floats]:
    """Rows of A x <= b: each replica's service rate, each link's bandwidth."""
    resources = sorted({r for load in loads.values() for r in load})
    row_of = {resource: len(replicas) + i for i, resource in enumerate(resources)}
    rows = np.zeros((len(replicas) + len(resources), len(order)))
    for column, flow in enumerate(order):
        rows[list(flow), column] = 1.0
        for resource, num_bytes in loads[flow].items():
            rows[row_of[resource], column] = num_bytes / costs.network.capacity[resource]
    rates = [candidate.service_rate(costs.output_tokens) for candidate in replicas]
    return rows, np.array([*rates, *np.ones(len(resources))])


def _saturated(
    costs: Costs, flows: dict[Flow, float], loads: dict[Flow, Loads], limit: float
) -> tuple[Resource, ...]:
    carried = sum(flows.values())
    if carried <= 0:
        return ()
    used = _used(flows, loads)
    scale = limit / carried
    return tuple(sorted(r for r in used if used[r] * scale >= 0.999 * costs.network.capacity[r]))


def _traffic(
    replicas: tuple[Candidate, ...],
    moves: Moves,
    flows: dict[Flow, float],
    capacity: float,
    saturated: tuple[Resource, ...],
) -> Traffic:
    rates = [0.0] * len(replicas)
    for (i, j), rate in flows.items():
        rates[i] += rate
        if i != j:
            rates[j] += rate
    return Traffic(
        capacity_per_s=capacity,
        rates_per_s=tuple(rates),
        routes={pair: (flows[pair], move) for pair, move in moves.items()},
        saturated=saturated,
    )
