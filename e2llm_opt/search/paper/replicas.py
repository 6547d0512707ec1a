"""What a group of devices can be by the paper's laws: its rates in both roles, kept by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2llm_opt.partition.paper.fixed_order import fixed_order_cut
from e2llm_opt.partition.partition import decode_demand, prefill_demand
from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from e2llm_opt.search.candidate import Candidate, Group
    from e2llm_opt.search.candidates import Candidates

MOST_SLOTS = 16
"""Most requests a replica whose speed the paper profiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperReplica:
    """One group as the paper sees it.

    Parameters
    ----------
    prefill_per_s, decode_per_s
        Prompt tokens and answer tokens a second in the two roles; 0: it cannot play the role
        [tokens/s].
    slots
        Requests decoded at once.
    prefill, decode
        The replica in the two roles on the first devices of its classes, slots legal under our
        cost model; None: it cannot play the role.
    """

    prefill_per_s: float
    decode_per_s: float
    slots: int
    prefill: Candidate | None
    decode: Candidate | None

    @property
    def is_usable(self) -> bool:
        """Whether it can play any role; if not, its devices idle."""
        return self.prefill is not None or self.decode is not None

    def in_role(self, role: Role) -> Candidate | None:
        """Return the replica in *role*."""
        return self.prefill if role is Role.PREFILL else self.decode


NOTHING = PaperReplica(prefill_per_s=0.0, decode_per_s=0.0, slots=0, prefill=None, decode=None)


class PaperReplicas:
    """The store: runs the paper's program once for each multiset of device classes.

    A replica of M devices with b requests in M micro-batches of ⌈b/M⌉ takes M·T a token, T its
    slowest stage: b/(M·T) tokens/s. A prompt is alone (b = 1) and takes M·T.

    Parameters
    ----------
    candidates
        The store of our own method, which turns cuts into replicas.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._candidates = candidates
        self._costs = candidates.costs
        self._known: dict[Group, PaperReplica] = {}

    def find(self, group: Group) -> PaperReplica:
        """Return what *group* can be."""
        if group not in self._known:
            self._known[group] = self._search(group)
        return self._known[group]

    def _search(self, group: Group) -> PaperReplica:
        if not self._candidates.fits(group):
            return NOTHING
        prompts_per_s, prefill = self._prefill(group)
        decode_per_s, slots, decode = self._decode(group)
        return PaperReplica(
            prefill_per_s=self._costs.prompt_tokens * prompts_per_s,
            decode_per_s=decode_per_s,
            slots=slots,
            prefill=prefill,
            decode=decode,
        )

    def _prefill(self, group: Group) -> tuple[float, Candidate | None]:
        """Return prompts a second, and the replica."""
        devices = self._candidates.concrete(group)
        found = fixed_order_cut(self._costs, devices, prefill_demand(self._costs))
        if found is None:
            return 0.0, None
        replica = self._candidates.at_cut(found.stages, Role.PREFILL)
        # The demand is one chunk of the prompt.
        whole_s = found.forward_pass_s * self._costs.num_chunks
        return (0.0, None) if replica is None else (1.0 / whole_s, replica)

    def _decode(self, group: Group) -> tuple[float, int, Candidate | None]:
        """Return tokens a second and slots by the paper's law, and the replica with legal slots."""
        devices = self._candidates.concrete(group)
        limit_s = self._costs.problem.workload.slowest_tpot_s
        for slots in self._slot_counts():
            demand = decode_demand(self._costs, slots, -(-slots // len(devices)))
            found = fixed_order_cut(self._costs, devices, demand)
            if found is not None and found.forward_pass_s <= limit_s:
                replica = self._candidates.at_cut(found.stages, Role.DECODE, slots)
                rate = 0.0 if replica is None else slots / found.forward_pass_s
                return rate, slots, replica
        return 0.0, 0, None

    def _slot_counts(self) -> range | tuple[int, ...]:
        """Return b from the highest down; only one where the workload says how many slots."""
        fixed = self._costs.problem.workload.slots
        if fixed is not None:
            return (fixed,)
        return range(min(MOST_SLOTS, self._costs.problem.runtime.max_slots), 0, -1)
