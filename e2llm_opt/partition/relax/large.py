"""Over-estimates for all groups with many devices at once: the roofline of pooled devices.

Let u_k be the requests a second whose layers class k computes (v = Σ u_k, in shares of the layers),
y_k its devices, z the replicas, and r the least number of devices in one. A stage of a pipeline
takes at least t_k a layer and its hop h_k, so that no device has more to do than it has time,

    busy_k u_k <= y_k,   busy_k = L t_k (1 + (r - 1) min (h / t) / L)   for each request,

a request holds its slot while it passes through all stages, and weights and KV cache must fit:

    Σ stay_k u_k + fixed v <= slots z,
    cache (Σ stay_k u_k + fixed v) + weights z <= Σ room_k y_k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from e2llm_opt.problem import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from e2llm_opt.partition.relax.tables import Rules

    Floats = NDArray[np.float64]


class Group(NamedTuple):
    """What is said of all large groups together."""

    num_layers: int
    size: int
    """Devices, at least."""
    slots: int
    """Most slots of a replica."""
    weights: float
    """Of the model [bytes]."""
    cache: float
    """KV cache of a slot [bytes]."""
    room: Floats
    """Of a device of each class [K] [bytes]."""


class Large(NamedTuple):
    """All groups of some size or more, in one role and with one range of batches."""

    role: Role
    busy: Floats
    """Time of a class's devices for a request that is theirs alone [K] [s]."""
    stay: Floats
    """How long such a request holds its slot [K] [s]."""
    fixed: float
    """How much longer, whoever computes [s]."""
    slots: float
    """Of a replica."""
    cache: float
    """Of a slot [bytes]; 0 for a PREFILL replica, which holds that of one request."""
    group: Group

    @property
    def prefills(self) -> float:
        """1 where it prefills."""
        return float(self.role is not Role.DECODE)

    @property
    def answers(self) -> float:
        """1 where it decodes."""
        return float(self.role is not Role.PREFILL)


class Step(NamedTuple):
    """Times of a chunk of a prompt or of a decode step."""

    layer: Floats
    """A layer on each class [K] [s]."""
    hop: Floats
    """Shortest outgoing hop of each class [K] [s]."""

    def pooled(self, group: Group) -> Floats:
        """Return how long a device is busy with all layers, its share of the hops counted [K]."""
        hops = (group.size - 1) * float(np.min(self.hop / self.layer)) if group.size > 1 else 0.0
        found: Floats = self.layer * (group.num_layers + hops)
        return found

    def hops(self, num: int) -> float:
        """Return the least time of so many hops [s]."""
        return num * float(self.hop.min()) if num > 0 else 0.0


def prefill_large(chunk: Step, rules: Rules, group: Group) -> Large:
    """Return the over-estimate of PREFILL replicas; a pipeline has a prompt a layer at most."""
    busy = rules.chunks * chunk.pooled(group)
    stay = rules.chunks * group.num_layers * chunk.layer
    slots = float(group.num_layers) if rules.is_pipelined else 1.0
    fixed = rules.chunks * chunk.hops(group.size - 1)
    return Large(Role.PREFILL, busy, stay, fixed, slots, 0.0, group)


def decode_large(step: Step, rules: Rules, batch: int, group: Group) -> Large:
    """Return the over-estimate of DECODE replicas with micro-batches up to *batch*."""
    slots = group.slots if rules.is_pipelined else batch
    busy = rules.output / batch * step.pooled(group)
    stay = rules.output * group.num_layers * step.layer
    fixed = rules.output * step.hops(group.size if group.size > 1 else 0)
    return Large(Role.DECODE, busy, stay, fixed, float(slots), group.cache, group)


def mixed_large(parts: tuple[Step, Step], rules: Rules, batch: int, group: Group) -> Large:
    """Return the over-estimate of MIXED replicas.

    A pause is at least that of one layer's stage; where it is a prompt's latency, at least that of
    one chunk in all stages.
    """
    chunk, step = parts
    share = rules.output / batch
    slots = float(group.slots if rules.is_pipelined else batch)
    both = Step(
        rules.chunks * chunk.layer + share * step.layer,
        rules.chunks * chunk.hop + share * step.hop,
    )
    stay = rules.output * group.num_layers * step.layer
    fixed = rules.output * step.hops(group.size if group.size > 1 else 0)
    if rules.is_pipelined and not rules.is_short:
        hop = chunk.hop if group.size > 1 else 0.0
        stay = stay + slots * group.num_layers * chunk.layer
        fixed += slots * chunk.hops(group.size - 1)
        fixed += slots * (rules.chunks - 1.0) * float(np.min(chunk.layer + hop))
    elif rules.is_pipelined:
        hop = chunk.hop if group.size > 1 else 0.0
        fixed += slots * rules.chunks * float(np.min(chunk.layer + hop))
    else:
        stay = stay + slots * rules.chunks * group.num_layers * chunk.layer
        fixed += slots * rules.chunks * chunk.hops(group.size - 1)
    return Large(Role.MIXED, both.pooled(group), stay, fixed, slots, group.cache, group)
