"""One change of a problem each: a device more or less, a faster link, less of the model."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from e2llm_opt.advise.network import unused_name, with_device, without_device
from e2llm_opt.catalogue.catalogue import kv_cache_format_row
from e2llm_opt.catalogue.links import link_steps
from e2llm_opt.cost.costs import costs_of
from e2llm_opt.errors import InputError
from e2llm_opt.search.changes import lighter_weights
from e2llm_opt.search.phrases import number_text
from e2llm_opt.units import MBIT_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from e2llm_opt.advise.kinds import Kind
    from e2llm_opt.advise.network import Wire
    from e2llm_opt.catalogue.links import LinkStep
    from e2llm_opt.inventory.inventory import Inventory
    from e2llm_opt.inventory.link import Link
    from e2llm_opt.problem import Problem

KINDS = ("add", "link", "format", "context", "retire")
"""What can be changed, in the words of ``--kinds``."""
_FEW_FORMATS = 2
"""Weight formats that are tried, the next smaller ones."""
_KV_CACHE = "q8_0"
_HIGHEST = 1.01
"""A link is faster than another one from this ratio on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A problem that is like the one asked, but for one thing.

    Parameters
    ----------
    kind
        Of :data:`KINDS`.
    text
        What is done, for people.
    problem
        With the change.
    price, power_w
        What it costs [USD, W]; negative where it saves; None where unknown, or not in money.
    gives_up
        What is worse then, for people; empty where nothing is.
    """

    kind: str
    text: str
    problem: Problem
    price: float | None = None
    power_w: float | None = None
    gives_up: str = ""


def addition(problem: Problem, kind: Kind, wire: Wire) -> Change:
    """Return *problem* with one device of *kind* more."""
    name = unused_name(problem.inventory, kind.name)
    device = replace(kind.device, name=name, host=name)
    return Change(
        kind="add",
        text=f"add {kind.name}",
        problem=replace(problem, inventory=with_device(problem.inventory, device, wire)),
        price=kind.price,
        power_w=kind.power_w,
    )


def upgrades(problem: Problem, carrying: Collection[int]) -> Iterator[Change]:
    """Yield links made as fast as the next kind of Ethernet: all alike together, then one by one.

    Alone only those that carry something in the plan, by their index; of several between devices
    of the same classes one stands for all.
    """
    links = problem.inventory.links
    alike: dict[tuple[float, float, float, bool], list[int]] = {}
    for index, link in enumerate(links):
        ends = {problem.inventory.endpoint(end) for end in link.ends}
        if len(ends) > 1:
            speeds = (link.forward_bytes_per_s, link.backward_bytes_per_s)
            key = (*speeds, link.latency_s, link.is_half_duplex)
            alike.setdefault(key, []).append(index)
    for key, indices in alike.items():
        step = _next(max(key[:2]))
        if step is None:
            continue
        yield _upgrade(problem, indices, step)
        seen: set[tuple[object, ...]] = set()
        for index in indices if len(indices) > 1 else ():
            like = _place(problem, links[index])
            if index in carrying and like not in seen:
                seen.add(like)
                yield _upgrade(problem, [index], step)


def _next(bytes_per_s: float) -> LinkStep | None:
    """Return the slowest kind of Ethernet that is faster; None where there is none."""
    faster = (
        step for step in link_steps() if step.goodput_mbit_s * MBIT_PER_S > _HIGHEST * bytes_per_s
    )
    return next(faster, None)


def _place(problem: Problem, link: Link) -> tuple[object, ...]:
    """Return what links have in common that lead from alike devices to the same ends."""
    classes = costs_of(problem).classes.class_of
    on_host: dict[str, list[int]] = {}
    for d, device in enumerate(problem.devices):
        on_host.setdefault(device.host, []).append(classes[d])
    ends = map(problem.inventory.endpoint, link.ends)
    return tuple(tuple(sorted(on_host[end])) if end in on_host else end for end in ends)


def _upgrade(problem: Problem, indices: Sequence[int], step: LinkStep) -> Change:
    inventory, speed = problem.inventory, step.goodput_mbit_s * MBIT_PER_S
    links = list(inventory.links)
    price = power_w = 0.0
    for index in indices:
        link = links[index]
        links[index] = replace(
            link,
            forward_bytes_per_s=max(speed, link.forward_bytes_per_s),
            backward_bytes_per_s=max(speed, link.backward_bytes_per_s),
            is_half_duplex=False,
        )
        for end in link.ends:
            is_host = inventory.endpoint(end) in inventory.hosts
            price += step.price_usd_host if is_host else step.price_usd_switch
            power_w += step.power_w_host if is_host else step.power_w_switch
    return Change(
        kind="link",
        text=f"{_named(inventory, indices)}: {number_text(step.nominal_mbit_s)} Mbit/s",
        problem=replace(problem, inventory=replace(inventory, links=tuple(links))),
        price=price,
        power_w=power_w,
    )


def _named(inventory: Inventory, indices: Sequence[int]) -> str:
    """Return the ends of a link, or what several have in common."""
    first = inventory.links[indices[0]]
    if len(indices) == 1:
        return f"link {first.ends[0]} - {first.ends[1]}"
    speed = min(first.forward_bytes_per_s, first.backward_bytes_per_s) / MBIT_PER_S
    shared = set.intersection(*({*inventory.links[index].ends} for index in indices))
    where = f" of {min(shared)}" if shared else ""
    return f"all {len(indices)} links{where} of {number_text(speed)} Mbit/s"


def formats(problem: Problem) -> Iterator[Change]:
    """Yield the next smaller weight formats of the engine's users, and a KV cache of q8_0."""
    for number, name in enumerate(lighter_weights(problem)):
        if number == _FEW_FORMATS:
            break
        changed = replace(problem, weights=name)
        yield Change(
            kind="format",
            text=f"weights: {name}",
            problem=changed,
            gives_up=f"{_bits(problem):.2f} -> {_bits(changed):.2f} bits a weight",
        )
    had = kv_cache_format_row(problem.kv_cache).kv_cache_bits
    has = kv_cache_format_row(_KV_CACHE).kv_cache_bits
    if had is not None and has is not None and has < had:
        yield Change(
            kind="format",
            text=f"kv_cache: {_KV_CACHE}",
            problem=replace(problem, kv_cache=_KV_CACHE),
            gives_up=f"{had:g} -> {has:g} bits a value of the KV cache",
        )


def _bits(problem: Problem) -> float:
    """Return the mean bits of a weight: bytes against those of the same model in bf16."""
    whole = replace(problem, weights="bf16").model.weight_bytes
    return 16.0 * problem.model.weight_bytes / whole


def contexts(problem: Problem) -> Iterator[Change]:
    """Yield half the context, where requests of mean length still fit into a slot."""
    workload = problem.workload
    half = workload.context_tokens // 2
    if half >= workload.prompt.mean + workload.output.mean:
        yield Change(
            kind="context",
            text=f"context_tokens: {half}",
            problem=replace(problem, workload=replace(workload, context_tokens=half)),
            gives_up=f"requests of {half + 1} to {workload.context_tokens} tokens",
        )


def retirements(
    problem: Problem, prices: Mapping[str, float | None]
) -> Iterator[Change | tuple[str, str]]:
    """Yield the problem without one device of each class; (device, why not) where it must stay.

    *prices* are those of catalogue types [USD].
    """
    classes = costs_of(problem).classes
    num = Counter(classes.class_of)
    done: set[int] = set()
    for d, device in enumerate(problem.inventory.devices):
        if classes.class_of[d] in done or len(problem.devices) == 1:
            continue
        done.add(classes.class_of[d])
        why = _needed(problem, device.name)
        if why:
            yield device.name, why
            continue
        like = num[classes.class_of[d]] - 1
        price = prices.get(device.type)
        yield Change(
            kind="retire",
            text=f"retire {device.name}" + (f" (as good as {like} more)" if like else ""),
            problem=_without(problem, device.name),
            price=None if price is None else -price,
            power_w=None if device.power_w is None else -device.power_w,
        )


def _needed(problem: Problem, name: str) -> str:
    """Return which constraint keeps a device; empty where none does."""
    constraints = problem.constraints
    if name in constraints.pinned:
        return f"constraints.pin: {constraints.pinned[name]} must have it"
    if name in constraints.fixed_layers:
        return "constraints.layers: it must hold layers"
    try:
        _without(problem, name)
    except InputError as error:  # every other device is excluded
        return str(error)
    return ""


def _without(problem: Problem, name: str) -> Problem:
    exclude = _others(problem.constraints.exclude, name)
    return replace(
        problem,
        inventory=without_device(problem.inventory, name),
        constraints=replace(problem.constraints, exclude=exclude),
    )


def _others(names: Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)
