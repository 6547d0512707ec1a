"""Links that a plan uses and that are less than they seem: shared both ways, or held back."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from e2llm_opt.cost.transfer import decode_loads, prefill_loads
from e2llm_opt.search.phrases import number_text
from e2llm_opt.units import MBIT_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2llm_opt.cost.costs import Costs
    from e2llm_opt.cost.transfer import KvTransfer
    from e2llm_opt.inventory.network import Path, Resource
    from e2llm_opt.search.evaluate import Outcome

FAR_BELOW = 4.0
"""A link is held back where the rest of a path is so many times slower."""


def link_cautions(costs: Costs, outcome: Outcome) -> Iterator[str]:
    """Yield warnings about the links that activations and KV caches cross."""
    shared = {
        int(name)
        for kind, name, direction in crossed(costs, outcome)
        if kind == "link" and direction == "both"
    }
    for index in sorted(shared):
        speed = costs.problem.inventory.links[index].forward_bytes_per_s
        yield (
            f"link {link_label(costs, index)} is half duplex: both directions share "
            f"{number_text(speed / MBIT_PER_S)} Mbit/s"
        )
    for index, most in sorted(_held_back(costs, outcome).items()):
        link = costs.problem.inventory.links[index]
        nominal = max(link.forward_bytes_per_s, link.backward_bytes_per_s)
        yield (
            f"link {link_label(costs, index)} is used for at most {number_text(most / MBIT_PER_S)} "
            f"of its {number_text(nominal / MBIT_PER_S)} Mbit/s: what lies behind it is slower"
        )


def resource_label(costs: Costs, resource: Resource) -> str:
    """Return ``link a - b (eth0) (forward)`` or ``network card a/eth0 (out)``."""
    kind, name, direction = resource
    if kind == "link":
        return f"link {link_label(costs, int(name))} ({direction})"
    if kind == "card":
        return f"network card {name.rstrip('/')} ({direction})"
    return f"the bus of {name}"


def link_label(costs: Costs, index: int) -> str:
    """Return a link's ends, and its interface where it has a name."""
    link = costs.problem.inventory.links[index]
    return " - ".join(link.ends) + (f" ({link.interface})" if link.interface else "")


def slowest_resource(costs: Costs, move: KvTransfer) -> Resource | None:
    """Return the link, card or bus that a KV transfer spends most time on; links before cards."""
    speeds = costs.network.capacity
    busy = {
        resource: num_bytes / speeds[resource]
        for resource, num_bytes in move.loads.items()
        if resource in speeds
    }
    if not busy:
        return next(iter(sorted(move.loads)), None)
    return max(busy, key=lambda resource: (busy[resource], resource[0] == "link", resource))


def crossed(costs: Costs, outcome: Outcome) -> set[Resource]:
    """Return the links and cards that carry activations or KV caches."""
    found: set[Resource] = set()
    for replica in outcome.replicas:
        found |= set(prefill_loads(costs, replica.cut))
        found |= set(decode_loads(costs, replica.cut, -(-replica.slots // replica.micro_batches)))
    for rate, move in outcome.traffic.routes.values():
        found |= set(move.loads) if rate > 0 else set()
    return found


def _held_back(costs: Costs, outcome: Outcome) -> dict[int, float]:
    """Links of the paths between stages, with the speed of the fastest path that uses them.

    Only those whose every path is much slower than they are [bytes/s].
    """
    most: dict[int, float] = {}
    for path in _paths(costs, outcome):
        for kind, name, _ in path.resources:
            if kind == "link":
                index = int(name)
                most[index] = max(most.get(index, 0.0), path.bandwidth_bytes_per_s)
    links = costs.problem.inventory.links
    return {
        index: speed
        for index, speed in most.items()
        if min(links[index].forward_bytes_per_s, links[index].backward_bytes_per_s)
        > FAR_BELOW * speed
    }


def _paths(costs: Costs, outcome: Outcome) -> Iterator[Path]:
    for replica in outcome.replicas:
        cut = replica.cut
        if len(cut) > 1:
            anchor = costs.anchor(cut[0][0], cut[-1][0])
            chunk = costs.forward_bytes(costs.prompt_tokens / costs.num_chunks)
            for here, there in pairwise(cut):
                yield from costs.legs(here[0], there[0], chunk, anchor)
