"""What a set of replicas is worth: roles, queueing, KV transfers and link limits together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from e2llm_opt.cost import kernel
from e2llm_opt.cost.transfer import kv_transfer
from e2llm_opt.problem import Objective, Role
from e2llm_opt.search.atlas import Atlas, moved, pool_of
from e2llm_opt.search.ranking import Key, Ranking, longest_request
from e2llm_opt.search.routing import Traffic, links_suffice, route, shared_out
from e2llm_opt.search.spare import Spare
from e2llm_opt.search.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from e2llm_opt.cost.cut import Cut
    from e2llm_opt.cost.pools import Pool
    from e2llm_opt.cost.transfer import KvTransfer
    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.candidates import Candidates
    from e2llm_opt.search.routing import Moves

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MANY_PAIRS = 1000
"""Pairs of PREFILL and DECODE replicas above which only the nearest exchange requests."""
ROLE_CODES = {Role.PREFILL: kernel.PREFILL, Role.DECODE: kernel.DECODE, Role.MIXED: kernel.MIXED}
ROLE_OF = {code: role for role, code in ROLE_CODES.items()}
Kind: TypeAlias = tuple[tuple[int, int, int], ...]
"""Of a replica: (device or its class, start, stop) of each stage."""
Roled: TypeAlias = "tuple[Sequence[Group], Ints]"
"""Groups, and rows of role codes for them [A, R]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Replicas in their roles with everything predicted of them.

    Parameters
    ----------
    replicas
        Candidates with the devices they really use.
    traffic
        Requests of each replica and on each route, and the capacity that links leave.
    waiting_time_s, ttft_s, latency_s
        Means [s]; inf above capacity.
    tpot_s, unloaded_latency_s
        Means [s].
    """

    replicas: tuple[Candidate, ...]
    traffic: Traffic
    waiting_time_s: float
    ttft_s: float
    tpot_s: float
    latency_s: float
    unloaded_latency_s: float

    @property
    def is_stable(self) -> bool:
        """Whether the arrival rate is below capacity."""
        return self.waiting_time_s < np.inf

    @property
    def values(self) -> list[float]:
        """The figures as the queueing kernel orders them [6]."""
        return [
            self.traffic.capacity_per_s,
            self.waiting_time_s,
            self.ttft_s,
            self.tpot_s,
            self.latency_s,
            self.unloaded_latency_s,
        ]

    @property
    def num_devices(self) -> int:
        """Devices that hold layers."""
        return sum(replica.num_devices for replica in self.replicas)


class Evaluator:
    """Turns groups and roles into outcomes, and compares them.

    Parameters
    ----------
    candidates
        The store of replicas.
    wait_unit_s
        Waits are compared after rounding to this (DESIGN section 5) [s].

    Attributes
    ----------
    ranking
        What makes one outcome better than another.
    spare
        What outcomes leave after losses; None: no loss need be survived.
    """

    def __init__(self, candidates: Candidates, wait_unit_s: float = 1e-3) -> None:
        self.candidates = candidates
        self.costs = candidates.costs
        self.ranking = Ranking(candidates.costs, wait_unit_s)
        self.num_evaluations = 0
        self._transfers: dict[tuple[Cut, Cut], KvTransfer] = {}
        self._exposures: dict[tuple[Kind, Kind], float] = {}
        hosts = Counter(device.host for device in self.costs.problem.devices)
        self._are_alone = max(hosts.values()) == 1
        self._atlases = {variant: Atlas(candidates, variant) for variant in Variant}
        num = self.costs.problem.constraints.survive
        self.spare = Spare(self, num) if num else None

    def key(self, outcome: Outcome) -> Key:
        """Return what sorts plans: stable first, then the objective, latency, fewer devices."""
        lacks = self.spare.lacks(outcome.replicas) if self.spare else None
        return self._key(np.array(outcome.values), outcome.replicas, lacks)

    def _key(
        self, values: Floats, replicas: Sequence[Candidate], lacks: tuple[float, float] | None
    ) -> Key:
        groups = [replica.group for replica in replicas]
        fixed = np.array([[*self.ranking.size(groups), longest_request(replicas)]])
        lacking = None if lacks is None else np.array([lacks])
        return tuple(self.ranking.keys(values[None, :], fixed, lacking)[0].tolist())

    def screen(self, sets: Sequence[Roled], variant: Variant) -> tuple[Floats, Floats]:
        """Return figures [A, 6] and keys [A, 5] of each row of role codes of each set of groups.

        Links are left out: never worse than the truth, as a saturated link only takes capacity
        away.
        """
        first = _starts(sets)
        fixed = np.empty((first[-1], 3))
        for k, (groups, roles) in enumerate(sets):
            fixed[first[k] : first[k + 1], :2] = self.ranking.size(groups)
            fixed[first[k] : first[k + 1], 2] = self._longest(groups, variant, roles)
        values, lacks = self.figures(sets, variant)
        return values, self.ranking.keys(values, fixed, lacks)

    def figures(self, sets: Sequence[Roled], variant: Variant) -> tuple[Floats, Floats | None]:
        """Return what :meth:`screen` makes keys of.

        The figures [A, 6] of each row of role codes, as the queueing kernel has them, and what is
        lacking after losses [A, 2]; None where none need be survived.
        """
        self.num_evaluations += sum(len(roles) for _, roles in sets)
        width = max(len(groups) for groups, _ in sets)
        rows = np.zeros((len(sets), width), dtype=np.int64)
        first = _starts(sets)
        codes = np.zeros((first[-1], width), dtype=np.int64)
        pool = self._atlases[variant].pool_of_all
        for k, (groups, roles) in enumerate(sets):
            pool, rows[k, : len(groups)] = self._atlases[variant].rows(groups)
            codes[first[k] : first[k + 1], : len(groups)] = roles
        num = np.array([len(groups) for groups, _ in sets], dtype=np.int64)
        values = kernel.screen(pool, rows, num, first, codes)
        owner = np.repeat(np.arange(len(sets)), np.diff(first))
        return values, self._lacks(pool, rows[owner], codes)

    def _lacks(self, pool: Pool, rows: Ints, codes: Ints) -> Floats | None:
        """Return what rows of a pool [A, R] lack after losses, links left out [A, 2]."""
        return self.spare.screen(pool, rows, codes) if self.spare else None

    def screen_given(self, ways: Sequence[Mapping[Role, Candidate]], codes: Ints) -> Floats:
        """Return keys [A, 5] of each row of role codes [A, R] of replicas given in each role.

        *ways* are the roles each can play, on the same stages. Links are left out, as above.
        """
        fixed = np.zeros((len(codes), 3))
        fixed[:, :2] = self.ranking.size([next(iter(own.values())).group for own in ways])
        if self.costs.problem.objective is Objective.MAX_CONTEXT:
            of_code = [{ROLE_CODES[role]: one for role, one in own.items()} for own in ways]
            fixed[:, 2] = [
                longest_request(own[code] for own, code in zip(of_code, row, strict=True))
                for row in codes.tolist()
            ]
        values, lacks = self.figures_given(ways, codes)
        return self.ranking.keys(values, fixed, lacks)

    def figures_given(
        self, ways: Sequence[Mapping[Role, Candidate]], codes: Ints
    ) -> tuple[Floats, Floats | None]:
        """Return the same of replicas given in each role; zeros: one cannot play any."""
        self.num_evaluations += len(codes)
        if not all(ways):
            return np.zeros((len(codes), 6)), np.ones((len(codes), 2)) if self.spare else None
        some = tuple(own.get(Role.PREFILL) or next(iter(own.values())) for own in ways)
        pairs = [[i for i, own in enumerate(ways) if r in own] for r in (Role.PREFILL, Role.DECODE)]
        transfer = np.full((len(ways), len(ways)), np.inf)
        self._expose(some, (pairs[0], pairs[1]), transfer)
        most = max(one.slots for own in ways for one in own.values())
        found = [[own.get(role) for role in Role] for own in ways]
        pool = pool_of(found, transfer, self.costs.problem.workload, most)
        rows, num = np.arange(len(ways))[None, :], np.array([len(ways)])
        values = kernel.screen(pool, rows, num, np.array([0, len(codes)]), codes)
        return values, self._lacks(pool, np.repeat(rows, len(codes), 0), codes)

    def _longest(self, groups: Sequence[Group], variant: Variant, roles: Ints) -> Floats:
        """Longest request in each row of role codes, if the objective asks for it [A] [tokens]."""
        longest = np.zeros(len(roles))
        if self.costs.problem.objective is Objective.MAX_CONTEXT:
            find = self.candidates.find
            held = {
                (i, ROLE_CODES[role]): found
                for i, group in enumerate(groups)
                for role in Role
                if (found := find(group, role, variant)) is not None
            }
            for row, codes in enumerate(roles.tolist()):
                longest[row] = longest_request(held[key] for key in enumerate(codes))
        return longest

    def others(self, group: Group, role: Role) -> Iterator[Candidate]:  # noqa: ARG002 - some have
        """Yield replicas of *group* in *role* that the store itself would not choose."""
        return iter(())

    def pool(self, groups: Sequence[Group], variant: Variant) -> Pool:
        """Return the queueing kernel's view of *groups*, each in every role it can play."""
        return self._atlases[variant].pool(groups)

    def better(self, replicas: Sequence[Candidate], than: Outcome) -> Outcome | None:
        """Return the outcome of *replicas* where its key is smaller than that of *than*."""
        values, _, _ = self._queueing(tuple(replicas))
        key, lacks = self.key(than), self.spare.quick(replicas) if self.spare else None
        if self._key(values, replicas, lacks) >= key:
            return None
        outcome = self.outcome(replicas)
        return outcome if self.key(outcome) < key else None

    def outcome(self, replicas: Sequence[Candidate]) -> Outcome:
        """Return the full outcome of *replicas*, which hold disjoint devices."""
        replicas = tuple(replicas)
        self.num_evaluations += 1
        values, rates, moves = self._queueing(replicas)
        traffic = route(self.costs, replicas, moves, rates, float(values[kernel.CAPACITY]))
        if self.costs.problem.workload.rate_per_s >= traffic.capacity_per_s * (1 - 1e-9):
            values[[kernel.WAITING, kernel.TTFT, kernel.LATENCY]] = np.inf
        return Outcome(
            replicas=replicas,
            traffic=traffic,
            waiting_time_s=float(values[kernel.WAITING]),
            ttft_s=float(values[kernel.TTFT]),
            tpot_s=float(values[kernel.TPOT]),
            latency_s=float(values[kernel.LATENCY]),
            unloaded_latency_s=float(values[kernel.UNLOADED]),
        )

    def waits_at(self, outcome: Outcome, rates_per_s: Sequence[float]) -> list[float]:
        """Return the mean waiting time of *outcome* at other arrival rates [s]; inf if too high.

        Requests go where they wait least at that rate.
        """
        transfer, _ = self._transfers_of(outcome.replicas)
        most = outcome.traffic.capacity_per_s * (1 - 1e-9)
        return [
            float(self._evaluated(outcome.replicas, transfer, rate)[0][kernel.WAITING])
            if rate < most
            else np.inf
            for rate in rates_per_s
        ]

    def has_wide_links(self, replicas: Sequence[Candidate]) -> bool:
        """Whether no link can be full, whichever of *replicas* serve."""
        return links_suffice(self.costs, replicas, self._transfers_of(tuple(replicas))[1])

    def _queueing(self, replicas: tuple[Candidate, ...]) -> tuple[Floats, Floats, Moves]:
        """Figures and rates with links left out, and the KV transfers between the replicas."""
        transfer, moves = self._transfers_of(replicas)
        values, rates = self._evaluated(replicas, transfer, self.costs.problem.workload.rate_per_s)
        if moves is None:
            moves = self._nearest(replicas, transfer, rates)
        return values, rates, moves

    def _evaluated(
        self, replicas: tuple[Candidate, ...], transfer: Floats, rate_per_s: float
    ) -> tuple[Floats, Floats]:
        """Figures and rates at an arrival rate, links left out."""
        found = [[c if c.role is role else None for role in Role] for c in replicas]
        most = max((c.slots for c in replicas), default=1)
        workload = replace(self.costs.problem.workload, rate_per_s=rate_per_s)
        pool = pool_of(found, transfer, workload, most)
        roles = np.array([ROLE_CODES[c.role] for c in replicas], dtype=np.int64)
        return kernel.evaluate(pool, roles)

    def _transfers_of(self, replicas: tuple[Candidate, ...]) -> tuple[Floats, Moves | None]:
        """KV transfer times of all pairs [R, R] [s], and the transfers where pairs are few."""
        num = len(replicas)
        first = [i for i, c in enumerate(replicas) if c.role is Role.PREFILL]
        second = [j for j, c in enumerate(replicas) if c.role is Role.DECODE]
        transfer = np.full((num, num), np.inf)
        if len(first) * len(second) > MANY_PAIRS:
            self._expose(replicas, (first, second), transfer)
            return transfer, None
        moves: Moves = {}
        for i, j in product(first, second):
            moves[i, j] = self._transfer(replicas[i], replicas[j])
            transfer[i, j] = moves[i, j].exposed_s
        return transfer, moves

    def _expose(
        self,
        replicas: tuple[Candidate, ...],
        pairs: tuple[list[int], list[int]],
        transfer: Floats,
    ) -> None:
        """Write the transfer times of *pairs* into *transfer*, once for each pair of kinds."""
        kinds: list[dict[Kind, list[int]]] = [{}, {}]
        for side, rows in zip(kinds, pairs, strict=True):
            for row in rows:
                side.setdefault(self.kind(replicas[row].cut), []).append(row)
        for (one, sources), (other, targets) in product(kinds[0].items(), kinds[1].items()):
            if (one, other) not in self._exposures:
                move = self._transfer(replicas[sources[0]], replicas[targets[0]])
                self._exposures[one, other] = move.exposed_s
            transfer[np.ix_(sources, targets)] = self._exposures[one, other]

    def kind(self, cut: Cut) -> Kind:
        """Return what replicas that are alike share: devices of the same classes, and the layers.

        That decides where every device is alone on its host: no two of one class differ in their
        links. Else every replica is of a kind of its own.
        """
        if not self._are_alone:
            return cut
        class_of = self.costs.classes.class_of
        return tuple((class_of[d], start, stop) for d, start, stop in cut)

    def _nearest(self, replicas: tuple[Candidate, ...], transfer: Floats, rates: Floats) -> Moves:
        """Return transfers of the nearest pairs, the least latency first, enough for all requests.

        For *rates*, and for those with everything busy.
        """
        pairs = np.argwhere(np.isfinite(transfer))
        heads = np.array([replica.cut[0][0] for replica in replicas])
        latency = self.costs.ways.of(heads[pairs[:, 0]], heads[pairs[:, 1]])[0].min(axis=-1)
        order = np.lexsort((transfer[pairs[:, 0], pairs[:, 1]], latency))
        near = [(i, j) for i, j in pairs[order].tolist()]
        full = np.array([self.candidates.rate(replica) for replica in replicas])
        used = {*shared_out(near, rates), *shared_out(near, full)}
        return {(i, j): self._transfer(replicas[i], replicas[j]) for i, j in near if (i, j) in used}

    def _transfer(self, source: Candidate, target: Candidate) -> KvTransfer:
        key = (source.cut, target.cut)
        if key not in self._transfers:
            self._transfers[key] = kv_transfer(
                self.costs, source.cut, target.cut, source.prefill_latency_s
            )
        return self._transfers[key]

    def place(
        self, groups: Sequence[Group], roles: Sequence[Role | None], variant: Variant
    ) -> tuple[Candidate, ...] | None:
        """Return candidates on disjoint devices for *groups* in *roles* (None: not used)."""
        waiting = {k: list(rows) for k, rows in self.candidates.rows.items()}
        placed = []
        for group, role in zip(groups, roles, strict=True):
            rows = [waiting[k].pop(0) for k in group]
            if role is None:
                continue
            candidate = self.candidates.find(group, role, variant)
            if candidate is None:
                return None
            there = moved(self.costs, candidate, self.candidates.concrete(group), rows)
            if there is None:
                return None
            # The best one known by now may leave devices idle that another had used.
            placed.append(replace(there, group=self.costs.group(there.cut)))
        return tuple(placed)


def _starts(sets: Sequence[Roled]) -> Ints:
    """Return the first row of each set in an array of all assignments, and their number."""
    return np.cumsum([0, *(len(roles) for _, roles in sets)], dtype=np.int64)
